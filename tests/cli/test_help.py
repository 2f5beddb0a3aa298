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


def commands() -> dict[str, Any]:
    """Every command by the words that call it."""
    return dict(below(COMMAND, ""))


def below(group: Any, words: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        whole = f"{words} {name}".strip()
        yield from below(command, whole) if hasattr(command, "commands") else ((whole, command),)


def options_of(command: Any) -> set[str]:
    """The options of a command, without --help."""
    return {name for p in command.params for name in p.opts if name.startswith("--")} - {"--help"}


def sections() -> dict[str, str]:
    """The page's sections by heading."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_all_commands_are_there() -> None:
    """The commands that the project promises exist, and no others."""
    runs = {f"run {word}" for word in ("start", "list", "show", "watch", "cancel", "resume", "export", "report", "logs", "track")}
    runs |= {"run dossier", "dossier verify", "dossier signer", "run delete", "retention show", "clients assign"} | {
        f"projects {word}" for word in ("add", "limit", "list", "remove", "show")
    }
    runs |= {f"site {word}" for word in ("list", "export", "picture", "drift", "peers", "trust", "forget", "pending")}
    runs |= {f"site {word}" for word in ("approve", "clean", "spare", "leave", "decline", "policy check", "policy explain")}
    runs |= {f"site ledger {word}" for word in ("list", "verify", "accept", "export")}
    runs |= {f"site standing {word}" for word in ("list", "always", "never", "end")} | {"site pause", "site resume", "site page"}
    runs |= {"site budget", "site spent", "site release"}
    runs |= {f"clients {word}" for word in ("list", "approve", "revoke", "rotate")} | {"tls init", "tls client"}
    runs |= {f"keys {word}" for word in ("add", "list", "revoke")} | {"login", "logout", "data check", "data deal", "data sample"}
    runs |= {"database show", "database downgrade"}
    runs |= {f"notify {word}" for word in ("add", "list", "remove", "test")}
    runs |= {"sessions list", "sessions revoke"} | {f"audit {word}" for word in ("verify", "list", "export")}
    rest = {
        "coordinator",
        "agent",
        "doctor",
        "join",
        "invite",
        "parts gc",
        "parts verify",
        "methods",
        "contract",
        "simulate",
        "bench",
        "demo",
        "version",
    }
    rest |= {"links plan", "predict", "adapt", "restored"}
    assert set(commands()) == runs | rest


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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED"


@pytest.mark.parametrize("name", sorted(commands()))
def test_help_says_what_each_option_is(name: str) -> None:
    """Every command and every one of its parameters has a sentence."""
    command = commands()[name]
    assert command.help
    assert [p.name for p in command.params if not getattr(p, "help", None) and p.name != "help"] == []
    assert tide(*name.split(), "--help").exit_code == 0


def test_the_page_has_a_section_for_each_command() -> None:
    """docs/cli.md describes the commands that exist, and no others."""
    told = {name.removeprefix("tideline ") for name in sections() if name.startswith("tideline ")}
    assert told == set(commands())


@pytest.mark.parametrize("name", sorted(commands()))
def test_the_page_names_each_option(name: str) -> None:
    """A command's section names its options, and no others."""
    text = sections()[f"tideline {name}"]
    told = set(re.findall(r"`(--[a-z-]+)", text))
    shared = {"--url", "--api-key", "--home", "--ca", "--project"}
    ours = options_of(commands()[name])
    assert told | (shared if "[coordinator options]" in text else set()) == ours


def test_the_page_has_the_exit_codes() -> None:
    """The table of exit codes in docs is the one in the code."""
    from tideline.cli import guard

    told = {int(n) for n in re.findall(r"\(exit-codes/(\d+)\.md\)", sections()["Exit codes"])}
    by_signals = {137, 143}  # the shell's
    ours = {
        guard.DONE,
        guard.ENDED_BADLY,
        guard.REFUSED,
        guard.UNREACHABLE,
        guard.OTHER,
        guard.UNSOUND,
        guard.TAMPERED,
        guard.INTERRUPTED,
        guard.UNREAD,
    }
    assert told == ours | by_signals


def test_version_loads_no_torch() -> None:
    """`version` tells torch's version without importing it."""
    code = (
        "import sys; from tideline.cli.app import app; app(['version'], standalone_mode=False); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("tideline ")
