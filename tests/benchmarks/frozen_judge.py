"""Write down what the judge draws, measures and decides: ``python tests/benchmarks/frozen_judge.py FILE``.

With ``--against OLD`` it also compares with an earlier file of the same machine, names the first differences
and ends with 1 if there is one. Made for rebuilding the judge: where a change is meant to change nothing, the
files before and after are equal, byte for byte.

The verifier runs in this process with a fixed secret, so that nothing is left to chance. For each case the
file has: the bits of every draw, as it is and after changes and nudges; the verdict on the plain reference
with its errors and limits; which trivial answer passes; the verdict on each known mistake of the kit that
can be made; and the verdicts on answers of timed calls, right and stale ones. Errors depend on torch and the
processor, so files of two machines differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import msgspec
import numpy as np
import torch

from attnbench.cases.ids import case_id, parse_case
from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.names import PLAIN, parameter_names
from attnbench.plugins.load import load
from attnbench.plugins.sources import named
from attnbench.testing.mistakes import mistakes_for
from attnbench.types.encoding import is_encoded, unencoded
from attnbench.types.extensions import Source
from attnbench.types.operation import Operation, make_known, operation_of
from attnbench.types.rule import Rule
from attnbench.verifier.case import CaseVerifier, passing_trivial_answer
from attnbench.verifier.dropout import DropoutVerifier
from attnbench.verifier.process import error_of_cache
from attnbench.worker.answers import stored_answer
from attnbench.worker.calls import exact_gradients
from attnbench.worker.prepared import PreparedBackend, prepare

ROOT = Path(__file__).parents[2]
RULES = Source("rules", "attnbench.rules", "attnbench", "0")
OPERATIONS = Source("operations", "attnbench.operations", "attnbench", "0")
GATHERED = named(str(ROOT / "tests/operations/gathered.py"))

SECRET, FLOPS, TIMED_DRAWS, CHANGES = 5, 1e9, 2, (3, 8)

CASES = (
    "attention/dot/B1-H2-L6-D4/none/float64",
    "attention/scaled_dot/B1-H2-L16-D8/none/float32",
    "attention/scaled_dot/B2-H4-Hkv2-Lq5-Lk6-D4-Dv3/padding:4,6/float16",
    "attention/scaled_dot/B2-H4-Hkv2-L24-D8/causal/bfloat16",
    "attention/scaled_dot/B1-H2-Lq5-Lk12-D8/causal:lower_right/float32",
    "attention/scaled_dot/B1-H2-L40-D8/causal+window:8/float32",
    "attention/scaled_dot/B2-H2-L12-D8/bool/float32",
    "attention/scaled_dot/B2-H2-L12-D8/float/bfloat16",
    "attention/scaled_dot/B2-H2-L12-D8/bool:per_head/float32",
    "attention/scaled_dot/B1-H2-Lq6-Lk1-D4/none/float32",
    "attention/scaled_dot@scale=0.0833/B1-H2-L24-D128/causal/bfloat16",
    "attention/softcap@c=50/B1-H2-L24-D16/causal/bfloat16",
    "attention/sinks@sink=2/B1-H2-L24-D16/none/float16",
    "attention/sinks/B1-H2-L24-D16/none/float32/cpu/both",
    "attention/alibi/B1-H4-L24-D16/causal/float32",
    "attention/general/B1-H2-L12-D8/none/float32/cpu/both",
    "attention/additive/B1-H2-L12-D8/none/float32/cpu/both",
    "attention/concat_linear/B1-H2-L12-D8/none/float32",
    "attention/cosine/B1-H2-L12-D8/none/float32",
    "attention/scaled_dot/B2-H4-Hkv2-Lq5-Lk6-D4-Dv3/causal/float64/cpu/both",
    "attention/scaled_dot/B1-H4-Hkv2-L24-D8/causal/bfloat16/cpu/backward",
    "attention/scaled_dot/B1-H2-L24-D8/none/float16/cpu/both",
    "attention/scaled_dot/B1-H2-Lq256-Lk32-D16/none/float32/flops1",
    "attention/scaled_dot/B1-H2-L64-D16/none/float32/cpu/forward/dropout0.3",
    "attention/scaled_dot/B1-H2-L16-D8/none/float32/cpu/forward/BLHD",
    "multihead/scaled_dot/B3-H2-L5-D4-E6/none/float32",
    "multihead/scaled_dot/B2-H4-Hkv2-L12-D4-E16-bias/causal/bfloat16/cpu/both",
    "multihead/general/B3-H2-Lq4-Lk5-D4-E6/none/float64/cpu/both",
    "multihead/scaled_dot/B1-H2-L12-D4-E8-noout/padding:7/float32",
    "paged_with_lse/scaled_dot/B2-H4-Hkv2-L12-D8/causal/float32",
    "paged_with_lse/scaled_dot/B1-H2-L8-D8/causal/bfloat16",
    "attention/scaled_dot/B2-H4-Hkv2-Lq5-Lk70-D64/none/float32/cpu/forward/kv=q8_0",
    "attention/scaled_dot/B1-H4-Hkv2-Lq3-Lk33-D64/causal/bfloat16/cpu/forward/kv=q5_1",
    "attention/scaled_dot/B2-H4-Hkv2-Lq3-Lk40-D32/none/bfloat16/cpu/forward/kv=int8:head",
    "attention/scaled_dot/B1-H4-Hkv2-Lq3-Lk40-D32/none/float32/cpu/forward/kv=uint4:channel",
    "attention/scaled_dot@scale=0.07/B1-H4-Hkv1-Lq3-Lk40-D32-Dv24/none/bfloat16/cpu/forward/kv=latent",
)
"""One or more of each operation, dtype, pass, kind of mask, rule and kind of cache; ``flops1`` makes rows
sampled."""


def bits(arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """Return a digest of arrays with their names, dtypes and shapes."""
    found = hashlib.sha256()
    for name, array in arrays.items():
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        flat = np.ascontiguousarray(array).reshape(-1)
        # x86's longdouble has 10 bytes and 6 more that nobody writes.
        one_by_one = flat.view(np.uint8).reshape(len(flat), -1)
        found.update((one_by_one[:, :10] if array.dtype == np.longdouble else one_by_one).tobytes())
    return found.hexdigest()[:16]


@contextmanager
def grad_mode() -> Iterator[None]:
    """Let graphs be made, as a worker does."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def open_case(words: str) -> CaseVerifier:
    """Open a case as the verifier process does, with a fixed secret; it brings the operation it needs."""
    text, _, sampled = words.partition("/flops")
    case = parse_case(text)
    loaded = load(RULES)
    rule = next(rule for rule in loaded.of(Rule) if rule.name == case.rule)
    request = rm.OpenCase(case_id(case), RULES, SECRET, TIMED_DRAWS, float(sampled or FLOPS))
    return (DropoutVerifier if case.dropout else CaseVerifier)(request, rule)


