"""The inputs of a case: drawn in float64, rounded to its dtype, the same bits on every machine."""
