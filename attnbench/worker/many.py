"""Many calls on the inputs held, whose outputs all go to the parent in one descriptor."""

from __future__ import annotations

import os

from attnbench.worker.answers import stored_answer, written
from attnbench.worker.checked import checked_call
from attnbench.worker.held import Held
from attnbench.worker.messages import Outputs
from attnbench.worker.shared import anonymous_file


def many_outputs(held: Held, count: int) -> tuple[Held, Outputs, int]:
    """Make ``count`` checked calls; gives what is held from now on, the outputs, and their descriptor.

    Each is written down before the next call is made: memory of this process holds two at most.

    Raises:
        WrongOutput: of the first call that did what it must not.
    """
    fd, at, outputs = anonymous_file(), 0, []
    try:
        for _ in range(count):
            held, computed, _ = checked_call(held)
            specs, at = written(fd, at, stored_answer(held, computed), held.case.dtype)
            outputs.append(specs)
    except BaseException:
        os.close(fd)
        raise
    return held, Outputs(tuple(outputs)), fd