def prepared(opened: CaseVerifier) -> PreparedBackend:
    """Return the plain reference, prepared for the case; the right backend where an operation has none.

    Both take keys and values in the dtype of the case, however it holds them.
    """
    name, source = ("", None) if opened.operation.reference is not None else ("gathered", GATHERED)
    request = m.Prepare(case_id(unencoded(opened.case)), name, source, RULES, (), None)
    with grad_mode():
        return prepare(request, parameter_names(opened.parameters.rule, opened.parameters.projections))[0]


class Answers:
    """The answers of one function to the draws of an open case."""

    def __init__(self, opened: CaseVerifier, backend: PreparedBackend) -> None:
        self.opened, self.backend = opened, backend

    def __call__(self, index: int, change: int = 0, nudged: bool = False) -> dict[str, Any]:
        """Return the parts of the answer to a draw, as stored."""
        with grad_mode():
            apart = is_encoded(self.opened.case)
            arrays = self.opened.arrays(index, change, nudged=nudged, apart=apart)
            ready = self.backend.with_inputs(arrays, fresh=True)
            parts = stored_answer(ready, ready.call(*ready.inputs))
        return {name: np.array(part) for name, part in parts.items()}


def failure(error: BaseException) -> str:
    """Return an exception in words."""
    return f"{type(error).__name__}: {error}"


