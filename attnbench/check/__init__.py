"""Comparing the outputs of backends with exact answers, and judging the errors."""
