"""Whether what a run was begun with is here, and still the same."""

from __future__ import annotations

from attnbench.plugins.registry import Entry, Registry
from attnbench.runner.order import Order
from attnbench.types.backend import Backend
from attnbench.types.errors import BadInput
from attnbench.types.record import Manifest
from attnbench.types.rule import Rule


def check_same_plugins(order: Order, manifest: Manifest, registry: Registry) -> None:
    """Raise :class:`BadInput` where a run can't go on with the code that it was begun with.

    A backend or rule is needed and the plugin that brought it isn't loaded, or is another version.
    """
    begun = {(line.name, line.distribution): line.version for line in manifest.plugins}
    here = {(source.name, source.distribution) for source in registry.plugins}
    entries: list[Entry[Backend] | Entry[Rule] | None] = [
        *(registry.backends.get(name) for name in order.backends),
        *(registry.rules.get(case.rule) for case in order.cases),
    ]
    for entry in entries:
        if entry is None:
            gone = [f"{name} of {by} {begun[name, by]}" for name, by in begun.keys() - here]
            if gone:
                raise BadInput(
                    f"the run was begun with plugins that are not loaded here: {', '.join(sorted(gone))}; "
                    "install them, or give --plugin as then"
                )
            continue
        was = begun.get((entry.source.name, entry.source.distribution), entry.source.version)
        if was != entry.source.version:
            raise BadInput(
                f"the run was begun with {entry.source.distribution} {was}, and here it is "
                f"{entry.source.version}: its times would be of two codes; begin anew"
            )