def draws_of(opened: CaseVerifier) -> Iterator[tuple[str, Any]]:
    """Yield the bits of all inputs and exact outputs."""
    yield "stress_inputs", opened.stress_inputs
    for index in range(len(opened.stress_inputs) + TIMED_DRAWS):
        yield f"draw {index}", bits(opened.arrays(index, 0))
        yield f"exact {index}", bits(opened.draw(index).expected)
        for change in CHANGES:
            try:
                changed = bits(opened.arrays(index, change))
            except ValueError as error:  # subnormal scales lose bits in it; only timed draws are changed
                changed = failure(error)
            yield f"draw {index} change {change}", changed
    if is_encoded(opened.case):
        yield "error of the cache", asdict(error_of_cache(opened))
    inputs = operation_of(opened.case).inputs(opened.case, opened.rule)
    if all(spec.kind == "float" for spec in inputs):
        yield "draw 0 nudged", bits(opened.arrays(0, 0, nudged=True))


def scored(opened: CaseVerifier, who: str, answers: Answers) -> Iterator[tuple[str, Any]]:
    """Yield what is said of each answer of the check, then the verdict."""
    for index in range(len(opened.stress_inputs)):
        problem = opened.score(who, index, answers(index))
        if problem:
            yield f"{who or 'plain'} score {index}", problem
    if not opened.case.dropout:
        yield f"{who or 'plain'} judged", msgspec.to_builtins(opened.judge(who))


def timed(opened: CaseVerifier, plain: Answers) -> Iterator[tuple[str, Any]]:
    """Yield the verdicts on answers of timed calls: right ones, and those to inputs before a change."""
    for index in range(len(opened.stress_inputs), len(opened.stress_inputs) + TIMED_DRAWS):
        opened.begin_timed()
        for change in (0, *CHANGES):
            yield f"timed {index} change {change}", opened.score_timed(index, change, plain(index, change))
            yield f"stale {index} change {change}", opened.score_timed(index, change, plain(index))
        yield f"timed {index} together", opened.end_timed()


