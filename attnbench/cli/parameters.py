"""Types of option values: what is not known is refused with the nearest known word."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import click

from attnbench.cli.plugins_here import named_plugins
from attnbench.types.errors import BadCase
from attnbench.types.mask import Mask
from attnbench.types.words import unknown_name

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from attnbench.plugins.registry import Entry, Registry
    from attnbench.types.extensions import Suite


class OneOf(click.Choice[str]):
    """One of a few words, completed by the shell."""

    def __init__(self, kind: str, words: tuple[str, ...]) -> None:
        super().__init__(words)
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word itself."""
        if value not in self.choices:
            # Of two words the one that looks alike need not be the one that was meant: gpu isn't cpu.
            two = f"no {self.kind} {value!r}; there are {' and '.join(self.choices)}."
            known = unknown_name(self.kind, str(value), self.choices)
            self.fail(two if len(self.choices) == 2 else known, param, ctx)
        return str(value)


class Word(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """Any word; the shell completes those that are known beforehand."""

    name = "word"

    def __init__(self, known: tuple[str, ...]) -> None:
        self.known = known

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """The words that are known and begin so."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in self.known if word.startswith(incomplete)]


class MaskWord(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """A mask as ids write it."""

    name = "mask"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Mask:
        """The mask that the word means."""
        from attnbench.cases.ids import parse_mask

        if isinstance(value, Mask):
            return value
        try:
            return parse_mask(value)
        except BadCase as failure:
            self.fail(str(failure), param, ctx)


class _Number(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """A number that fits. needed: what is, for the message."""

    def __init__(
        self, name: str, needed: str, read: Callable[[Any], float], fits: Callable[[Any], bool]
    ) -> None:
        self.name = name
        self.needed = needed
        self.read = read
        self.fits = fits

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        number: float | None = None
        with contextlib.suppress(ValueError):
            number = self.read(value)
        if number is None or not self.fits(number):
            self.fail(f"{value!r}: {self.needed}", param, ctx)
        return number


class Positive(_Number):
    """A finite number above 0."""

    def __init__(self, unit: str) -> None:
        super().__init__(
            "number", f"a number of {unit} above 0 is needed", float, lambda n: 0 < n < float("inf")
        )


class Whole(_Number):
    """A whole number from ``least`` to ``most``, if there is a most."""

    def __init__(self, least: int, most: int | None = None) -> None:
        needed = f"a whole number of {least} {'or more' if most is None else f'to {most}'} is needed"
        super().__init__("integer", needed, int, lambda n: least <= n and (most is None or n <= most))


class Fraction(_Number):
    """A share between 0 and 1, as a fraction or in percent: 0.02 for both ``2%`` and ``0.02``."""

    def __init__(self) -> None:
        def read(value: Any) -> float:
            text = str(value).strip()
            return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)

        super().__init__(
            "share", "a share between 0 and 1 is needed, as 2% or 0.02", read, lambda n: 0 < n < 1
        )


class Probability(_Number):
    """A probability below 1; 0 counts."""

    def __init__(self) -> None:
        needed = "a probability of 0 or more and less than 1 is needed"
        super().__init__("probability", needed, float, lambda n: 0 <= n < 1)


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
    from attnbench.cases.ids import case_id

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
