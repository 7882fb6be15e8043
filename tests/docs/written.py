"""The parts of docs/ that are made from the code. Usage: python tests/docs/written.py

It writes the page of all commands, the tables of rules, columns, statuses, checks and hooks, the output
of commands that a page shows, and the picture. test_written.py compares them.
"""

from __future__ import annotations

import inspect
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from unittest.mock import patch

import click
from click.testing import CliRunner

from attnbench import hookspecs
from attnbench.cases.ids import parse_case
from attnbench.cli import attnbench
from attnbench.cli.parameters import load_plugins
from attnbench.doctor.readings import Readings
from attnbench.explained.attention import WEIGHTS, explain
from attnbench.explained.examples import EXAMPLES
from attnbench.explained.lessons import LESSONS
from attnbench.explained.picture import svg
from attnbench.explained.steps import Step
from attnbench.plugins.commands import PluginCommands
from attnbench.plugins.kinds import KINDS
from attnbench.plugins.registry import Registry, load_registry
from attnbench.plugins.sources import installed
from attnbench.reports.answer import SUMMARY
from attnbench.reports.columns import COLUMNS
from attnbench.types.exit_status import EXIT_STATUS
from attnbench.types.mask import parse_mask
from attnbench.types.rule import Rule
from attnbench.types.status import CHECKS, MEANING

DOCS = Path(__file__).parents[2] / "docs"
PICTURE = DOCS / "pictures" / "weights.svg"
SCORE = DOCS / "measured" / "judge-score.json"
SEARCHES = DOCS / "measured" / "searches.jsonl"
CONTRACTS = DOCS / "measured" / "serving-contracts.json"
MODELS = DOCS / "measured" / "models.json"
VERSIONS = DOCS / "measured" / "versions.json"
PICTURED = "scaled_dot on the example five-tokens"
PART = "<!-- {0}: written by python tests/docs/written.py -->\n", "<!-- end of {0} -->\n"
OUTPUT = re.compile(
    r"^(<!-- output (on an arranged machine )?of: ([^\n]+) -->\n```text\n)(.*?)(^```\n)", re.M | re.S
)
PAGES_WITH_OUTPUT = ("learning.md", "doctor.md", "serving.md")
LONGEST_NOTE = 170
WIDTH = 80
"""As many as a terminal has at first, and as the site shows without scrolling."""
ARRANGED = Readings(
    asked_threads=4, allocator="default", cpus=(0, 1), quota=2, free_bytes=6 * 1024**3,
    shares={0: 0.02, 1: 0.97}, swap_used_bytes=0,
    steady={
        0: {"fastest_ms": 2.0, "median_ms": 2.0, "slowest_ms": 2.1, "own_share": 0.99},
        1: {"fastest_ms": 2.0, "median_ms": 4.0, "slowest_ms": 4.2, "own_share": 0.5},
    },
    threads={"threads": 4, "one_ms": 2.0, "asked_ms": 18.0},
    libraries={"torch": "2.13.0", "capability": "AVX512", "cuda": None},
)  # fmt: skip
"""Made-up readings: what is found on the machine that writes the page would be another every time."""


def commands_page() -> str:
    """docs/commands.md: the help of every command of ours."""
    parts = [
        "<!-- written by python tests/docs/written.py -->",
        "# Commands",
        "What `--help` says of each. Commands of plugins stand at the end of `attnbench --help`.",
    ]
    context = click.Context(
        attnbench, info_name="attnbench", terminal_width=WIDTH, **attnbench.context_settings
    )
    context.meta["attnbench.commands"] = PluginCommands({}, ())
    for within in _contexts(context):
        level = "###" if len(within.command_path.split()) > 2 else "##"
        # click marks lines that stay as they are with a backspace, and leaves it where they are indented.
        text = within.command.get_help(within).replace("\b", "")
        lines = "\n".join(line.rstrip() for line in text.splitlines())
        parts.append(f"{level} {within.command_path}\n\n```text\n{lines}\n```")
    return "\n\n".join(parts) + "\n"


def _contexts(context: click.Context) -> Iterator[click.Context]:
    yield context
    group = context.command
    if isinstance(group, click.Group):
        for name in group.list_commands(context):
            found = group.get_command(context, name)
            assert found is not None
            yield from _contexts(click.Context(found, info_name=name, parent=context))


def with_part(page: str, name: str, made: str, text: str | None = None) -> str:
    """The text of a page with the part of that name made anew. text: in place of the page's."""
    text = (DOCS / page).read_text() if text is None else text
    begin, end = (mark.format(name) for mark in PART)
    assert begin in text, f"{page} has no part {name}"
    assert end in text, f"{page} has no part {name}"
    return text.partition(begin)[0] + begin + made + end + text.partition(end)[2]


