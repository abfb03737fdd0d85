"""What the README and the docs claim, measured again."""
