"""Checking a machine before measuring on it: what would disturb a verdict, how much, and what helps."""
