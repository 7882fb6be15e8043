"""How near right and wrong kernels come to the limits.

``python tests/benchmarks/shares.py [--picture docs/pictures/shares.svg] [LENGTH ...]``

Right ones are those of tests/maths: summation.py (orders of sums, split keys, other exps) and
right_kernels.py. Wrong ones are those of wrong_kernels.py, and the kit's mistakes of precision. A share is
the larger of the RMS and the largest error, each over its limit; of all kinds of inputs the largest counts,
since a kernel that fails one of them is refused. An output that is not finite has the share inf.

Prints a table for each dtype: for right ones the largest share, for wrong ones the smallest; and how many
kernels have shares of each power of ten. The picture shows the shares of all.
"""

from __future__ import annotations

import math
import sys
import warnings
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "maths"))

from judged import Judge
from maths_tools import RULES
from right_kernels import Kernel, kernels
from summation import ORDERS
from wrong_kernels import WRONG

from attnbench.cases.ids import parse_case
from attnbench.inputs.kinds import DELIVERIES, stress_inputs_of
from attnbench.testing.mistakes.scores import PRECISION
from attnbench.types.case import DTYPES, Case, Dtype
from attnbench.types.mask import mask_text

LENGTHS = (16, 300, 4096)
MASKS = ("none", "causal:lower_right", "bool", "window:40", "float")
SHOWS = MASKS[:3]
"""Masks under which every mistake shows. A window drops lost keys; with numbers added no scores are large."""
MOST_KEYS = 512
"""Above, right kernels alone, unmasked: what is lost among many keys in half precision shows in no limit."""
PRECISE = ("scale 0.1 % off", *(mistake.name for mistake in PRECISION))
"""Mistakes that show in float32 and float64 alone."""
COLOURS = {"right": "#08519c", "wrong": "#d94801"}
LEFT, WIDTH, HEIGHT = 70, 84, 72
"""Of the picture, in pixels: its left margin, the width of a power of ten, the height of a dtype."""
LOWEST, HIGHEST, BARS = -3, 4, 10
"""The powers of ten at both ends of the picture, where what lies beyond is counted too; the bars of each."""


def right_ones(case: Case) -> dict[str, Kernel]:
    """Right kernels by name; those that need many steps on short cases alone."""
    short = {} if case.Lk > MOST_KEYS else {kernel.__name__: kernel for kernel in kernels()}
    return ORDERS | short


def wrong_ones(case: Case) -> dict[str, Kernel]:
    """Wrong kernels by name whose mistakes show in the case."""
    if case.Lk > MOST_KEYS or mask_text(case.mask) not in SHOWS:
        return {}
    found = dict(WRONG)
    for mistake in PRECISION:
        if mistake.name != "float32_inside" or case.dtype == "float64":
            found[mistake.name] = lambda setup, q, k, v, mistake=mistake: mistake.prepare(setup)(q, k, v)
    wide = case.dtype in ("float32", "float64")
    return {name: kernel for name, kernel in found.items() if wide or name not in PRECISE}


def shares(case: Case) -> tuple[dict[str, float], dict[str, float]]:
    """Return the largest share of each right and of each wrong kernel over all kinds of inputs."""
    right, wrong = right_ones(case), wrong_ones(case)
    found = dict.fromkeys((*right, *wrong), 0.0)
    for kind in stress_inputs_of(case, RULES[case.rule]):
        if kind in DELIVERIES:
            continue
        judge = Judge(case, stress=kind)
        for name, kernel in (right | wrong).items():
            found[name] = max(found[name], judge.share(kernel))
    return {name: found[name] for name in right}, {name: found[name] for name in wrong}


def decade(share: float) -> str:
    """Name the power of ten that a share is in."""
    if share < 0.01:
        return "< 0.01"
    if share >= 1000:
        return "≥ 1000"
    low = 10.0 ** math.floor(math.log10(share))
    return f"{low:g} to {10 * low:g}"