def rules() -> str:
    """A section for each built-in scoring rule."""
    sections = "\n".join(map(_rule_section, _ours().scoring_rules.values()))
    return f"\n{sections}\n"


def updates() -> str:
    """The table of the built-in updates of a recurrence."""
    rows = [
        (f"`{rule.name}`", f"`{rule.formula}`", rule.source)
        for rule in (entry.record for entry in _ours().rules.values())
        if rule.update is not None
    ]
    return "\n" + _table(("rule", "a step", "source"), rows)


def _ours() -> Registry:
    return load_registry(source for source in installed() if source.distribution == "attnbench")


def columns() -> str:
    """A row for each column of records."""
    rows = [(f"`{one.key}`" if one.key else "", one.head, one.summary) for one in COLUMNS]
    return _table(("name", "head", "contents"), rows)


def summary() -> str:
    """A row for each column of the summary."""
    return _table(("name", "contents"), [(f"`{name}`", text) for name, (_, text) in SUMMARY.items()])


def masks() -> str:
    """The masks with a structure that the lesson draws, three beside each other; a mark keeps a pair."""
    grids = []
    for step in LESSONS["masks"][1](lambda name: _ours().rules[name].record, 0):
        mask, _, sizes = step.name.partition(", ")
        if sizes and parse_mask(mask).more:
            rows = [" ".join("█" if kept else "·" for kept in row) for row in step.values]
            grids.append((mask.replace("+", " +").split(" "), rows))
    text = ""
    for first in range(0, len(grids), 3):
        for part in zip(*grids[first : first + 3], strict=True):  # the words, then the rows
            for cells in zip_longest(*part, fillvalue=""):
                text += "".join(cell.ljust(26) for cell in cells).rstrip() + "\n"
            text += "\n"
    return f"\n```text\n{text[:-1]}```\n"


def statuses() -> str:
    """A row for each status."""
    rows = [(f"`{status}`", meaning.summary, str(meaning.exit_code)) for status, meaning in MEANING.items()]
    return _table(("status", "meaning", "exit status"), rows)


def exit_status() -> str:
    """A row for each exit status."""
    return _table(
        ("exit status", "meaning"),
        [(str(status), text.replace("|", "\\|")) for status, text in EXIT_STATUS.items()],
    )


def checks() -> str:
    """A row for each check."""
    return _table(
        ("check", "what holds if it passes"), [(f"`{name}`", text) for name, text in CHECKS.items()]
    )


def hooks() -> str:
    """A row for each hook."""
    rows = []
    for kind in KINDS:
        specification = getattr(hookspecs, kind.hook)
        signature = str(inspect.signature(specification)).replace("'", "")
        brought = " ".join((inspect.getdoc(specification) or "").split())
        rows.append((f"`{kind.hook}{signature}`", brought, f"`attnbench list {kind.listed}`"))
    return _table(("hook", "what it brings", "listed by"), rows)


def versions() -> str:
    """A column for each environment that .ci/versions tried: the versions it had, and how its steps ended."""
    if not VERSIONS.exists():
        return "No outcome is stored yet."
    outcomes = json.loads(VERSIONS.read_text())
    needed = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]["dependencies"]
    rows = [("Python", *(one["python"] for one in outcomes))]
    rows += [
        (f"`{name}`", *(one["versions"][name] for one in outcomes))
        for name in (re.split("[<>=]", text)[0] for text in needed)
    ]
    said = [{step["name"]: step["said"] for step in one["steps"]} for one in outcomes]
    rows += [(name, *(steps.get(name, "–") for steps in said)) for name in said[0] if name != "install"]
    return _table(
        ("", *(one["name"] for one in outcomes)), [*rows, ("tried on", *(one["date"] for one in outcomes))]
    )


