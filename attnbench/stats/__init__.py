"""Statistics: pure functions of stored samples."""
