"""Vega, Vega-Lite and Vega-Embed as one script, from the package that brings them along."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

from attnbench.types.errors import BadInput

PACKAGES = {"jinja2": "jinja2", "vl_convert": "vl-convert-python"}
"""What a page is made with: what is imported, and what pip calls it."""

VEGA_LITE = "6."
"""The versions that the charts are written for."""


def check_packages() -> None:
    """Raise :class:`BadInput` where a package that a page needs isn't installed."""
    lacking = [name for module, name in PACKAGES.items() if find_spec(module) is None]
    if lacking:
        raise BadInput(f"a page needs {' and '.join(lacking)}: pip install 'attnbench[html]'")


@cache
def script() -> str:
    """The script, which leaves ``vegaEmbed`` behind. Nothing is fetched: it comes with vl-convert-python."""
    import vl_convert

    version = [name for name in vl_convert.get_vegalite_versions() if name.startswith(VEGA_LITE)][-1]
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version))