def picture(found: Mapping[Dtype, Mapping[str, Sequence[float]]]) -> str:
    """Return an SVG: for each dtype how many right and wrong kernels have which share."""
    right_edge, bottom = LEFT + WIDTH * (HIGHEST - LOWEST), 40 + HEIGHT * len(found)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{right_edge + 20}" height="{bottom + 44}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>',
    ]
    for at, word in ((LEFT, "right"), (LEFT + 140, "wrong")):
        parts.append(f'<rect x="{at}" y="12" width="12" height="12" fill="{COLOURS[word]}"/>')
        parts.append(f'<text x="{at + 18}" y="23">{word} kernels</text>')
    for power in range(LOWEST, HIGHEST + 1):
        x = LEFT + WIDTH * (power - LOWEST)
        line = 'stroke="black" stroke-width="2"' if power == 0 else 'stroke="#ddd"'
        parts.append(f'<line x1="{x}" x2="{x}" y1="40" y2="{bottom}" {line}/>')
        parts.append(f'<text x="{x}" y="{bottom + 17}" text-anchor="middle">{10.0**power:g}</text>')
    middle = f'x="{(LEFT + right_edge) / 2}" y="{bottom + 36}" text-anchor="middle"'
    parts.append(f"<text {middle}>error over its limit; an output above 1 is refused</text>")
    for row, (dtype, of) in enumerate(found.items()):
        base = 40 + HEIGHT * (row + 1)
        parts.append(f'<text x="{LEFT - 8}" y="{base - 6}" text-anchor="end">{dtype}</text>')
        parts.append(f'<line x1="{LEFT}" x2="{right_edge}" y1="{base}" y2="{base}" stroke="#888"/>')
        bars = {word: Counter(map(bar, some)) for word, some in of.items()}
        most = max(count for counts in bars.values() for count in counts.values())
        for word, counts in bars.items():
            for place, count in sorted(counts.items()):
                tall = max(2.0, (HEIGHT - 8) * count / most)
                parts.append(
                    f'<rect x="{LEFT + WIDTH * place / BARS:g}" y="{base - tall:.1f}" '
                    f'width="{WIDTH / BARS - 1:g}" height="{tall:.1f}" fill="{COLOURS[word]}"/>'
                )
    return "\n".join([*parts, "</svg>"]) + "\n"


def bar(share: float) -> int:
    """Return the number of the bar that counts a share."""
    power = min(max(math.log10(max(share, 1e-300)), LOWEST), HIGHEST) if share < math.inf else HIGHEST
    return min(math.floor((power - LOWEST) * BARS), (HIGHEST - LOWEST) * BARS - 1)


def main() -> None:
    """Print the tables as Markdown, and draw the picture."""
    warnings.simplefilter("ignore")
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, metavar="FILE")
    parser.add_argument("lengths", nargs="*", type=int, metavar="LENGTH", default=LENGTHS)
    asked = parser.parse_args()
    rows, nearest = [], []
    every: dict[Dtype, dict[str, list[float]]] = {}
    for dtype in DTYPES:
        right: list[tuple[float, str]] = []
        wrong: list[tuple[float, str]] = []
        for length in asked.lengths:
            for mask in MASKS if length <= MOST_KEYS else MASKS[:1]:
                queries = f"Lq{min(length, 16)}-Lk{length}"
                case = parse_case(f"attention/scaled_dot/B1-H4-Hkv2-{queries}-D64/{mask}/{dtype}")
                for into, of in zip((right, wrong), shares(case), strict=True):
                    into += [(share, f"{name}, Lk {length}, {mask}") for name, share in of.items()]
        for word, of in (("right", right), ("wrong", wrong)):
            counts = Counter(decade(share) for share, _ in of)
            rows.append((dtype, word, len(of), counts))
            every.setdefault(dtype, {})[word] = [share for share, _ in of]
            share, name = max(of) if word == "right" else min(of)
            nearest.append(f"| {dtype} | {word} | {share:.3g} | {name} |")
    columns = [decade(share) for share in (0.001, 0.05, 0.5, 5, 50, 500, 5000)]
    print(f"| dtype | kernels | verdicts | {' | '.join(columns)} |")
    print("| --- " * (3 + len(columns)) + "|")
    for dtype, word, count, counts in rows:
        cells = " | ".join(str(counts[column] or "") for column in columns)
        print(f"| {dtype} | {word} | {count} | {cells} |")
    print("\n| dtype | kernels | nearest to the limit | which |\n| --- | --- | --- | --- |")
    print("\n".join(nearest))
    if asked.picture:
        asked.picture.write_text(picture(every))


if __name__ == "__main__":
    main()
