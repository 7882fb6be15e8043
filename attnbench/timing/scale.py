"""The scale of the machine: the present time of products, copies and empty calls.

Every repetition measures it once, in a few milliseconds. The slow part, finding the fastest sizes of
products, happens once in a process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from attnbench.timing.allocator import last_level_cache_bytes
from attnbench.timing.sample import Timer, take_sample, timer_for
from attnbench.types.case import ITEM_BYTES, Dtype
from attnbench.types.device import DEVICES
from attnbench.types.record import MachineScale

if TYPE_CHECKING:
    from torch import Tensor

SIDES = (128, 192, 256, 320, 512, 768, 1024, 2048, 4096, 8192)
"""Sides of the square matrices to try, until a product would take longer than :data:`LONGEST_PRODUCT_NS`.

On a core with AVX2 all sides from 192 on are within 5 % of each other in float32. In float64 sides that are
not powers of two are a third faster.
"""

SIDES_KEPT = 2
LONGEST_PRODUCT_NS = 1_500_000
EACH_NS = 500_000
"""Time for the samples of each product and of the copy. A longer call gets one sample."""

MOST_SAMPLES = 8
SHORTEST_SAMPLE_NS = 40_000
EMPTY_SAMPLES = 3
EMPTY_CALLS = 500

LEAST_COPY_BYTES = 32 * 1024
"""The time of a smaller copy can't be distinguished from the time of its call."""

LARGEST_COPY_BYTES = 256 * 1024 * 1024
COPY_CACHES = 4
"""Larger copies than this many last-level caches have the same speed."""

FAR_COPY_BYTES = 32 * 1024 * 1024
"""Bytes that the far copy reads and writes. Its speed is that of the cache and the memory which cores share,
also with other machines of the same host: a backend that needs 17 MB became 27 % slower from one run to the
next, and no other reference call did."""

FAR_COPIES = 2

CHANNELS, IMAGE, WINDOW = 64, 32, 5
"""The convolution: 161 million operations. Libraries compute windows of 5 directly, but windows of 3 possibly
with fewer operations."""

_CONVOLUTION_FLOPS = 2 * (CHANNELS * WINDOW * (IMAGE - WINDOW + 1)) ** 2
_FASTER = 1.05

_NARROW = 2
"""Bytes of the elements of float16 and bfloat16."""

_WIDE: Dtype = "float32"


def measure_scale(dtype: Dtype, device: str, working_set_bytes: int) -> MachineScale:
    """Time products of square matrices, copies of ``working_set_bytes``, and calls that do nothing.

    Products are in ``dtype``. For float16 and bfloat16 they are in float32 where that is faster here, since
    any kernel may compute so. A copy reads half of the bytes and writes the other half. It has the size of
    the case, so it fits into the same cache, but at least 32 KiB and at most four last-level caches.
    """
    timer = timer_for(device)
    word, sides = _fastest_products(dtype, device)
    products = {side: _bounds_ns(timer, _multiply, *_factors(word, device, side)) for side in sides}
    convolved = _convolved(dtype, device)
    copy_bytes = _copy_bytes(device, working_set_bytes)
    source, target, one = _copied(device, copy_bytes)
    return MachineScale(
        gemm_ns={side: _whole(times) for side, times in products.items()},
        copy_bytes=copy_bytes,
        copy_ns=_whole(_bounds_ns(timer, _copy, target, source, None, shared=True)),
        empty_ns=[
            take_sample(_nothing, None, None, None, EMPTY_CALLS)[0].wall_ns / EMPTY_CALLS
            for _ in range(EMPTY_SAMPLES)
        ],
        copy_call_ns=_times_ns(timer, _copy, one, one.clone(), None),
        convolution_flops=0 if convolved is None else _CONVOLUTION_FLOPS,
        convolution_ns=[] if convolved is None else _whole(_bounds_ns(timer, _convolve, *convolved, None)),
        far_copy_ns=_far_copies_ns(timer, device),
    )


def _far_copies_ns(timer: Timer, device: str) -> list[int]:
    if not DEVICES[device].on_host:
        return []
    source, target, _ = _copied(device, FAR_COPY_BYTES)
    timer(_copy, target, source, None, 1)
    return [timer(_copy, target, source, None, 1)[0].wall_ns for _ in range(FAR_COPIES)]


def _whole(times: list[float]) -> list[int]:
    return [round(ns) for ns in times]


def _bounds_ns(
    timer: Timer, call: Callable[[Any, Any, Any], Any], a: Any, b: Any, c: Any, *, shared: bool = False
) -> list[float]:
    """Do as :func:`_times_ns`; where one thread is faster than all, add its times over their number.

    shared: its times as they are, for a copy: threads share the memory that bounds it.

    Threads wait for each other: with one busy core a product of 63 µs took 12 to 36 ms in every repetition.
    The samples then missed the speed of the machine, and right backends became ``suspect``. On idle cores the
    threads together are at most their number times as fast as one.
    """
    import torch

    times = _times_ns(timer, call, a, b, c)
    threads = torch.get_num_threads()
    if threads == 1 or not DEVICES[a.device.type].on_host:
        return times
    torch.set_num_threads(1)
    try:
        alone = _times_ns(timer, call, a, b, c)
    finally:
        torch.set_num_threads(threads)
    gain = 1 if shared else threads
    return times if min(times) <= min(alone) else [*times, *(ns / gain for ns in alone)]


