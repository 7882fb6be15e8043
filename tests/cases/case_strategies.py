"""Hypothesis strategies for everything a case can be."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

from attnbench.types.case import CACHE_MODES, DEVICES, DTYPES, ORDERS, PASSES, WITH_ROOM, Case, Layer
from attnbench.types.mask import Mask

sizes = st.integers(1, 10**6)
constants = st.dictionaries(
    st.sampled_from(["c", "scale", "window.2", "x_1"]), st.floats(allow_nan=False, allow_infinity=False)
)
layouts = st.sampled_from(
    [
        (q, k, v)
        for q, k, v in itertools.product(ORDERS, repeat=3)
        if q not in WITH_ROOM and len({q, k, v}) > 1 and not (k == v and WITH_ROOM.get(k) == q)
    ]
)
"""Layouts with an order each for q, k and v."""
rule_names = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True)


def masks(B: int | None = None, Lk: int = 10**6) -> st.SearchStrategy[Mask]:
    count = st.integers(1, 4) if B is None else st.just(B)
    lengths = count.flatmap(lambda n: st.tuples(*[st.integers(0, Lk)] * n))
    explicit = [(None, False), *itertools.product(("bool", "float"), (False, True))]
    return st.builds(
        lambda explicit, **parts: Mask(explicit=explicit[0], per_head=explicit[1], **parts),
        causal=st.sampled_from([None, "upper_left", "lower_right"]),
        window=st.none() | sizes,
        padding=st.none() | st.just("seeded") | lengths,
        explicit=st.sampled_from(explicit),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    Hkv, B, Lk = draw(st.integers(1, 200)), draw(st.integers(1, 5)), draw(sizes)
    pass_ = draw(st.sampled_from(PASSES))
    dropout = draw(st.just(0.0) | st.floats(0, 1, exclude_max=True)) if pass_ == "forward" else 0.0
    layer = draw(st.none() | st.builds(Layer, sizes, st.booleans(), st.booleans(), st.booleans()))
    return Case(
        operation="attention" if layer is None else "multihead",
        rule=draw(rule_names),
        B=B,
        H=Hkv * draw(st.integers(1, 16)),
        Hkv=Hkv,
        Lq=draw(sizes),
        Lk=Lk,
        D=draw(sizes),
        Dv=draw(sizes),
        layer=layer,
        mask=draw(masks(B, Lk)),
        dtype=draw(st.sampled_from(DTYPES)),
        device=draw(st.sampled_from(sorted(DEVICES))),
        pass_=pass_,
        cache=draw(st.sampled_from(CACHE_MODES)),
        threads=draw(st.integers(1, 256)),
        seed=draw(st.integers(0, 2**40)),
        dropout=dropout,
        layout="own" if layer else draw(st.sampled_from(["own", *ORDERS]) | layouts.map("_".join)),
        constants=tuple(sorted(draw(constants).items())),
    )
