"""Backends: a way to compute one or more rules, the code that is timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attnbench.types.arithmetic import Arithmetic
from attnbench.types.case import DTYPES, Case, Dtype, Pass
from attnbench.types.mask import ANY_MASK, PLAIN_MASKS, Mask
from attnbench.types.rule import Rule, Scoring, constants_of

if TYPE_CHECKING:
    from torch import Tensor

    Call = Callable[[Tensor, Tensor, Tensor], Tensor]
    Weigh = Callable[[Tensor, Tensor], Tensor]

Layout = Literal["BHLD", "BLHD"]


@dataclass(frozen=True)
class Setup:
    """Everything that a backend's preparation may use: the case and its parameters, never the activations.

    A backend takes scale, cap, bias and sink from ``scoring``: they include the constants that a case chooses
    (:class:`attnbench.types.rule.Constant`). One that takes them from elsewhere reads :attr:`constants`.

    In the passes ``backward`` and ``both`` the floating tensors in ``rule_parameters`` and ``projections``
    are leaves that require gradients, and ``scoring`` is bound to them. A backward pass consumes its graph,
    so tensors derived from parameters must be derived inside each call: use
    :func:`attnbench.kit.scores.derived`. Tensors that depend on the case alone are still prepared.

    scoring: the rule bound to this case and its parameters. rule_parameters: by name, each (H, ...), in the
    dtype and on the device of the case. projections: of ``multihead``: w_q (H·D, E), w_k (Hkv·D, E), w_v
    (Hkv·Dv, E); with ``bias`` also b_q, b_k, b_v. With an output projection w_o (E, H·Dv), or (E, H·D + H·Dv)
    for a rule that concatenates, and with ``bias`` b_o (E,). Row h·D + d of w_q makes feature d of head h.
    """

    case: Case
    rule: Rule
    scoring: Scoring
    rule_parameters: Mapping[str, Tensor]
    projections: Mapping[str, Tensor]

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The parameters of the rule, then the projections."""
        return (*self.rule_parameters.values(), *self.projections.values())

    @property
    def constants(self) -> dict[str, float]:
        """The constants by name: as the case chooses them, else their defaults where they have one."""
        return constants_of(self.case, self.rule)