def score() -> str:
    """A row for each family of mistakes that tests/benchmarks/judge_score.py judged, and what was missed."""
    if not SCORE.exists():
        return "No outcome is stored yet.\n"
    found = json.loads(SCORE.read_text())
    facts, controls = found["facts"], found["controls"]
    seeds = ", ".join(map(str, facts["seeds"]))
    load = f"load average {facts['load_before']:.1f} before and {facts['load_after']:.1f} after"
    machine = f"{facts['cpu']}, {facts['cores']} cores, torch {facts['torch']}, {load}, {facts['date']}"
    head = (
        f"Seeds {seeds}: {facts['verdicts']:,} verdicts in {facts['seconds']:,} s on {machine}. Of "
        f"{controls['of']} right backends {controls['kept']} were kept, in "
        f"{controls['verdicts']:,} verdicts.\n\n"
    )
    numbers = ("mutants", "refused", "refusals", "verdicts")
    sums = [sum(one[key] for one in found["families"]) for key in numbers]
    rows = [
        (one["family"], str(one["mutants"]), str(one["refused"]), f"{one['refusals']}/{one['verdicts']}",
         f"`{one['shown_by']}` in `{one['case']}`")
        for one in found["families"]
    ]  # fmt: skip
    rows.append(("all", str(sums[0]), str(sums[1]), f"{sums[2]:,}/{sums[3]:,}", ""))
    table = _table(("family", "mistakes", "refused", "in their cases", "witness"), rows)
    missed = [
        (f"`{one['mutant'].removeprefix('wrong_')}`", one["summary"], f"{one['missed']} of {one['of']}",
         f"`{one['cases'][0]}`" if one["cases"] else "it crashed, raised or was too slow")
        for one in found["missed"]
    ]  # fmt: skip
    if not missed:
        return head + table
    return f"{head}{table}\nNot refused in some of their cases:\n\n" + _table(
        ("mistake", "what it does", "missed", "for example"), missed
    )


def searches() -> str:
    """A row for each backend that tests/benchmarks/search_all.py searched, and what it found."""
    if not SEARCHES.exists():
        return "No outcome is stored yet.\n"
    found = {one["backend"]: one for one in map(json.loads, SEARCHES.read_text().splitlines())}
    rows = [
        (f"`{name}`", one["package"], one["date"], f"{one['cases']:,}",
         f"{one['pairs'][0]:,} of {one['pairs'][1]:,}", f"{one['triples']:.0%}", str(one["wrong"]))
        for name, one in found.items()
    ]  # fmt: skip
    head = ("backend", "package", "date", "cases", "pairs met", "triples", "wrong")
    failures = [
        (f"`{name}`", f"`{failure['point']}`", _tidy(failure["problem"]))
        for name, one in found.items()
        for failure in one["failures"]
    ]
    if not failures:
        return _table(head, rows)
    return f"{_table(head, rows)}\n{_table(('backend', 'smallest case', 'outcome'), failures)}"


def contracts() -> str:
    """A row for each part of the contract that tests/benchmarks/serving_contracts.py asked of libraries."""
    return _asked("batches", "part of the contract")


def caches() -> str:
    """A row for each cache that it asked them for."""
    return _asked("caches", "cache")


def _asked(table: str, of_rows: str) -> str:
    if not CONTRACTS.exists():
        return "No outcome is stored yet.\n"
    found = json.loads(CONTRACTS.read_text())
    versions: dict[str, str] = found["facts"]["versions"]
    own = [cell for cell in found["cells"] if cell["table"] == table]
    cells = {(cell["library"], cell["contract"]): cell for cell in own}
    parts, libraries = (dict.fromkeys(cell[of] for cell in own) for of in ("contract", "library"))
    notes = [cell for cell in own if cell["found"] in ("wrong", "refused")]

    def shown(cell: dict[str, str] | None) -> str:
        if cell is None:
            return "not asked"
        number = f" ({notes.index(cell) + 1})" if cell in notes else ""
        return "–" if cell["found"] == "not askable" else cell["found"] + number

    rows = _table(
        (of_rows, *(f"{words}, {versions[words]}" for words in libraries)),
        [(part, *(shown(cells.get((words, part))) for words in libraries)) for part in parts],
    )
    lines = [f"{at}. `{one['case']}`: {_in_one_line(one['words'])}\n" for at, one in enumerate(notes, 1)]
    return f"Asked on {found['facts']['date']}.\n\n{rows}\n{''.join(lines)}"


def models() -> str:
    """A row for each published model: its layers, how many are cases, and what is said of the rest."""
    if not MODELS.exists():
        return "No outcome is stored yet.\n"
    found = json.loads(MODELS.read_text())
    rows = [
        (
            one["model"],
            ", ".join(f"{number} {name}" for name, number in one["kinds"].items()) or "–",
            f"{one['said']} of {one['of']}",
            "; ".join(map(_tidy, one["left_out"])) or "–",
            "; ".join(map(_tidy, one["assumed"])) or "–",
            one["expected_from"],
        )
        for one in found
    ]
    whole = sum(one["said"] == one["of"] and not one["left_out"] for one in found)
    silent = sum(not one["assumed"] for one in found)
    head = (
        f"{len(rows)} models. Of {whole} every layer is a case at every length, and of {silent} nothing is "
        "assumed.\n\n"
    )
    heads = ("model", "layers", "are cases", "left out", "assumed, or told", "held against")
    return head + _table(heads, rows)


