"""Comparisons of two sides: stored runs, live runs, their environments, and the gate."""
