"""What a site's owner allows and forbids in a policy file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tideline.core.errors import ConfigRefused
from tideline.core.privacy import DEFAULT_POLICY, Audience, Exposure
from tideline.engine.site.rules import RATES, Approval, InitialWeights, Least, OnDelete, RunRules
from tideline_agent.policy_file import SitePolicy, policy_digest, policy_in, read_policy

COORDINATOR, PEERS = Audience.COORDINATOR, Audience.PEERS


def read(folder: Path, text: str) -> SitePolicy:
    """The policy of a file with this text."""
    file = folder / "policy.toml"
    file.write_text(text)
    return read_policy(file)


def test_without_a_file() -> None:
    """The default, and notes are told."""
    assert read_policy(None) == SitePolicy(DEFAULT_POLICY, True)


def test_what_is_forbidden_stays(tmp_path: Path) -> None:
    """What is forbidden, and nothing else, is gone from the default."""
    found = read(tmp_path, '[forbid]\nweights = ["coordinator"]\nmetric = "coordinator"\n')
    gone = {(exposure, to) for exposure in (Exposure.WEIGHTS, Exposure.METRIC) for to in (COORDINATOR, Audience.SUM)}
    assert found.allowed == DEFAULT_POLICY - gone


def test_sums_follow_the_coordinator_unless_they_are_named(tmp_path: Path) -> None:
    """Weights may leave where nobody sees one site's, and nowhere else; and the other way round."""
    alone = read(tmp_path, '[forbid]\nweights = ["coordinator"]\n[allow]\nweights = ["sum"]\n')
    assert alone.allowed == DEFAULT_POLICY - {(Exposure.WEIGHTS, COORDINATOR)}
    never = read(tmp_path, '[forbid]\nweights = ["sum"]\n')
    assert never.allowed == DEFAULT_POLICY - {(Exposure.WEIGHTS, Audience.SUM)}
    masked = read(tmp_path, '[forbid]\nmasked = ["coordinator"]\n')
    assert len({policy_digest(each) for each in (alone, never, masked, SitePolicy())}) == 4


def test_what_is_allowed_may_leave(tmp_path: Path) -> None:
    """What is allowed, to whom it is allowed, comes on top."""
    found = read(tmp_path, '[allow]\nfeatures = ["coordinator"]\n')
    assert found.allowed == DEFAULT_POLICY | {(Exposure.FEATURES, COORDINATOR), (Exposure.FEATURES, Audience.SUM)}


def test_a_word_against_outweighs_a_word_for(tmp_path: Path) -> None:
    """What a file allows and forbids is forbidden."""
    found = read(tmp_path, '[allow]\nsamples = ["coordinator", "peers"]\n[forbid]\nsamples = ["peers"]\n')
    assert (Exposure.SAMPLES, COORDINATOR) in found.allowed and (Exposure.SAMPLES, PEERS) not in found.allowed


