"""Detent: a distributed job scheduler on PostgreSQL."""

__version__ = "0.1.0"
