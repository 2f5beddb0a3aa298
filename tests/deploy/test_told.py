"""What the chart says and who may reach what: its values, what it prints, its page in the manual, its network policies."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.deploy.cases import IMAGES, PEERS, RENDERED, agent, made_of, plain, said_of
from tests.deploy.chart import NAMESPACE, PAGE, Object, containers, defaults, loaded, named, of, read, render
from tests.docs.manual import blocks
from tests.docs.test_pages import check as check_command
from tideline.cli.app import app

COMMAND: Any = typer.main.get_command(app)


def test_every_value_is_described() -> None:
    """The schema knows the keys of values.yaml and no others, at every level; only maps of the user's own are open."""
    compare(loaded().schema, defaults(), "")


def compare(schema: Object, given: Object, place: str) -> None:
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


def policies(objects: list[Object]) -> dict[str, Object]:
    return {name.removeprefix("tideline-"): each["spec"] for name, each in named(objects, "NetworkPolicy").items()}


def ports_of(rules: list[Object]) -> list[int]:
    return sorted({port["port"] for rule in rules for port in rule["ports"]})


def test_agents_reach_the_coordinators_and_nobody_reaches_them() -> None:
    sites = policies(made_of("sixteen agents"))["sites"]
    assert sites["policyTypes"] == ["Ingress", "Egress"] and sites["ingress"] == []
    names, grpc = sites["egress"]
    assert ports_of([names]) == [53] and names["to"] and ports_of([grpc]) == [7800]
    assert grpc["to"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "coordinator"


def test_agents_reach_a_coordinator_elsewhere() -> None:
    names, grpc = policies(made_of("agents"))["sites"]["egress"]
    assert ports_of([names, grpc]) == [53, 7800] and grpc["to"] == [{"ipBlock": {"cidr": "203.0.113.7/32"}}]


def test_agents_call_what_they_may_reach() -> None:
    """The Service of this release, also where tokens tell those elsewhere to call something else; or what they are told to."""
    values = plain(advertise="federation.example:7800", grpc={"port": 7801})
    elsewhere = agent("hospital-b", coordinator="b.example:7800")
    said = [each["args"] for each in containers(render(values | {"agents": [agent(), elsewhere]})) if each["name"] == "agent"]
    called = [[word.partition("=")[2] for word in args if word.startswith("--coordinator=")] for args in said]
    assert called == [[f"tideline-grpc.{NAMESPACE}.svc:7801"], ["b.example:7800"]]
    (alone,) = containers(render(IMAGES | {"coordinator": {"enabled": False}, "agents": [agent()]}))
    assert not [word for word in alone["args"] if word.startswith("--coordinator")], "the token says it"


def test_numbers_of_agents_are_read_by_those_who_are_named() -> None:
    objects = made_of("numbers of agents")
    (rule,) = policies(objects)["sites"]["ingress"]
    assert ports_of([rule]) == [9107, 9108] and rule["from"] == PEERS
    assert [[port["containerPort"] for port in each.get("ports", [])] for each in containers(objects)] == [[9107], [9108], []]
    assert policies(made_of("agent with everything"))["sites"]["ingress"] == []


def test_coordinators_reach_their_stores() -> None:
    assert ports_of(policies(made_of("trial"))["coordinators"]["egress"]) == [53]
    assert ports_of(policies(made_of("coordinators"))["coordinators"]["egress"]) == [53, 443, 5432, 6379]
    assert ports_of(policies(made_of("every port and every knob"))["coordinators"]["egress"]) == [53, 443, 587, 5433, 9000]
    other_ports = render(RENDERED["URLs in Secrets"] | {"networkPolicy": {"ports": {"redis": 6380}}})
    assert ports_of(policies(other_ports)["coordinators"]["egress"]) == [53, 5432, 6380, 9000]


def test_the_database_is_reached_by_coordinators_alone() -> None:
    assert "database" not in policies(made_of("coordinators"))
    policy = policies(made_of("every port and every knob"))["database"]
    (rule,) = policy["ingress"]
    assert policy["podSelector"]["matchLabels"] == {"app": "db"} and ports_of([rule]) == [5433]
    assert [each["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for each in rule["from"]] == ["coordinator"]


def test_ports_can_be_narrowed() -> None:
    """Who may call is a matter of values; agents of the release may always."""
    grpc, http = policies(made_of("every port and every knob"))["coordinators"]["ingress"]
    assert ports_of([grpc]) == [7800, 7801] and len(grpc["from"]) == 2
    assert ports_of([http]) == [7880] and len(http["from"]) == 1
    assert all("from" not in rule for rule in policies(made_of("trial"))["coordinators"]["ingress"])
