"""The chart's network policies: who may reach what."""

from __future__ import annotations

from tests.deploy.cases import IMAGES, PEERS, RENDERED, agent, made_of, plain
from tests.deploy.chart import NAMESPACE, Object, containers, named, render


def policies(objects: list[Object]) -> dict[str, Object]:
    """The rules of each policy, by its name."""
    return {name.removeprefix("tideline-"): each["spec"] for name, each in named(objects, "NetworkPolicy").items()}


def ports_of(rules: list[Object]) -> list[int]:
    """The ports that rules let through."""
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
    assert ports_of(
        policies(render(RENDERED["URLs in Secrets"] | {"networkPolicy": {"ports": {"redis": 6380}}}))["coordinators"]["egress"]
    ) == [53, 5432, 6380, 9000]


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
