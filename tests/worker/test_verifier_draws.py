"""What a verifier hands out: parameters, counts and draws; and what it can't open."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
from asked import BUILT_IN_RULES, OUTSPOKEN, SPECIAL_FAMILIES

from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.shared_memory import unpack
from attnbench.runner.link import VerifierFailed, VerifierLink
from attnbench.types.extensions import Source

SMALL = "attention/dot/B2-H4-Hkv2-Lq3-Lk5-D4-Dv6/causal/float32"


def opening(case: str, entropy: int = 1, source: Source = BUILT_IN_RULES) -> rm.OpenCase:
    return rm.OpenCase(case, source, entropy, timed_draws=2, oracle_flops=1e9, without=SPECIAL_FAMILIES)


def opened(verifier: VerifierLink, request: rm.OpenCase) -> tuple[rm.CaseOpened, dict[str, np.ndarray]]:
    answer, fd = verifier.ask(request, rm.CaseOpened)
    parameters = unpack(fd, answer.parameters)
    os.close(fd)
    return answer, parameters


def draw(verifier: VerifierLink, index: int) -> dict[str, np.ndarray]:
    answer, fd = verifier.ask(rm.GetDraw(index), rm.Arrays)
    arrays = unpack(fd, answer.arrays)
    os.close(fd)
    return arrays


def same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    return all(left[name].tobytes() == right[name].tobytes() for name in "qkv")


@pytest.fixture
def new_verifier(plugins_on_path: None) -> Iterator[VerifierLink]:
    link = VerifierLink(60)
    yield link
    link.close()


def test_counts_are_exact_and_parameters_are_named(verifier: VerifierLink) -> None:
    answer, parameters = opened(verifier, opening(SMALL))
    # Three queries at the last three of five keys see 3, 4 and 5 of them, unless the first is at the first.
    assert answer.pairs == 2 * 4 * (1 + 2 + 3)
    assert answer.flops == 2 * answer.pairs * (4 + 6)
    # Nothing is read of the last two keys, which no query sees.
    items = 2 * (4 * 3 * 4 + 2 * 3 * 4 + 2 * 3 * 6 + 4 * 3 * 6)
    assert answer.bytes_moved == 4 * items
    assert (answer.families, parameters) == (("normal",) * 16, {})
    assert {name: x.shape for name, x in draw(verifier, 0).items()} == {
        "q": (2, 4, 3, 4),
        "k": (2, 2, 5, 4),
        "v": (2, 2, 5, 6),
    }
    layer = "multihead/general/B1-H2-L64-D4-E64-bias/none/bfloat16"
    answer, parameters = opened(verifier, opening(layer))
    assert {name: x.shape for name, x in parameters.items()} == {
        "rule.w": (2, 4, 4), "w_q": (8, 64), "w_k": (8, 64), "w_v": (8, 64), "w_o": (64, 8),
        "b_q": (8,), "b_k": (8,), "b_v": (8,), "b_o": (64,),
    }  # fmt: skip
    assert {x.dtype for x in parameters.values()} == {np.dtype(np.uint16)}
    # 4096 output elements are enough; two draws are the fewest.
    assert len(answer.families) == 2


def test_draws_of_the_check_are_the_same_for_everybody_and_timed_ones_are_secret(
    verifier: VerifierLink,
) -> None:
    case = "attention/dot/H4-L64-D16/none/float32"
    first, _ = opened(verifier, opening(case, entropy=1))
    assert len(first.families) == 2
    one = [draw(verifier, index) for index in range(4)]
    opened(verifier, opening(case, entropy=2))
    two = {index: draw(verifier, index) for index in (3, 1, 0, 2)}
    opened(verifier, opening(case, entropy=1))
    again = {index: draw(verifier, index) for index in (2, 0, 3, 1)}
    assert [same(one[i], two[i]) for i in range(4)] == [True, True, False, False]
    assert [same(one[i], again[i]) for i in range(4)] == [True] * 4
    everything = [*one, two[2], two[3]]
    assert not any(same(x, y) for i, x in enumerate(everything) for y in everything[:i])
    opened(verifier, opening(case + "/seed1", entropy=1))
    assert [same(one[i], draw(verifier, i)) for i in range(4)] == [False, False, True, True]


def test_a_source_that_serves_twice_is_stored_once(verifier: VerifierLink) -> None:
    opened(verifier, opening("multihead/dot/H1-L4-D2-E3/none/float32"))
    answer, fd = verifier.ask(rm.GetDraw(0), rm.Arrays)
    size = os.fstat(fd).st_size
    os.close(fd)
    assert [spec.offset for spec in answer.arrays] == [0, 0, 0]
    assert size < 2 * 4 * 3 * 4


@pytest.mark.parametrize(
    ("case", "source", "words"),
    [
        ("attention/dto/H1-L2-D2", BUILT_IN_RULES,
         "ValueError: attnbench 0 (attnbench.rules) brings no rule 'dto' here"),
        ("attention/dot/H1-L2", BUILT_IN_RULES, "BadCase: case 'attention/dot/H1-L2': the size D is missing"),
        ("attention/x/H1-L2-D2", Source("b", "does_not_load", "broken", "2"),
         "ValueError: broken 2 (does_not_load): does not import: OSError: a library is missing"),
        ("attention/misdraws/H2-L2-D2", OUTSPOKEN,
         "ValueError: rule 'misdraws' draws 'w' of shape (3, 3); it declares (2, 3)"),
    ],
)  # fmt: skip
def test_a_case_that_can_not_be_opened_leaves_none_open(
    verifier: VerifierLink, case: str, source: Source, words: str
) -> None:
    opened(verifier, opening(SMALL))
    with pytest.raises(VerifierFailed) as failure:
        verifier.ask(opening(case, source=source), rm.CaseOpened)
    assert str(failure.value).startswith(f"the oracle failed: {words}")
    with pytest.raises(VerifierFailed, match="GetDraw before a case is open"):
        verifier.ask(rm.GetDraw(0), rm.Arrays)


@pytest.mark.parametrize(
    ("rule", "words"),
    [("raises", "ZeroDivisionError: the reference is broken"), ("exits", "SystemExit: 7")],
)
def test_a_reference_that_fails_fails_its_case_alone(verifier: VerifierLink, rule: str, words: str) -> None:
    for _ in range(2):
        with pytest.raises(VerifierFailed) as failure:
            opened(verifier, opening(f"attention/{rule}/H1-L2-D2", source=OUTSPOKEN))
        assert str(failure.value) == f"the oracle failed: {words}"
    opened(verifier, opening(SMALL))
    assert draw(verifier, 0)["q"].shape == (2, 4, 3, 4)
