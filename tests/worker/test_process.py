"""What a process of ours does first, done for real in processes of their own."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

START = "import os, resource, signal, sys\nfrom attnbench.ipc import process\n"


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


def test_ctrl_c_does_not_reach_a_worker() -> None:
    code = "process.leave_terminal(); os.kill(os.getpid(), signal.SIGINT); print('alive')"
    assert run(code).stdout == "alive\n"


def test_nothing_goes_out_and_nothing_comes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed before and not written yet goes nowhere either."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    said = run(
        "sys.stdout.write('early'); process.silence(); print('late', flush=True); os.write(1, b'below')\n"
        "print('err', file=sys.stderr); os.write(2, b'below'); sys.exit(len(sys.stdin.read()))"
    )
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")


def test_silence_is_kept_where_there_is_no_stdout() -> None:
    assert run("sys.stdout = sys.stderr = None; process.silence(); os._exit(5)").returncode == 5


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


def test_a_limit_set_again_is_beyond_what_is_held_by_then() -> None:
    code = (
        "import numpy as np\n"
        "first = []\n"
        "for _ in range(3):\n"
        "    process.limit_memory(64 << 20)\n"
        "    first.append(np.ones(48 << 20, np.uint8))\n"
        "print(len(first), resource.getrlimit(resource.RLIMIT_DATA)[1])"
    )
    assert run(code).stdout.split() == ["3", str(resource.getrlimit(resource.RLIMIT_DATA)[1])]


def test_the_first_to_go() -> None:
    code = "process.be_first_to_go(); print(open('/proc/self/oom_score_adj').read())"
    assert int(run(code).stdout) == 1000
    assert int(Path("/proc/self/oom_score_adj").read_text()) < 1000


@pytest.mark.parametrize("module", ["server", "verifier"])
def test_our_processes_take_nothing_but_their_own_parent(module: str) -> None:
    """Started by hand with another's number they are gone before they read a line."""
    words = ["1", "1", "1"] if module == "server" else ["1", "1"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "attnbench.worker.server" if module == "server" else "attnbench.verifier.process",
            *words,
        ],
        timeout=60,
        check=False,
    )
    assert done.returncode == 1


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
