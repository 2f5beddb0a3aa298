"""What the chart says: its values, what it prints, and its page in the manual."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.deploy.cases import RENDERED, made_of, said_of
from tests.deploy.chart import NAMESPACE, PAGE, Object, defaults, loaded, named, of, read
from tests.docs.manual import blocks
from tests.docs.test_pages import check as check_command
from tideline.cli.app import app

COMMAND: Any = typer.main.get_command(app)


def test_every_value_is_described() -> None:
    """The schema knows the keys of values.yaml and no others, at every level; only maps of the user's own are open."""
    compare(loaded().schema, defaults(), "")


def compare(schema: Object, given: Object, place: str) -> None:
    """One level."""
    listed = schema["properties"]
    assert set(listed) - {"global"} == set(given), place
    assert schema["additionalProperties"] is False, place
    for key, value in given.items():
        if isinstance(value, dict) and "properties" in listed[key] and value:
            compare(listed[key], value, f"{place}/{key}")


@pytest.mark.parametrize("name", RENDERED)
def test_what_is_printed_can_be_typed(name: str) -> None:
    """The commands that follow an installation exist, and name objects that are there."""
    said, made = said_of(name)["tideline/templates/NOTES.txt"], made_of(name)
    for words in re.findall(r"(tideline (?:invite|login|clients list)[^\n&>|']*)", said):
        check_command(COMMAND, words.split()[1:], words)
    for kind, which in (("deployment", "Deployment"), ("service", "Service")):
        assert set(re.findall(rf"{kind}/([-a-z0-9]+)", said)) <= set(named(made, which))
    assert ("The coordinator has no TLS" in said) == (RENDERED[name].get("insecure", False) and bool(of(made, "Service")))


def test_the_manual_installs_what_it_says() -> None:
    """Its commands name the chart and values that it prints, and objects that these make."""
    shell = "".join(blocks(PAGE, "sh"))
    for chart, values in re.findall(r"^helm upgrade --install \S+ (\S+) .*--values (\S+)\.yaml$", shell, flags=re.MULTILINE):
        assert (Path(__file__).parents[2] / chart / "Chart.yaml").exists() and values in RENDERED
    made = made_of("coordinators")
    assert set(re.findall(r"deployment/([-a-z]+)", shell)) <= set(named(made, "Deployment"))
    given = set(re.findall(r"create secret (?:tls|generic) ([-a-z0-9]+)", shell))
    assert {"coordinator-tls", "database", "store", "hospital-a", "camera-7", "scraper", "tideline-signing"} == given
    needed = [agent["token"]["secret"] for agent in RENDERED["agents"]["agents"]]
    needed += [agent["policy"]["configMap"] for agent in RENDERED["agents"]["agents"] if "policy" in agent]
    assert set(needed) <= given | set(re.findall(r"create configmap ([-a-z0-9]+)", shell))
    assert "tideline-admin" in named(made, "Secret")
    hosts = set(re.findall(r"--host (\S+)", shell))
    assert {f"{name}.{NAMESPACE}.svc" for name in named(made, "Service")} < hosts


def test_namespaces_are_made_before_they_are_used() -> None:
    made: set[str] = set()
    for line in "".join(blocks(PAGE, "sh")).replace("\\\n", " ").splitlines():
        made |= set(re.findall(r"create namespace (\S+)", line))
        assert set(re.findall(r"--namespace (\S+)", line)) <= made, line


def test_values_of_the_manual_exist() -> None:
    """Every value that a sentence of the manual names is in values.yaml, or belongs to an agent."""
    text = PAGE.read_text(encoding="utf-8")
    whole = defaults()
    for path in re.findall(r"`((?:coordinator|networkPolicy|agentDefaults|image)\.[A-Za-z0-9.]+)", text):
        there: Any = whole
        for step in path.split("."):
            assert step in there, path
            there = there[step]


def test_a_key_that_stands_twice_is_seen() -> None:
    with pytest.raises(AssertionError, match="stands twice"):
        read("a: 1\na: 2\n")
