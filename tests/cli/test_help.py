"""Help: quick, complete, and the same as the page in docs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.world import COMMAND, tide

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
HEAVY = ("torch", "numpy", "grpc", "cryptography", "OpenSSL", "fastapi", "sqlalchemy", "httpx")
HEAVY += ("pydantic_settings", "rich", "structlog", "yaml", "uvicorn")


SHARED = {"--url", "--api-key", "--home", "--ca", "--project"}  # the coordinator options


def commands() -> dict[str, Any]:
    return dict(below(COMMAND, ""))


def below(group: Any, words: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        whole = f"{words} {name}".strip()
        yield from below(command, whole) if hasattr(command, "commands") else ((whole, command),)


def options_of(command: Any) -> set[str]:
    """The options of a command, without --help."""
    return {name for p in command.params for name in p.opts if name.startswith("--")} - {"--help"}


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.nightly(job="services")
def test_help_loads_nothing_heavy() -> None:
    """No help page of any command imports what makes a start slow; one process prints them all and then looks."""
    asked = [["--help"], ["run", "--help"], *([*name.split(), "--help"] for name in commands())]
    code = f"""
import sys
from tideline.cli.app import app
for args in {asked!r}:
    assert app(args, standalone_mode=False) == 0, args
print("LOADED", *sorted({{name.partition(".")[0] for name in sys.modules}} & set({HEAVY!r})))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED"


def test_help_says_what_each_option_is(subtests: pytest.Subtests) -> None:
    """Every command and every one of its parameters has a sentence."""
    for name, command in commands().items():
        with subtests.test(name):
            assert command.help
            assert [p.name for p in command.params if not getattr(p, "help", None) and p.name != "help"] == []
            assert tide(*name.split(), "--help").exit_code == 0


def test_the_page_has_each_command_and_option(subtests: pytest.Subtests) -> None:
    """docs/cli.md has a section for each command that exists, which names its options, and no others."""
    sections_of_commands = {
        name.removeprefix("tideline "): text for name, text in sections().items() if name.startswith("tideline ")
    }
    assert sections_of_commands.keys() == commands().keys()
    for name, text in sections_of_commands.items():
        with subtests.test(name):
            shared = SHARED if "[coordinator options]" in text else set()
            assert {*re.findall(r"`(--[a-z-]+)", text)} | shared == options_of(commands()[name])


def test_version_loads_no_torch() -> None:
    code = (
        "import sys; from tideline.cli.app import app; app(['version'], standalone_mode=False); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=True)
    assert done.stdout.startswith("tideline ")
