"""For what a choice holds, in words: the threads of its entries, and their lengths and layouts."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from attnbench.cases.ids import given_id, parse_case
from attnbench.choice.table import Choice, Decision
from attnbench.types.case import Case
from attnbench.types.mask import mask_text
from attnbench.types.words import count_of, first_of

_MOST = 6
"""So many lengths are named in a line."""
_MOST_COMMANDS = 3
"""A command names so many cases of its suite; of more it has all."""
_LONGER, _LEAST_LONGER_S = 4, 1.0
"""A longer run has so many times the budget, which halves intervals, and so many seconds at least."""


def entries_by_threads(
    entries: Iterable[tuple[Case, Choice]], threads: int, measured: Collection[int]
) -> tuple[str, str]:
    """Return how many entries a table has for each number of threads, and what to do if none fits here.

    Those that fit come with their lengths. threads: of torch in this process. measured: the numbers of
    threads that the runs had. The second text is "" where an entry fits, as each on a GPU does.
    """
    entries = sorted(entries, key=lambda entry: _order(entry[0]))
    numbers = Counter(case.threads for case, _ in entries if case.on_host)
    fitting = [_lengths(case, one.upto) for case, one in entries if case.on_host and case.threads == threads]
    on_gpu = len(entries) - numbers.total()
    words = []
    if numbers or not on_gpu:
        for number in sorted({*numbers, threads}):
            now = lengths = ""
            if number == threads:
                now = ", as now"
                lengths = f" ({first_of(list(dict.fromkeys(fitting)), _MOST, ', ')})" if fitting else ""
            words.append(f"{count_of(number, 'thread')}{now}: {_entries(numbers[number])}{lengths}")
    if on_gpu:
        words.append(f"cuda: {_entries(on_gpu)}")
    remedy = ""
    if not entries:
        remedy = (
            "the table has no entry, so torch's function computes every call: leave your program as it is"
        )
    elif not numbers[threads] and not on_gpu:
        ((most, _),) = numbers.most_common(1)
        remedy = "no entry fits, so torch's function computes every call: "
        if threads in measured:
            remedy += f"with {count_of(threads, 'thread')} nothing was proved to be faster; for the entries "
        else:
            remedy += f"measure with `attnbench run SUITE --threads {threads}`, or "
        remedy += f"call torch.set_num_threads({most})"
    return "; ".join(words), remedy


def _entries(number: int) -> str:
    if not number:
        return "none"
    return "1 entry" if number == 1 else f"{number:,} entries"


def held(
    choices: Iterable[Choice],
    layout_of: Callable[[str], str],
    tried: Collection[int] = (),
    *,
    settled: bool = True,
) -> list[str]:
    """Return lines: what choices hold for, by device, threads and layout, and what to measure for more.

    tried: the numbers of threads that the runs measured, also where nothing was chosen. layout_of: the
    layout that a backend takes, which a case with the layout ``own`` has. settled: no longer run may prove
    more.
    """
    found: dict[str, dict[str, None]] = {}
    threads = set(tried)
    single = False
    entries = sorted(((parse_case(one.case), one) for one in choices), key=lambda pair: _order(pair[0]))
    for case, one in entries:
        where = case.device
        if case.on_host:
            where = count_of(case.threads, "thread")
            threads.add(case.threads)
        layout = layout_of(one.backend) if case.layout == "own" else case.layout
        cold = ", keys and values not in the processor's caches" if case.cache == "rotating" else ""
        found.setdefault(f"{where}, inputs in {layout}{cold}", {})[_lengths(case, one.upto)] = None
        single = single or not one.upto
    if not found:
        then = ", so leave your program as it is" if settled else " until more is proved"
        return [f"the table is empty: torch's function computes every call{then}"]
    lines = [f"holds for {where}: {first_of(list(names), _MOST, '; ')}" for where, names in found.items()]
    # A causal mask is a word of the call, is_causal, and no tensor.
    if any(mask_text(case.mask) not in ("none", "causal") for case, _ in entries):
        lines.append(
            "a mask tensor is read when it is new, which may cost more than a call gains: make it once"
        )
    more = ["--layout LAYOUT for inputs that lie in another way"]
    if len(threads) == 1:
        more.insert(0, "--threads N for other threads (torch takes one a core if a program sets none)")
    if single:
        more.append("cases of other lengths: a choice serves those between two that chose alike")
    return [*lines, f"for more, run the suite with {'; '.join(more)}"]


def what_next(
    decisions: Sequence[Decision],
    default: str,
    command: Sequence[str],
    budget_s: float,
    out: str = "longer.jsonl",
    gain: str = "",
    tried: Collection[int] = (),
) -> list[str]:
    """Return lines: how to prove what may be faster, and what decode cases leave open.

    A decode that was measured hot is asked again cold.

    command: the words that ran these cases, without backends and budget; none where nobody knows them.
    budget_s: the budget that they had. out: the file of the longer run. gain: in words, what it may prove.
    tried: the numbers of threads that these runs and others measured.
    """
    cases = [parse_case(one.case) for one in decisions]
    lines = []
    hot = any(case.is_decode and case.cache == "hot" for case in cases)
    open_ = [(case, one) for case, one in zip(cases, decisions, strict=True) if one.may_be]
    if open_:
        backends = dict.fromkeys([*(one.may_be for _, one in open_), default])
        # The options of the command are applied before --case looks.
        names = [given_id(replace(case, cache="rotating") if hot and command else case) for case, _ in open_]
        few = names if len(names) <= _MOST_COMMANDS else []
        if not command:
            words = ["attnbench", "run", *(few or ["SUITE"])]
        elif "--case" in command or len(open_) == len(cases):
            words = [*command]
        else:
            words = [*command, *_each("--case", few)]
        longer = max(_LONGER * budget_s, _LEAST_LONGER_S)
        words += [*_each("--backend", backends), "--budget", f"{longer:g}"]
        if hot:
            words += ["--cache", "rotating"]
        if any(one.kept for _, one in open_):
            words += ["--allocator", "default"]
            lines.append(
                "a program gives freed memory back, and every call gets it anew: --allocator default "
                "measures that"
            )
        words += ["--out", out]
        lines.append(f"a longer run may prove what may be faster{gain}: {shlex.join(words)}")
        threads = {*tried, *(case.threads for case in cases if case.on_host)}
        if len(threads) == 1 and 1 not in threads:
            lines.append(
                "other threads may be faster: time a step of your program with torch.set_num_threads(1), and "
                "run these cases with --threads 1 if it is"
            )
    elif decisions and all(one.settled for one in decisions):
        lines.append(
            "no longer run changes this choice of backends: in each case torch's function is the fastest, or "
            "others save too little of a call, or take too long to compile"
        )
    if hot:
        lines.append(
            "decode was measured with inputs in the caches; a program of many layers reads them cold: "
            "run with --cache rotating"
        )
    return lines


def _each(option: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


def _order(case: Case) -> tuple[object, ...]:
    return case.device, case.threads, case.layout, case.Lq == 1, case.Lq, case.Lk


def _lengths(case: Case, upto: int) -> str:
    """Return the lengths of an entry in words."""
    keys = f"{case.Lk}–{upto}" if upto else f"{case.Lk}"
    if case.Lq == case.Lk:
        return f"{keys} queries and keys"
    return f"{'1 query' if case.Lq == 1 else f'{case.Lq} queries'} and {keys} keys"
