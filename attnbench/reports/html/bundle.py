"""Vega, Vega-Lite and Vega-Embed as one script, from the package that brings them along."""

from __future__ import annotations

from attnbench.types.errors import BadInput

VEGA_LITE = "6."
"""The versions that the charts are written for."""


def script() -> str:
    """The script, which leaves ``vegaEmbed`` behind. Nothing is fetched: it comes with vl-convert-python.

    Raises:
        BadInput: the package isn't installed.
    """
    try:
        import vl_convert
    except ImportError as failure:
        raise missing(failure) from failure
    version = [name for name in vl_convert.get_vegalite_versions() if name.startswith(VEGA_LITE)][-1]
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version))


def missing(failure: ImportError) -> BadInput:
    """What to say where a page can't be made for want of a package."""
    return BadInput(
        f"a page needs {failure.name or 'more'}, which isn't installed: pip install 'attnbench[html]'"
    )
