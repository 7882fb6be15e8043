"""A plugin that fails while it's imported."""

raise OSError("a library is missing\nfrom this machine")
