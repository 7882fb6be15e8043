"""Two environments measured against each other: commits, or interpreters."""
