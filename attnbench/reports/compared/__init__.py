"""A comparison of two sides as a table, JSON, CSV or Markdown."""
