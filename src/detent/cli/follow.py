"""Shows an execution's output as it is written."""
