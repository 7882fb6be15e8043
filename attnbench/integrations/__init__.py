"""Other libraries that can use a choice."""
