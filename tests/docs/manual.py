"""The manual, taken apart: pages, fenced blocks, tables, links and commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")),
    *sorted(DOCS.rglob("*.md")),
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    """A page, as it is called in a test's name."""
    return page.relative_to(ROOT).as_posix()


@cache
def text_of(page: Path) -> str:
    """A page's text."""
    return page.read_text(encoding="utf-8")


@cache
def fenced(page: Path) -> list[tuple[str, str]]:
    """A page's fenced blocks, each with its language."""
    return FENCE.findall(text_of(page))


def blocks(page: Path, language: str) -> list[str]:
    """A page's fenced blocks of a language."""
    return [block for kind, block in fenced(page) if kind == language]


@cache
def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", text_of(page))


def section(page: Path, heading: str) -> str:
    """What stands below a heading of the second level."""
    parts = re.split(r"^## (.+)$", text_of(page), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[heading]


def tables(text: str) -> list[list[list[str]]]:
    """Every table of a text: its rows of cells, without head and rule."""
    found: list[list[list[str]]] = []
    for lines in re.findall(r"(?:^\|.*\|\n?)+", text, flags=re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines.strip().splitlines()]
        found.append(rows[2:])
    return found


def ticked(text: str) -> list[str]:
    """The words in backticks."""
    return re.findall(r"`([^`\n]+)`", text)


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def commands(page: Path) -> Iterator[list[str]]:
    """Every `tideline` command that a page prints in a shell block or names in a sentence, as words."""
    for block in blocks(page, "sh"):
        lines = re.sub(r"<<'END'\n.*?^END$", "", block.replace("\\\n", " "), flags=re.MULTILINE | re.DOTALL)
        for line in lines.splitlines():
            if line.startswith("tideline "):
                yield shlex.split(line, comments=True)
    for phrase in ticked(prose(page)):
        if phrase.startswith("tideline ") and "|" not in phrase and "..." not in phrase:
            yield shlex.split(phrase)
