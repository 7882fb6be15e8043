from __future__ import annotations

from dataclasses import replace

from attnbench.cases.ids import parse_case
from attnbench.plugins.registry import load_registry
from attnbench.runner.case import refusal
from attnbench.types.backend import Backend


def test_a_backend_that_does_not_say_that_it_drops_weights_is_unsupported() -> None:
    backend = Backend("mine", "a test", prepare=lambda setup: lambda q, k, v: v)
    case, rule = parse_case("attention/dot/H2-L16-D8/dropout0.1"), load_registry().rule("dot")
    said = "unsupported", "drops no weights; the case has dropout 0.1"
    assert refusal(backend, case, rule, cuda_devices=()) == said
    assert refusal(backend, replace(case, dropout=0.0), rule, cuda_devices=()) is None
    assert refusal(replace(backend, dropout=True), case, rule, cuda_devices=()) is None
