"""Measuring the time and memory of calls, inside the process that makes them."""
