"""All that the backend `example` declares, as tests of one case each."""

from attnbench.testing import BackendConformance


class TestExample(BackendConformance):
    """The cases combine what `Backend` declares and `supports` takes."""

    backend = "example"
