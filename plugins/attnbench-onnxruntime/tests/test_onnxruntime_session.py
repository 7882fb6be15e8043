"""What a session is told, and what is handed to it: pointers, not copies."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from attnbench_onnxruntime import attnbench_backends
from attnbench_onnxruntime.session import CONTRIB, NO_TELEMETRY, bound, imported, model_of, open_session

MISSING = [name for name in ("onnxruntime", "onnx") if find_spec(name) is None]
needs_both = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

SHAPES = {"q": (1, 3, 8), "k": (1, 5, 8), "v": (1, 5, 8), "added": (1, 1, 3, 5)}


class Recorder:
    """A session and its binding that only write down what they are given."""

    def __init__(self) -> None:
        self.pointers: dict[str, int] = {}

    def io_binding(self) -> Recorder:
        return self

    def bind_input(
        self, name: str, device: str, index: int, kind: Any, shape: tuple[int, ...], pointer: int
    ) -> None:
        assert shape == SHAPES[name]
        self.pointers[name] = pointer

    def bind_output(
        self, name: str, device: str, index: int, kind: Any, shape: tuple[int, ...], pointer: int
    ) -> None:
        self.pointers[name] = pointer

    def run_with_iobinding(self, binding: Recorder) -> None:
        assert binding is self


def test_tensors_are_bound_by_their_memory() -> None:
    tensors = {name: torch.rand(shape) for name, shape in SHAPES.items()}
    session = Recorder()
    call = bound(session, SHAPES, (1, 3, 8), torch.float32, tensors["added"])  # type: ignore[arg-type]
    out = call(tensors["q"], tensors["k"], tensors["v"])
    assert session.pointers == {name: x.data_ptr() for name, x in (tensors | {"out": out}).items()}


def test_listing_the_backends_imports_nothing_heavy() -> None:
    code = (
        "import sys, attnbench_onnxruntime as a; [*a.attnbench_backends()]; "
        "print({'torch', 'onnx', 'onnxruntime'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_what_onnxruntime_computes_in_float32_is_not_offered_as_float64() -> None:
    """It has no kernel of these operators in float64, and takes Attention apart there: softmax in float32."""
    half = ("float32", "float16")
    offered = [backend.dtypes for backend in attnbench_backends()]
    # With codes q and the output are converted from and to bfloat16, which is narrower than float32.
    codes = ("float32", "bfloat16", "float16")
    assert offered == [("float32",), half, half, codes, ("float32",)]


@needs_both
def test_nothing_is_sent_home_and_the_environment_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NO_TELEMETRY, raising=False)
    before = dict(os.environ)
    imported()
    assert dict(os.environ) == before
    monkeypatch.setenv(NO_TELEMETRY, "theirs")
    imported()
    assert os.environ[NO_TELEMETRY] == "theirs"


@needs_both
def test_importing_and_running_it_starts_no_thread() -> None:
    """One would be gone in a fork, and its telemetry keeps one where it isn't told otherwise."""
    code = (
        "import os, numpy, torch\n"
        "from onnx import helper\n"
        "from attnbench_onnxruntime.session import bound, model_of, open_session\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "shapes = dict.fromkeys('qkv', (1, 4, 8))\n"
        "told = {'domain': 'com.microsoft', 'num_heads': 2}\n"
        "node = helper.make_node('MultiHeadAttention', [*'qkv'], ['out'], **told)\n"
        "session = open_session(model_of(node, shapes, {'out': (1, 4, 8)}, torch.float32), 1)\n"
        "bound(session, shapes, (1, 4, 8), torch.float32, None)(*(torch.rand(1, 4, 8) for _ in 'qkv'))\n"
        "print(len(os.listdir('/proc/self/task')) - before)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", NO_TELEMETRY)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "0\n"


@needs_both
def test_a_session_has_the_threads_of_the_case_and_does_not_spin() -> None:
    from onnx import helper

    shapes = {name: SHAPES[name] for name in "qkv"}
    node = helper.make_node("MultiHeadAttention", [*"qkv"], ["out"], domain=CONTRIB, num_heads=2)
    session = open_session(model_of(node, shapes, {"out": SHAPES["q"]}, torch.float32), 2)
    options = session.get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (2, 1)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert session.get_providers() == ["CPUExecutionProvider"]
