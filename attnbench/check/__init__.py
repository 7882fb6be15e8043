"""Comparing what a backend computed with what the oracle says, and the verdict on it."""
