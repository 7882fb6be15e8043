"""The verifier's process: makes inputs, solves them in float64, compares outputs. It imports no torch."""
