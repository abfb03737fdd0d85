"""COMPASS-ABS: a GPU-cluster scheduler that keeps fragmentation from making training jobs wait."""

__version__ = "0.1.0"
