"""A complete package for a new plugin: its names, its files, how they're written."""
