"""Backends: one way to compute one or more rules, the code that is timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attnbench.types.case import DTYPES, Case, Dtype, Pass
from attnbench.types.rule import Rule, Scoring

if TYPE_CHECKING:
    from torch import Tensor

    Call = Callable[[Tensor, Tensor, Tensor], Tensor]
    Weigh = Callable[[Tensor, Tensor], Tensor]

Layout = Literal["BHLD", "BLHD"]


@dataclass(frozen=True)
class Setup:
    """All that a backend's preparation may see: the case and its parameters, never the activations.

    In a case whose pass is ``backward`` or ``both`` the floating tensors in ``rule_parameters`` and
    ``projections`` are leaves that require gradients, and ``scoring`` is bound to them. A graph is used up
    by a backward pass, so what is derived from parameters is then derived inside of each call:
    :func:`attnbench.kit.scores.derived` sees to that. What depends on the case alone is still prepared.

    scoring: the rule bound to this case and its parameters.
    rule_parameters: by name, each (H, ...), in the case's dtype on its device.
    projections: of ``multihead``: w_q (H·D, E), w_k (Hkv·D, E), w_v (Hkv·Dv, E), with ``bias`` also
        b_q, b_k, b_v; with an output projection w_o (E, H·Dv) - (E, H·D + H·Dv) for a rule that
        concatenates - and with ``bias`` b_o (E,). Row h·D + d of w_q makes feature d of head h.
    """

    case: Case
    rule: Rule
    scoring: Scoring
    rule_parameters: Mapping[str, Tensor]
    projections: Mapping[str, Tensor]


@dataclass(frozen=True)
class Backend:
    """One way to compute attention. Declared as data; only ``prepare`` and ``supports`` are code.

    name: how it's called everywhere. summary: what it does, one line.
    prepare: ``prepare(setup)`` gives the function that is timed. For ``attention`` it is called with
        q (B, H, Lq, D), k (B, Hkv, Lk, D) and v (B, Hkv, Lk, Dv) and returns (B, H, Lq, Dv), or all
        with axes 1 and 2 exchanged where ``layout`` is ``BLHD``; a rule that pairs keys gives k the
        length Lq. For ``multihead`` it is called with the sources of queries (B, Lq, E), keys and
        values (B, Lk, E) - one and the same tensor in self-attention - and returns (B, Lq, E), or
        (B, Lq, H·Dv) where there is no output projection. In the passes ``backward`` and ``both`` the inputs
        are leaves that require gradients, grad mode is on, and the output has a graph that reaches all of
        them and all parameters; the backward pass through it is what is timed, alone or with the call, and
        may be made several times.
    supports: gives the reason in words why it can't run a case, or None. Runs in the worker.
    available: ``available(device)`` gives the reason in words why it can't run on this machine at all (a
        kernel that this build lacks, no compiler), or None. Runs in the worker, before ``supports``.
    operations, rules, dtypes, devices, passes: what it can do at all; ``rules`` None means any rule,
        ``needs_dot_form`` any that has a dot-product form. One that can give gradients has all three passes;
        in a forward pass too it is then checked on inputs that require them, grad mode on, unless
        ``supports`` refuses the case with the pass ``both`` or it compiles.
    requires: modules that must be importable; checked without importing them.
    forkable: whether a prepared process may be forked (no threads, no device of its own).
    compiles: whether preparation takes seconds, so that suites give it a handful of cases.
    quadratic_copies: how many (B, H, Lq, Lk) arrays it holds at once in its case's dtype; 0 for O(L).
    upcasts_softmax: whether the softmax of a half-precision case runs in float32.
    marks: operations by which its kernel is known in what ran, named as in records (no ``aten::``): another
        backend whose call runs one of them is labelled as running this one's kernel.
    dropout: whether it can drop weights (:attr:`Case.dropout`), other ones in every call. Workers are forked
        and seed torch's, NumPy's and Python's random numbers anew; a generator of its own is for the backend
        to seed in forks (``os.register_at_fork``).
    needs_contiguous: whether its inputs must be contiguous. The check gives others some as views too: heads
        and positions exchanged in memory, rows of a layer's sources apart. (What compiles is given none: it
        would compile anew.)
    weights: where it can also give the attention weights of an ``attention`` case: ``weights(setup)`` gives
        a function of q and k, as ``prepare`` gives one of q, k and v, that returns them in the case's dtype,
        (B, H, Lq, Lk) in either layout, exactly 0 where the mask drops a pair. They must be those that its
        outputs are computed with, and are checked, not timed. None where it has none.
    """

    name: str
    summary: str
    prepare: Callable[[Setup], Call]
    supports: Callable[[Case, Rule], str | None] = lambda case, rule: None
    available: Callable[[str], str | None] = lambda device: None
    operations: tuple[str, ...] = ("attention",)
    rules: tuple[str, ...] | None = None
    needs_dot_form: bool = False
    dtypes: tuple[Dtype, ...] = DTYPES
    devices: tuple[str, ...] = ("cpu", "cuda")
    passes: tuple[Pass, ...] = ("forward",)
    layout: Layout = "BHLD"
    requires: tuple[str, ...] = ()
    forkable: bool = True
    compiles: bool = False
    quadratic_copies: int = 2
    upcasts_softmax: bool = True
    marks: tuple[str, ...] = ()
    dropout: bool = False
    needs_contiguous: bool = False
    weights: Callable[[Setup], Weigh] | None = None
