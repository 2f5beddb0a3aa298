"""A policy file's sections for projects: their lines stand in the place of the file's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tideline.core.errors import ConfigRefused
from tideline.core.privacy import DEFAULT_POLICY, Audience, Exposure
from tideline.engine.site.rules import RATES, Approval, OnDelete
from tideline_agent.policy_file import SitePolicy, policy_digest, policy_in

TEXT = """
[forbid]
weights = ["peers"]
[runs]
methods = ["fedavg"]
approve = "new"
hours = "20:00-06:00"
[bounds]
rounds = 10
[least]
rows = 100
[quotas]
runs = 3
[projects.cardio.runs]
methods = ["feddadil", "fada"]
approve = "never"
[projects.cardio.bounds]
rounds = 500
epochs = 2
[projects.cardio.allow]
features = ["coordinator"]
[projects.cardio.forbid]
weights = []
[projects.cardio.retention]
on_delete = "follow"
[projects.retina.least]
rows = 500
"""


def read(text: str) -> SitePolicy:
    """The policy of a text."""
    return policy_in(Path("policy.toml"), text)


def test_a_section_overlays_the_file_line_by_line() -> None:
    """What it does not say is as the file says; it may be narrower, and wider."""
    found = read(TEXT)
    own, base = found.of("cardio"), found.of("another")
    assert base == found and base.of("default").rules.runs.methods == ("fedavg",)
    assert (own.rules.runs.methods, own.rules.runs.approve, own.rules.runs.hours) == (
        ("feddadil", "fada"),
        Approval.NEVER,
        "20:00-06:00",
    )
    assert own.rules.bounds == {**RATES, "rounds": 500.0, "epochs": 2.0}
    assert own.allowed == DEFAULT_POLICY | {(Exposure.FEATURES, to) for to in (Audience.COORDINATOR, Audience.SUM)}
    assert base.allowed == DEFAULT_POLICY - {(Exposure.WEIGHTS, Audience.PEERS)}
    assert (own.rules.least.rows, found.of("retina").rules.least.rows) == (100, 500)
    assert (own.rules.quotas.runs, found.of("retina").allowed) == (3, base.allowed)
    assert (own.rules.retention.on_delete, base.rules.retention.on_delete) == (OnDelete.FOLLOW, OnDelete.ASK)
    assert found.of("retina").rules.runs == base.rules.runs


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[projects.cardio.rnus]\nmethods = []", r"projects.cardio.rnus is no table of a policy.*runs"),
        ("[projects.cardio]\nretain_days = 3", r"projects.cardio.retain_days is no table"),
        ("[projects.cardio.runs]\nmethod = ['fada']", r"runs.method is not a known setting.*\[projects.cardio\]"),
        ("[projects.cardio.forbid]\nweights = 'all'", r"forbid.weights names 'all', in \[projects.cardio\]"),
        ("[projects.cardio.quotas]\nruns = 3", r"projects.cardio.quotas counts for the agent as a whole.*below \[quotas\]"),
        ("[projects.cardio.runs]\nprojects = ['x']", r"projects.cardio.runs.projects counts for the agent as a whole"),
        ("[projects.cardio.forbid]\nnotes = 'coordinator'", r"projects.cardio.forbid.notes counts for the agent as a whole"),
        ("[projects.Cardio.runs]\nmethods = []", r"\[projects.Cardio\] names no project"),
        ("[projects.all.runs]\nmethods = []", r"\[projects.all\] names no project"),
        ("[projects]\ncardio = 3", "cardio is not a table"),
        ("projects = 3", "projects is not a table"),
        ("[runs]\nprojects = ['retina']\n[projects.cardio.runs]\napprove = 'new'", r"\[runs\] projects does not name cardio"),
    ],
)
def test_a_section_that_cannot_be_meant(text: str, words: str) -> None:
    """It is refused with its place: what is passed over would let something out."""
    with pytest.raises(ConfigRefused, match=f"(?s){words}"):
        read(text)


def test_the_digest_has_the_sections() -> None:
    """Without any it is as before; whatever a section says shows in it."""
    plain, more = read("[runs]\napprove = 'new'"), read("[runs]\napprove = 'new'\n[projects.cardio.runs]\napprove = 'always'")
    other = read("[runs]\napprove = 'new'\n[projects.cardio.runs]\napprove = 'never'")
    assert len({policy_digest(each) for each in (plain, more, other)}) == 3
    assert policy_digest(plain) == policy_digest(SitePolicy(plain.allowed, plain.notes, plain.rules))
