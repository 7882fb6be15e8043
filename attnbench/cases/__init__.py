"""Cases as words: their ids, files of them, choosing them, and how large and how much work they are."""
