"""What a site knows its peers by, in its home: written by several processes, by older versions, seen and changed by its owner."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.engine.handovers import handed_over, peer
from tideline.cli.app import app
from tideline.core.errors import ConfigRefused, IdentityRefused, NotFound, PeerRefused
from tideline.core.run import ClientId
from tideline.engine.peers.peer_keys import FORMER_SECONDS, Former, Own, PeerKeys, Pin, fresh, shown
from tideline_agent.home.pins import FolderPins, listed, trust

BERT, CARL = ClientId("bert"), ClientId("carl")
DAY = 86400.0
# Meets so many peers in the home, one after the other, beside another process that does the same.
MEETS = """
import sys
from pathlib import Path
from tideline.core.run import ClientId
from tideline.engine.peers.peer_keys import PeerKeys, fresh
from tideline.engine.model.accounts import Peer
from tideline_agent.home.pins import FolderPins
home, who = Path(sys.argv[1]), sys.argv[2]
peer_keys = PeerKeys(fresh, FolderPins(home))
print("ready", flush=True)
sys.stdin.readline()
for i in range(25):
    peer_keys.trust({ClientId(f"{who}-{i}"): Peer(fresh().public)})
"""


def ring_in(home: Path, now: float = 0.0) -> PeerKeys:
    own = fresh()
    return PeerKeys(lambda: own, FolderPins(home, now=lambda: now), lambda: now)


def rotated_in(home: Path, now: float = 0.0) -> tuple[Own, Own]:
    """Bert is met and rotates: his keys before and after."""
    old, new = fresh(), fresh()
    ring_in(home, now).trust({BERT: peer(old)})
    ring_in(home, now).trust({BERT: peer(new, handed_over(BERT, old, new))})
    return old, new


@pytest.mark.processes
def test_two_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    """Each reads what the other wrote before it writes: the file's lock is held in between."""
    names = ("left", "right")
    command = [sys.executable, "-c", MEETS, str(tmp_path)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with contextlib.ExitStack() as stack:
        both = [stack.enter_context(subprocess.Popen([*command, name], **pipes)) for name in names]
        for each in both:
            assert each.stdout is not None and each.stdout.readline() == "ready\n"
        for each in both:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        assert [each.wait(60) for each in both] == [0, 0]
    assert set(FolderPins(tmp_path).read()) == {f"{name}-{i}" for name in names for i in range(25)}


def test_what_was_met_is_known_again(tmp_path: Path) -> None:
    """Keys, former ones with when they were replaced, and since when; whoever is new is told once."""
    told: list[tuple[str, str, str]] = []
    old, new = fresh(), fresh()
    pins = FolderPins(tmp_path, lambda *words: told.append(words), lambda: 100.0)
    PeerKeys(fresh, pins, lambda: 100.0).trust({BERT: peer(old)})
    PeerKeys(fresh, pins, lambda: 200.0).trust({BERT: peer(new, handed_over(BERT, old, new)), CARL: peer(old)})
    PeerKeys(fresh, pins, lambda: 300.0).trust({BERT: peer(new), CARL: peer(old)})
    known = FolderPins(tmp_path).read()
    assert known[BERT] == Pin(new.public, shown(new.public), (Former(old.public, 200.0),), "1970-01-01T00:01:40+00:00")
    before, after = shown(old.public), shown(new.public)
    assert told == [("bert", before, ""), ("bert", after, before), ("carl", before, "")]


def older(home: Path, **pin: Any) -> None:
    """Bert's pin as an older version wrote it."""
    plain = {"keys": None, "fingerprint": "0a1b 2c3d 4e5f 6071", "former": [], "since": "2026-01-01T00:00:00+00:00"} | pin
    (home / "peers.json").write_text(json.dumps({"bert": plain}))


def test_a_file_of_an_older_version_is_read(tmp_path: Path) -> None:
    """Its fingerprints are those of its keys; its former keys are replaced when they are first read, and that is kept."""
    old, new = fresh(), fresh()
    older(tmp_path, keys=vars(new.public), former=[vars(old.public)])
    assert listed(tmp_path, 5.0) == [
        {
            "peer": "bert",
            "fingerprint": shown(new.public),
            "since": "2026-01-01T00:00:00+00:00",
            "trusted": False,
            "former": [{"fingerprint": shown(old.public), "until": None}],
        }
    ]
    for now in (DAY, 2 * DAY):
        ring_in(tmp_path, now).trust({BERT: peer(new)})
    (row,) = listed(tmp_path, 2 * DAY)
    assert row["since"] == "2026-01-01T00:00:00+00:00"
    assert row["former"] == [{"fingerprint": shown(old.public), "until": "1970-01-09T00:00:00+00:00"}]
    assert listed(tmp_path, DAY + FORMER_SECONDS)[0]["former"] == []


def test_a_short_fingerprint_has_to_be_trusted_again(tmp_path: Path) -> None:
    new = fresh()
    older(tmp_path, fingerprint=shown(new.public)[:19])
    with pytest.raises(PeerRefused, match="by 16 digits"):
        ring_in(tmp_path).trust({BERT: peer(new)})
    trust(tmp_path, "bert", shown(new.public))
    assert ring_in(tmp_path).trust({BERT: peer(new)})[BERT].keys == new.public


def test_to_trust_the_keys_of_today_drops_those_of_before(tmp_path: Path) -> None:
    old, new = rotated_in(tmp_path)
    ring = ring_in(tmp_path)
    assert ring.trust({BERT: peer(new)})[BERT].believed(0.0) == (new.public, old.public)
    assert trust(tmp_path, "bert", shown(new.public).upper().replace(" ", "")).former
    assert ring.trust({BERT: peer(new)})[BERT].believed(0.0) == (new.public,)
    assert FolderPins(tmp_path).read()[BERT].keys == new.public


def test_to_trust_other_keys(tmp_path: Path) -> None:
    rotated_in(tmp_path)
    other = fresh()
    trust(tmp_path, "bert", shown(other.public))
    with pytest.raises(PeerRefused):
        ring_in(tmp_path).trust({BERT: peer(fresh())})
    assert ring_in(tmp_path).trust({BERT: peer(other)})[BERT].believed(0.0) == (other.public,)


@pytest.mark.parametrize("wrong", ["", "0a1b", "0a1b 2c3d 4e5f 6071", "g" * 32, "0" * 33])
def test_what_is_no_fingerprint_is_refused(tmp_path: Path, wrong: str) -> None:
    """With how one looks; one as older versions showed it, with what to do. Nothing is written."""
    rotated_in(tmp_path)
    before = (tmp_path / "peers.json").read_bytes()
    with pytest.raises(ConfigRefused, match="is no fingerprint") as refusal:
        trust(tmp_path, "bert", wrong)
    assert "32 hexadecimal digits, such as '0a1b 2c3d" in refusal.value.todo
    assert ("have its owner upgrade" in refusal.value.todo) == (len(wrong) == 19)
    with pytest.raises(NotFound, match="has met no peer 'dora'; it knows bert"):
        trust(tmp_path, "dora", "0" * 32)
    assert (tmp_path / "peers.json").read_bytes() == before


@pytest.mark.parametrize("content", ["", "[]", '{"bert": 1}', '{"bert": {"keys": {"sign": "zz", "receive": "00"}}}'])
def test_a_damaged_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "peers.json").write_text(content)
    with pytest.raises(IdentityRefused, match="is damaged"):
        ring_in(tmp_path).trust({BERT: peer(fresh())})
    assert (tmp_path / "peers.json").read_text() == content


