"""A run on a terminal: the answer over its cases, or a block for each case, the fastest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from attnbench.cases.work import FLOP_CONVENTION
from attnbench.reports.answer import (
    ABSENT,
    ASKED_KEY,
    BRACKETS,
    FASTEST,
    TIED,
    busy_text,
    lead_text,
    numbered,
    over_columns,
)
from attnbench.reports.columns import (
    KERNEL_CONVENTION,
    NAMES,
    OVER,
    Column,
    in_order,
    metrics_of,
    name_text,
    ratio_text,
    shown_ms,
    table_columns,
    time_text,
)
from attnbench.reports.formats import GAP, bare_table, print_indented, string_console, written
from attnbench.reports.judged import BASELINE, JudgedRecord, ReportPart, several_kinds
from attnbench.reports.overview import (
    Line,
    answer_blocks,
    asked_words,
    brief_lines,
    busy_lines,
    checked_words,
    counted,
    end_blocks,
    gathered,
    gathered_notes,
    no_ratios,
    place_words,
    print_blocks,
    timed,
)
from attnbench.stats.answer import is_failure
from attnbench.stats.tests import AT_LEAST, LEVEL, SIGN_TEST_FROM, T_TEST_FROM
from attnbench.stats.verdict import FALSE_DISCOVERIES
from attnbench.types.record import Record
from attnbench.types.status import MEANING, STATUSES, status_words
from attnbench.types.words import clean, count_of, first_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


INTERVAL_CONVENTION = (
    f"interval: {100 * AT_LEAST:g} % confidence or more, {100 * (1 - LEVEL):g} % with {SIGN_TEST_FROM} "
    "repetitions (fresh processes); ±: half-width of the interval of the number on its left, the larger "
    "side; numbers are rounded to the precision their interval supports"
)
NO_INTERVAL = f"?: no interval, which needs {T_TEST_FROM} repetitions: omit --repetitions, or give more"
SAMPLED = "large cases were checked on a sample of rows: see rows and rows_of in --format json"
CONVENTIONS = {
    "×best": f"×best: time over that of the fastest backend of the case, from pairs; {TIED}: it may be 1",
    "limit": "limit: share of the best speed possible here: that at which this machine, in this run, could "
    "do the operations or move the bytes of the case",
    "rms/ref": "rms/ref, max/ref: error against the float64 oracle over that of the plain computation in the "
    "same dtype",
    "TFLOP/s": FLOP_CONVENTION,
    "GB/s": "bytes: inputs (only rows that the mask keeps) and parameters read once, the output written once",
}
"""The lines that explain a column, by its head."""
ANSWER_CONVENTION = (
    f"{FASTEST}: all others are shown to be slower (p is not corrected for many ratios); {TIED}: not shown "
    f"to be slower than any other; {ABSENT}: not run; {ASKED_KEY}. {BRACKETS}. "
    "A ratio within a case is of pairs of samples next to each other, without disturbed ones unless most "
    "are; where it differs from the quotient of two times, the ratio decides"
)
MEAN_CONVENTION = "mean: geometric mean of the ratios to the baseline, interval over repetitions"
TIME_CONVENTION = "time: median of a call"
RATIO_CONVENTION = (
    "ratio to the baseline, which verdicts judge: below 1 is faster, from pairs measured next to each other"
)
MORE = "more: --details, --legend"
_MOST_REASONS = 3
_MOST_NAMED = 6
"""Of the outcomes that share a reason no more are named."""


def footer(
    judged: Sequence[JudgedRecord],
    *,
    busy: bool = False,
    names: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """A line of counts, the unclear verdicts, and missing intervals and ratios, each with what helps.

    busy: whether a line about other processes follows, which says what helps unclear verdicts. names: of the
    cases, where unclear verdicts are told with them.
    """
    few = any(map(_without_interval, timed(judged)))
    counts = counted([one.record for one in judged])
    unclear = _unclear(judged, names)
    if busy and unclear:
        count = sum(one.verdict == "unclear" for one in judged)
        unclear = [f"unclear, {count} of {count_of(_family(judged), 'verdict')}"]
    return [counts, *unclear, *no_ratios(judged), *([NO_INTERVAL] if few else ())]


def legend(judged: Sequence[JudgedRecord], heads: Collection[str]) -> list[str]:
    """The conventions of what a table shows. heads: those of its columns."""
    records, with_time = [one.record for one in judged], timed(judged)
    sampled = any(r.accuracy is not None and r.accuracy.rows < r.accuracy.rows_of for r in records)
    rules = (
        ("time" in heads, TIME_CONVENTION),
        ("verdict" in heads, RATIO_CONVENTION),
        (any(record.low_ms is not None for record in with_time), INTERVAL_CONVENTION),
        ("verdict" in heads, _verdict_convention(judged)),
        ("use" in heads, ANSWER_CONVENTION),
        ("wins" in heads, MEAN_CONVENTION),
        (any(record.kernel_of and record.status == "ok" for record in records), KERNEL_CONVENTION),
        (sampled, SAMPLED),
    )
    lines = [line for shown, line in rules if shown]
    lines += [line for head, line in CONVENTIONS.items() if head in heads]
    metrics = [entry for entry in metrics_of(judged) if entry.record.head in heads]
    lines += [f"{e.record.head}: {clean(e.record.summary)} ({e.source.distribution})" for e in metrics]
    return lines


def _without_interval(record: Record) -> bool:
    compared = record.ratio is not None and record.backend != record.baseline
    return record.low_ms is None or (compared and record.ratio_low is None)


def _unclear(judged: Sequence[JudgedRecord], names: Mapping[str, str]) -> list[str]:
    """Say why verdicts are unclear and what to do; each reason once, because many rows share it."""
    reasons = Counter(one.why for one in judged if one.verdict == "unclear")
    family = count_of(_family(judged), "verdict")
    its = {
        why: [
            f"{one.record.backend} in {names[one.record.case]}"
            for one in judged
            if len(names) > 1 and (one.verdict, one.why) == ("unclear", why)
        ]
        for why in reasons
    }
    lines = [
        f"unclear, {count} of {family}{f' ({first_of(its[why], _MOST_NAMED)})' if its[why] else ''}: {why}"
        for why, count in reasons.most_common()
    ]
    if len(lines) > _MOST_REASONS:
        others = sum(count for _, count in reasons.most_common()[_MOST_REASONS:])
        lines[_MOST_REASONS:] = [f"unclear, {others} more: see verdict_reason in --format json"]
    return lines


def _family(judged: Sequence[JudgedRecord]) -> int:
    return sum(one.p_adjusted is not None for one in judged)


def _verdict_convention(judged: Sequence[JudgedRecord]) -> str:
    """The meaning of the verdicts, with the least effect and the number of ratios of this run."""
    deltas = sorted({one.record.delta for one in judged if one.verdict is not None and one.record.delta})
    delta = " or ".join(f"{100 * delta:g} %" for delta in deltas) or "the least effect"
    family = f"the {count_of(_family(judged), 'ratio')} of the run"
    if len({one.run for one in judged}) > 1:
        family = "the ratios of each run"
    return (
        f"verdict: same if the whole interval of the ratio lies within {delta} of 1; faster or slower if the "
        f"ratio is outside and hardly chance: p (of a ratio of 1) ≤ {LEVEL:g} over repetitions, and ≤ "
        f"{FALSE_DISCOVERIES:g} after Benjamini-Hochberg over {family}; unclear otherwise"
    )


UNLIKE = 1.1
"""By more than this factor the ratio of two times is unlike the ratio of their pairs."""
RATIOS_DECIDE = (
    "note: where times and ratios disagree, ratios and verdicts decide: they are of undisturbed pairs of "
    "samples taken next to each other"
)
SEEN = 1.02
"""From this factor on another backend's time is seen to be less than that of the fastest."""
_STYLES: dict[str | None, str] = {"faster": "green", "unclear": "yellow", BASELINE: "dim"}
"""The colours of verdicts."""


