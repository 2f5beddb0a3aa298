"""Every method has a page that names what it takes, sends, keeps and tells, and nothing that it does not have."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from tests.docs.manual import DOCS, section, tables, text_of, ticked
from tideline.algorithms import METHODS
from tideline.archive.parts import MemoryParts
from tideline.core.algorithm import Algorithm, resolve
from tideline.core.record import leaves, specs
from tideline.core.settings import plain
from tideline.core.step import Step
from tideline.engine.compute.drafts import Drafts
from tideline.engine.compute.private.metering import able

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


def steps(method: Algorithm) -> list[Step]:
    """The steps of the method's plan."""
    return [phase.step for phase in method.plan(method.config()) if phase.step is not None]


def records(method: Algorithm) -> dict[str, type[Any]]:
    """What the method sends and keeps, by the record's name."""
    kinds = {kind for step in steps(method) for kind in (step.takes, step.gives, step.keeps)} | {method.memory}
    return {kind.__name__: kind for kind in kinds if specs(kind)}


def test_the_registry_is_the_folder() -> None:
    """A page for each method, and no page for none."""
    assert sorted(path.stem for path in (DOCS / "methods").glob("*.md")) == sorted(NAMES)


def test_settings_and_defaults(subtests: pytest.Subtests) -> None:
    """Each setting is named, with its default here or on the page of the method that this one builds on; no other is."""
    for name in NAMES:
        with subtests.test(name):
            ours, told = settings(resolve(METHODS, name)), told_settings(name)
            assert {k: v for k, v in told.items() if ours.get(k) != v} == {}
            linked = re.findall(r"\]\((?:\.\./)?([\w-]+)\.md\)", page(name))
            pages = [told, *(told_settings(base) for base in linked if base in (*NAMES, TRAINING))]
            assert {k: v for k, v in ours.items() if all(x.get(k) != v for x in pages)} == {}
            assert set(ours) <= set(ticked(page(name)))


def test_messages_and_memory(subtests: pytest.Subtests) -> None:
    """Each record that is sent or kept is named, and each of its fields; so is an exposure of more than a metric."""
    for name in NAMES:
        with subtests.test(name):
            method = resolve(METHODS, name)
            words = {w for phrase in ticked(page(name)) for w in re.findall(r"\w+", phrase)}
            for kind, record in records(method).items():
                assert {kind, *(leaf.path.split(".")[0] for leaf in leaves(record))} <= words
            exposures = {leaf.exposure.name for step in steps(method) for leaf in leaves(step.gives) if leaf.exposure is not None}
            assert exposures <= set(re.findall(r"[A-Z]+", page(name)))


def test_metrics_and_presets(subtests: pytest.Subtests) -> None:
    """The line of metrics names those that are declared, and no others; the line of presets likewise."""
    for name in NAMES:
        with subtests.test(name):
            method = resolve(METHODS, name)
            metrics = re.search(r"^\*\*Metrics\.\*\*(.+?)\n\n", page(name), flags=re.MULTILINE | re.DOTALL)
            assert metrics is not None and set(ticked(metrics[1])) == {m for step in steps(method) for m in step.metrics}
            presets = re.search(r"^Presets: (.+)\.$", page(name), flags=re.MULTILINE)
            assert presets is not None and ticked(presets[1]) == sorted(method.presets)


def methods_in(page: str, heading: str) -> set[str]:
    """The methods in the first columns of a section's tables."""
    rows = [row for table in tables(section(DOCS / page, heading)) for row in table]
    return {name for row in rows for name in ticked(row[0])} & set(NAMES)


def test_private_runs() -> None:
    """docs/differential-privacy.md names those that can be private and those that cannot, and each method's page says which."""
    private = set(able(METHODS))
    assert methods_in("differential-privacy.md", "Methods") == private
    assert set(NAMES) - private <= methods_in("differential-privacy.md", "What is refused")
    for name in NAMES:
        refused = bool(resolve(METHODS, name).unprotected)
        assert ("**Refused in [private runs](../differential-privacy.md)**" in page(name)) == refused, name
        assert refused or "**In a [private run](../differential-privacy.md)**" in page(name) or name == "gaussian_heads", name


def test_secure_sums(subtests: pytest.Subtests) -> None:
    """docs/secure-sums.md says which methods are summed, which can have noise, and what is still seen: `scores` alone where a
    run has no note of single sites.
    """
    sums, drafts = DOCS / "secure-sums.md", Drafts(MemoryParts(), METHODS)
    rows = next(rows for rows in tables(text_of(sums)) if any("models" in row[1] for row in rows))
    seen = {name: row[2] for row in rows for name in ticked(row[0])}
    assert sorted(seen) == sorted(drafts.summed_methods())
    noise = section(sums, "Noise that protects whole sites")
    (noised,) = re.findall(r"It is for methods whose sums are models.*?What else", noise, re.DOTALL)
    assert sorted(ticked(noised)) == sorted(drafts.noised_methods())
    for name in drafts.summed_methods():
        with subtests.test(name):
            algorithm = drafts.played(name, True)
            _, notes = drafts.in_sums(algorithm, algorithm.configure({}))
            assert seen[name] != "scores" if notes else seen[name].startswith("scores")