def test_an_owner_sees_which_former_keys_are_believed(tmp_path: Path) -> None:
    """And until when: as a table and as JSON; and says when that is to end."""
    (tmp_path / "runs").mkdir()
    today = datetime.now(UTC).timestamp()
    old, new = rotated_in(tmp_path, today)
    until = datetime.fromtimestamp(today + FORMER_SECONDS, UTC).isoformat(timespec="seconds")
    (row,) = json.loads(said(tmp_path, "peers", "--json"))
    assert row["former"] == [{"fingerprint": shown(old.public), "until": until}]
    table = " ".join(said(tmp_path, "peers").split())
    assert until in table and shown(new.public) in table
    said(tmp_path, "trust", "bert", shown(new.public))
    (row,) = json.loads(said(tmp_path, "peers", "--json"))
    assert row["former"] == [] and row["fingerprint"] == shown(new.public)
    older(tmp_path, keys=vars(new.public), former=[vars(old.public)])
    assert "until 7 days after the agent meets it next" in " ".join(said(tmp_path, "peers").split())


def said(home: Path, *words: str) -> str:
    """What a command of the site's owner prints."""
    done = CliRunner().invoke(app, ["site", words[0], "--home", str(home), *words[1:]])
    assert done.exit_code == 0, done.output
    return done.stdout
