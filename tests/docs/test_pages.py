"""Pages hold together: links resolve, examples are read, commands and targets exist, words are explained."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.world import COMMAND
from tests.docs.manual import DOCS, PAGES, ROOT, anchors, blocks, commands, name_of, prose, tables, text_of
from tideline.algorithms import METHODS
from tideline.bench.grid import config_of, read_grid
from tideline.core.algorithm import resolve
from tideline.engine.model.experiment import Experiment, read_experiment
from tideline.written.files import ExperimentText
from tideline.written.yaml_lines import read_yaml

README = ROOT / "README.md"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_resolve(page: Path) -> None:
    """Every relative link leads to a file or folder that is there, and to a heading that it has."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        place, _, anchor = target.partition("#")
        if "://" in place:
            continue
        there = (page.parent / place).resolve() if place else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def test_every_page_can_be_reached() -> None:
    """README leads to every page of the manual, itself or by a page that it links; decisions by their folder."""
    linked = {target for page in PAGES for target in re.findall(r"\]\(([^)#\s]+)", prose(page))}
    names = {Path(target).name for target in linked} | {path.name for path in (DOCS / "decisions").iterdir()}
    assert [
        name_of(page) for page in PAGES if page != README and page.name not in names and page.parent != ROOT / "benchmarks"
    ] == []


def yamls() -> list[tuple[str, str]]:
    """Every block of YAML."""
    return [(name_of(page), block) for page in PAGES for block in blocks(page, "yaml")]


@pytest.mark.parametrize(("name", "text"), [each for each in yamls() if "methods:" in each[1]], ids=lambda value: value[:24])
def test_grids_are_read(name: str, text: str) -> None:
    """The manual's grids parse, and each method's settings are its own."""
    grid = read_grid(ExperimentText(name, read_yaml(text, name).value, {}))
    for method in grid.methods:
        resolve(METHODS, method.method).configure(config_of(grid, method), method.preset)


def experiments() -> list[tuple[str, str]]:
    """Every experiment that a page prints; README's also with the data section that it prints later."""
    found = [(name, block) for name, block in yamls() if "method:" in block and "methods:" not in block]
    whole, *rest = blocks(README, "yaml")
    return [*found, *(("README.md with data", whole + more) for more in rest)]


@pytest.mark.parametrize(("name", "text"), experiments(), ids=lambda value: value if value.endswith((".md", "data")) else "")
def test_experiments_are_read(name: str, text: str) -> None:
    """The manual's experiments parse, and their settings are those of their method."""
    experiment: Experiment = read_experiment(read_yaml(text, name).value)
    resolve(METHODS, experiment.method).configure(experiment.config, experiment.preset)
    assert experiment.roster or experiment.data or experiment.deal
    assert not (experiment.roster and experiment.data) or {k: v.role for k, v in experiment.data.items()} == experiment.roster


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_make_targets_exist(page: Path) -> None:
    """Every target that is named in a block or in backticks is in the Makefile."""
    targets = set(re.findall(r"^([a-z]+):", text_of(ROOT / "Makefile"), flags=re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z]+)", text_of(page), flags=re.MULTILINE)) <= targets


@pytest.mark.parametrize("page", [page for page in PAGES if any(commands(page))], ids=name_of)
def test_commands_exist(page: Path) -> None:
    """Every printed command has a subcommand and options that exist."""
    for words in commands(page):
        check(COMMAND, words[1:], " ".join(words))


def check(command: Any, words: list[str], whole: str) -> None:
    """One command line: its subcommand, then its options. A word in capitals stands for any."""
    while hasattr(command, "commands") and words and not words[0].isupper():
        assert words[0] in command.commands, whole
        command, words = command.commands[words[0]], words[1:]
    known = {option for param in command.params for option in param.opts} | {"--help"}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known, whole


def test_words_of_the_readme_are_explained() -> None:
    """What README sets in bold is in the glossary, which has the sixteen words that its title says."""
    glossary = text_of(DOCS / "glossary.md")
    assert len(tables(glossary)[0]) == 16
    explained = set(re.findall(r"\*\*(\w+)\*\*", glossary))
    used = {phrase.split()[-1].lower() for phrase in re.findall(r"\*\*([^*]+)\*\*", prose(README))}
    assert {word for word in used if not {word, word.removesuffix("s")} & explained} == set()


def test_the_readme_lists_every_method() -> None:
    """The table of methods is the registry."""
    rows = [row for table in tables(prose(README)) for row in table if "docs/methods/" in row[-1]]
    assert [row[0].strip("`") for row in rows] == [name for name, _ in METHODS]


def test_the_privacy_page_is_what_its_tool_makes() -> None:
    """docs/privacy.md is in step with the registry."""
    spec = importlib.util.spec_from_file_location("privacy_page", ROOT / "tools" / "privacy_page.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert text_of(tool.PAGE) == tool.page(METHODS), "Run: .venv/bin/python tools/privacy_page.py"


def test_what_shows_a_defence_is_there() -> None:
    """Each test and benchmark that the threat model names."""
    named = set(re.findall(r"`((?:tests|benchmarks)/[\w/.]+)`", text_of(DOCS / "threat-model.md")))
    assert len(named) > 8 and [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_decisions_are_numbered_and_whole() -> None:
    """Each record has the next number, its title, and the four paragraphs."""
    records = sorted((DOCS / "decisions").glob("*.md"))
    for i, record in enumerate(records, 1):
        text = text_of(record)
        assert record.name.startswith(f"{i:04}-") and text.startswith(f"# {i:04} ")
        heads = re.findall(r"^\*\*([^*]+)\.\*\*", text, flags=re.MULTILINE)
        assert heads == ["Context", "Decision", "Consequences", "The road not taken"]
        assert 15 <= len(text.splitlines()) <= 30