def test_notes_can_be_forbidden(tmp_path: Path) -> None:
    """They are no exposure, and nothing else changes."""
    assert read(tmp_path, '[forbid]\nnotes = ["coordinator"]\n') == SitePolicy(DEFAULT_POLICY, False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[deny]\nweights = 'peers'", r"\[deny\] is not known"),
        ("[forbid]\nweihgts = 'peers'", "weihgts is no exposure.*weights"),
        ("[forbid]\nweights = 'everybody'", "names 'everybody'"),
        ("[forbid]\nnotes = 'peers'", "Notes go to the 'coordinator' alone"),
        ("forbid = 'weights'", "forbid is not a table"),
        ("[forbid", "is not TOML"),
        ("runs = 3", "runs is 3; it should be a mapping"),
        ("[runs]\nrehearse = 'no'", "runs.rehearse is 'no'; it should be true or false"),
        ("[runs]\naprove = 'new'", "runs.aprove is not a known setting.*approve"),
        ("[runs]\napprove = 'newest'", "runs.approve is 'newest'; it should be one of never, new, always"),
        ("[runs]\nhours = '8-17'", "runs.hours is '8-17', which is no span of a day"),
        ("[runs]\nweights = 'digests'", "runs.digests names none"),
        ("[bounds]\nrate = 'low'", "bounds.rate is 'low'; it should be a number"),
        ("bounds = 3", "bounds is not a table"),
        ("[least]\nrows = 0", "least.rows is 0; it should be at least 1"),
        ("[quotas]\nbytes_out = '2 TiB'", "quotas.bytes_out is '2 TiB', which is no size"),
        ("[quota]\nruns = 3", r"\[quota\] is not known.*quotas"),
        ("[bounds]\nrate = 1\nretain_days = 30", r"retain_days stands below \[bounds\].*above the first table"),
        ("retain_days = -1", "retain_days is -1; it should be at least 0"),
    ],
)
def test_a_file_that_cannot_be_meant(tmp_path: Path, text: str, words: str) -> None:
    """Its owner is told, as a word that is passed over would let something out."""
    with pytest.raises(ConfigRefused, match=f"(?s){words}"):
        read(tmp_path, text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """It does not mean the default."""
    with pytest.raises(ConfigRefused, match="does not exist"):
        read_policy(tmp_path / "policy.toml")


def test_rules_of_runs(tmp_path: Path) -> None:
    """Each where it belongs; default bounds stay beside the owner's own, and may be lifted."""
    found = read(
        tmp_path,
        """
retain_days = 30
[runs]
methods = ["fedavg"]
users = ["alice"]
projects = ["retina"]
hours = "20:00-06:00"
approve = "new"
rehearse = false
weights = "any"
constants = true
clip = 2.5
[bounds]
rounds = 100
rate = 50
batch_share = 0.5
[least]
rows = 40
sites = 3
rows_per_class = 5
[quotas]
runs = 4
replies = 1000
bytes_out = "1.5 GB"
""",
    ).rules
    assert found.runs == RunRules(
        ("fedavg",), ("alice",), ("retina",), "20:00-06:00", Approval.NEW, False, InitialWeights.ANY, (), True, 2.5
    )
    assert found.bounds == {**RATES, "rounds": 100.0, "rate": 50.0, "batch_share": 0.5}
    assert (found.least, found.retain_days) == (Least(40, 3, 5), 30)
    assert (found.quotas.runs, found.quotas.replies, found.quotas.bytes) == (4, 1000, 1_500_000_000)


def test_the_default_rules() -> None:
    """What a site without a file lets run: brought weights and constants are not, nor answers of a few rows."""
    rules = SitePolicy().rules
    assert (rules.runs.weights, rules.runs.constants, rules.runs.approve) == (InitialWeights.BUILT_IN, False, Approval.NEVER)
    assert (rules.least, dict(rules.bounds), rules.retain_days) == (Least(20, 1, 5), dict(RATES), 0)


# A policy file's sections for projects: their lines stand in the place of the file's own.


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


def policy_of_text(text: str) -> SitePolicy:
    """The policy of a text."""
    return policy_in(Path("policy.toml"), text)


def test_a_section_overlays_the_file_line_by_line() -> None:
    """What it does not say is as the file says; it may be narrower, and wider."""
    found = policy_of_text(TEXT)
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
        policy_of_text(text)


def test_the_digest_has_the_sections() -> None:
    """Without any it is as before; whatever a section says shows in it."""
    plain, more = (
        policy_of_text("[runs]\napprove = 'new'"),
        policy_of_text("[runs]\napprove = 'new'\n[projects.cardio.runs]\napprove = 'always'"),
    )
    other = policy_of_text("[runs]\napprove = 'new'\n[projects.cardio.runs]\napprove = 'never'")
    assert len({policy_digest(each) for each in (plain, more, other)}) == 3
    assert policy_digest(plain) == policy_digest(SitePolicy(plain.allowed, plain.notes, plain.rules))
