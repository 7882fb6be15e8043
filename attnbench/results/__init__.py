"""The files of results: their format, reading, writing, merging, and that of pytest-benchmark."""
