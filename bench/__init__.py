"""Measurements of Detent on a database of its own. `python -m bench --help`."""
