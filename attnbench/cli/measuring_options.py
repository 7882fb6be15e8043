"""What ``check`` and ``run`` have in common: their options, in the order in which help lists them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnbench.cli.options import (
    decorated,
    record_format_option,
    running_options,
    selection_options,
    trace_option,
)
from attnbench.cli.plan import plan_option
from attnbench.cli.plugins_here import plugin_option

if TYPE_CHECKING:
    from attnbench.cli.options import Command

Option = Callable[[Any], Any]


def measuring_options(*, timing: tuple[Option, ...] = (), files: tuple[Option, ...] = ()) -> Option:
    """Give a command the options of one that measures what is chosen and prints records.

    timing, files: its own, of how to time, and of files to write beside the run's.
    """

    def give(command: Command) -> Command:
        own = (*timing, plan_option, *files, plugin_option, trace_option, record_format_option)
        return selection_options(running_options(decorated(command, own)))

    return give
