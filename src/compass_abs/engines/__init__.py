"""What really starts and stops processes, each behind `engines/protocol.py`."""