def _tidy(words: str) -> str:
    """Return a sentence of a suite for a cell of a table."""
    return words.removeprefix("no layer of this model can be a case: ").replace("|", "\\|")


def _in_one_line(words: str) -> str:
    """Return the words of an outcome without the case of the check, whose seed is another each time."""
    plain = re.sub(r"on the variant case \S+: | \(on the variant case \S+\)|\[F[^]]*\] ", "", words)
    return plain if len(plain) < LONGEST_NOTE else f"{plain[:LONGEST_NOTE].rpartition(' ')[0]} …"


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _rule_section(rule: Rule) -> str:
    case = parse_case(f"attention/{rule.name}/H8-L64-D64")
    flops = 2 * case.D if rule.score_flops is None else rule.score_flops(case)
    shapes = [f"`{p.name}` {' × '.join(map(str, p.shape)) or 'a number'}" for p in rule.parameters(case)]
    rows = [
        ("source", rule.source),
        ("dot product", "yes" if rule.has_dot_form else "no"),
        ("parameters of a head, D = 64 and L = 64", ", ".join(shapes) or "none"),
        ("constants", ", ".join(map(str, rule.constants)) or "none"),
        ("operations", str(flops)),
        ("laws", ", ".join(f"`{law}`" for law in rule.laws) or "those of any rule"),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    # The formula stands outside: a bar in it would end a cell where GitHub shows the page.
    return f"## {rule.name}\n\n```text\n{rule.formula}\n```\n\n| of `{rule.name}` | |\n|---|---|\n{table}\n"


def with_outputs(text: str) -> str:
    """A page with what the commands in it print now."""

    def written(found: re.Match[str]) -> str:
        head, arranged, line, _, tail = found.groups()
        return head + _printed(line, arranged=bool(arranged)) + tail

    return OUTPUT.sub(written, text)


def _printed(line: str, *, arranged: bool) -> str:
    runner = CliRunner(env={"COLUMNS": str(WIDTH)})
    with patch("attnbench.doctor.readings.read_machine", lambda *_: ARRANGED if arranged else None):
        result = runner.invoke(attnbench, shlex.split(line)[1:], prog_name="attnbench")
    assert result.exit_code == (1 if arranged else 0), result.output
    return "\n".join(text.rstrip() for text in result.stdout.rstrip().splitlines()) + "\n"


def pictured() -> Step:
    """The weights that the picture shows."""
    steps = explain(load_plugins().rule("scaled_dot"), EXAMPLES["five-tokens"])
    return next(step for step in steps if step.name == WEIGHTS)


def documents() -> dict[Path, str]:
    """Every document that has a part made from the code, as it should be."""
    made = {
        DOCS / "commands.md": commands_page(),
        DOCS / "rules.md": with_part("rules.md", "rules", rules()),
        DOCS / "recurrent.md": with_part("recurrent.md", "updates", updates()),
        DOCS / "reports.md": with_part(
            "reports.md", "columns", columns(), with_part("reports.md", "summary", summary())
        ),
        DOCS / "concepts.md": with_part(
            "concepts.md", "statuses", statuses(), with_part("concepts.md", "masks", masks())
        ),
        DOCS / "files.md": with_part("files.md", "checks", checks()),
        DOCS / "index.md": with_part("index.md", "exit_status", exit_status()),
        DOCS / "judge.md": with_part(
            "judge.md", "score", score(), with_part("judge.md", "searches", searches())
        ),
        DOCS / "serving.md": with_part(
            "serving.md",
            "contracts",
            contracts(),
            with_part("serving.md", "caches", caches()),
        ),
        DOCS / "models.md": with_part("models.md", "models", models()),
        DOCS / "plugins.md": with_part("plugins.md", "hooks", hooks()),
        DOCS / "versions.md": with_part("versions.md", "versions", versions()),
    }
    for path in (DOCS / name for name in PAGES_WITH_OUTPUT):
        made[path] = with_outputs(made.get(path) or path.read_text())
    return made


def main() -> None:
    """Write them all."""
    for path, text in documents().items():
        path.write_text(text)
    with click.Context(attnbench):
        PICTURE.write_text(svg([pictured()], PICTURED))


if __name__ == "__main__":
    main()
