"""Messages, and the first steps of a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Union

import pytest
from msgspec import defstruct

from attnbench.ipc import messages
from attnbench.ipc.process import NOT_FROM, forbidden, keep_off_other_code

NO_TORCH = """
import sys
from attnbench.ipc import verifier_messages as rm
from attnbench.types.extensions import Source
from attnbench.verifier import process as verifier
rules = Source("rules", "attnbench.rules", "attnbench", "0")
for rule in ("dot", "additive", "concat_linear", "sinks", "alibi"):
    case = f"multihead/{rule}/H2-L4-D4-E8-bias/causal+padding/bfloat16"
    opened = verifier._open(rm.OpenCase(case, rules, 1, 1, 1e9))
    for index in range(len(opened.families) + 1):
        opened.draw(index)
print(sorted({"torch", "pandas", "rich"} & set(sys.modules)))
"""


def test_the_verifier_loads_no_torch() -> None:
    done = subprocess.run([sys.executable, "-c", NO_TORCH], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize("name", ["tree", "site-packages/tree"])
def test_the_import_path_loses_the_tree_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    tree, link, beside = tmp_path / name, tmp_path / "link", str(tmp_path / f"{name}house")
    tree.mkdir(parents=True)
    link.symlink_to(tree)
    installed = str(tree / ".venv" / "lib" / "site-packages")
    paths = [str(tree), str(tree / "src"), str(link), installed, beside, str(tmp_path), "/usr/lib"]
    monkeypatch.setattr(sys, "path", paths)
    monkeypatch.delenv(NOT_FROM, raising=False)
    assert forbidden() is None
    keep_off_other_code()
    assert len(sys.path) == 7
    monkeypatch.setenv(NOT_FROM, str(tree))
    keep_off_other_code()
    assert sys.path == [installed, beside, str(tmp_path), "/usr/lib"]


def test_a_server_keeps_off_before_it_imports_anything_of_others(tmp_path: Path) -> None:
    """It takes the folder off, then meets our torch, which ends it."""
    (tmp_path / "user").mkdir()
    (tmp_path / "torch.py").write_text("import sys; sys.exit('PATH ' + ' '.join(sys.path))")
    there = os.environ.get("PYTHONPATH", "")
    paths = os.pathsep.join([str(tmp_path / "user"), str(tmp_path), *filter(None, [there])])
    done = subprocess.run(
        [sys.executable, "-m", "attnbench.worker.server", "0", "1", str(os.getpid())],
        env=os.environ | {"PYTHONPATH": paths, "PYTHONSAFEPATH": "1", NOT_FROM: str(tmp_path / "user")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "PATH " in done.stderr, done.stderr
    assert str(tmp_path) in done.stderr.split()
    assert str(tmp_path / "user") not in done.stderr.split()


@pytest.mark.parametrize(
    ("fields", "differs"), [([], False), ([("more", int)], True)], ids=["other words", "another field"]
)
def test_the_protocol_is_the_fields_of_messages(
    monkeypatch: pytest.MonkeyPatch, fields: list[tuple[str, type]], differs: bool
) -> None:
    before = messages.protocol_fingerprint()
    others = [each for each in messages.Reply.__args__ if each is not messages.Done]
    changed = defstruct("Done", fields, frozen=True, tag=True)
    monkeypatch.setattr(messages, "Reply", Union[(changed, *others)])
    assert (messages.protocol_fingerprint() != before) == differs
