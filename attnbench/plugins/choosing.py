"""Which installed plugins a user wants, said by the environment. Imports next to nothing: --help asks too."""

from __future__ import annotations

import os
from collections.abc import Collection

CHOSEN = "ATTNBENCH_LOAD_PLUGINS"
"""The variable of the environment that says which installed plugins are loaded; see :func:`chosen_words`."""


def chosen_words() -> list[str] | None:
    """The words of ``ATTNBENCH_LOAD_PLUGINS``, separated by commas; None where it isn't set.

    Each is the name of a distribution or of an entry point. Without the variable all plugins are wanted, with
    an empty one none; attnbench's own always are.
    """
    wanted = os.environ.get(CHOSEN)
    return None if wanted is None else [word.strip() for word in wanted.split(",") if word.strip()]


def is_chosen(distribution: str, name: str, words: Collection[str] | None) -> bool:
    """Whether a plugin is wanted, by its distribution and the name of its entry point."""
    return words is None or distribution == "attnbench" or bool({distribution, name} & {*words})
