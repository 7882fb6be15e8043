"""Cases as text: ids, suite files and selection; the bytes and operations that a case needs."""
