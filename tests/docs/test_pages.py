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


def is_there(page: Path, target: str) -> bool:
    """Return True if a relative link of a page leads to a file or folder, and to a heading that it has."""
    place, _, anchor = target.partition("#")
    there = (page.parent / place).resolve() if place else page
    return there.exists() and (not anchor or anchor in anchors(there))


def test_links_resolve() -> None:
    """Every relative link of every page leads somewhere."""
    targets = [(page, target) for page in PAGES for target in re.findall(r"\]\(([^)\s]+)\)", prose(page))]
    relative = [(page, target) for page, target in targets if "://" not in target.partition("#")[0]]
    assert [f"{name_of(page)}: {target}" for page, target in relative if not is_there(page, target)] == []


def test_every_page_can_be_reached() -> None:
    """README leads to every page of the manual, itself or by a page that it links; decisions by their folder."""
    linked = {target for page in PAGES for target in re.findall(r"\]\(([^)#\s]+)", prose(page))}
    names = {Path(target).name for target in linked} | {path.name for path in (DOCS / "decisions").iterdir()}
    assert [
        name_of(page) for page in PAGES if page != README and page.name not in names and page.parent != ROOT / "benchmarks"
    ] == []


def yamls() -> list[tuple[str, str]]:
    """Every block of YAML, with its page's name."""
    return [(name_of(page), block) for page in PAGES for block in blocks(page, "yaml")]


def test_grids_are_read(subtests: pytest.Subtests) -> None:
    """The manual's grids parse, and each method's settings are its own."""
    for name, text in yamls():
        if "methods:" in text:
            with subtests.test(name):
                grid = read_grid(ExperimentText(name, read_yaml(text, name).value, {}))
                for method in grid.methods:
                    resolve(METHODS, method.method).configure(config_of(grid, method), method.preset)


def test_experiments_are_read(subtests: pytest.Subtests) -> None:
    """The manual's experiments parse, README's also with the data section that it prints later; settings are their method's."""
    whole, *rest = blocks(README, "yaml")
    for name, text in (*yamls(), *(("README.md with data", whole + more) for more in rest)):
        if "method:" in text and "methods:" not in text:
            with subtests.test(name):
                experiment: Experiment = read_experiment(read_yaml(text, name).value)
                resolve(METHODS, experiment.method).configure(experiment.config, experiment.preset)
                assert experiment.roster or experiment.data or experiment.deal
                roles = {k: v.role for k, v in experiment.data.items()}
                assert not (experiment.roster and experiment.data) or roles == experiment.roster


def test_make_targets_exist() -> None:
    """Every target that is named in a block or in backticks is in the Makefile."""
    targets = set(re.findall(r"^([a-z]+):", text_of(ROOT / "Makefile"), flags=re.MULTILINE))
    named = {(name_of(page), x) for page in PAGES for x in re.findall(r"(?:^|`)make ([a-z]+)", text_of(page), flags=re.MULTILINE)}
    assert sorted((page, target) for page, target in named if target not in targets) == []


def test_commands_exist() -> None:
    """Every printed command has a subcommand and options that exist."""
    printed = [(name_of(page), words) for page in PAGES for words in commands(page)]
    assert len(printed) > 100 and [(page, wrong) for page, words in printed if (wrong := strange_word(COMMAND, words[1:]))] == []


def check(command: Any, words: list[str], whole: str) -> None:
    """Hold one command line against the command that it calls."""
    assert not strange_word(command, words), whole


def strange_word(command: Any, words: list[str]) -> str:
    """The first subcommand or option of a command line that does not exist, if any. A word in capitals stands for any."""
    while hasattr(command, "commands") and words and not words[0].isupper():
        if words[0] not in command.commands:
            return words[0]
        command, words = command.commands[words[0]], words[1:]
    known = {option for param in command.params for option in param.opts} | {"--help"}
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    return next((option for option in options if option not in known), "")


def test_words_of_the_readme_are_explained() -> None:
    """What README sets in bold is in the glossary."""
    explained = set(re.findall(r"\*\*(\w+)\*\*", text_of(DOCS / "glossary.md")))
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