def _times_ns(timer: Timer, call: Callable[[Any, Any, Any], Any], a: Any, b: Any, c: Any) -> list[float]:
    """Return the nanoseconds per call of a few samples, after a call that warms the caches."""
    timer(call, a, b, c, 1)
    ns = max(1, timer(call, a, b, c, 1)[0].wall_ns)
    if ns > EACH_NS:
        return [ns]
    calls = max(1, SHORTEST_SAMPLE_NS // ns)
    samples = max(1, min(MOST_SAMPLES, EACH_NS // (ns * calls)))
    return [timer(call, a, b, c, calls)[0].wall_ns / calls for _ in range(samples)]


@lru_cache(maxsize=8)
def _fastest_products(dtype: Dtype, device: str) -> tuple[Dtype, tuple[int, ...]]:
    """Return the dtype and the sides of the products with most operations a second here."""
    timer = timer_for(device)
    word = _fastest_dtype(timer, dtype, device)
    rates: dict[int, float] = {}
    before_ns, before = 0.0, SIDES[0]
    for side in SIDES:
        if before_ns * (side / before) ** 3 > LONGEST_PRODUCT_NS:
            break
        ns = min(_times_ns(timer, _multiply, *_factors(word, device, side)))
        rates[side] = side**3 / ns
        before_ns, before = ns, side
    best = sorted(rates, key=lambda side: -rates[side])[:SIDES_KEPT]
    _factors.cache_clear()
    return word, tuple(sorted(best))


@lru_cache(maxsize=8)
def _convolved(dtype: Dtype, device: str) -> tuple[Tensor, Tensor] | None:
    """Return an image and windows, where their convolution has more operations a second than any product.

    A library of matrix products may be slow on the processor of another maker. One had half of the rate of
    convolutions on the same core in float32, and right backends came near that.
    """
    import torch

    word, sides = _fastest_products(dtype, device)
    if word != _WIDE or not DEVICES[device].on_host:
        return None
    timer, rng = timer_for(device), torch.Generator().manual_seed(IMAGE)
    image = torch.randn(1, CHANNELS, IMAGE, IMAGE, generator=rng)
    windows = torch.randn(CHANNELS, CHANNELS, WINDOW, WINDOW, generator=rng)
    rate = _CONVOLUTION_FLOPS / min(_times_ns(timer, _convolve, image, windows, None))
    rates = [2 * side**3 / min(_times_ns(timer, _multiply, *_factors(word, device, side))) for side in sides]
    return (image, windows) if rate > _FASTER * max(rates) else None


def _fastest_dtype(timer: Timer, dtype: Dtype, device: str) -> Dtype:
    # Small products on a device take the time of their launch, whatever their dtype.
    if ITEM_BYTES[dtype] > _NARROW or not DEVICES[device].on_host:
        return dtype
    times: dict[Dtype, float] = {
        word: min(_times_ns(timer, _multiply, *_factors(word, device, SIDES[0]))) for word in (dtype, _WIDE)
    }
    return min(times, key=lambda word: times[word])


@lru_cache(maxsize=len(SIDES))
def _factors(dtype: Dtype, device: str, side: int) -> tuple[Tensor, Tensor, Tensor]:
    import torch

    rng = torch.Generator().manual_seed(side)
    a, b = (torch.randn(side, side, generator=rng).to(device, getattr(torch, dtype)) for _ in range(2))
    return a, b, torch.empty_like(a)


@lru_cache(maxsize=2)  # of the case, and far
def _copied(device: str, copy_bytes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the source, the target, and one element, whose copy takes only the time of a call."""
    import torch

    source = torch.ones(copy_bytes // 8, device=device)
    return source, torch.zeros_like(source), torch.ones(1, device=device)


def _copy_bytes(device: str, working_set_bytes: int) -> int:
    most = min(COPY_CACHES * last_level_cache_bytes(device), LARGEST_COPY_BYTES)
    return max(LEAST_COPY_BYTES, min(working_set_bytes, most)) // 8 * 8


def _multiply(a: Tensor, b: Tensor, out: Tensor) -> None:
    import torch

    torch.mm(a, b, out=out)


def _convolve(image: Tensor, windows: Tensor, _: None) -> None:
    import torch

    torch.conv2d(image, windows)


def _copy(target: Tensor, source: Tensor, _: None) -> None:
    target.copy_(source)


def _nothing(a: None, b: None, c: None) -> None:
    pass