@dataclass(frozen=True)
class View:
    """How to print records.

    width: at most so many columns (60 at least); only ids may be longer. trace: show the operations of each
    call. details: show every case of several. legend: explain the columns. summary: the answer alone, where
    the format has one besides the records. brief: its sentences alone.
    """

    width: int = 120
    colour: bool = False
    trace: bool = False
    details: bool = False
    legend: bool = False
    summary: bool = False
    brief: bool = False


def table(parts: Sequence[ReportPart], view: View | None = None) -> str:
    """Render a report: several cases as their answer, one case or ``details`` as a block each.

    A part without an answer has a block for every case.
    """
    view = view or View()
    console = string_console(view.width, colour=view.colour)
    if view.brief:
        print_blocks(console, brief_lines(parts))
        return written(console)
    judged = [one for part in parts for one in part.judged]
    found = list(numbered(parts))
    several = bool(found) and (len(parts) > 1 or len({one.record.case for one in judged}) > 1)
    cases = not several or view.details or view.trace
    heads: set[str] = set()
    if cases:
        # The answer of several cases says once why backends do not run.
        heads |= _print_cases(console, parts, trace=view.trace, declined=not (several and view.details))
        busy = any(busy_text(answer) for _, answer, _ in found)
        print_blocks(console, map(Line, footer(judged, busy=busy)))
    if several:
        if cases:
            console.print()
        heads |= print_blocks(console, answer_blocks(parts, console.width, details=view.details))
        heads |= set() if "use" in heads else {"rms/ref"}
    else:
        for part, answer, numbers in found:
            print_blocks(console, end_blocks(part, answer, numbers, details=view.details))
    if view.legend:
        print_blocks(console, map(Line, legend(judged, heads)))
    counts = [] if cases else [counted([one.record for one in judged])]
    counts += filter(None, [asked_words(parts)])
    more = [] if view.legend else ["more: --legend" if cases else MORE]
    if judged and (counts or more):
        if several:
            console.print()
        print_blocks(console, [Line("; ".join([*counts, *more]))])
    return written(console)


