"""Other schedulers, each in an environment of its own, on the same server."""
