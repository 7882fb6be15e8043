"""Facts of the machine and its software as one flat table, and which of them times depend on."""

from __future__ import annotations

from typing import Any

from attnbench.types.record import Manifest

_NOT_FACTS = frozenset({"git_commit", "libraries", "plugin_facts", "torch_flags"})


def facts_of(manifest: Manifest) -> dict[str, Any]:
    """The environment of a run, flat: libraries under their names, torch's flags as ``torch.NAME``.

    Plugins stand under ``plugin NAME`` with their versions, and what they state under ``plugin DISTRIBUTION:
    NAME``; what isn't known is left out.
    """
    environment = manifest.environment
    flat: dict[str, Any] = {"attnbench": manifest.attnbench}
    for plugin in manifest.plugins:
        flat[f"plugin {plugin.name}"] = f"{plugin.distribution} {plugin.version}"
    for inside, prefix in (("libraries", ""), ("torch_flags", "torch.")):
        facts = environment.get(inside)
        if isinstance(facts, dict):
            flat |= {f"{prefix}{name}": value for name, value in facts.items()}
    for distribution, stated in environment.get("plugin_facts", {}).items():
        flat |= {f"plugin {distribution}: {name}": value for name, value in stated.items()}
    flat |= {name: value for name, value in environment.items() if name not in _NOT_FACTS}
    return {name: value for name, value in flat.items() if value is not None}
