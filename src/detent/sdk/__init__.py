"""What users import. `from detent import task, Client` is the short way."""
