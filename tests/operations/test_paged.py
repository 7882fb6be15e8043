"""Keys and values in pages are judged with another order of pages in every draw."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import paged
import pytest
import torch
from batch_judge import Judge
from torch import Tensor

from attnbench.cases.ids import case_id, parse_case
from attnbench.inputs.kinds import NORMAL
from attnbench.inputs.places import change_in
from attnbench.ipc import verifier_messages as rm
from attnbench.kit.problems import flashinfer_tables
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.runner.case import refusal
from attnbench.storages.paged import PAGED
from attnbench.testing.cases import choose
from attnbench.types.batch import parse_batch
from attnbench.types.errors import BadCase
from attnbench.types.operation import TensorSpec
from attnbench.types.problem import call_inputs
from attnbench.types.storage import sizes_of
from attnbench.verifier.batch import BatchVerifier
from attnbench.worker.failures import NotPrepared

PLUGIN = str(Path(__file__).with_name("paged.py"))
BATCH = "q5s19_q3s16_q1s33_q7s4_q2s0_q0s9_q1"
CASE = f"attention/scaled_dot/{BATCH}-H4-Hkv2-D8/causal:lower_right/{{}}/cpu/forward/paged:{{}}"


@pytest.fixture(scope="module")
def registry() -> Registry:
    torch.set_num_threads(1)
    return load_wanted([PLUGIN])


@pytest.fixture(scope="module")
def judge(registry: Registry) -> Judge:
    return Judge(registry, CASE.format("float32", 8))


@pytest.mark.parametrize("name", ["gather", "copied_pages", *map(paged.name_of, paged.RIGHT)])
def test_right_backends_pass(judge: Judge, name: str) -> None:
    assert judge.problem(name) == ""


@pytest.mark.parametrize(("dtype", "page"), [("bfloat16", 1), ("float16", 16), ("float64", 64)])
def test_gather_passes_in_each_precision(registry: Registry, dtype: str, page: int) -> None:
    case = CASE.format(dtype, page).replace("causal:lower_right", "causal:lower_right+window:6") + "/lse"
    assert Judge(registry, case).problem("gather") == ""


@pytest.mark.parametrize("mistake", paged.MISTAKES)
def test_a_mistake_is_refused_with_its_sequence(judge: Judge, mistake: str) -> None:
    problem = judge.problem(paged.name_of(mistake))
    assert f"sequence {paged.MISTAKES[mistake]}: " in problem


def test_each_draw_has_an_order_of_its_own_and_all_kinds_of_fillers(judge: Judge) -> None:
    tables, unused, tails, prefixes = set(), set(), set(), set()
    for index in judge.draws:
        for change in (0, change_in(3, 4), change_in(8, 4)):
            arrays = judge.opened.arrays(index, change)
            again = judge.opened.arrays(index, change)
            table, lengths = arrays["block_table"], arrays["seqused_k"]
            assert all(np.array_equal(arrays[name], again[name], equal_nan=True) for name in arrays)
            assert lengths.tolist() == [19, 16, 33, 4, 0, 9, 1]
            own = [page for row, keys in zip(table, lengths, strict=True) for page in row[: -(-keys // 8)]]
            shared = len(own) - len(set(own))
            prefixes.add(shared > 0)
            assert not shared or not change
            assert 0 <= min(own) <= max(own) < len(arrays["k"])
            tables.add(table.tobytes())
            tails.add("none" if table[4, 0] == -1 else "a page")
            left = arrays["k"][table[3, 0], 4:]
            kinds = {"zeros": left == 0, "NaN": np.isnan(left), "largest": left == np.finfo(np.float32).max}
            unused.add(next((kind for kind, found in kinds.items() if found.all()), "tokens"))
    # An order for each draw of the check, the pooled one, and two repetitions.
    assert len(tables) == len(judge.draws) + 2
    assert unused == {"zeros", "NaN", "largest", "tokens"}
    assert tails == {"none", "a page"}
    assert prefixes == {True, False}


def test_contents_become_harder_and_places_follow_from_the_entropy_of_a_run(
    judge: Judge, registry: Registry
) -> None:
    stored = judge.opened.stored_case
    hardest = [PAGED.severity(stored(index, 0)) for index in judge.draws[:-1]]
    assert hardest == sorted(hardest)
    assert {*hardest} == {0, 1, 2, 3}
    other = rm.OpenCase(case_id(judge.opened.case), judge.rule.source, 6, 1, 1e9)
    again = BatchVerifier(other, judge.rule.record).stored_case
    assert all(stored(index, 0).seed != again(index, 0).seed for index in judge.draws)
    order = stored(judge.draws[-1], change_in(7, 1))
    assert order == stored(judge.draws[-1], change_in(7, 2)) != stored(judge.draws[-1], change_in(8, 1))


def test_sequences_on_the_same_pages_have_equal_keys_and_answers_of_their_own(judge: Judge) -> None:
    stored = judge.opened.stored_case
    shared = {at: judge.opened.storage.shares(stored(at, 0)) for at in judge.draws[:-1]}
    found = 0
    for index, stress in enumerate(judge.opened.stress_inputs):
        for one in shared[index] if stress == NORMAL else ():
            first, number = (judge.opened.problems[which].draw(index) for which in (one.first, one.number))
            for name in ("k", "v"):
                assert np.array_equal(*(x.inputs[name][:, :, : one.keys] for x in (first, number)))
            assert not np.array_equal(first.inputs["q"][:, :, :1], number.inputs["q"][:, :, :1])
            found += 1
    assert found > 2


def test_the_page_is_a_size_of_the_id_and_shapes_follow_from_it(registry: Registry) -> None:
    case = parse_case(CASE.format("float32", 16))
    assert case_id(case).endswith("/paged")
    assert case_id(parse_case(CASE.format("float32", 4))).endswith("/paged:4")
    specs = {spec.name: spec.shape for spec in call_inputs(case, registry.rule("scaled_dot"))}
    # 2 + 1 + 3 + 1 + 0 + 1 + 1 pages are used, a quarter more and one are in the pool.
    assert specs["k"] == specs["v"] == (12, 16, 2, 8)
    assert specs["block_table"] == (7, 4)
    assert specs["q"] == (19, 4, 8)


def test_what_makes_no_sense_is_refused() -> None:
    for wrong, words in (("paged:0", "page = 0: give 1 to"), ("paged:8/both", "has no gradients")):
        with pytest.raises(BadCase, match=words):
            parse_case(CASE.format("float32", 8).replace("forward/paged:8", wrong))


def test_a_backend_converts_the_cache_with_every_write_and_never_sees_queries(judge: Judge) -> None:
    heard: list[dict[str, Tensor]] = []

    def convert(cache: dict[str, Tensor]) -> dict[str, Tensor]:
        heard.append(cache)
        return {name: x.transpose(1, 2).contiguous() for name, x in cache.items()}

    backend = replace(judge.prepared("right_own_order_of_the_cache"), convert=convert)
    for fresh in (True, False):
        backend = judge.given(backend, int(not fresh), fresh=fresh, guarded=True)
        assert backend.inputs is not None
        _, k, v, *ahead = backend.inputs
        assert len(ahead) == 3
        assert heard[-1].keys() == {"k", "v"}
        for held, name in ((k, "k"), (v, "v")):
            assert torch.equal(held.transpose(1, 2).nan_to_num(0.5), heard[-1][name].nan_to_num(0.5))
    assert len(heard) == 2


@pytest.mark.parametrize("name", ["q", "block_table"])
def test_only_what_a_program_keeps_between_calls_is_converted(registry: Registry, name: str) -> None:
    case, rule = parse_case(CASE.format("float32", 8)), registry.rule("scaled_dot")
    backend = replace(registry.backend("right_own_order_of_the_cache"), converts=(name,))
    found = refusal(backend, case, rule, devices=())
    assert found == ("unsupported", f"converts {name}, which no program keeps between calls of paged")


@pytest.mark.parametrize("gives", [None, {"k": 1}])
def test_a_conversion_that_gives_other_names_is_an_error(judge: Judge, gives: object) -> None:
    backend = replace(judge.prepared("right_own_order_of_the_cache"), convert=lambda cache: gives)
    with pytest.raises(NotPrepared, match="give a dictionary of k, v"):
        judge.given(backend, 0)


def test_it_gives_back_what_it_was_given() -> None:
    cases = (replace(parse_case(CASE.format("float32", 3)), seed=seed) for seed in range(64))
    case = next(one for one in cases if not PAGED.shares(one))
    specs = tuple(TensorSpec("v", (1, 2, keys, 5), axes="bgje") for keys in (19, 16, 33, 4, 0, 9, 1))
    arrays = [np.random.default_rng(spec.shape[2]).random(spec.shape) for spec in specs]
    stored = PAGED.put(case, specs, arrays)
    assert [array.shape for array in stored] == [spec.shape for spec in PAGED.tensors(case, specs)]
    for given, back in zip(arrays, PAGED.take(case, specs, stored), strict=True):
        assert np.array_equal(given, back)


@pytest.mark.slow
def test_the_conformance_kit_makes_cases_for_it(registry: Registry) -> None:
    rules = {name: entry.record for name, entry in registry.rules.items()}
    chosen = choose(registry.backend("gather"), rules)
    assert chosen.findings == ()
    assert {one.case.storage for one in chosen.cases} == {"paged"}
    assert {one.case.sizes for one in chosen.cases} == {(), (("page", 32),)}
    for one in chosen.cases:
        keys, page = {keys for _, keys in parse_batch(one.case.batch)}, sizes_of(one.case)["page"]
        assert len(keys) == 1 or {0, 1, page - 1, page, page + 1} <= keys


def test_the_example_of_the_docs_is_right_and_declines_other_batches(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    plugin = tmp_path / "my_paged.py"
    plugin.write_text(page.partition("```python\n")[2].partition("```")[0], encoding="utf-8")
    registry = load_wanted([str(plugin)])
    decode = "attention/scaled_dot/5q1s21-H4-Hkv2-D8/causal:lower_right/float32/paged:4"
    assert Judge(registry, decode).problem("my_paged") == ""
    supports = registry.backend("my_paged").supports
    for other in (decode.replace("5q1s21", "5q1s21_q3"), decode.replace("/causal:lower_right", "")):
        assert supports(parse_case(other), registry.rule("scaled_dot")) is not None


def test_the_words_of_flashinfer_find_the_same_keys(registry: Registry) -> None:
    case = parse_case("attention/scaled_dot/q5s19_q3s16_q1s33_q7s4_q1-H4-Hkv2-D8/paged:8")
    opened = Judge(registry, case_id(case)).opened
    for index in range(4):
        arrays = opened.arrays(index, 0)
        table, lengths, cache = (torch.from_numpy(arrays[name]) for name in ("block_table", "seqused_k", "k"))
        indptr, indices, last_page_len = flashinfer_tables(table, lengths, 8)
        assert {x.dtype for x in (indptr, indices, last_page_len)} == {torch.int32}
        assert indptr.tolist() == [0, 3, 5, 10, 11, 12]
        assert last_page_len.tolist() == [3, 8, 1, 4, 1]
        for number, problem in enumerate(opened.problems):
            pages = indices[indptr[number] : indptr[number + 1]]
            length = 8 * (len(pages) - 1) + int(last_page_len[number])
            found = cache[pages].flatten(0, 1)[:length]
            assert np.array_equal(found, problem.arrays(index, 0)["k"][0].swapaxes(0, 1))


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        ([9, 0], "sequence 1 has no keys: flashinfer's last_page_len is 1 to 8"),
        ([9, 25], "the block table has 3 pages a sequence; sequence 1 needs 4 for 25 keys in pages of 8"),
    ],
)
def test_what_the_words_of_flashinfer_cannot_say_is_refused(lengths: list[int], said: str) -> None:
    table = torch.arange(6, dtype=torch.int32).view(2, 3)
    with pytest.raises(ValueError, match=said):
        flashinfer_tables(table, torch.tensor(lengths), 8)
