"""All that the interpreted backend declares, in small cases that combine it, as tests of one case each."""

from __future__ import annotations

import pytest

from attnbench.testing import BackendConformance


@pytest.mark.slow
class TestInterpreted(BackendConformance):
    backend = "triton_interpreted"
    large = False
