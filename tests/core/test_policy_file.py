"""What a site's owner allows and forbids in a policy file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tideline.core.errors import ConfigRefused
from tideline.core.privacy import DEFAULT_POLICY, Audience, Exposure
from tideline_agent.settings import SitePolicy, read_policy

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
    assert found.allowed == DEFAULT_POLICY - {(Exposure.WEIGHTS, COORDINATOR), (Exposure.METRIC, COORDINATOR)}


def test_what_is_allowed_may_leave(tmp_path: Path) -> None:
    """What is allowed, to whom it is allowed, comes on top."""
    found = read(tmp_path, '[allow]\nfeatures = ["coordinator"]\n')
    assert found.allowed == DEFAULT_POLICY | {(Exposure.FEATURES, COORDINATOR)}


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
