"""Packed sequences are judged by every check of attention, sequence by sequence; so is a plugin's storage."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import packed
import pytest
import torch

import attnbench
from attnbench.cases.ids import case_id, parse_case
from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.names import PLAIN, parameter_names
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.plugins.sources import named
from attnbench.storages.packed import PACKED
from attnbench.testing.cases import choose
from attnbench.types.batch import parse_batch
from attnbench.verifier.batch import BatchVerifier
from attnbench.verifier.case import CaseVerifier
from attnbench.worker.answers import stored_answer
from attnbench.worker.calls import exact_gradients
from attnbench.worker.prepared import PreparedBackend, prepare

PLUGIN = str(Path(__file__).with_name("packed.py"))
SOURCE = named(PLUGIN)
BATCH = "2q12_q9s20_q1s32_q5s3_q3s0_q0s4"
CASE = f"attention/scaled_dot/{BATCH}-H4-Hkv2-D8/causal:lower_right/{{}}/cpu/{{}}/packed{{}}"
ASKED = (
    ("float32", "forward", "/lse"),
    ("bfloat16", "forward", "/lse"),
    ("float16", "forward", ""),
    ("float32", "both", "/lse"),
    ("bfloat16", "both", ""),
    ("float32", "backward", ""),
)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors are small: on a busy machine threads would wait for each other most of the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([PLUGIN])


@contextmanager
def grad_mode() -> Iterator[None]:
    with torch.inference_mode(False), torch.enable_grad():
        yield


class Judge:
    """A case that is open, with what the plain reference answers to its draws."""

    def __init__(self, registry: Registry, case: str) -> None:
        self.rule = registry.rules["scaled_dot"]
        opening = rm.OpenCase(case_id(parse_case(case)), self.rule.source, 5, 1, 1e9)
        self.opened = BatchVerifier(opening, self.rule.record)
        self.draws = range(len(self.opened.families) + 1)
        plain = self.prepared("")
        for index in self.draws:
            ready = self.given(plain, index, apart=True)
            if self.opened.case.pass_ != "forward":
                with grad_mode():
                    self.opened.expect(index, exact_gradients(ready))
            assert self.opened.score(PLAIN, index, self.answer(ready)) == ""

    def prepared(self, name: str) -> PreparedBackend:
        parameters = parameter_names(self.opened.parameters.rule, self.opened.parameters.projections)
        source = SOURCE if name else None
        asked = m.Prepare(case_id(self.opened.case), name, source, self.rule.source, (), None)
        with grad_mode():
            return prepare(asked, parameters)[0]

    def given(self, backend: PreparedBackend, index: int, change: int = 0, **how: Any) -> PreparedBackend:
        arrays = self.opened.arrays(index, change, apart=how.pop("apart", False))
        with grad_mode():
            return backend.with_inputs(arrays, fresh=how.pop("fresh", True), **how)

    def answer(self, ready: PreparedBackend) -> dict[str, Any]:
        assert ready.inputs is not None
        with grad_mode():
            return {name: np.array(x) for name, x in stored_answer(ready, ready.call(*ready.inputs)).items()}

    def problem(self, name: str) -> str:
        """What the check says of a backend, then of its answers to changed inputs."""
        backend = self.prepared(name)
        for index in self.draws[:-1]:
            backend = self.given(backend, index, fresh=index == 0)
            if found := self.opened.score(name, index, self.answer(backend)):
                return found
        if found := self.opened.judge(name).problem:
            return found
        for change in (0, 3, 8):
            backend = self.given(backend, self.draws[-1], change, fresh=False)
            if found := self.opened.score_timed(self.draws[-1], change, self.answer(backend)):
                return found
        return ""


@pytest.fixture(scope="module")
def judges(registry: Registry) -> Callable[[str, str, str], Judge]:
    """Open each case once."""
    return cache(lambda *asked: Judge(registry, CASE.format(*asked)))


@pytest.mark.parametrize(("dtype", "pass_", "lse"), ASKED)
def test_a_right_backend_passes(judges: Callable[..., Judge], dtype: str, pass_: str, lse: str) -> None:
    judge = judges(dtype, pass_, lse)
    assert judge.problem("one_by_one") == ""
    judged = judge.opened.judge("one_by_one")
    assert judged.accuracy is not None
    wanted = {"out"} if pass_ != "backward" else set()
    wanted |= {"lse"} if lse else set()
    wanted |= {"q", "k", "v"} if pass_ != "forward" else set()
    assert set(judged.parts) == (wanted if len(wanted) > 1 else set())
    assert judge.opened.passing_trivial_answer() == ""


@pytest.mark.parametrize("mistake", packed.MISTAKES)
def test_a_mistake_is_refused_by_its_part_and_sequence(judges: Callable[..., Judge], mistake: str) -> None:
    part, sequence = packed.MISTAKES[mistake]
    gradient = part in ("q", "k", "v")
    judge = judges("float32", "both" if gradient else "forward", "/lse")
    problem = judge.problem("wrong_" + mistake.replace(" ", "_"))
    what = f"the gradient of {part}" if gradient else f"the output {part!r}"
    assert f"sequence {sequence}: {what}: " in problem


def test_a_batch_of_one_sequence_gets_the_numbers_and_limits_of_the_dense_case(registry: Registry) -> None:
    judge = Judge(registry, "attention/scaled_dot/q9s12-H4-Hkv2-D8/causal:lower_right/packed")
    dense = parse_case("attention/scaled_dot/H4-Hkv2-Lq9-Lk12-D8/causal:lower_right")
    opened = CaseVerifier(rm.OpenCase(case_id(dense), judge.rule.source, 5, 1, 1e9), judge.rule.record)
    dense_only = ("dropped", "sliced", "transposed")
    assert judge.opened.families == tuple(family for family in opened.families if family not in dense_only)
    for index in range(opened.families.index(dense_only[1])):
        whole, alone = judge.opened.arrays(index, 3), opened.arrays(index, 3)
        assert np.array_equal(whole["q"], alone["q"][0].swapaxes(0, 1))
        assert np.array_equal(whole["v"], alone["v"][0].swapaxes(0, 1))


def test_a_storage_that_rounds_is_refused(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(registry, CASE.format("float32", "forward", ""))
    rounding = replace(judge.opened.storage, put=lambda *given: [x.round(3) for x in PACKED.put(*given)])
    monkeypatch.setattr(judge.opened, "storage", rounding)
    with pytest.raises(ValueError, match="the storage packed changes what it holds of q"):
        judge.opened.arrays(0, 0)


def test_a_backend_hears_of_lengths_with_all_inputs_and_never_of_queries(registry: Registry) -> None:
    judge = Judge(registry, CASE.format("float32", "forward", "/lse"))
    heard: list[dict[str, Any]] = []
    backend = replace(judge.prepared("one_by_one"), renew=heard.append)
    backend = judge.given(backend, 0)
    backend = judge.given(backend, 1, fresh=False)
    assert [list(ahead) for ahead in heard] == [["cu_seqlens_q", "cu_seqlens_k"]] * 2
    assert heard[0]["cu_seqlens_k"].tolist() == [0, 12, 24, 44, 76, 79, 79, 83]


def test_the_conformance_kit_makes_batches_for_it_and_asks_for_lse(registry: Registry) -> None:
    chosen = choose(registry.backend("one_by_one"), {"scaled_dot": registry.rule("scaled_dot")})
    cases = [one.case for one in chosen.cases]
    assert {case.storage for case in cases} == {"packed", packed.OWN_STORAGE}
    assert {case.returns for case in cases} == {(), ("lse",)}
    lengths = {pair for case in cases for pair in parse_batch(case.batch)}
    assert any(queries > keys > 0 for queries, keys in lengths)
    assert any(not queries for queries, _ in lengths)
    assert any(not keys for _, keys in lengths)
    assert chosen.findings == ()


@pytest.mark.parametrize("storage", ["packed", packed.OWN_STORAGE])
def test_it_is_run_timed_and_reported_like_any_other(tmp_path: Path, storage: str) -> None:
    case = CASE.format("float32", "both", "/lse").replace("packed", storage)
    backends = ["eager", "one_by_one", "wrong_lse_in_base_2"]
    run = attnbench.run([case], backends, plugins=PLUGIN, sets=1, budget=0.2, out=tmp_path)
    found = {record.backend: record for record in run.records}
    dense, right, wrong = (found[name] for name in backends)
    assert (dense.status, dense.reason) == ("unsupported", f"takes dense inputs, not {storage}")
    assert (right.status, right.reason) == ("ok", "")
    assert right.median_ms is not None
    assert set(right.parts) == {"out", "lse", "q", "k", "v"}
    assert (wrong.status, wrong.failed_check) == ("mismatch", "values")
    assert re.search(r"sequence \d+: the output 'lse': ", wrong.reason)
