"""The answer over several cases: what and where, a sentence, failures, the two tables, and details."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from attnbench.cases.ids import parse_case
from attnbench.cases.suites import TORCHS
from attnbench.reports.answer import (
    ABSENT,
    FASTEST,
    MOST_IN_MATRIX,
    NOT_ASKED,
    TIED,
    Grid,
    backends_grid,
    busy_text,
    case_list,
    cases_grid,
    mean_words,
    numbered,
    standings_grid,
    steps_words,
    totals_grids,
)
from attnbench.reports.caches import cache_words, caches_grid
from attnbench.reports.columns import KIND, UNCERTAIN
from attnbench.reports.formats import bare_table
from attnbench.reports.judged import JudgedRecord, ReportPart
from attnbench.reports.names import shared_words, short_names
from attnbench.reports.sentences import failed_words, use_sentences
from attnbench.stats.answer import RunAnswer, extra_bytes, is_failure
from attnbench.stats.tests import LEVEL, fewest_repetitions
from attnbench.types.device import UNKNOWN
from attnbench.types.record import Record
from attnbench.types.status import MEANING, STATUSES, Status, status_words
from attnbench.types.words import capital, count_of

if TYPE_CHECKING:
    from rich.console import Console

_What = TypeVar("_What")

FEW_REPETITIONS = (
    f"few repetitions: small leads need {fewest_repetitions(LEVEL)}, see --repetitions and --budget"
)
HOT_DECODE = "decode had its keys and values in the caches; a model has them in memory: use --cache rotating"
KEPT_MEMORY = (
    "a backend to use takes over 1 MiB a call more than torch's function; workers keep it, a program gives it"
    " back: use --allocator default"
)
_NUMBER = re.compile(r"(?<![a-z_\d.])\d+(?:\.\d+)?")
"""A number, but not that of a word, as in q8_0 or float16."""
SLOW = 2
"""From so many times as long on a time is red."""
_MARK_STYLES = {FASTEST: "bold green", TIED: "green", ABSENT: "dim", NOT_ASKED: "dim", "": ""}


def counted(records: Sequence[Record]) -> str:
    """Count the cases, and the records of each status."""
    counts = Counter(record.status for record in records)
    said = ", ".join(f"{counts[status]} {status_words(status)}" for status in STATUSES if counts[status])
    return f"{count_of(len({record.case for record in records}), 'case')}: {said or 'no records'}"


@dataclass(frozen=True)
class Line:
    """A line of the answer. style: as rich names it; a bold line is a heading."""

    text: str
    style: str = "dim"


def answer_blocks(
    parts: Sequence[ReportPart], width: int = 1000, *, details: bool = False
) -> Iterator[Line | Grid]:
    """Yield the answer of a report: lines and tables, for a terminal or Markdown.

    First what was measured and where, then the answer in a sentence, failures, and two tables. The cases of
    all kinds of device stand in one table; then each kind has a part of its own. details: with intervals,
    means, and why backends did not run.
    """
    several, cases = len(parts) > 1, cases_grid(parts, width, details=details)
    records = [one.record for part in parts for one in part.judged]
    shown = short_names(record.case for record in records)
    yield _first_line(parts)
    if several and cases.rows:
        yield cases
    for part, answer, numbers in numbered(parts):
        records = [one.record for one in part.judged]
        if several:
            yield Line(part_head(part), "bold")
        names = {case: shown[case] for case in numbers}
        yield from _sentences(part, answer, names, numbers, details=details)
        if not several and cases.rows:
            yield cases
        backends = backends_grid(part, answer, numbers)
        if backends is None:
            yield Line(f"more than {MOST_IN_MATRIX:,} cases: --csv and --html have the ratio in each")
        elif answer.leads or details:
            yield backends
        if answer.leads and (details or backends is None):
            yield standings_grid(answer)
            yield Line(mean_words(answer, numbers))
        if details:
            yield from _absent(records, numbers)
            if part.not_asked:
                yield Line(f"not asked, because others were named: {', '.join(part.not_asked)}")
        if any(lead.sure == "few repetitions" for lead in answer.leads):
            yield Line(FEW_REPETITIONS)
        if caches := caches_grid(part.caches, answer, width, details=details):
            yield caches
        yield from end_blocks(part, answer, numbers, details=details)


def brief_lines(parts: Sequence[ReportPart]) -> Iterator[Line]:
    """Yield the sentences of an answer without its tables; of a live comparison its statuses."""
    shown = short_names(one.record.case for part in parts for one in part.judged)
    yield _first_line(parts)
    for part, answer, numbers in numbered(parts):
        if len(parts) > 1:
            yield Line(part_head(part), "bold")
        names = {case: shown[case] for case in numbers}
        # A reader who sees no table knows a case by its name.
        yield from _sentences(part, answer, names, names, details=False)
    if all(part.answer is None for part in parts):
        yield Line(counted([one.record for part in parts for one in part.judged]))


def _first_line(parts: Sequence[ReportPart]) -> Line:
    """Say what was measured, and where."""
    where = f"{len(parts)} kinds of device" if len(parts) > 1 else place_words(parts[0])
    what = what_words([one.record for part in parts for one in part.judged])
    return Line(f"{what}{f' on {where}' if where else ''}", "")


def _sentences(
    part: ReportPart,
    answer: RunAnswer,
    names: Mapping[str, str],
    numbers: Mapping[str, int | str],
    *,
    details: bool,
) -> Iterator[Line]:
    """Yield what to use, how sure that is, and what fails. numbers: what stands for each case in a step."""
    yield from use_lines(part, answer, names)
    yield from busy_lines(answer)
    yield from (Line(words, "") for words in steps_words(answer, numbers, part.suites, part.asked))
    yield from (Line(words, "") for words in cache_words(part.caches))
    yield from _failures([one.record for one in part.judged], names, details=details)


def use_lines(part: ReportPart, answer: RunAnswer, names: Mapping[str, str]) -> list[Line]:
    """Say how many outputs are correct, and which backends to use; of several suites in a line for each."""
    checked = checked_words([one.record for one in part.judged])
    told = [f"{words}." for _, words in use_sentences(answer, names, part.suites, part.asked)]
    if not part.suites:
        return [Line(" ".join([checked, *map(capital, told)]), "")]
    return [Line(words, "") for words in (checked, *told)]


def what_words(records: Sequence[Record]) -> str:
    """Count the cases, and say what they share; a single case is its id."""
    cases = dict.fromkeys(record.case for record in records)
    if len(cases) == 1:
        return next(iter(cases))
    shared = shared_words(cases)
    return count_of(len(cases), "case") + (f" ({shared})" if shared else "")


def place_words(part: ReportPart) -> str:
    """Return where a part was measured."""
    known = ("" if part.kind == UNKNOWN else part.kind, part.torch and f"torch {part.torch}")
    return ", ".join(filter(None, known))


def checked_words(records: Sequence[Record]) -> str:
    """Say how many outputs are correct, and of how many of them the time is not credible.

    Sentences of their own name the others.
    """
    counts = Counter(record.status for record in records if not MEANING[record.status].declined)
    doubted = counts.pop("suspect", 0)
    right, total = counts["ok"] + doubted, counts.total() + doubted
    if not total:
        return "No output was checked."
    doubt = f"; of {doubted} the time is not credible: measure again" if doubted else ""
    if right < total:
        return f"{right:,} of {count_of(total, 'output')} correct{doubt}."
    return f"{count_of(total, 'output')} checked, all correct{doubt}."


def print_blocks(console: Console, blocks: Iterable[Line | Grid]) -> set[str]:
    """Print lines and tables, an empty line before each table and heading; return the heads of the tables."""
    from rich.text import Text

    heads: set[str] = set()
    for block in blocks:
        if isinstance(block, Grid):
            heads.update(block.heads)
            console.print()
            if block.above:
                console.print(Text(block.above, style="dim"))
            for each in _fitting(block, console.width):
                print_grid(console, each)
        else:
            if block.style == "bold":
                console.print()
            console.print(Text(block.text, style=block.style))
    return heads


def part_head(part: ReportPart) -> str:
    """Return the kind of device of a part, with its runs, and how much of them other runs replace."""
    again = f"; {count_of(part.again, 'other measurement')} of its cases left out" if part.again else ""
    torch = f", torch {part.torch}" if part.torch else ""
    return f"{part.kind}: {count_of(len(part.runs), 'run')}{again}{torch}"


def end_blocks(
    part: ReportPart, answer: RunAnswer, numbers: Mapping[str, int], *, details: bool
) -> Iterator[Line | Grid]:
    """Yield what all counted calls take, where they were counted, and how a decode found its inputs."""
    yield from totals_grids(answer, numbers, details=details)
    for words in filter(None, (hot_words(part), kept_words(part))):
        yield Line(words, "yellow")


def busy_lines(answer: RunAnswer) -> Iterator[Line]:
    """Yield that other processes disturbed the run, if they did: it stands beside the sentence it weakens."""
    if busy := busy_text(answer):
        yield Line(busy, "yellow")


def hot_words(part: ReportPart) -> str:
    """Say that a decode read its keys and values in the caches, where a program would not; "" else.

    Of several suites the first with such a decode is named.
    """
    for record in timed(part.judged):
        case = parse_case(record.case)
        fits = case.B * case.Hkv * case.Lk * (case.D + case.Dv) * case.item_bytes <= part.cache_bytes
        if fits and case.is_decode and case.cache == "hot":
            suite = part.suites.get(record.case)
            return f"{suite}: {HOT_DECODE}" if suite else HOT_DECODE
    return ""


def kept_words(part: ReportPart) -> str:
    """Say that in a step of a model the time to use rests on memory that workers keep; "" else."""
    if part.answer is None or not part.answer.totals or not part.keeps_memory:
        return ""
    by_name = {(record.case, record.backend): record for record in timed(part.judged)}
    for case, name in part.answer.chosen.items():
        use, torchs = by_name.get((case, name)), by_name.get((case, TORCHS))
        if use is not None and torchs is not None and extra_bytes(use, torchs) and parse_case(case).on_host:
            return KEPT_MEMORY
    return ""


def asked_words(parts: Iterable[ReportPart]) -> str:
    """Say how many of the installed backends were asked, where others were left out by name; "" else."""
    parts = list(parts)
    asked, installed = asked_counts(
        (one.record for part in parts for one in part.judged),
        (name for part in parts for name in part.not_asked),
    )
    return f"{asked} of {installed} backends asked" if asked < installed else ""


def asked_counts(records: Iterable[Record], not_asked: Iterable[str]) -> tuple[int, int]:
    """Return how many backends were asked, and how many with those that others' names left out."""
    asked = {record.backend for record in records}
    return len(asked), len(asked.union(not_asked))


