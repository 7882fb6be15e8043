"""What the ways to hold a cache cost: in a terminal, in JSON, and on the page."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from cache_runs import SLOWER, cache_run, held
from msgspec import structs

from attnbench.reports.html.charts import cache_rows
from attnbench.reports.html.page import page
from attnbench.reports.run import Run
from attnbench.reports.table import View, table
from attnbench.stats.caches import cache_steps, stages_of_one_cache
from attnbench.types.record import Record


def shown(run: Run, width: int = 100) -> str:
    return table(run.parts, View(width))


def rows(text: str) -> list[list[str]]:
    """The cells of the table of caches, from its line of heads on. Sentences below have no columns."""
    lines = text[text.index("bytes/token") :].split("\n\n")[0].splitlines()[1:]
    return [re.split(r" {2,}", line.strip()) for line in lines if "  " in line]


def without(run: Run, *cases: str) -> Run:
    """The run in which nothing was right in some cases."""
    records = tuple(
        structs.replace(one, status="mismatch", median_ms=None, kv_bytes=None) if one.case in cases else one
        for one in run.by_file[0]
    )
    times = tuple(one for one in run.times[0] if one[0] not in cases)
    return replace(run, by_file=(records,), times=(times,))


def test_a_step_is_compared_by_cache_and_never_summed_over_caches() -> None:
    text = shown(cache_run())
    sentence = (
        "q8_0 takes 0.53 of the memory and 1.20 × the time of bfloat16, with 0.6% error (bfloat16: 0.2%)"
    )
    assert f"decode: {sentence} " in " ".join(text.split())
    # 16 layers at each of two lengths, of 512 bytes and n / 20,000 ms: 16 KiB and 2.46 ms.
    assert rows(text) == [
        ["decode", "bfloat16", "16 KiB", "1", "0.2%", "sdpa_flash", "2.46 ms", "1"],
        ["eager", "4.92 ms", "2.00"],
        ["q8_0", "8.5 KiB", "0.53", "0.6%", "dequantise_sdpa", "2.95 ms", "1.20"],
        ["dequantise_blocks", "5.90 ms", "2.40"],
        ["int8:head", "8 KiB", "0.50", "1.2%", "dequantise_sdpa", "3.69 ms", "1.50"],
        ["dequantise_blocks", "7.37 ms", "3.00"],
        ["q4_0", "4.5 KiB", "0.28", "11%", "dequantise_sdpa", "4.92 ms", "2.00"],
        ["dequantise_blocks", "9.83 ms", "4.00"],
    ]
    assert "all counted calls" not in text
    assert max(map(len, shown(cache_run(), 80).splitlines())) <= 80


def test_of_many_backends_of_a_cache_details_have_all() -> None:
    names = ("other0", "other1", "other2", "other3")
    run = cache_run(words=("dtype", "q8_0"), more=names)
    found = rows(shown(run))
    assert [row[-3:] for row in found[2:-1]] == [
        ["dequantise_sdpa", "2.95 ms", "1.20"],
        ["dequantise_blocks", "5.90 ms", "2.40"],
        ["other0", "8.85 ms", "3.60"],
        ["other1", "11.80 ms", "4.80"],
    ]
    text = table(run.parts, View(100, details=True))
    assert [row[-3] for row in rows(text)[2:]] == ["dequantise_sdpa", "dequantise_blocks", *names]
    assert "2 more: --details" in shown(run)


def test_a_cache_without_a_right_backend_is_named_and_has_no_row() -> None:
    run = without(cache_run(), held(2048, "q8_0"))
    assert "decode: without a time in each case: q8_0\n" in shown(run)
    assert [row[-7] for row in rows(shown(run))[::2]] == ["bfloat16", "int8:head", "q4_0"]
    # Without the dtype's own cache nothing is compared, and no number is made up.
    text = shown(without(cache_run(), held(2048, "dtype")))
    assert "of the memory" not in text
    assert rows(text)[0][-7:] == ["q8_0", "8.5 KiB", "?", "0.6%", "dequantise_sdpa", "2.95 ms", "?"]


def test_a_layer_with_one_cache_is_in_the_sum_of_each() -> None:
    run = cache_run()
    # 16 calls of 0.1 ms at 1,024 keys become those of a layer that has no cache in few bits.
    alone = held(512, "dtype")
    records = tuple(
        structs.replace(one, case=alone) if one.case == held(1024, "dtype") else one for one in run.by_file[0]
    )
    kept = tuple(one for one in records if "Lk1024" not in one.case)
    times = tuple((alone, *one[1:]) if one[0] == held(1024, "dtype") else one for one in run.times[0])
    counts = dict.fromkeys(dict.fromkeys(one.case for one in kept), 16.0)
    stages = dict.fromkeys(counts, "decode")
    head = structs.replace(run.manifests[0], cases=list(counts), counts=counts, stages=stages)
    run = replace(run, by_file=(kept,), manifests=(head,), times=(times,))
    table_of = rows(shown(run))
    # 16 · (51.2 + 102.4) µs, and with q8_0 16 · (51.2 + 122.88) µs.
    assert [row[-2] for row in table_of[:4:2]] == ["2.46 ms", "2.785 ms"]
    assert [row[-6] for row in table_of[:4:2]] == ["16 KiB", "12.2 KiB"]


def test_calls_that_nobody_counted_are_compared_case_by_case() -> None:
    single = shown(cache_run((1024,), counts=False))
    assert "\nq8_0 takes 0.53 of the memory and 1.20 × the time of bfloat16, with" in single
    assert rows(single)[0] == ["bfloat16", "512 B", "1", "0.2%", "sdpa_flash", "51.2 µs", "1"]
    several = shown(cache_run(counts=False))
    assert "of the memory" not in several
    assert [row[0] for row in rows(several)[::8]] == ["Lk1024", "Lk2048"]


def test_a_step_of_a_batch_is_named_by_it_beside_another() -> None:
    run = cache_run(words=("dtype", "q8_0"))

    def moved(case: str) -> str:
        _, _, kv = case.partition("/kv=")
        batch = "attention/scaled_dot/4q1s2k-H8-Hkv2-D64/none/bfloat16/cpu/forward/packed"
        return (batch + (f"/kv={kv}" if kv else "")) if "Lk2048" in case else case

    records = tuple(structs.replace(one, case=moved(one.case)) for one in run.by_file[0])
    times = tuple((moved(case), *more) for case, *more in run.times[0])
    cases = list(dict.fromkeys(one.case for one in records))
    stages = {case: "decode" for case in cases if "Lk1024" in case}
    head = structs.replace(run.manifests[0], cases=cases, counts=dict.fromkeys(cases, 16.0), stages=stages)
    text = shown(replace(run, by_file=(records,), manifests=(head,), times=(times,)))
    assert [row[0] for row in rows(text)[::4]] == ["decode", "4q1s2k"]
    assert "\n4q1s2k: q8_0 takes" in text
    lacking = structs.replace(cache_run().manifests[0], without=["10 convolution layers"])
    text = shown(replace(cache_run(), manifests=(lacking,)))
    assert "\ndecode without 10 convolution layers: q8_0 takes 0.53 of the memory" in text


def test_of_many_caches_those_that_others_beat_have_no_sentence() -> None:
    run = cache_run(words=tuple(SLOWER))
    # As large and as exact as q8_0, and slower.
    records = tuple(
        structs.replace(one, kv_bytes=272.0, encoding_error=0.006) if "kv=int8:head" in one.case else one
        for one in run.by_file[0]
    )
    text = shown(replace(run, by_file=(records,)))
    assert "q8_0 takes" in text
    assert "int8:head takes" not in text
    assert len(rows(text)) == 10


def test_the_page_has_the_table_and_a_chart_of_each_point() -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("vl_convert")
    run = cache_run()
    text = page(run)
    assert "decode: q8_0 takes 0.53 of the memory and 1.20 × the time of bfloat16" in text
    grid = text.partition("<summary>Ways to hold the cache</summary>")[2].partition("</table>")[0]
    assert grid.count("<tr>") == 9
    data = json.loads(text.partition('id="chart-data">')[2].partition("</script>")[0])
    drawn = [row for row in data["rows"] if row.get("in_caches") == "decode"]
    assert drawn == cache_rows(run.parts[0].caches)
    assert {(row["cache"], row["backend"]) for row in drawn if row["front"]} == {("bfloat16", "sdpa_flash")}
    # Names stand on the side with more room.
    assert [row["cache_right"] for row in drawn if "cache_right" in row] == [
        "bfloat16 (1)", "q8_0 (0.53)", "int8:head (0.50)"
    ]  # fmt: skip
    assert [row["cache_left"] for row in drawn if "cache_left" in row] == ["q4_0 (0.28)"]


def test_the_summary_has_the_same_numbers() -> None:
    found = [row for row in cache_run().summary_rows if row["kind"] == "cache"]
    # The fastest of each case, and two backends.
    assert len(found) == 4 * 3
    (row,) = (row for row in found if row["cache"] == "q8_0" and row["backend"] == "dequantise_blocks")
    assert (row["stage"], row["case"], row["cases"]) == ("decode", None, 2)
    assert (row["kv_bytes"], row["cache_error"]) == (32 * 272, pytest.approx(0.006))
    assert (row["ratio"], row["median_ms"]) == (pytest.approx(2.4, rel=0.01), pytest.approx(5.9, rel=0.01))
    single = [row for row in cache_run((1024,), counts=False).summary_rows if row["kind"] == "cache"]
    assert {(row["case"], row["stage"]) for row in single} == {(held(1024, "dtype"), None)}


def test_stages_that_hold_each_case_in_several_ways_are_in_no_sum() -> None:
    plain, coded, other = held(1024, "dtype"), held(1024, "q8_0"), held(2048, "q8_0")
    counts = {plain: 3.0, coded: 3.0, other: 2.0}
    stages = {plain: "decode", coded: "decode", other: "prefill"}
    assert stages_of_one_cache(counts, stages) == {other: 2.0}
    assert stages_of_one_cache({plain: 3.0}, stages) == {plain: 3.0}
    assert cache_steps([Record(plain, "scaled_dot", "eager", "ok")], {}, [], {}, {}) == ()
