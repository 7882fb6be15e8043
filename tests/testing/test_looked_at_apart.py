"""The process in which a backend is looked at: it ends with all that the backend has started in it."""

from __future__ import annotations

import fcntl
from pathlib import Path

from attnbench.plugins.registry import load_registry
from attnbench.plugins.sources import named
from attnbench.testing.apart import Asked, Diagnosed, Look, Unsteady, look

CASE = "attention/scaled_dot/B1-H1-Lq4-Lk4-D4/none/float32/cpu/forward"
LEAVES = """
import fcntl, os, time
from pathlib import Path
from attnbench import Backend, hookimpl

def prepare(setup):
    alive = open({alive!r}, "a")
    fcntl.flock(alive, fcntl.LOCK_SH)
    if not os.fork():
        # Not for ever: where nobody ends it, a test shall fail and not hang.
        time.sleep(200)
        Path({late!r}).touch()
        os._exit(0)
    raise ValueError('no')

@hookimpl
def attnbench_backends():
    return [Backend("leaves", "a test", prepare=prepare)]
"""


def test_what_a_backend_leaves_running_ends_with_it(tmp_path: Path) -> None:
    file, alive, late = tmp_path / "leaves.py", tmp_path / "alive", tmp_path / "late"
    file.write_text(LEAVES.format(alive=str(alive), late=str(late)))
    rule = load_registry().rules["scaled_dot"].source
    replies = look(Asked("leaves", named(str(file)), (Look(CASE, rule, ("normal",)),), ((CASE, rule),)))
    assert [type(reply) for reply in replies] == [Diagnosed, Unsteady]
    with alive.open() as all_are_gone:
        fcntl.flock(all_are_gone, fcntl.LOCK_EX)
    assert not late.exists()
