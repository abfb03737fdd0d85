def write_comparison_with_paper(results, folder):
    return None
