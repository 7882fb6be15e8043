"""Rules worked step by step on small inputs, and compared by how they behave."""
