"""The columns of records: JSON, CSV, frames, tables, Markdown, the page and the docs follow from one table.

To add a column, add its line to :data:`COLUMNS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from attnbench.cases.ids import parse_case
from attnbench.cases.work import human_bytes
from attnbench.reports.formats import finite
from attnbench.reports.units import (
    as_shown,
    duration,
    error,
    figure,
    number,
    percent,
    plus_minus,
    ratio,
    reach,
    times,
)
from attnbench.types.extensions import Metric
from attnbench.types.mask import mask_text
from attnbench.types.record import Accuracy, Record
from attnbench.types.status import STATUSES

if TYPE_CHECKING:
    import pandas as pd

    from attnbench.plugins.registry import Entry
    from attnbench.reports.judged import JudgedRecord

Row = dict[str, Any]
Cell = Callable[["JudgedRecord"], str | None]
Dtype = Literal["str", "float64", "int64", "Int64"]

COUNTED_BYTES = 512 * 1024
"""The kernel counts pages in batches, so tables show no smaller amount of memory."""
NAMES, KIND = "backend", "device kind"
"""The heads of the first column, and of the kind of device, which tables show only where kinds differ."""
UNCERTAIN = "?"
"""Stands in place of an interval if there were too few repetitions for one."""
TIED = "≈"
"""Stands in place of a ratio to the fastest that may be 1."""
NOISY = ">100%"
"""The half-width of an interval that says nothing."""


def _nothing(_: JudgedRecord) -> None:
    """The value of a column that only tables have, and the cell of one that they lack."""


@dataclass(frozen=True)
class Column:
    """A column of records.

    key: the name in JSON, CSV and frames, "" for a column of tables alone. dtype: in frames. value: the value
    for a record, or None. summary: for the docs. head, cell: the head and the text in tables, which leave out
    a column without texts. dropped: narrow terminals drop 1 first; 0 is never dropped. narrow: the column
    that then takes the place of this one.
    """

    key: str
    dtype: Dtype
    value: Callable[[JudgedRecord], Any]
    summary: str
    head: str = ""
    cell: Cell = _nothing
    dropped: int = 0
    narrow: Column | None = None


KERNEL_CONVENTION = "a → b: a runs the kernel of b, by a trace of one call (see --trace)"
"""Explains :func:`name_text`."""


def name_text(record: Record) -> str:
    """The backend of a record, the one whose kernel it runs if that is another, and a coarser arithmetic."""
    name = f"{record.backend} → {record.kernel_of}" if record.kernel_of else record.backend
    return name + arithmetic_text(record)


def arithmetic_text(record: Record) -> str:
    """Return the text behind a name whose outputs are less exact than the dtype allows, else ""."""
    return f" ({record.arithmetic})" if record.arithmetic else ""


def time_text(record: Record) -> str | None:
    """The median time of a record with its unit, None if it has none."""
    if record.median_ms is None:
        return None
    return duration(record.median_ms, reach(record.median_ms, record.low_ms, record.high_ms))


def shown_ms(record: Record) -> float:
    """The median time of a record in the digits that are shown, 0 for none."""
    ms = record.median_ms or 0.0
    return as_shown(ms, reach(ms, record.low_ms, record.high_ms))


def ratio_text(record: Record) -> tuple[str, str]:
    """The ratio of a record and its interval; "" for a missing one."""
    if record.ratio is None:
        return "", ""
    if record.backend == record.baseline:
        return "1", ""
    text, bounds = ratio(record.ratio, record.ratio_low, record.ratio_high)
    return (text, bounds) if bounds else (text + UNCERTAIN, UNCERTAIN)


def _spread(value: float | None, low: float | None, high: float | None) -> str | None:
    if not value:
        return None
    far = reach(value, low, high)
    if far is None:
        return UNCERTAIN
    return plus_minus(value, far) if far <= value else NOISY


def _time_spread(judged: JudgedRecord) -> str | None:
    return _spread(judged.record.median_ms, judged.record.low_ms, judged.record.high_ms)


def _ratio_spread(judged: JudgedRecord) -> str | None:
    record = judged.record
    if record.backend == record.baseline:
        return None
    return _spread(record.ratio, record.ratio_low, record.ratio_high)


def _ratio_to_best(judged: JudgedRecord) -> str | None:
    record = judged.record
    if record.ratio_to_best is None or record.backend == record.best:
        return None if record.ratio_to_best is None else "1"
    low, high = record.ratio_to_best_low, record.ratio_to_best_high
    if low is not None and high is not None and low <= 1 <= high:
        # Its median could be that of another order than the rows have, or below 1.
        return TIED
    text = times(record.ratio_to_best, low, high)[0]
    # Another than the fastest has a digit more, where its own would make it look like the fastest.
    return number(record.ratio_to_best) if text == "1" else text


def _rate(name: str, words: Callable[[float, float | None], str]) -> Cell:
    """A quantity over the time, rounded to the precision that the interval of the time supports."""

    def cell(judged: JudgedRecord) -> str | None:
        record = judged.record
        value = getattr(record, name)
        if value is None:
            return None
        far = None
        if record.median_ms and record.low_ms and record.high_ms:
            low, high = value * record.median_ms / record.high_ms, value * record.median_ms / record.low_ms
            far = reach(value, low, high)
        return words(value, far)

    return cell


def _three_digits(value: float, far: float | None) -> str:
    return number(value, far, most=3)


def _extra(judged: JudgedRecord) -> str | None:
    count = judged.record.peak_extra_bytes
    if count is None:
        return None
    return f"<{human_bytes(COUNTED_BYTES)}" if count < COUNTED_BYTES else human_bytes(count)


def _of_encoding(judged: JudgedRecord) -> str | None:
    value = judged.record.encoding_error
    return None if value is None else f"{100 * value:.2g}%"


def _once(name: str) -> Cell:
    """A time that was measured once."""

    def cell(judged: JudgedRecord) -> str | None:
        value = getattr(judged.record, name)
        return None if value is None else duration(value)

    return cell


def _checked(words: Callable[[Accuracy], str]) -> Cell:
    return lambda judged: None if judged.record.accuracy is None else words(judged.record.accuracy)


def _of_record(key: str, dtype: Dtype, summary: str, **shown: Any) -> Column:
    return Column(key, dtype, lambda judged: getattr(judged.record, key), summary, **shown)


def _of_accuracy(key: str, dtype: Dtype, summary: str, **shown: Any) -> Column:
    return Column(key, dtype, lambda judged: getattr(judged.record.accuracy, key, None), summary, **shown)


def _of_dropout(key: str, dtype: Dtype, name: str, summary: str) -> Column:
    return Column(key, dtype, lambda judged: getattr(judged.record.dropout, name, None), summary)


def _of_case(key: str, dtype: Dtype, summary: str) -> Column:
    return Column(key, dtype, lambda judged: case_fields(judged.record.case)[key], summary)


def case_fields(text: str) -> Row:
    """The fields of a case by its id, as columns."""
    case = parse_case(text)
    found = {key: getattr(case, key) for key in ("operation", "B", "H", "Hkv", "Lq", "Lk", "D", "Dv")}
    found |= {"E": None if case.layer is None else case.layer.E, "mask": mask_text(case.mask)}
    found |= {"dtype": case.dtype, "device": case.device, "pass": case.pass_}
    return found | {key: getattr(case, key) for key in ("dropout", "layout", "cache", "threads", "seed")}


COLUMNS: tuple[Column, ...] = (
    _of_record("case", "str", "Id of the case.", head="case"),
    _of_record("rule", "str", "Scoring rule."),
    _of_record("backend", "str", "Backend.", head="backend"),
    _of_record("status", "str", "Outcome.", head="status"),
    _of_record("failed_check", "str", "The check that failed."),
    _of_record("reason", "str", "Why the status is not `ok`.", head="reason"),
    _of_record("median_ms", "float64", "Median over repetitions of the median time of a call.",
               head="time", cell=lambda j: time_text(j.record)),
    _of_record("low_ms", "float64", "Lower end of the interval of the time."),
    _of_record("high_ms", "float64", "Upper end of that interval."),
    Column("", "float64", _nothing, "Half-width of an interval, the larger side, as a share.",
           head="±", cell=_time_spread, dropped=98),
    _of_record("confidence", "float64", "Confidence of that interval."),
    _of_record("ratio", "float64", "Time over the baseline's, from pairs; tables head it `time/eager`.",
               head="ratio", cell=lambda j: ratio_text(j.record)[0] or None),
    _of_record("ratio_low", "float64", "Lower end of the interval of the ratio; tables show both ends.",
               head="interval", cell=lambda j: ratio_text(j.record)[1] or None, dropped=7,
               narrow=Column("", "float64", _nothing, "", "±", _ratio_spread, dropped=99)),
    _of_record("ratio_high", "float64", "Upper end of that interval."),
    _of_record("ratio_confidence", "float64", "Confidence of that interval."),
    _of_record("p_value", "float64", "That the ratio is 1."),
    Column("p_adjusted", "float64", lambda j: j.p_adjusted, "`p_value` adjusted over the run."),
    Column("verdict", "str", lambda j: j.verdict, "`faster`, `slower`, `same`, `unclear` or `baseline`.",
           head="verdict", cell=lambda j: f"{j.verdict}: {j.hint}" if j.hint else j.verdict),
    Column("verdict_reason", "str", lambda j: j.why, "What an unclear verdict lacks."),
    _of_record("baseline", "str", "The backend that the ratio is to."),
    _of_record("delta", "float64", "Smallest effect that counts."),
    _of_record("best", "str", "Fastest backend of the case."),
    _of_record("ratio_to_best", "float64", "Time over that of the fastest backend of the case, from pairs.",
               head="×best", cell=_ratio_to_best, dropped=10),
    _of_record("ratio_to_best_low", "float64", "Lower end of the interval of that ratio."),
    _of_record("ratio_to_best_high", "float64", "Upper end of that interval."),
    Column("", "float64", lambda j: j.record.limit_share, "`limit_share`.",
           head="limit", cell=_rate("limit_share", percent), dropped=9),
    _of_accuracy("rms_error", "float64", "RMS error against the float64 oracle.",
                 head="rms error", cell=_checked(lambda a: error(a.rms_error)), dropped=4),
    _of_accuracy("max_error", "float64", "Largest error against the float64 oracle.",
                 head="max error", cell=_checked(lambda a: error(a.max_error)), dropped=3),
    _of_accuracy("error_budget", "float64", "RMS error over that of the plain computation in the same dtype.",
                 head="rms/ref", cell=_checked(lambda a: number(a.error_budget))),
    _of_accuracy("max_error_budget", "float64", "Largest error over that of the plain computation.",
                 head="max/ref", cell=_checked(lambda a: number(a.max_error_budget))),
    _of_record("tflops", "float64", "10¹² operations a second, from exact counts.",
               head="TFLOP/s", cell=_rate("tflops", _three_digits), dropped=6),
    _of_record("gbps", "float64",
               "10⁹ bytes a second, from exact counts; in decode those of stored keys and values.",
               head="GB/s", cell=_rate("gbps", _three_digits), dropped=5),
    _of_record("limit_share", "float64", "Share of the best speed possible here."),
    _of_record("batch_invariant", "str", "Whether sequences have the same bits in other company."),
    _of_record("encoding_error", "float64", "What encoding keys and values changes in the exact output, RMS "
               "over RMS; no backend can be blamed for it.",
               head="kv error", cell=_of_encoding, dropped=4),
    _of_record("dtype_error", "float64", "What rounding the same keys and values to the dtype changes."),
    _of_record("kv_bytes", "float64", "Bytes that keys and values take for each key, with their scales."),
    _of_record("copy_share", "float64", "`gbps` over that of a copy of the inputs; of interest in decode."),
    _of_record("peak_extra_bytes", "Int64", "Memory that a call takes at its peak, output included.",
               head="extra", cell=_extra, dropped=8),
    _of_record("faults_per_call", "float64", "Minor page faults of a timed call."),
    _of_record("prepare_ms", "float64", "Time to load and prepare the backend.",
               head="prepare", cell=_once("prepare_ms"), dropped=2),
    _of_record("first_call_ms", "float64", "Time of the first call, compilation included.",
               head="first call", cell=_once("first_call_ms"), dropped=1),
    _of_record("repetitions", "int64", "Repetitions behind the numbers."),
    _of_record("pairs", "int64", "Pairs behind the ratio."),
    _of_record("pairs_left_out", "int64", "Pairs left out because a side was preempted."),
    _of_record("timed_calls", "int64", "Calls inside timed samples."),
    _of_record("verified_calls", "int64", "Outputs of timed calls that were compared with the oracle."),
    _of_accuracy("rows", "Int64", "Query rows that were compared."),
    _of_accuracy("rows_of", "Int64", "Query rows of the case."),
    _of_accuracy("draws", "Int64", "Independent inputs of the check."),
    _of_dropout("dropout_p", "float64", "p", "Dropout probability that the outputs show."),
    _of_dropout("dropout_p_least", "float64", "p_least", "Smallest probability that was allowed."),
    _of_dropout("dropout_p_most", "float64", "p_most", "Largest probability that was allowed."),
    _of_dropout("dropout_calls", "Int64", "calls", "Calls whose outputs were compared."),
    _of_record("arithmetic", "str", "Arithmetic of the outputs, if coarser than the dtype."),
    _of_record("kernel_of", "str", "Another backend whose kernel ran."),
    Column("ran", "str", lambda j: "; ".join(j.record.ran), "Operations of a call, by a trace.", head="ran"),
    Column("notes", "str", lambda j: "; ".join(j.record.notes), "Remarks on the measurement."),
    _of_case("operation", "str", "Operation."),
    _of_case("B", "int64", "Batch size."),
    _of_case("H", "int64", "Query heads."),
    _of_case("Hkv", "int64", "Key and value heads."),
    _of_case("Lq", "int64", "Queries."),
    _of_case("Lk", "int64", "Keys."),
    _of_case("D", "int64", "Features of queries and keys."),
    _of_case("Dv", "int64", "Features of values."),
    _of_case("E", "Int64", "Features of a multi-head layer's input."),
    _of_case("mask", "str", "Mask, as in ids."),
    _of_case("dtype", "str", "Data type."),
    _of_case("device", "str", "`cpu` or `cuda`."),
    _of_case("pass", "str", "`forward`, `backward` or `both`."),
    _of_case("dropout", "float64", "Dropout probability of the case."),
    _of_case("layout", "str", "Order of q, k and v in memory, as in ids."),
    _of_case("cache", "str", "`hot` or `rotating` inputs."),
    _of_case("threads", "int64", "Threads."),
    _of_case("seed", "int64", "Seed of the checked inputs."),
    Column("device_kind", "str", lambda j: j.device_kind, "Card, or processor and its cores.", head=KIND),
    Column("run", "str", lambda j: j.run, "Id of the run."),
)  # fmt: skip
"""All columns, in the order of JSON, CSV and frames; tables have those with a cell in the same order."""

KEYS = tuple(column.key for column in COLUMNS if column.key)
HEADS = tuple(column.head for column in COLUMNS if column.head)
"""Heads of tables; the column of ratios is headed by the name of the baseline."""


def taken(record: object) -> str | None:
    """Return why a plugin's record can't stand beside these columns, or None: a metric of the same name."""
    if not isinstance(record, Metric):
        return None
    if record.name in KEYS:
        return f"{record.name}: name = {record.name!r}: attnbench itself has one of this name: choose another"
    if record.head in HEADS or record.head.startswith("×"):
        needed = "attnbench has a column with this head: choose another"
        return f"{record.name}: head = {record.head!r}: {needed}"
    return None


_ADDED = 50
"""When columns of plugins are dropped: after all others but ``±``."""


def metrics_of(judged: Iterable[JudgedRecord]) -> list[Entry[Metric]]:
    """The metrics of plugins that records have values of, in order."""
    return list(dict.fromkeys(entry for one in judged for entry in one.added))


def _added(entry: Entry[Metric]) -> Column:
    metric = entry.record

    def value(judged: JudgedRecord) -> float | None:
        return judged.added.get(entry)

    def cell(judged: JudgedRecord) -> str | None:
        found = value(judged)
        return None if found is None else figure(found, metric.digits)

    return Column(metric.name, "float64", value, metric.summary, metric.head, cell, dropped=_ADDED)


OVER = "time/"
"""Before the name of the baseline: the head of its column in terminals and Markdown."""


def table_columns(judged: Iterable[JudgedRecord], *, over: str = "×") -> list[Column]:
    """The columns of a table that have something to show, in order, those of plugins last.

    over: what stands before the name of the baseline in the head of the ratios.
    """
    judged = list(judged)
    baselines = {one.record.baseline for one in judged if one.record.ratio is not None}
    head = f"{over}{baselines.pop()}" if len(baselines) == 1 else "ratio"
    columns = [replace(one, head=head) if one.key == "ratio" else one for one in COLUMNS]
    columns += map(_added, metrics_of(judged))
    return [column for column in columns if any(column.cell(one) is not None for one in judged)]


def in_order(judged: Iterable[JudgedRecord]) -> list[JudgedRecord]:
    """Sort outcomes case by case and kind by kind, the fastest first, then by status."""
    judged = list(judged)
    cases = {case: place for place, case in enumerate(dict.fromkeys(one.record.case for one in judged))}

    def place(one: JudgedRecord) -> tuple[int, str, int, float]:
        record = one.record
        return cases[record.case], one.device_kind, STATUSES.index(record.status), record.median_ms or 0.0

    return sorted(judged, key=place)


def record_row(judged: JudgedRecord) -> Row:
    """A record as a row of plain values: every column with a key, then those of plugins.

    None stands for missing values, NaN and infinity.
    """
    row = {column.key: column.value(judged) for column in COLUMNS if column.key}
    return finite(row) | {entry.record.name: value for entry, value in judged.added.items()}


def frame(judged: Iterable[JudgedRecord], metrics: Sequence[str] = ()) -> pd.DataFrame:
    """Make a frame with a row for each record, the columns of :data:`COLUMNS`, then ``metrics``.

    Times are in ms. A missing value is NaN in a float column and NA in a column of whole numbers.
    """
    import pandas as pd

    rows = [record_row(one) for one in judged]
    dtypes = {column.key: column.dtype for column in COLUMNS if column.key and column.dtype != "str"}
    return pd.DataFrame(rows, columns=[*KEYS, *metrics]).astype(dtypes | dict.fromkeys(metrics, "float64"))
