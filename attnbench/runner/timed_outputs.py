"""Outputs of timed calls: on which inputs they are, whether all are there, what a wrong one is called."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from attnbench.runner.brief import Brief, Place
from attnbench.worker import messages as m
from attnbench.worker import referee_messages as rm


def draw_places(brief: Brief, stretches: int, *, renewing: bool) -> tuple[Place, ...]:
    """Inputs of a set, two for each stretch where they are renewed within; no draw twice in a row.

    Which they are comes from the operating system, at the time: nobody can have worked with them before.
    """
    places: list[Place] = []
    for _ in range(2 * stretches if renewing else stretches):
        others = [draw for draw in brief.timed_draws if not places or draw != places[-1].draw]
        places.append(Place(secrets.choice(others or brief.timed_draws), 1 + secrets.randbits(62)))
    return tuple(places)


def missing(kept: m.Kept, stretches: int, *, renewing: bool) -> str:
    """What outputs should be there and are not; "" for nothing."""
    for stretch in range(stretches):
        of_stretch = [output for output in kept.outputs if output.stretch == stretch]
        renewed = any(output.renewed for output in of_stretch)
        if not of_stretch or (renewing and not renewed):
            return f"the worker kept no output of stretch {stretch + 1} that can be compared"
    if any(not 0 <= output.stretch < stretches for output in kept.outputs):
        return "the worker kept outputs of a stretch that there was not"
    return ""


def as_timed(output: m.KeptOutput, places: Sequence[Place], stretches: int) -> rm.TimedOutput:
    """An output with the inputs that it is to be compared on."""
    place = places[output.stretch * len(places) // stretches + output.renewed]
    return rm.TimedOutput(place.draw, place.change, output.parts)


def mismatch_words(output: m.KeptOutput, scored: rm.Scored, set_index: int) -> str:
    """That the output of a timed call is wrong: which call, on what inputs, after which law, and how far."""
    where = f"call {output.call + 1} of a sample (set {set_index + 1}, stretch {output.stretch + 1}, "
    where += f"turn {output.turn + 1})"
    on = "inputs written anew while it was timed" if output.renewed else "inputs it had not seen before"
    law = f" ({scored.law})" if scored.law else ""
    return f"in the output of a timed call, {where}, on {on}{law}: {scored.problem}"
