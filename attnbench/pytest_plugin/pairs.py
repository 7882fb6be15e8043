"""From the words of a marker to the cases and backends that a test is run for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import pytest

from attnbench.cases.ids import case_id
from attnbench.pytest_plugin import PAIR
from attnbench.pytest_plugin.short_id import short_id
from attnbench.types.case import Case
from attnbench.types.errors import BadInput
from attnbench.types.mask import Mask
from attnbench.types.words import unknown_name

if TYPE_CHECKING:
    from attnbench.cases.select import Selection
    from attnbench.plugins.registry import Registry
    from attnbench.runner.forecast import RunPlan

_REGISTRY = pytest.StashKey["Registry"]()


@dataclass(frozen=True)
class Pair:
    """What a test is run for. backend: None where it asks for the case alone."""

    case: Case
    backend: str | None = None


def registry_of(config: pytest.Config) -> Registry:
    """The plugins of a session, loaded once: those installed, those named, and its ``conftest.py`` files.

    Raises:
        BadInput: one that is named, or a ``conftest.py``, can't be used.
    """
    from attnbench.plugins.registry import load_wanted
    from attnbench.pytest_plugin.conftests import sources_of

    if _REGISTRY not in config.stash:
        config.stash[_REGISTRY] = load_wanted(config.getoption("attnbench_plugin"), sources_of(config))
    return config.stash[_REGISTRY]


def parametrise(metafunc: pytest.Metafunc) -> None:
    """Run a test for each case and backend of its marker; one sentence where the marker can't be used."""
    generated = getattr(metafunc.definition.getparent(pytest.Module), "parameters", None)
    if generated is not None:
        metafunc.parametrize(PAIR, generated[metafunc.function.__name__], indirect=True)
        return
    marker = metafunc.definition.get_closest_marker("attnbench")
    if marker is None:
        # The fixture says what is missing, where the test really asks for it.
        return
    said = ""
    try:
        parameters = marked(registry_of(metafunc.config), marker.args, marker.kwargs, metafunc.fixturenames)
    except BadInput as wrong:
        said = str(wrong)
    if said:
        # Out here, so that pytest doesn't print the sentence twice, as an exception during another.
        pytest.fail(f"the marker attnbench of {metafunc.function.__name__}: {said}", pytrace=False)
    metafunc.parametrize(PAIR, parameters, indirect=True)


def marked(
    registry: Registry, words: Sequence[Any], named: Mapping[str, Any], fixtures: Sequence[str]
) -> list[Any]:
    """The parameters that a marker means.

    words: suites, ids, TOML files, cases. named: the same as ``suite`` and ``cases``; ``backends``; and what
    changes the cases, by the names of :class:`attnbench.cases.select.Overrides`.

    Raises:
        BadInput: a word that is unknown or can't be, in one sentence.
    """
    from attnbench.cases.select import Overrides, select

    changes = {field.name for field in fields(Overrides)}
    for name in named:
        if name not in changes | {"suite", "cases", "backends"}:
            known = sorted({"suite", "cases", "backends"} | changes)
            raise BadInput(unknown_name("argument", name, known))
    asked = [*words, *_several(named.get("suite")), *_several(named.get("cases"))]
    if not asked:
        raise BadInput('name a suite or a case, as in @pytest.mark.attnbench("smoke")')
    given = {name: value for name, value in named.items() if name in changes and value is not None}
    for name in ("rules", "dtypes", "masks", "passes"):
        given[name] = _masks(named.get(name)) if name == "masks" else _names(name, named.get(name))
    overrides = Overrides(**given)
    selection = select([_word(each) for each in asked], registry, overrides, timed=False)
    if "attnbench_backend" not in fixtures:
        return [pytest.param(Pair(case), id=short_id(case)) for case in selection.cases]
    return list(pairs_of(selection, _names("backends", named.get("backends")), registry))


def pairs_of(selection: Selection, backends: tuple[str, ...], registry: Registry) -> Iterator[Any]:
    """Cases by backends, those marked to be skipped that a backend declares not to do.

    Compiling backends that aren't named are left to the cases that a run would give them.
    """
    from attnbench.runner.forecast import plan_run
    from attnbench.runner.options import make_options

    plan = plan_run(selection, backends, registry, make_options(timed=False))
    for case in plan.cases:
        for name in plan.backends:
            reason = _declined(case, name, plan)
            marks = [pytest.mark.skip(reason=f"{name}: {reason}")] if reason else []
            yield pytest.param(Pair(case, name), id=f"{short_id(case)}-{name}", marks=marks)


def _declined(case: Case, name: str, plan: RunPlan) -> str:
    from attnbench.runner.case import refusal

    rule, backend = plan.registry.rule(case.rule), plan.registry.backend(name)
    # Whether there is a device is asked when the test is run.
    refused = refusal(backend, case, rule, cuda_devices=("asked later",))
    if refused is not None:
        return f"{refused[0]}: {refused[1]}"
    if name in plan.left_out(case_id(case)):
        return "compiles for seconds a case, so this suite gives it a few of its cases"
    if case.cache == "rotating":
        return "inputs rotate through copies in attnbench run alone"
    return ""


def _several(value: Any) -> list[Any]:
    if value is None:
        return []
    one = isinstance(value, str | Case | Mask) or not isinstance(value, Iterable)
    return [value] if one else list(value)


def _names(what: str, value: Any) -> tuple[str, ...]:
    names = tuple(_several(value))
    for name in names:
        if not isinstance(name, str):
            raise BadInput(f"{what} = {name!r}: names are needed")
    return names


def _word(asked: Any) -> str:
    if isinstance(asked, Case):
        return case_id(asked)
    if not isinstance(asked, str):
        raise BadInput(f"{asked!r}: a suite, the id of a case, a TOML file or a Case is needed")
    return asked


def _masks(value: Any) -> tuple[Mask, ...]:
    from attnbench.cases.ids import parse_mask

    masks = tuple(parse_mask(each) if isinstance(each, str) else each for each in _several(value))
    for mask in masks:
        if not isinstance(mask, Mask):
            raise BadInput(f"masks = {mask!r}: words as in ids, or Mask values, are needed")
    return masks
