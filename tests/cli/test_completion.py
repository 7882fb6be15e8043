"""The shell completes commands, options and the names that plugins bring."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from pathlib import Path

import pytest
from click.shell_completion import BashComplete, get_completion_class

from attnbench.cli import attnbench

VARIABLE = "_ATTNBENCH_COMPLETE"
START = Path(__file__).parents[2] / "docs" / "index.md"
SHELLS = ("bash", "zsh", "fish")
SMOKE_ID = "attention/additive/B1-H2-Lq64-Lk64-D64/none/float32/cpu/forward"


def completed(line: str) -> list[str]:
    """What the last word of a line can become."""
    *words, last = line.split(" ")
    found = BashComplete(attnbench, {}, "attnbench", VARIABLE).get_completions(words[1:], last)
    return [item.value for item in found]


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("attnbench ex", {"explain"}),
        ("attnbench list ", {"rules", "backends", "cases"}),
        ("attnbench --q", {"--quiet"}),
        ("attnbench run --bud", {"--budget"}),
        ("attnbench run gp", {"gpt2"}),
        ("attnbench check smoke te", {"textbook"}),
        ("attnbench run --backend sdpa_f", {"sdpa_flash"}),
        ("attnbench run --baseline ea", {"eager"}),
        ("attnbench list cases --rule scaled", {"scaled_dot"}),
        ("attnbench explain cos", {"cosine"}),
        ("attnbench compare-rules dot sca", {"scaled_dot"}),
        ("attnbench explain dot --example proj", {"projections"}),
        ("attnbench run attention/additive/", {SMOKE_ID}),
        ("attnbench run --format m", {"markdown"}),
    ],
)
def test_what_begins_so(line: str, some: set[str]) -> None:
    found = set(completed(line))
    assert some <= found
    last = line.rpartition(" ")[2]
    assert all(word.startswith(last) for word in found)


def test_backends_of_a_plugin_that_the_line_names(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from attnbench import Backend, hookimpl\n"
        "@hookimpl\n"
        "def attnbench_backends():\n"
        "    yield Backend(name='zebra', summary='mine', prepare=lambda s: None, rules=('dot',))\n"
    )
    assert completed("attnbench run --backend z") == []
    assert completed(f"attnbench run --plugin {file} --backend z") == ["zebra"]
    assert completed(f"attnbench --plugin {file} run --backend z") == ["zebra"]


def test_a_plugin_that_can_not_be_loaded_is_no_word_on_the_terminal() -> None:
    told = io.StringIO()
    with redirect_stderr(told):
        assert "eager" in completed("attnbench run --plugin no_such.py --backend ea")
    assert told.getvalue() == ""


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script(shell: str) -> None:
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(attnbench, {}, "attnbench", VARIABLE)
    assert f"{VARIABLE}={shell}_complete" in script.source_template % script.source_vars()
    assert f"{VARIABLE}={shell}_source attnbench" in START.read_text()