def _print_cases(console: Console, parts: Sequence[ReportPart], *, trace: bool, declined: bool) -> set[str]:
    """Print a block for each case on each kind of device; return the heads of the columns.

    It begins with the case and a sentence. A single case has its place beside it. declined: whether to say
    which backends do not run.
    """
    cases: dict[str, list[tuple[ReportPart, list[JudgedRecord]]]] = {}
    for part in parts:
        own: dict[tuple[str, str], list[JudgedRecord]] = {}
        for one in part.judged:
            own.setdefault((one.record.case, one.device_kind), []).append(one)
        for (case, _), group in own.items():
            cases.setdefault(case, []).append((part, group))
    judged = [one for part in parts for one in part.judged]
    several = several_kinds(judged)
    columns, widths = fitting(judged, console.width, parts)
    for case, (part, group) in ((case, one) for case, those in cases.items() for one in those):
        where = group[0].device_kind if several else place_words(part) if len(cases) == 1 else ""
        console.print(f"{case}  on {where}" if where else case, style="bold", soft_wrap=True)
        records = [one.record for one in group]
        if part.answer is not None:
            leads = [lead for lead in part.answer.leads if lead.best.case == case]
            known = part.answer.known
            said = [lead_text(lead, known) for lead in leads] if leads else [checked_words(records)]
            print_blocks(console, (Line(text, "") for text in said))
            if len(cases) == 1 and not several:
                print_blocks(console, busy_lines(part.answer))
        _print_failures(console, records)
        _print_block(console, group, columns, widths)
        if words := unlike_words(records):
            print_indented(console, words)
        if declined:
            _print_declined(console, records)
        ran = [(", ".join(record.ran), record.backend) for record in records if trace and record.ran]
        notes = [(note, record.backend) for record in records for note in record.notes]
        for what, pairs in (("ran", gathered(ran)), ("note", gathered_notes(notes))):
            for text, names in pairs:
                print_indented(console, f"{what}: {names}: {text}")
        console.print()
    return {column.head for column in columns}


