"""Backends of the known mistakes in masks, each as its plain form makes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from attnbench import Backend, hookimpl
from attnbench.testing.mistakes.inputs import MASKS

MADE = tuple(Backend(one.name, "a wrong mask", one.prepare, rules=("scaled_dot",)) for one in MASKS)
(MORE,) = (backend for backend in MADE if backend.name == "causal_one_key_more")


def one_more_key_than_queries(case: Any, rule: Any) -> str | None:
    return None if case.Lk == case.Lq + 1 else "one length only"


@hookimpl
def attnbench_backends() -> list[Backend]:
    return [*MADE, replace(MORE, name="one_length", supports=one_more_key_than_queries)]
