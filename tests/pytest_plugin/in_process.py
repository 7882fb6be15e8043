from __future__ import annotations

import pytest


class InProcess:
    """Run a session with some arguments; warnings are errors."""

    def __init__(self, pytester: pytest.Pytester, plugin_words: list[str]) -> None:
        self.pytester = pytester
        self._words = [*plugin_words, "-p", "no:xdist", "-p", "no:cacheprovider", "-rs", "--strict-markers"]
        # pytest-benchmark warns if there is nothing to store.
        self._words += ["-W", "error", "-W", "ignore:Not saving anything"]

    def __call__(self, *words: str) -> pytest.RunResult:
        return self.pytester.runpytest_inprocess(*self._words, *words)
