"""Values of options: what is wrong is refused with what is allowed, and the shell completes names."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import click

from attnbench.types.batch import batch_text, parse_batch
from attnbench.types.errors import BadCase
from attnbench.types.mask import Mask, parse_mask
from attnbench.types.words import FORMATS, share_of, unknown_name

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from attnbench.plugins.registry import Registry

_NAMED = "attnbench.plugins"


def _name(ctx: click.Context, param: click.Parameter, words: tuple[str, ...]) -> None:
    ctx.meta.setdefault(_NAMED, []).extend(words)


plugin_option = click.option(
    "--plugin", "-p", multiple=True, metavar="FILE.py|MODULE", expose_value=False, callback=_name,
    help="Also load this plugin: a file or an importable module. Repeatable.",
)  # fmt: skip


def named_plugins(ctx: click.Context | None = None) -> tuple[str, ...]:
    """Return the files and modules that --plugin names, in this command line or that of a context."""
    return tuple((ctx or click.get_current_context()).meta.get(_NAMED, ()))


def load_plugins() -> Registry:
    """Load all plugins; print one line on stderr for each fault.

    Raises:
        BadInput: a plugin that --plugin names can't be used.
    """
    from attnbench.plugins.registry import load_and_tell
    from attnbench.reports.columns import taken

    return load_and_tell(named_plugins(), taken)


class OneOf(click.Choice[str]):
    """One of a few words, completed by the shell. nicknames: other words for some of them."""

    def __init__(self, kind: str, words: tuple[str, ...], nicknames: Mapping[str, str] | None = None) -> None:
        super().__init__(words)
        self.kind = kind
        self.nicknames = nicknames or {}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word itself, also for a nickname."""
        value = self.nicknames.get(value, value)
        if value not in self.choices:
            # With two allowed words, name both: the similar one may not be meant, as cpu for gpu.
            two = f"no {self.kind} {value!r}; there are {' and '.join(self.choices)}."
            known = unknown_name(self.kind, str(value), self.choices)
            self.fail(two if len(self.choices) == 2 else known, param, ctx)
        return str(value)


class MaskOption(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """A mask as ids write it."""

    name = "mask"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Mask:
        """Return the mask that the word means."""
        try:
            return value if isinstance(value, Mask) else parse_mask(value)
        except BadCase as failure:
            self.fail(str(failure), param, ctx)


class BatchOption(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """Sequences of unlike lengths as ids write them."""

    name = "batch"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the canonical word of the batch."""
        try:
            return batch_text(parse_batch(value))
        except BadCase as failure:
            self.fail(str(failure), param, ctx)


class _Number(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """A number in a range. allowed: the range in words."""

    name = "number"

    def __init__(
        self, allowed: str, fits: Callable[[Any], bool], read: Callable[[Any], float] = float
    ) -> None:
        self.allowed = allowed
        self.fits = fits
        self.read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number: float | None = None
        with contextlib.suppress(ValueError):
            number = self.read(value)
        if number is None or not self.fits(number):
            self.fail(f"{value!r}: give {self.allowed}", param, ctx)
        return number


class Positive(_Number):
    """A finite number above 0, up to ``most``. unit: for the message."""

    def __init__(self, unit: str = "", most: float | None = None) -> None:
        of_unit = f" of {unit}" if unit else ""
        up_to = "" if most is None else f", up to {most:g}"
        fits = (lambda n: 0 < n < float("inf")) if most is None else (lambda n: 0 < n <= most)
        super().__init__(f"a number{of_unit} above 0{up_to}", fits)


class Whole(_Number):
    """A whole number from ``least`` to ``most``, if there is a most."""

    def __init__(self, least: int, most: int | None = None) -> None:
        span = f"{least} or more" if most is None else f"from {least} to {most}"
        super().__init__(f"a whole number, {span}", lambda n: least <= n <= (most or n), int)


class Several(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """Values with commas between them, or none. read: raises ValueError. example: of such values."""

    name = "list"

    def __init__(self, read: Callable[[str], Any], example: str, none: str = ", or none") -> None:
        self.read = read
        self.example = example
        self.none = none

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the values."""
        if value == "none" and self.none:
            return ()
        try:
            return tuple(self.read(word.strip()) for word in value.split(","))
        except ValueError:
            self.fail(f"{value!r}: give numbers as in {self.example}{self.none}", param, ctx)


def _count(word: str) -> int:
    number = int(word)
    if number < 1:
        raise ValueError
    return number


THREADS = Several(_count, "1,2", none="")

seed_option = click.option(
    "--seed", type=Whole(0), default=0, show_default=True, metavar="N", help="Seed of random numbers."
)


SHARE = _Number("a share between 0 and 1, as 2% or 0.02", lambda n: 0 < n < 1, share_of)
PROBABILITY = _Number("a probability from 0 to less than 1", lambda n: 0 <= n < 1)
ALLOCATOR = OneOf("allocator", ("keep", "default"))


class Name(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """A name that the command looks up. The shell completes those that are known.

    known: names with summaries, for a context and the beginning of a word. files: a file will do too.
    """

    name = "name"

    def __init__(self, known: Callable[[click.Context, str], Mapping[str, str]], files: bool = False) -> None:
        self.known = known
        self.files = files

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin so."""
        from click.shell_completion import CompletionItem

        # First, since it tells bash to fall back on files where no name fits.
        found = [CompletionItem(incomplete, type="file")] if self.files else []
        for name, text in self.known(ctx, incomplete).items():
            if name.startswith(incomplete):
                found.append(CompletionItem(name, help=text))
        return found


def _registered(
    kind: Literal["rules", "backends", "storages", "encodings", "suites"], ctx: click.Context, incomplete: str
) -> dict[str, str]:
    """Return what plugins bring of a kind, with the ids of cases where a word for suites has begun."""
    from attnbench.cases.ids import case_id
    from attnbench.plugins.registry import load_wanted

    for words in (named_plugins(ctx), ()):
        # A shell that completes shows no faults.
        with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(Exception):
            entries = getattr(load_wanted(words), kind)
            records = {name: entry.record for name, entry in entries.items()}
            names = {n: getattr(r, "summary", "") or getattr(r, "formula", "") for n, r in records.items()}
            if kind == "suites" and incomplete:
                names |= {case_id(case): "" for suite in records.values() for case in suite.cases}
            return names
    return {}


def _topics(ctx: click.Context, incomplete: str) -> dict[str, str]:
    from attnbench.explained.lessons import LESSONS

    lessons = {name: summary for name, (summary, _) in LESSONS.items()}
    return _registered("rules", ctx, incomplete) | _examples(ctx, incomplete) | lessons


def _examples(ctx: click.Context, incomplete: str) -> dict[str, str]:
    from attnbench.explained.examples import EXAMPLES

    return {name: f"{example.rule}: {example.summary}" for name, example in EXAMPLES.items()}


RULE = Name(partial(_registered, "rules"))
BACKEND = Name(partial(_registered, "backends"))
STORAGE = Name(partial(_registered, "storages"))
ENCODING = Name(partial(_registered, "encodings"))
CASES = Name(partial(_registered, "suites"), files=True)
"""The name of a suite, the id of a case, or a file of a suite."""
EXAMPLE = Name(_examples)
TOPIC = Name(_topics)
FORMAT = Name(lambda *_: dict.fromkeys(FORMATS, ""))
"""One of our formats, or one that a plugin brings."""
