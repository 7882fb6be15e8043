"""Inputs of a case: drawn in float64, rounded to the case's dtype, the same bits on every machine."""
