"""Cases with a layout: backends get inputs that lie so, and outputs lie as queries do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import attnbench
from attnbench.cases.ids import parse_case
from attnbench.types.backend import Layout
from attnbench.worker.layouts import laid_out, laying_out

PLUGIN = """
import attnbench
from attnbench.backends.eager import EAGER


def prepare(setup):
    call = EAGER.prepare(setup)

    def attend(q, k, v):
        if q.is_contiguous() or not k.is_contiguous() and setup.case.layout.endswith("_BHLD"):
            raise ValueError(f"strides {q.stride()} and {k.stride()}")
        return call(q, k, v)

    return attend


def declared(name, **changes):
    return attnbench.Backend(name=name, summary=name, prepare=prepare, passes=EAGER.passes, **changes)


@attnbench.hookimpl
def attnbench_backends():
    return [declared("strict"), declared("contiguous_only", needs_contiguous=True)]
"""
SIZES = "attention/dot/B2-H2-L16-D8"


@pytest.mark.slow
def test_backends_get_inputs_in_the_layout_of_the_case(tmp_path: Path) -> None:
    plugin = tmp_path / "strict.py"
    plugin.write_text(PLUGIN)
    asked = ("BLHD", "BL3HD", "LBHD/rotating", "both/BLHD", "own")
    cases = [f"{SIZES}/{words}" for words in asked]
    run = attnbench.run(
        cases, ("strict", "contiguous_only"), plugins=str(plugin), out=tmp_path, budget=0.01, repetitions=1
    )
    found = {(one.case.split("/", 6)[-1], one.backend): one for one in run.records}
    for case in asked[:4]:
        words = case if "both" in case else f"forward/{case}"
        strict, other = (found[words, name] for name in ("strict", "contiguous_only"))
        assert (strict.status, strict.reason) == ("ok", "")
        assert other.status == "unsupported"
        assert other.reason.startswith("takes contiguous inputs only, and not the layout ")
    assert "ValueError: strides" in found["forward", "strict"].reason


@pytest.mark.parametrize("layout", ["BHLD", "BLHD"])
@pytest.mark.parametrize(("word", "axes"), [("BHLD_BLHD_BLHD", (0, 1, 2, 3)), ("BL3HD", (0, 2, 1, 3)),
                                            ("LBHD_BHLD_BHLD", (2, 0, 1, 3))])  # fmt: skip
def test_outputs_and_gradients_lie_as_queries_do(word: str, axes: tuple[int, ...], layout: Layout) -> None:
    case = parse_case(f"{SIZES}/{word}")
    out = torch.randn(2, 2, 16, 8)
    own = out if layout == "BHLD" else out.transpose(1, 2)
    merged = laying_out(lambda q, k, v: own, case, layout)(own, own, own)
    for laid in (merged, laid_out("upstream", out, case, layout)):
        seen = laid if layout == "BHLD" else laid.transpose(1, 2)
        assert torch.equal(seen, out)
        assert seen.permute(axes).is_contiguous()
    again = laying_out(lambda q, k, v: merged, case, layout)(own, own, own)
    assert again.data_ptr() == merged.data_ptr(), "what lies there already is not copied"


def test_what_is_no_tensor_of_heads_comes_as_it_is() -> None:
    case = parse_case(f"{SIZES}/BLHD")
    for out in (None, torch.zeros(3), torch.zeros(2, 2, 16, 8).numpy()):
        assert laying_out(lambda q, k, v, out=out: out, case, "BHLD")(0, 0, 0) is out
