"""The Python interface, which the command line uses too.

>>> import attnbench
>>> run = attnbench.run("attention/dot/H1-L16-D8", backends=["eager", "bmm"])  # doctest: +SKIP
>>> run.frame[["backend", "median_ms", "ratio"]]  # doctest: +SKIP
>>> run.summary[["case", "backend", "sure", "next_ratio"]]  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnbench.cases.suites import DEFAULT_SUITE
from attnbench.reports.run import Run
from attnbench.types.case import Case
from attnbench.types.errors import BadInput
from attnbench.types.words import clean

if TYPE_CHECKING:
    from attnbench.cases.select import Overrides, Selection
    from attnbench.explained.shown import Explained
    from attnbench.plugins.registry import Registry
    from attnbench.results.format import StoredRun
    from attnbench.runner.forecast import RunPlan
    from attnbench.runner.progress import Progress
    from attnbench.types.record import Manifest, Record

Cases = str | Path | Case | Iterable[str | Path | Case]


def run(
    cases: Cases = DEFAULT_SUITE,
    backends: str | Iterable[str] | None = None,
    *,
    out: str | Path = "results",
    threads: int | None = None,
    shard: str | None = None,
    plugins: str | Iterable[str] = (),
    progress: Progress | None = None,
    batch: str | Iterable[str] = (),
    storage: str | Iterable[str] = (),
    kv: str | Iterable[str] = (),
    **options: Any,
) -> Run:
    """Check and time backends on cases.

    cases: suite names, case ids, TOML files of suites, or :class:`Case` values; one or several.
    backends: names; all that are installed by default. out: a folder, or the run file itself if it ends in
    .jsonl. threads: in every case. shard: as ``"3/16"``, for one of several machines; all cases by default.
    plugins: files and modules to load too, as --plugin takes them. progress: called with a ``Moment`` for
    every step. batch, storage, kv: set in every case, as ``"2q2k_32q1s1k"``, ``"paged:16"`` and
    ``"int8:head"``; several of them make several cases of each.

    options: as of ``attnbench run``, whose help has their defaults; None is the default too. budget: seconds
    of measuring for each backend on each case. repetitions: each has fresh processes of each
    backend; small differences need 9. baseline: the backend that ratios refer to. delta: the least effect
    that counts in a verdict, as a fraction. timeout: the longest wait for one answer of a backend, s.
    memory_limit: of a backend, bytes. accuracy: the coarsest arithmetic of outputs that is accepted.
    allocator_pinned: False leaves the C allocator as the system has it while timing; it may then fault in
    freed memory at every call. timed: False only checks.

    Raises:
        BadInput: something is unknown or impossible, or no case is in the shard.
        MeasuringFailed: the machinery or the disk failed; what was measured before is in the file.
    """
    from attnbench.cases.select import Overrides, cut
    from attnbench.plugins.registry import named_by
    from attnbench.runner.forecast import plan_run
    from attnbench.runner.options import keyword_options

    chosen = keyword_options(options)
    plugins = _words(plugins)
    registry = _registry(plugins)
    changes = Overrides(
        threads=threads, batches=_words(batch), storages=_words(storage), encodings=_words(kv)
    )
    selection = _selection(cases, registry, changes, timed=chosen.timed)
    selection = selection if shard is None else cut(selection, str(shard))
    brought = named_by(plugins, registry.backends)
    return start(plan_run(selection, _names(backends), registry, chosen, brought), Path(out), progress)


def start(plan: RunPlan, out: Path, progress: Progress | None = None) -> Run:
    """Run a plan; :func:`run` and the command line use this.

    Raises:
        Interrupted: by Ctrl-C; what was measured is in the file that it names.
    """
    from attnbench.runner.run import start_run

    return _run_of([start_run(plan, out, progress)], plan.registry)


def resume(
    path: str | Path,
    *,
    plugins: str | Iterable[str] = (),
    progress: Progress | None = None,
    force: bool = False,
) -> Run:
    """Go on with a run that was cut off; return the whole run, old records and new.

    plugins: as given to :func:`run`. force: go on although this machine or its software is not that of the
    run. Cases that lack records are then measured as a part of their own.

    Raises:
        BadInput: the machine or its software differs in what times depend on, and ``force`` is not given.
    """
    return go_on(Path(path), _registry(plugins), progress, force=force)


def go_on(path: Path, registry: Registry, progress: Progress | None = None, *, force: bool = False) -> Run:
    """Go on with a run; :func:`resume` and the command line use this."""
    from attnbench.compare.environment import changed
    from attnbench.results.read import facts_of
    from attnbench.runner.run import resume_run

    def unlike(begun: Manifest, here: Manifest) -> list[str]:
        return changed(facts_of(begun), facts_of(here))

    return _run_of(resume_run(path, registry, progress, unlike, force=force), registry)


def load(paths: str | Path | Sequence[str | Path], *, plugins: str | Iterable[str] = ()) -> Run:
    """Read one or many run files, merged ones too, or folders of them.

    plugins: files and modules to load too, as --plugin takes them, for the columns that they add.

    Warns if a run was cut off.

    Raises:
        BadFile: a file is missing, damaged, of a newer format, or not a run of attnbench.
    """
    import warnings

    run = loaded(paths, _registry(plugins))
    for flaw in run.flaws:
        warnings.warn(flaw, stacklevel=2)
    return run


def loaded(paths: str | Path | Sequence[str | Path], registry: Registry) -> Run:
    """Read run files; :func:`load` and the command line use this."""
    from attnbench.results.format import expand, read_runs
    from attnbench.results.read import flaws_of, readable

    several = [paths] if isinstance(paths, str | Path) else list(paths)
    if not all(str(path) for path in several) or not several:
        raise BadInput("no path to read: name a run file, or a folder of them")
    files = [read_runs(path, samples=False) for path in expand([Path(path) for path in several])]
    stored = [readable(run) for runs in files for run in runs]
    flaws = [flaw for runs in files for run in runs for flaw in flaws_of(run, alone=len(runs) == 1)]
    return _run_of(stored, registry, flaws)


def explain(
    topic: str = "scaled_dot",
    tokens: Any = None,
    *,
    labels: Sequence[str] = (),
    rule: str | None = None,
    example: str | None = None,
    heads: int | None = None,
    mask: str | None = None,
    dropout: float | None = None,
    weighted: bool = False,
    seed: int = 0,
    plugins: str | Iterable[str] = (),
) -> Explained:
    """Compute attention step by step on small inputs; a notebook shows the steps as a picture.

    topic: a rule, also with constants (``softcap@c=5``), an example or a lesson, as in ``attnbench explain``.
    tokens: rows of numbers (tokens, features) for a rule, in place of those of its example. labels: a word
    for each token. rule: that computes an example, with ``multihead`` a layer. example: whose inputs a rule
    gets. heads: into which the features are cut. mask: as in case ids, ``causal``. dropout: the probability
    that a weight is set to 0. weighted: with each key's weighted value. seed: of all that is drawn. plugins:
    as :func:`run` takes them.

    Raises:
        BadInput: the topic is unknown, or the inputs don't fit it.
    """
    from attnbench.explained.examples import Example, example_of
    from attnbench.explained.topics import explained
    from attnbench.types.mask import parse_mask

    def own(heads: int) -> Example:
        rows = {"X": tokens}
        return example_of(rows, labels=tuple(labels), heads=heads, summary="tokens of your own")

    if labels and tokens is None:
        raise BadInput("labels are for tokens of your own: give tokens too")
    if dropout is not None and not 0 <= dropout < 1:
        raise BadInput(f"dropout = {dropout!r}: give a probability from 0 to less than 1")
    return explained(
        _registry(plugins), topic, None if tokens is None else own, rule=rule, example=example, heads=heads,
        mask=None if mask is None else parse_mask(mask), dropout=dropout, weighted=weighted, seed=seed,
    )  # fmt: skip


def _run_of(stored: Sequence[StoredRun], registry: Registry, flaws: Sequence[str] = ()) -> Run:
    from attnbench.reports.judged import metric_columns
    from attnbench.results.disk import is_written

    unfinished = dict.fromkeys(s.path for s in stored if s.cut_off)
    by_file = tuple(_in_order(s) for s in stored)
    return Run(
        paths=tuple(s.path for s in stored),
        manifests=tuple(s.manifest for s in stored),
        by_file=by_file,
        unfinished=tuple(unfinished),
        going=tuple(filter(is_written, unfinished)),
        metrics=metric_columns(registry.metrics.values(), by_file),
        times=tuple(tuple((one.case, one.index, one.median_ns) for one in s.times) for s in stored),
        flaws=tuple(flaws),
        summaries={name: entry.record.summary for name, entry in registry.backends.items()},
    )


def _in_order(stored: StoredRun) -> tuple[Record, ...]:
    """Return the records by case in the order of the manifest; a run measures the shortest case first."""
    places = {case: place for place, case in enumerate(stored.manifest.cases)}
    return tuple(sorted(stored.records, key=lambda record: places[record.case]))


def _names(backends: str | Iterable[str] | None) -> tuple[str, ...]:
    if backends is None:
        return ()
    names = (backends,) if isinstance(backends, str) else tuple(dict.fromkeys(backends))
    if not names:
        raise BadInput("no backends: name at least one, or leave the argument out for all that are installed")
    return names


def _registry(plugins: str | Iterable[str]) -> Registry:
    from attnbench.plugins.registry import load_and_tell
    from attnbench.reports.columns import taken

    return load_and_tell(_words(plugins), taken)


def _words(plugins: str | Iterable[str]) -> tuple[str, ...]:
    return (plugins,) if isinstance(plugins, str) else tuple(plugins)


def _selection(cases: Cases, registry: Registry, changes: Overrides, *, timed: bool) -> Selection:
    from attnbench.cases.ids import case_id
    from attnbench.cases.select import select

    several: list[object]
    if isinstance(cases, str | bytes | Path | Case) or not isinstance(cases, Iterable):
        several = [cases]
    else:
        several = list(cases)
    for each in several:
        if not isinstance(each, str | Path | Case):
            raise BadInput(
                f"{clean(each)} is not a case: give names of suites, ids of cases, TOML files or Case values"
            )
    words = [case_id(case) if isinstance(case, Case) else str(case) for case in several]
    return select(words, registry, changes, timed=timed)
