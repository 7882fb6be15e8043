"""Turn records into tables, frames, JSON, CSV, Markdown, a page and an exit status."""