@dataclass(frozen=True)
class Backend:
    """A way to compute attention, declared as data; only its functions are code.

    name: used everywhere. summary: what it does, one line.

    prepare: ``prepare(setup)`` returns the function that is timed. For ``attention`` the function takes q (B,
    H, Lq, D), k (B, Hkv, Lk, D) and v (B, Hkv, Lk, Dv) and returns (B, H, Lq, Dv); with ``layout`` BLHD axes
    1 and 2 of all are exchanged. A rule that pairs keys gives k the length Lq. For ``multihead`` it takes the
    sources of queries (B, Lq, E), keys and values (B, Lk, E), which are one tensor in self-attention. It
    returns (B, Lq, E), or (B, Lq, H·Dv) without output projection. In the passes ``backward`` and ``both``
    the inputs are leaves that require gradients, grad mode is on, and the graph of the output must reach all
    inputs and parameters. The backward pass is timed, alone or with the call, and may run several times.
    A case that asks for further outputs (``case.returns``) gets a tuple of all. A case with a batch passes
    what its storage makes of the inputs, then the tensors that say where numbers lie, as lengths. A case with
    encoded keys and values passes q, then the tensors of its encoding, as k, v, k_scale and v_scale; it has
    no layout BLHD. If the
    function has a method ``renew``, it is called with a dictionary of the latter whenever inputs were
    written, before the next call and untimed.

    writes_out: whether the prepared function takes ``out=``, the tensors that it is to write and to return (a
    tuple where there are several outputs). The check makes every second call so, with memory full of NaN;
    timed calls never.

    converts: inputs that it holds in an order of its own, among those that a program keeps between calls:
    what the storage keeps (:attr:`Storage.kept`), and encoded keys and values with their scales; never
    queries. Whenever inputs were written, the method ``convert`` of the prepared function gets these tensors
    by name and returns those that calls get in their place; untimed.

    supports: returns the reason in words why it can't run a case, or None. Called in the worker. available:
    ``available(device)`` returns the reason in words why it can't run on this machine at all (a kernel that
    this build lacks, no compiler), or None. Called in the worker, before ``supports``.

    operations, rules, dtypes, devices, passes, storages, encodings, returns: what it can do at all; ``rules``
    None means any rule, ``needs_dot_form`` any rule that has a dot-product form. encodings: by name, without
    grains, which ``supports`` may refuse. A backend with gradients has all three passes. Its forward pass is
    then also checked on inputs that require gradients, unless ``supports`` refuses the case with the pass
    ``both`` or it compiles.

    requires: modules that must be importable; checked without importing them. forkable: whether a prepared
    process may be forked (no threads, no device of its own). compiles: whether preparation takes seconds, so
    that suites give it few cases. quadratic_copies: the number of (B, H, Lq, Lk) arrays that it holds at once
    in the dtype of the case; 0 for O(L). marks: operations that identify its kernel in a trace, named as in
    records (without ``aten::``). Another backend whose call runs one of them is labelled as running this
    kernel.

    masks: the words of masks that it takes; ``any`` stands for all that there are, which suits a backend that
    gets its mask from :mod:`attnbench.kit.masks`. masks_by_head: whether it takes explicit masks that differ
    by head (:attr:`Mask.per_head`), as a (B, H, Lq, Lk) tensor. dropout: whether it can drop weights
    (:attr:`Case.dropout`), with new random numbers in every call. Forked workers seed torch, NumPy and Python
    anew; the backend must seed generators of its own in forks (``os.register_at_fork``). needs_contiguous:
    whether its inputs must be contiguous. Otherwise the check also passes views: heads and positions
    exchanged in memory, rows of a layer's sources apart. (Compiling backends get no views, because they would
    compile again.) ignores_dropped: whether it promises that a key and a value which the mask drops for every
    query never reach the output, even if they hold NaN or infinity. Memory that nobody cleared behind padding
    does. A float mask with -inf alone does not keep this promise: NaN - inf is NaN, and 0 · inf too. Only a
    backend that declares it is asked.

    autocast: the dtypes of ``torch.autocast`` in which it may be called, with float32 inputs. What it gives
    may then have this dtype, and is held to its limits. concurrent: whether two threads may call the prepared
    function at the same time. Only a backend that declares these is asked for them, by the search of
    ``attnbench check --plugin``.

    computes_in: the arithmetic of its products, where that is coarser than the dtype of an output:
    :data:`attnbench.types.arithmetic.ARITHMETICS`. Such outputs and gradients are then held to the limits of
    this arithmetic, and its records are ``inaccurate`` unless the user accepts it (``--accuracy``).

    weights: for a backend that can also return the attention weights of an ``attention`` case.
    ``weights(setup)`` returns a function of q and k. The function returns the weights in the dtype of the
    case, (B, H, Lq, Lk) in either layout, exactly 0 where the mask drops a pair. They must be the weights
    behind its outputs; they are checked, not timed.
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
    storages: tuple[str, ...] = ("dense",)
    encodings: tuple[str, ...] = ("dtype",)
    returns: tuple[str, ...] = ()
    writes_out: bool = False
    converts: tuple[str, ...] = ()
    layout: Layout = "BHLD"
    requires: tuple[str, ...] = ()
    forkable: bool = True
    compiles: bool = False
    quadratic_copies: int = 2
    marks: tuple[str, ...] = ()
    masks: tuple[str, ...] = PLAIN_MASKS
    masks_by_head: bool = False
    dropout: bool = False
    needs_contiguous: bool = False
    computes_in: Arithmetic | None = None
    ignores_dropped: bool = False
    autocast: tuple[Dtype, ...] = ()
    concurrent: bool = False
    weights: Callable[[Setup], Weigh] | None = None

    def lacks_masks(self, mask: Mask) -> tuple[str, ...]:
        """Return the words of a mask that it does not take."""
        if ANY_MASK in self.masks:
            return ()
        return tuple(word.word for word in mask.words if word.word not in self.masks)
