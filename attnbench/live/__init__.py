"""Two environments measured against each other: commits in worktrees, or interpreters."""
