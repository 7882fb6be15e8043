"""All that the backend `example` declares, held against attnbench's judge: a test for each case."""

from attnbench.testing import BackendConformance


class TestExample(BackendConformance):
    """Cases are made of what `Backend` declares, as far as its `supports` takes them."""

    backend = "example"
