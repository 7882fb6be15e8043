"""Read, write and merge the files of results: run files and files of pytest-benchmark."""