def unlike_words(records: Sequence[Record]) -> str:
    """Say why the ratios of a case are not those of its times; "" where a reader sees no contradiction.

    Times count as they are shown: one with a wide interval has few digits.
    """
    shown = {one.backend: shown_ms(one) for one in records if one.status == "ok" and one.median_ms}
    for one in records:
        own, base, best = (shown.get(name or "") for name in (one.backend, one.baseline, one.best))
        far = own and base and one.ratio and not 1 / UNLIKE <= own / base / one.ratio <= UNLIKE
        less = own and base and own < base and (one.ratio_low or 0.0) > 1
        more = own and base and own > base and (one.ratio_high or 1.0) < 1
        if far or less or more or (own and best and own < best / SEEN):
            return RATIOS_DECIDE
    return ""


def fitting(
    judged: Sequence[JudgedRecord], width: int, parts: Sequence[ReportPart] = ()
) -> tuple[list[Column], list[int]]:
    """The columns that have values and fit, and their widths after that of the names.

    parts: with their answers, from which times over the fastest's come.
    """
    judged = [one for one in judged if one.record.status == "ok"]
    columns = over_columns(table_columns(judged, over=OVER), parts)
    while True:
        widths = [max([len(NAMES), *(len(name_text(one.record)) for one in judged)])]
        widths += [max([len(c.head), *(len(c.cell(one) or "") for one in judged)]) for c in columns]
        excess = sum(widths) + GAP * len(widths) - width
        first = min((column.dropped for column in columns if column.dropped), default=None)
        if excess <= 0 or first is None:
            break
        # The columns of plugins have one rank; the last of them goes first.
        place = max(place for place, column in enumerate(columns) if column.dropped == first)
        narrow = columns[place].narrow
        columns[place : place + 1] = [] if narrow is None else [narrow]
    widths[0] -= max(0, excess)
    return columns, widths


def _print_block(
    console: Console, group: Iterable[JudgedRecord], columns: Sequence[Column], widths: Sequence[int]
) -> None:
    right = [one for one in group if one.record.status == "ok"]
    if not right:
        return
    block = bare_table()
    block.add_column(NAMES, width=widths[0], overflow="fold")
    for column, width in zip(columns, widths[1:], strict=True):
        words = column.dtype == "str"
        block.add_column(column.head, width=width, justify="left" if words else "right", no_wrap=True)
    for one in in_order(right):
        block.add_row(name_text(one.record), *(_cell(column, one) for column in columns))
    print_indented(console, block)


def _cell(column: Column, judged: JudgedRecord) -> Text:
    from rich.text import Text

    text = column.cell(judged) or ""
    return Text(text, style=_STYLES.get(judged.verdict, "") if column.key == "verdict" else "")


def _print_failures(console: Console, group: Iterable[Record]) -> None:
    """Print each failure with its reason."""
    failed = filter(is_failure, group)
    for record in sorted(failed, key=lambda one: STATUSES.index(one.status)):
        time, (times, _) = time_text(record), ratio_text(record)
        name = name_text(record) if time is None else f"{name_text(record)} at {time}"
        if record.status == "inaccurate" and times:
            name += f", {times} × {record.baseline}"
        words = f"{status_words(record.status)}: {name}: {record.reason}"
        print_indented(console, words, MEANING[record.status].style)


def _print_declined(console: Console, group: Iterable[Record]) -> None:
    """Print the backends that do not run, by reason."""
    declined = [one for one in group if MEANING[one.status].declined]
    for status in dict.fromkeys(sorted((one.status for one in declined), key=STATUSES.index)):
        those = gathered((one.reason, one.backend) for one in declined if one.status == status)
        sentences = "; ".join(f"{names} ({reason})" for reason, names in those)
        print_indented(console, f"{status}: {sentences}", MEANING[status].style)
