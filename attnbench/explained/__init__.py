"""Rules explained step by step on small inputs, and compared by their behaviour."""
