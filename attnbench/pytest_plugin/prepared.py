"""A backend prepared in the process of the tests, on inputs whose exact answers the verifier knows."""

from __future__ import annotations

import os
import secrets
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attnbench.cases.ids import case_id
from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.shared_memory import anonymous_file, mapped
from attnbench.plugins.registry import Entry
from attnbench.pytest_plugin.library_threads import threads_set
from attnbench.pytest_plugin.watched import KeptCall, Watched, copied, watched
from attnbench.runner.context import Brief, Place
from attnbench.runner.repetitions import draw_places
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.worker.answers import stored_answer, written
from attnbench.worker.calls import check_held_output
from attnbench.worker.guards import check_unchanged, keep
from attnbench.worker.outputs import WrongOutput
from attnbench.worker.prepared import Held, prepare
from attnbench.worker.state import changes, read_state, restore

if TYPE_CHECKING:
    from attnbench.ipc.shared_memory import Stored

_PLACES = 4
_MOST_RENEWED = 16
_MOST_RENEWED_BYTES = 64 * 1024**2


class OtherInputs(Exception):  # noqa: N818
    """The test called its backend on inputs that the verifier doesn't know; what came out may be right."""


@dataclass
class Prepared:
    """A backend that can be called, and what is known of its calls.

    places: values that its inputs may have, stored: by number, those of ``stored``. outside: calls made by
    the plugin itself, between rounds.
    """

    held: Held
    brief: Brief
    places: tuple[Place, ...]
    stored: tuple[Mapping[str, Stored], ...]
    watched: Watched
    outside: list[KeptCall] = field(default_factory=list)

    def renew(self) -> None:
        """As :meth:`renew_now`, unless that was done so often that its outputs would take much memory."""
        if len(self.outside) >= _MOST_RENEWED:
            return
        if self.outside and self.held.output_bytes * len(self.outside) > _MOST_RENEWED_BYTES:
            return
        self.renew_now()

    def renew_now(self) -> None:
        """Other values in the same memory, never those before; one call, whose output is kept.

        Raises:
            WrongOutput: see :meth:`call_once`.
        """
        watch = self.watched.watch
        watch.place = secrets.choice([at for at in range(len(self.places)) if at != watch.place])
        self.held.write(self.stored[watch.place])
        self.call_once()

    def call_once(self) -> None:
        """One call of the plugin's own: it must give an output of the case and leave its inputs alone.

        Raises:
            WrongOutput: it doesn't.
        """
        assert self.held.inputs is not None
        before = keep(self.held.inputs)
        output = self.held.call(*self.held.inputs)
        check_unchanged(self.held.inputs, before)
        check_held_output(self.held, output)
        self.outside.append(KeptCall(0, self.watched.watch.place, True, copied(output)))


@contextmanager
def surroundings(case: Case) -> Iterator[None]:
    """What calls are made in, as in a run: the case's threads, and torch's mode for the pass.

    What is torch's for all of the process is as before at the end.
    """
    import torch

    before = read_state()
    forward = case.pass_ == "forward"
    try:
        with threads_set(case.threads), torch.inference_mode(forward), torch.set_grad_enabled(not forward):
            yield
    finally:
        restore(before, changes(before, read_state(), leave=("process", "random")))


def prepared(brief: Brief, case: Case, entry: Entry[Backend]) -> Prepared:
    """Prepare a backend here and make one call; within :func:`surroundings`.

    Raises:
        NotPrepared: it could not be prepared here. WrongOutput: its call did what it must not.
    """
    request = m.Prepare(
        case=case_id(case),
        backend=entry.record.name,
        backend_source=entry.source,
        rule_source=brief.rule_source,
        parameters=brief.parameters.arrays,
        memory_limit_bytes=None,
        operation_source=brief.operation_source,
    )
    places = draw_places(brief, _PLACES, renewing=False)
    with brief.renewed(places) as blocks:
        stored = tuple(mapped(block.fd, block.arrays) for block in blocks)
    before = read_state()
    with warnings.catch_warnings():
        # Of libraries that are imported or compile here; the tests may have warnings fail.
        warnings.simplefilter("ignore")
        held, _ = prepare(request, mapped(brief.parameters.fd, brief.parameters.arrays))
        held = held.with_inputs(stored[0], fresh=True)
        assert held.inputs is not None
        kernel = held.call if case.device == "cpu" else synchronised(held.call)
        made = Prepared(held, brief, places, stored, watched(kernel, held.inputs))
        made.call_once()
    restore(before, changes(before, read_state(), leave=("own",)))
    return made


def synchronised(kernel: Any) -> Any:
    """A call on a device that ends when its work has: launching alone takes no longer than a moment."""
    import torch

    def call(a: Any, b: Any, c: Any) -> Any:
        output = kernel(a, b, c)
        torch.cuda.synchronize()
        return output

    return call


def compare(made: Prepared) -> tuple[str, int]:
    """What is wrong with the outputs that were kept, in words ("" for nothing), and how many are right.

    Raises:
        OtherInputs, VerifierFailed: nobody can tell.
    """
    kept = [*made.watched.watch.kept(), *made.outside]
    if any(not each.ours for each in kept):
        raise OtherInputs("it was called on other inputs than its own, to which nobody knows the answer")
    fd, at = anonymous_file(), 0
    outputs = []
    try:
        for each in kept:
            specs, at = written(fd, at, stored_answer(made.held, each.output), made.held.case.dtype)
            place = made.places[each.place]
            outputs.append(rm.TimedOutput(place.draw, place.change, specs))
        scored, _ = made.brief.verifier.ask(rm.ScoreTimed(tuple(outputs)), rm.Scored, fd)
    except WrongOutput as wrong:
        return str(wrong), 0
    finally:
        os.close(fd)
    if not scored.problem:
        return "", len(kept)
    return f"{_which(kept[scored.place], scored.law)}: {scored.problem}", 0


def _which(call: KeptCall, law: str) -> str:
    after = f" ({law})" if law else ""
    if call.number == 0:
        return f"in the output of a call on inputs written anew in their place{after}"
    return f"in the output of call {call.number} of the test{after}"
