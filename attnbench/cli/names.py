"""Names that plugins bring, as values of options: any word is taken, the shell completes the known ones."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import click

from attnbench.cli.plugins_here import named_plugins

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from attnbench.plugins.registry import Entry, Registry
    from attnbench.types.suite import Suite

Kind = Literal["rules", "backends", "suites"]


class NameOf(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """The name of a rule, a backend or a suite; what isn't one is refused by the command, with the nearest.

    cases: the word may be the id of a case or a file as well. The shell completes the ids that suites have,
    and files as it does elsewhere.
    """

    name = "name"

    def __init__(self, kind: Kind, *, cases: bool = False) -> None:
        self.kind = kind
        self.cases = cases

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names that begin so, and nothing where plugins can't be loaded."""
        from click.shell_completion import CompletionItem

        # First, since bash is told by it to fall back on files where no name fits.
        found = [CompletionItem(incomplete, type="file")] if self.cases else []
        names: dict[str, Any] = getattr(_loaded(ctx), self.kind, {})
        found += [
            CompletionItem(name, help=_summary(entry.record))
            for name, entry in names.items()
            if name.startswith(incomplete)
        ]
        # Hundreds, which would bury the names where nothing is typed yet.
        if self.cases and incomplete:
            found += [CompletionItem(text) for text in _ids(names.values()) if text.startswith(incomplete)]
        return found


class ExampleName(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """The name of an example of attnbench explain; what isn't one is refused by the command."""

    name = "name"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names that begin so."""
        from click.shell_completion import CompletionItem

        from attnbench.worked.examples import EXAMPLES

        return [
            CompletionItem(example.name, help=f"{example.rule}: {example.summary}")
            for example in EXAMPLES.values()
            if example.name.startswith(incomplete)
        ]


def _ids(suites: Iterable[Entry[Suite]]) -> list[str]:
    """Of all cases, each once."""
    from attnbench.cases.identity import case_id

    return list(dict.fromkeys(case_id(case) for entry in suites for case in entry.record.cases))


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
