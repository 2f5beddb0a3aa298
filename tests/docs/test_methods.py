"""Every method has a page that names what it takes, sends, keeps and tells, and nothing that it does not have."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from tests.docs.manual import DOCS, tables, text_of, ticked
from tideline.algorithms import METHODS
from tideline.core.algorithm import Algorithm, resolve
from tideline.core.record import leaves, specs
from tideline.core.settings import plain

NAMES = [name for name, _ in METHODS]
TRAINING = "local-training"  # the page of the settings that all methods share


def page(name: str) -> str:
    """A method's page, or that of local training."""
    return text_of(DOCS / "methods" / f"{name}.md") if name != TRAINING else text_of(DOCS / f"{name}.md")


def told_settings(name: str) -> dict[str, str]:
    """The page's table of settings: each with its default, as it is written."""
    found = re.search(r"^\*\*Settings\b.*", page(name), flags=re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/methods/{name}.md has no paragraph that begins with **Settings.**"
    return {row[0].strip("`"): row[1].replace("`", "") for row in tables(found[0])[0]}


def settings(method: Algorithm) -> dict[str, str]:
    """The method's settings, each with its default."""
    return {f.name: word(plain(getattr(method.config(), f.name))) for f in dataclasses.fields(method.config)}


def word(value: Any) -> str:
    """A default as the pages write it. That of a group of settings is on the group's own page."""
    if isinstance(value, dict) and value:
        return "see there"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def records(method: Algorithm) -> dict[str, type[Any]]:
    """What the method sends and keeps, by the record's name."""
    steps = [phase.step for phase in method.plan(method.config()) if phase.step is not None]
    kinds = {kind for step in steps for kind in (step.takes, step.gives, step.keeps)} | {method.memory}
    return {kind.__name__: kind for kind in kinds if specs(kind)}


def test_the_registry_is_the_folder() -> None:
    """A page for each method, and no page for none."""
    assert sorted(path.stem for path in (DOCS / "methods").glob("*.md")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_settings_and_defaults(name: str) -> None:
    """Each setting is named, with its default here or on the page of the method that this one builds on; no other is."""
    ours, told = settings(resolve(METHODS, name)), told_settings(name)
    assert {k: v for k, v in told.items() if ours.get(k) != v} == {}
    bases = [base for base in re.findall(r"\]\((?:\.\./)?([\w-]+)\.md\)", page(name)) if base in (*NAMES, TRAINING)]
    pages = [told, *map(told_settings, bases)]
    assert {k: v for k, v in ours.items() if all(each.get(k) != v for each in pages)} == {}
    assert set(ours) <= set(ticked(page(name)))


@pytest.mark.parametrize("name", NAMES)
def test_messages_and_memory(name: str) -> None:
    """Each record that is sent or kept is named, and each of its fields."""
    words = {w for phrase in ticked(page(name)) for w in re.findall(r"\w+", phrase)}
    for kind, record in records(resolve(METHODS, name)).items():
        assert {kind, *(leaf.path.split(".")[0] for leaf in leaves(record))} <= words


@pytest.mark.parametrize("name", NAMES)
def test_exposures(name: str) -> None:
    """Where a field of a reply exposes more than a metric, the page says the exposure."""
    method = resolve(METHODS, name)
    steps = [phase.step for phase in method.plan(method.config()) if phase.step is not None]
    exposures = {leaf.exposure.name for step in steps for leaf in leaves(step.gives) if leaf.exposure is not None}
    assert exposures <= set(re.findall(r"[A-Z]+", page(name)))


@pytest.mark.parametrize("name", NAMES)
def test_metrics_and_presets(name: str) -> None:
    """The line of metrics names those that are declared, and no others; the line of presets likewise."""
    method = resolve(METHODS, name)
    declared = {m for phase in method.plan(method.config()) if phase.step is not None for m in phase.step.metrics}
    found = re.search(r"^\*\*Metrics\.\*\*(.+?)\n\n", page(name), flags=re.MULTILINE | re.DOTALL)
    assert found is not None and set(ticked(found[1])) == declared
    line = re.search(r"^Presets: (.+)\.$", page(name), flags=re.MULTILINE)
    assert line is not None and ticked(line[1]) == sorted(method.presets)