def timed(judged: Sequence[JudgedRecord]) -> list[Record]:
    """Return the records with a time."""
    return [one.record for one in judged if one.record.status == "ok" and one.record.median_ms is not None]


def no_ratios(judged: Sequence[JudgedRecord]) -> list[str]:
    """Say why there are no ratios, in a list that is empty where there are some."""
    records = timed(judged)
    if not records or any(record.ratio is not None for record in records):
        return []
    baseline = records[0].baseline
    if any(one.record.backend == baseline and MEANING[one.record.status].declined for one in judged):
        return [f"no ratios to {baseline}, which does not run here: --baseline takes another"]
    return [f"no ratios: the baseline {baseline} has no time; run it too"]


def _fitting(grid: Grid, width: int) -> Iterator[Grid]:
    """Divide a grid of too many cases; each part begins with the same columns."""
    first = len([head for head in grid.heads if not head.isdecimal()])
    columns = list(zip(grid.heads, *grid.rows, strict=True))
    widths = [max(map(len, column)) + 1 for column in columns]
    least = sum(widths[:first])
    count = len(columns) - first
    if not count:
        yield grid
        return
    each = max(1, (width - least + 1) // max(widths[first:]))
    if least + sum(widths[first:]) <= width + 1:
        each = count
    each = -(-count // -(-count // each))
    for start in range(first, len(columns), each):
        heads, *rows = zip(*columns[:first], *columns[start : start + each], strict=True)
        # A backend that runs none of these cases has no row among them.
        kept = tuple(row for row in rows if not set(row[first:]) <= {ABSENT, NOT_ASKED})
        yield replace(grid, heads=heads, rows=kept)


def print_grid(console: Console, grid: Grid) -> None:
    """Print a table of text."""
    from rich.text import Text

    block = bare_table(grid.gap)
    for head in grid.heads:
        right, folds = head in grid.right, head in ("case", KIND)
        block.add_column(head, justify="right" if right else "left", overflow="fold", no_wrap=not folds)
    for row in grid.rows:
        marked = (head in grid.marked for head in grid.heads)
        styles = (_style(cell) if mark else "" for mark, cell in zip(marked, row, strict=True))
        block.add_row(*map(Text, row, styles))
    console.print(block)


def _style(cell: str) -> str:
    """The colour of a time over that of the fastest, or of a failure."""
    ratio = cell.partition(" ")[0]
    if ratio in _MARK_STYLES:
        return _MARK_STYLES[ratio]
    return "red" if not _NUMBER.fullmatch(ratio) or is_slow(cell) else ""


def is_slow(cell: str) -> bool:
    """Return whether a time over that of the fastest is red.

    The number that is shown decides, so cells that read alike look alike.
    """
    shown = cell.partition(" ")[0].rstrip(UNCERTAIN)
    return _NUMBER.fullmatch(shown) is not None and float(shown) >= SLOW


def _failures(records: Sequence[Record], names: Mapping[str, str], *, details: bool) -> Iterator[Line]:
    """Yield each failure of a backend once for the run, with all its reasons or the first.

    Backends that failed alike share a line.
    """
    failed: dict[tuple[Status, str], dict[str, list[str]]] = {}
    for record, reason in zip(records, told_reasons(records), strict=True):
        if is_failure(record):
            reasons = failed.setdefault((record.status, record.backend), {})
            reasons.setdefault(reason, []).append(names[record.case])
    alike: dict[tuple[Status, tuple[str, ...], str], list[str]] = {}
    for (status, backend), reasons in failed.items():
        if not details and len(reasons) > 1:
            first, *_ = reasons
            every = [case for where in reasons.values() for case in where]
            reasons = {f"{first} (in {reasons[first][0]}; others: --details)": every}
        for reason, where in reasons.items():
            alike.setdefault((status, tuple(where), reason), []).append(backend)
    for (status, cases, reason), backends in alike.items():
        yield Line(f"{failed_words(status, backends, cases, len(names))}: {reason}", MEANING[status].style)


def absent_words(records: Sequence[Record]) -> list[str]:
    """Say which backends do not run, in some cases or in all: each reason once, with their names."""
    declined = [record for record in records if MEANING[record.status].declined]
    pairs = zip(told_reasons(declined), (record.backend for record in declined), strict=True)
    return [f"{names} ({why})" for why, names in gathered(pairs)]


def _absent(records: Sequence[Record], numbers: Mapping[str, int]) -> Iterator[Line]:
    """Yield each reason why backends do not run, once for the run."""
    ran = {record.backend for record in records if not MEANING[record.status].declined}
    declined = [record for record in records if MEANING[record.status].declined]
    nowhere = [record for record in declined if record.backend not in ran]
    pairs = zip(told_reasons(nowhere), (record.backend for record in nowhere), strict=True)
    sentences = [f"{names} ({why})" for why, names in gathered(pairs)]
    if sentences:
        yield Line(f"not run: {'; '.join(sentences)}")
    yield from map(Line, _not_everywhere([one for one in declined if one.backend in ran], numbers))


def _cases_text(numbers: Sequence[int]) -> str:
    return f"case{'s' if len(numbers) > 1 else ''} {case_list(numbers)}"


def _not_everywhere(records: Sequence[Record], numbers: Mapping[str, int]) -> list[str]:
    """Say in which cases backends do not run, and why: a line for the same cases and reason."""
    places: dict[tuple[str, str], list[int]] = {}
    for reason, record in zip(told_reasons(records), records, strict=True):
        places.setdefault((reason, record.backend), []).append(numbers[record.case])
    alike = gathered(((_cases_text(cases), reason), name) for (reason, name), cases in places.items())
    return [f"not in {cases}: {names} ({why})" for (cases, why), names in alike]


def told_reasons(records: Sequence[Record]) -> list[str]:
    """Return the reasons of records, without names of rules where they differ in those.

    Of failures that differ in numbers alone the first is told. A failure is the backend's own, so it is not
    told with another backend's numbers. Other reasons have the least and the greatest of their numbers.
    """
    masked = [re.sub(rf"\b{re.escape(record.rule)}\b", "this rule", record.reason) for record in records]
    keys = [
        ("", _NUMBER.sub("0", mask))
        if MEANING[record.status].declined
        else (record.backend, re.sub(r"-?\d[\d.]*", "0", mask))
        for record, mask in zip(records, masked, strict=True)
    ]
    alike: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for key, record, mask in zip(keys, records, masked, strict=True):
        alike.setdefault(key, []).append((record.rule, record.reason, mask))
    told = {}
    for key, those in alike.items():
        rules, reasons, masks = zip(*those, strict=True)
        words = masks if len(set(rules)) > 1 else reasons
        told[key] = words[0] if key[0] else _with_ranges(words)
    return [told[key] for key in keys]


def _with_ranges(texts: Sequence[str]) -> str:
    """Merge texts that differ in numbers alone: "3.0 to 6.2 GiB"."""
    numbers = zip(*(_NUMBER.findall(text) for text in texts), strict=True)
    spans = ((min(those, key=float), max(those, key=float)) for those in numbers)
    words = (least if float(least) == float(most) else f"{least} to {most}" for least, most in spans)
    return _NUMBER.sub(lambda _: next(words), texts[0])


def gathered_notes(notes: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """List each text once, with the names that belong to it.

    Texts that differ in numbers alone are one, with the least and the greatest of each.
    """
    alike: dict[str, list[str]] = {}
    for text, _ in notes:
        alike.setdefault(_NUMBER.sub("0", text), []).append(text)
    told = {masked: _with_ranges(texts) for masked, texts in alike.items()}
    return gathered((told[_NUMBER.sub("0", text)], name) for text, name in notes)


def gathered(pairs: Iterable[tuple[_What, str]]) -> list[tuple[_What, str]]:
    """List each thing once, with the names that belong to it."""
    names: dict[_What, dict[str, None]] = {}
    for what, name in pairs:
        names.setdefault(what, {})[name] = None
    return [(what, ", ".join(those)) for what, those in names.items()]
