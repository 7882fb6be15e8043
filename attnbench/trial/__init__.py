"""One question to a backend: a case with a way of calling, judged in this process, and made smaller."""
