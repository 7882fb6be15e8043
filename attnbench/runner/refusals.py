"""What a backend declares it can't do, told without starting it."""

from __future__ import annotations

from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.record import Status
from attnbench.types.rule import Rule


def refusal(
    backend: Backend, case: Case, rule: Rule, *, cuda_devices: tuple[str, ...]
) -> tuple[Status, str] | None:
    """The status and reason for which a backend needn't be started on a case, or None."""
    if case.device == "cuda" and not cuda_devices:
        return "unavailable", "this machine has no CUDA device"
    if case.device not in backend.devices:
        return "unavailable", f"runs on {_all_of(backend.devices)} only"
    if case.operation not in backend.operations:
        return "unsupported", f"computes {_all_of(backend.operations)}, not {case.operation}"
    if backend.rules is not None and case.rule not in backend.rules:
        return "unsupported", f"computes {_all_of(backend.rules)}, not {case.rule}"
    if backend.needs_dot_form and not rule.has_dot_form:
        return "unsupported", f"needs a dot product; {case.rule} has no such form"
    if case.dtype not in backend.dtypes:
        return "unsupported", f"computes in {_all_of(backend.dtypes)}, not {case.dtype}"
    if case.pass_ not in backend.passes:
        return "unsupported", f"computes the {_all_of(backend.passes)} pass, not {case.pass_}"
    if case.pass_ != "forward" and case.cache == "rotating":
        return "unsupported", "inputs rotate in forward passes only"
    if case.pass_ != "forward" and (reason := rule.no_gradients(case)) is not None:
        return "unsupported", reason
    if case.dropout and not backend.dropout:
        return "unsupported", f"drops no weights; the case has dropout {case.dropout:g}"
    return None


def _all_of(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
