"""Names that plugins bring, as values of options: any word is taken, the shell completes the known ones."""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING, Any, Literal

import click

from attnbench.cli.plugins_here import named_plugins

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from attnbench.plugins.registry import Registry

Kind = Literal["rules", "backends", "suites"]


class NameOf(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """The name of a rule, a backend or a suite; what isn't one is refused by the command, with the nearest.

    files: the word may be a file as well, which the shell completes as it does elsewhere.
    """

    name = "name"

    def __init__(self, kind: Kind, *, files: bool = False) -> None:
        self.kind = kind
        self.files = files

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names that begin so, and nothing where plugins can't be loaded."""
        from click.shell_completion import CompletionItem

        # First, since bash is told by it to fall back on files where no name fits.
        found = [CompletionItem(incomplete, type="file")] if self.files else []
        names: dict[str, Any] = getattr(_loaded(ctx), self.kind, {})
        return found + [
            CompletionItem(name, help=_summary(entry.record))
            for name, entry in names.items()
            if name.startswith(incomplete)
        ]


def _loaded(ctx: click.Context) -> Registry | None:
    """All plugins, those that the line names too; a shell that completes is told of no fault."""
    from attnbench.plugins.registry import load_wanted

    for words in (named_plugins(ctx), ()):
        with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(Exception):
            return load_wanted(words)
    return None


def _summary(record: Any) -> str:
    text: str = getattr(record, "summary", "") or getattr(record, "formula", "")
    return text
