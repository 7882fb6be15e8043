"""Records to what people and programs read: frames, tables, JSON, CSV, Markdown, an exit code."""