def coarse(opened: CaseVerifier, plain: Answers) -> Iterator[tuple[str, Any]]:
    """Yield the verdict on an answer that is rounded to bfloat16, on inputs before and after a nudge."""

    def cut(parts: dict[str, Any]) -> dict[str, Any]:
        return {
            name: (part.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
            for name, part in parts.items()
        }

    for index, stress in enumerate(opened.stress_inputs):
        opened.score("coarse", index, cut(plain(index)))
        if stress == "normal":
            opened.score_nudged("coarse", index, cut(plain(index)), nudged=False)
            opened.score_nudged("coarse", index, cut(plain(index, nudged=True)), nudged=True)
    yield "coarse judged", msgspec.to_builtins(opened.judge("coarse"))
    yield "coarse held to bfloat16", msgspec.to_builtins(opened.judge("coarse", (), "bfloat16"))


def mistakes(opened: CaseVerifier, plain: PreparedBackend) -> Iterator[tuple[str, Any]]:
    """Yield the verdict on each known mistake of the kit that can be made in this case."""
    for mistake in mistakes_for(unencoded(opened.case)):
        try:
            with grad_mode():
                call = mistake.prepare(plain.setup)
            wrong = replace(plain, call=call, passed=None)
            yield from scored(opened, mistake.name, Answers(opened, wrong))
        except Exception as error:
            yield f"{mistake.name} raised", failure(error)


def dropped(opened: DropoutVerifier, plain: Answers) -> Iterator[tuple[str, Any]]:
    """Yield the verdicts on many outputs with dropout, and on as many without."""
    last, p = len(opened.stress_inputs) - 1, opened.case.dropout

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        weights = (q @ k.mT * opened.case.D**-0.5).softmax(-1)
        return torch.nn.functional.dropout(weights, p) @ v

    torch.manual_seed(0)
    for who, backend in (("drops", replace(plain.backend, call=call)), ("never drops", plain.backend)):
        answers = Answers(opened, backend)
        yield f"{who} alone", [opened.score(who, at, answers(at)) for at in range(last + 1)]
        for _ in range(opened.calls):
            opened.tally(who, last, answers(last))
        yield f"{who} judged", msgspec.to_builtins(opened.judge(who))
    yield "unseen", opened.unseen()


def lines_of(words: str) -> Iterator[tuple[str, Any]]:
    """Yield everything about a case, by what it is."""
    opened = open_case(words)
    case, draws = opened.case, len(opened.stress_inputs) + TIMED_DRAWS
    yield from draws_of(opened)
    backend = prepared(opened)
    plain = Answers(opened, backend)
    if case.pass_ != "forward":
        for index in range(draws):
            with grad_mode():
                gradients = exact_gradients(backend.with_inputs(opened.arrays(index, 0), fresh=True))
            yield f"gradients {index}", bits(gradients)
            opened.expect(index, gradients)
    if opened.operation.reference is None:
        yield from scored(opened, "right", plain)
    else:
        for index in range(len(opened.stress_inputs), draws):
            opened.score(PLAIN, index, plain(index))
        yield from scored(opened, PLAIN, plain)
    yield "trivial answer that passes", passing_trivial_answer(opened)
    yield from timed(opened, plain)
    if isinstance(opened, DropoutVerifier):
        yield from dropped(opened, plain)
    elif operation_of(case).heads is None:
        yield from wrong_outputs(opened, plain)
    else:
        forward = (case.operation, case.pass_, case.dtype) == ("attention", "forward", "float32")
        if forward and not is_encoded(case):
            yield from coarse(opened, plain)
        yield from mistakes(opened, backend)


class Off(Answers):
    """The same answers with one element of a part wrong."""

    part = ""

    def __call__(self, index: int, change: int = 0, nudged: bool = False) -> dict[str, Any]:
        """Return the parts of the answer to a draw, as stored."""
        parts = super().__call__(index, change, nudged)
        parts[self.part].flat[1] = 3
        return parts


def wrong_outputs(opened: CaseVerifier, plain: Answers) -> Iterator[tuple[str, Any]]:
    """Yield the verdict on answers with one element of each output off, in turn."""
    for name in plain(0):
        off = Off(opened, plain.backend)
        off.part = name
        yield from scored(opened, f"{name} off", off)


def compare(old: Path, new: list[str]) -> int:
    """Print how lines differ from those of an earlier file; return an exit status."""
    before = {json.dumps(json.loads(line)[:2]): line for line in old.read_text().splitlines()}
    after = {json.dumps(json.loads(line)[:2]): line for line in new}
    differ = [key for key in (*before, *(after.keys() - before)) if before.get(key) != after.get(key)]
    for key in differ[:10]:
        print(f"{key}\n  before: {before.get(key, 'not there')}\n  after:  {after.get(key, 'not there')}")
    print(f"{len(differ)} of {len(after)} lines differ from {old}")
    return 1 if differ else 0


def main() -> int:
    """Write the file, and compare it if asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--case", action="append", help="only these cases")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for source in (OPERATIONS, GATHERED):
        make_known(load(source).of(Operation))
    lines: list[str] = []
    for words in options.case or CASES:
        found = [json.dumps([words, name, value]) for name, value in lines_of(words)]
        print(f"{len(found):>5}  {words}", file=sys.stderr)
        lines += found
    options.file.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} lines in {options.file}")
    return compare(options.against, lines) if options.against else 0


if __name__ == "__main__":
    sys.exit(main())
