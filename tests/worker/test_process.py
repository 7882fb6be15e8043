"""What a process of ours does first, done for real in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys

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
