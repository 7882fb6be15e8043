"""Messages, shared memory, and the first steps of a process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from msgspec import Struct, defstruct

from attnbench.ipc import messages
from attnbench.ipc import messages as m
from attnbench.ipc.channel import Channel, ChannelClosed, ChannelTimeout, close_all, socket_pair
from attnbench.ipc.messages import ArraySpec, protocol_fingerprint
from attnbench.ipc.process import NOT_FROM, forbidden, is_code_of, keep_off_other_code
from attnbench.ipc.shared_memory import mapped, pack, unpack

Ends = tuple[Channel[m.Request, m.Reply], Channel[m.Reply, m.Request], socket.socket]
STORAGE = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}
START = "import os, resource, signal, sys\nfrom attnbench.ipc import process\n"
ALLOCATE = """
import numpy as np
if sys.argv[3] != "none":
    resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[3]) << 20,) * 2)
kept = np.ones(int(sys.argv[2]) << 20, np.uint8)
process.limit_memory(int(sys.argv[1]) << 20)
for mib in (32, 64, 128):
    try:
        more = np.ones(mib << 20, np.uint8)
        print("ok")
    except MemoryError:
        print("refused")
    more = None
"""


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket_pair()
    with ours, theirs:
        yield Channel(ours, m.Reply), Channel(theirs, m.Request), theirs  # type: ignore[arg-type]


def test_a_descriptor_arrives_with_its_message(ends: Ends) -> None:
    parent, worker, _ = ends
    read_end, write_end = os.pipe()
    parent.send(m.Compute())
    parent.send(m.Reap(1), (write_end,))
    assert worker.receive(1) == (m.Compute(), [])
    request, fds = worker.receive(1)
    assert request == m.Reap(1)
    os.write(fds[0], b"through")
    assert os.read(read_end, 10) == b"through"
    close_all([read_end, write_end, *fds])


def test_silence_and_an_end_are_told_apart(ends: Ends) -> None:
    parent, worker, _ = ends
    with pytest.raises(ChannelTimeout):
        parent.receive(0.01)
    worker.close()
    with pytest.raises(ChannelClosed):
        parent.receive(1)
    with pytest.raises(ChannelClosed):
        parent.send(m.Compute())


@pytest.mark.parametrize("rubbish", [b"rubbish", b"\x81\xa4type\xa4Nope", b"\xff" * 9])
def test_rubbish_is_told_from_a_message(ends: Ends, rubbish: bytes) -> None:
    parent, _, theirs = ends
    theirs.send(rubbish)
    with pytest.raises(msgspec.DecodeError):
        parent.receive(1)


@given(st.sampled_from(sorted(STORAGE)), st.data())
def test_bits_are_kept(dtype: str, data: st.DataObject) -> None:
    shapes = hnp.array_shapes(min_dims=1, max_dims=4, max_side=5)
    arrays = data.draw(
        st.dictionaries(st.text(max_size=5), hnp.arrays(STORAGE[dtype], shapes), min_size=1, max_size=4)
    )
    fd, specs = pack(arrays, dtype)
    try:
        found = unpack(fd, specs)
    finally:
        os.close(fd)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()


def test_one_array_under_two_names_stays_one() -> None:
    x = np.ones(5)
    fd, specs = pack({"a": x, "b": x, "c": x.copy()}, "float64")
    found = unpack(fd, specs)
    os.close(fd)
    assert found["a"] is found["b"]
    assert found["a"] is not found["c"]


def test_what_is_mapped_is_the_memory_itself_and_writing_to_it_stays_here() -> None:
    fd, specs = pack({"a": np.zeros(3), "b": np.ones(2)}, "float64")
    first, second = mapped(fd, specs), mapped(fd, specs)
    first["a"][:] = 1
    assert second["a"].sum() == 0
    assert unpack(fd, specs)["a"].sum() == 0
    os.close(fd)
    # The descriptor may go before the arrays do.
    assert second["b"].tolist() == [1.0, 1.0]


def test_a_layout_that_does_not_fit_is_refused() -> None:
    fd, _ = pack({"a": np.zeros(3)}, "float64")
    with pytest.raises(ValueError, match="buffer"):
        unpack(fd, [ArraySpec("a", "float64", (4000,), 0)])
    with pytest.raises(ValueError, match="no storage for 'int7'"):
        unpack(fd, [ArraySpec("a", "int7", (1,), 0)])
    os.close(fd)


def run(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", START + code, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, input="from outside")


def test_who_is_no_child_of_its_parent_ends_at_once() -> None:
    """As where the parent died before its child could ask to be told."""
    code = "process.die_with_parent(int(sys.argv[1])); print('alive')"
    orphan = run(code, "1")
    assert (orphan.returncode, orphan.stdout) == (1, "")
    timed = run(code, str(os.getpid()))
    assert (timed.returncode, timed.stdout) == (0, "alive\n")


@pytest.mark.parametrize(
    ("extra", "held", "hard", "expected"),
    [
        (16, 0, "none", ["refused", "refused", "refused"]),
        (48, 0, "none", ["ok", "refused", "refused"]),
        # What is held when the limit is set doesn't count.
        (96, 300, "none", ["ok", "ok", "refused"]),
        (4096, 0, "none", ["ok", "ok", "ok"]),
        # A limit that this process may not raise stays.
        (1 << 20, 0, "1024", ["ok", "ok", "ok"]),
    ],
)
def test_memory_beyond_the_limit_is_refused(extra: int, held: int, hard: str, expected: list[str]) -> None:
    done = run(ALLOCATE, str(extra), str(held), hard)
    assert done.stderr == ""
    assert done.stdout.split() == expected


def test_the_verifier_loads_no_torch() -> None:
    code = (
        "from attnbench.types.extensions import Source\n"
        "from attnbench.ipc import verifier_messages as rm\n"
        "from attnbench.verifier import process as verifier\n"
        "rules = Source('rules', 'attnbench.rules', 'attnbench', '0')\n"
        "for rule in ('dot', 'additive', 'concat_linear', 'sinks', 'alibi'):\n"
        "    case = f'multihead/{rule}/H2-L4-D4-E8-bias/causal+padding/bfloat16'\n"
        "    opened = verifier._open(rm.OpenCase(case, rules, 1, 1, 1e9))\n"
        "    for index in range(len(opened.families) + 1):\n"
        "        opened.draw(index)\n"
        "print(sorted({'torch', 'pandas', 'rich'} & set(sys.modules)))"
    )
    done = run(code)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_code_of_a_tree(tmp_path: Path) -> None:
    tree, link = tmp_path / "tree", tmp_path / "link"
    tree.mkdir()
    link.symlink_to(tree)
    assert is_code_of(tree, tree)
    assert is_code_of(tree / "src" / "a.py", link)
    assert is_code_of(link / "a.py", tree)
    assert not is_code_of(tmp_path / "treehouse", tree)
    assert not is_code_of(tree / ".venv" / "lib" / "python3.11" / "site-packages" / "torch", tree)
    inside = tmp_path / "site-packages" / "tree"
    assert is_code_of(inside / "a.py", inside)


def test_the_import_path_loses_the_tree_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tmp_path / "tree"
    installed = str(tree / "site-packages")
    monkeypatch.setattr(sys, "path", [str(tree), str(tree / "src"), installed, str(tmp_path), "/usr/lib"])
    monkeypatch.delenv(NOT_FROM, raising=False)
    assert forbidden() is None
    keep_off_other_code()
    assert len(sys.path) == 5
    monkeypatch.setenv(NOT_FROM, str(tree))
    keep_off_other_code()
    assert sys.path == [installed, str(tmp_path), "/usr/lib"]


def test_the_working_folder_counts_where_it_is_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "/usr/lib"])
    monkeypatch.setenv(NOT_FROM, str(tmp_path))
    keep_off_other_code()
    assert sys.path == ["/usr/lib"]


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


def done(doc: str, *fields: tuple[str, type]) -> type[Struct]:
    made = defstruct("Done", fields, frozen=True, tag=True)
    made.__doc__ = doc
    return made


@pytest.mark.parametrize(
    ("kind", "differs"),
    [(done("Other words."), False), (done("It was done.", ("more", int)), True)],
    ids=["other words", "another field"],
)
def test_it_changes_with_the_fields_of_messages_alone(
    monkeypatch: pytest.MonkeyPatch, kind: type[Struct], differs: bool
) -> None:
    before = protocol_fingerprint()
    others = [each for each in messages.Reply.__args__ if each is not messages.Done]  # type: ignore[attr-defined]
    reply: object = kind
    for each in others:
        reply = reply | each  # type: ignore[operator]
    monkeypatch.setattr(messages, "Reply", reply)
    assert (protocol_fingerprint() != before) == differs
