"""Small runs with a registry of one's own, for tests of the runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attnbench.cases.ids import parse_case
from attnbench.plugins.registry import Entry, Registry, load_registry
from attnbench.results.format import StoredRun, read_run
from attnbench.runner import options as options_module
from attnbench.runner import plan as plan_module
from attnbench.runner.forecast import RunPlan
from attnbench.runner.options import CHECK_PARTS, Options
from attnbench.runner.progress import Moment
from attnbench.runner.run import start_run
from attnbench.types.record import Record

PLAIN = "attention/dot/B1-H2-Lq16-Lk16-D8/none/float32/cpu/forward"
CAUSAL = "attention/dot/B1-H2-Lq16-Lk16-D8/causal/float32/cpu/forward"
LESS_CHECKED = tuple(word for word in CHECK_PARTS if word not in ("guards", "trivial_answers", "refreshed"))
"""Checks that take most of a small run's time, left out in tests of something else."""

Asked = Mapping[str, tuple[str, ...]]
"""By the id of a case, its backends."""


def declared(registry: Registry, name: str, **limits: Any) -> Registry:
    """The registry, with one backend declared otherwise; its worker still loads the real one."""
    entry = registry.backends[name]
    changed = Entry(replace(entry.record, **limits), entry.source)
    return replace(registry, backends=registry.backends | {name: changed})


def run_of(
    out: Path,
    cases: tuple[str, ...] | Asked,
    backends: tuple[str, ...] = (),
    *,
    registry: Registry | None = None,
    named: tuple[str, ...] = (),
    compiled_on: frozenset[str] | None = None,
    progress: Callable[[Moment], None] | None = None,
    complete: bool = True,
    **options: Any,
) -> StoredRun:
    """Run, and read what was written. Little is checked unless ``without`` is given.

    cases: ids, all with ``backends``; or the backends of each. options: of the run; also ``sample_s``,
    ``warm_s`` and ``launches`` in place of the constants of the protocol: each server has torch to load.
    complete: whether it has all its records.
    """
    if isinstance(cases, Mapping):
        backends = tuple(dict.fromkeys(name for names in cases.values() for name in names))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("sample_s", "warm_s"):
            if name in options:
                patch.setattr(plan_module, name.upper(), options.pop(name))
        if "launches" in options:
            patch.setattr(options_module, "LAUNCHES", options.pop("launches"))
        small = {
            "budget_s": 0.01,
            "baseline": "eager",
            "repetitions": 1,
            "timeout_s": 60,
            "without": LESS_CHECKED,
        }
        plan = RunPlan(
            tuple(parse_case(text) for text in cases), backends, registry or load_registry(),
            Options(**(small | options)), named, compiled_on,
            asked=cases if isinstance(cases, Mapping) else None,
        )  # fmt: skip
        run = start_run(plan, out, progress)
    stored = read_run(run.path)
    assert run == stored, "what a run hands on is what its file holds"
    assert (stored.finished is not None) == complete
    return stored


def by_backend(stored: StoredRun, case: str = PLAIN) -> dict[str, Record]:
    found = {record.backend: record for record in stored.records if record.case == case}
    assert len(found) == sum(record.case == case for record in stored.records), "two records of one backend"
    return found


def assert_records(records: Mapping[str, Record], expected: Mapping[str, tuple[str, str, str]]) -> None:
    """Assert the status, the failed check and words of the reason of records by backend."""
    for name, (status, check, words) in expected.items():
        record = records[name]
        assert (record.status, record.failed_check) == (status, check), (name, record.reason)
        assert words.lower() in record.reason.lower(), name
        assert "\n" not in record.reason
        assert (record.median_ms is None) or status in ("ok", "inaccurate", "suspect"), name


def parent_of(pid: int) -> int:
    """The process that a process was forked from, while that lives."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
