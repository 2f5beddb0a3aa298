"""A bit flips in a file while it is in use: what was made of it does not count."""

from __future__ import annotations

from functools import cache, partialmethod
from pathlib import Path

import pytest
import torch

from tests.engine import toys
from tests.engine.flipping import Flipping
from tests.engine.present import present
from tests.synthetic import NAMES, experiment, sites
from tideline.archive.errors import PartDamaged
from tideline.archive.folder import FolderParts
from tideline.archive.watching import WATCHED, seen, watching
from tideline.core.errors import Malformed
from tideline.core.run import ClientId, Digest, RunId
from tideline.engine.simulation.federation import Federation

ASKED = experiment("toy", toys.ROSTER, config={"rounds": 3})
LARGE = 1 << 17  # bytes: a file that is mapped


def spoil(path: Path) -> None:
    """Change a file's last byte in its place, as a disk does: who has it mapped sees that."""
    with path.open("r+b") as file:
        file.seek(-1, 2)
        [last] = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([last ^ 1]))


def test_a_file_that_changes_while_it_is_mapped(tmp_path: Path) -> None:
    """Its mapping shows the change; the look at the end of its use finds it."""
    parts = FolderParts(tmp_path)
    digest, quiet = parts.put([bytes(LARGE)]), parts.put([b"1" * LARGE])
    with pytest.raises(PartDamaged), watching():
        view, other = parts.view(digest), parts.view(quiet)
        spoil(parts.path(digest))
        assert torch.frombuffer(view, dtype=torch.uint8).sum() == 1, "a page that nobody wrote to is the file's"
    assert parts.damaged() == (digest,) and parts.has(quiet) and len(other) == LARGE


def test_an_error_that_a_change_led_to_is_not_told(tmp_path: Path) -> None:
    """The true cause is."""
    parts = FolderParts(tmp_path)
    digest = parts.put([bytes(LARGE)])
    with pytest.raises(PartDamaged), watching():
        parts.view(digest)
        spoil(parts.path(digest))
        raise Malformed("The header is not JSON")
    with pytest.raises(Malformed), watching():
        raise Malformed("The header is not JSON")


def test_what_is_dropped_or_let_go_is_passed_over(tmp_path: Path) -> None:
    """Parts are collected while they are mapped; and who holds a file no longer watches it no longer."""
    parts = FolderParts(tmp_path)
    dropped, gone = parts.put([bytes(LARGE)]), parts.put([b"1" * LARGE])
    small = parts.put([b"small"])
    with watching() as watched:
        view = parts.view(dropped)
        parts.view(gone)
        parts.view(small)
        parts.drop(dropped)
    spoil(parts.path(gone))
    watched.living().check()
    assert len(view) == LARGE


def test_a_file_that_was_damaged_before_is_found_at_the_end(tmp_path: Path) -> None:
    """Whoever watches opens it as it lies; the end, and an error of the block, tell that it is not what it was."""
    parts = FolderParts(tmp_path, durable=False)
    digest = parts.put([b"x" * LARGE])
    spoil(parts.path(digest))
    with pytest.raises(PartDamaged), watching():
        seen(parts, digest)
    for at_end in (True, False):
        digest = parts.put([b"x" * LARGE])
        spoil(parts.path(digest))
        with pytest.raises(PartDamaged), watching(at_end):
            seen(parts, digest)
            raise ValueError("what the bytes led to")
    digest = parts.put([b"x" * LARGE])
    spoil(parts.path(digest))
    with watching(at_end=False):
        seen(parts, digest)
    with pytest.raises(PartDamaged):
        seen(parts, digest)  # nobody watches: it is held to its name at once


def test_a_damaged_file_that_is_written_again_meanwhile(tmp_path: Path) -> None:
    """The good copy that lies there at the end is not what was used."""
    parts = FolderParts(tmp_path, durable=False)
    digest = parts.put([b"x" * LARGE])
    spoil(parts.path(digest))
    with pytest.raises(PartDamaged, match="written again"), watching():
        used = seen(parts, digest)
        parts.put([b"x" * LARGE])
    assert used[-1] != ord("x") and bytes(parts.view(digest)) == b"x" * LARGE


@pytest.fixture
def mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every tensor in a file of its own, which is mapped."""
    monkeypatch.setattr("tideline.archive.writer.PART_BYTES", 1)
    monkeypatch.setattr("tideline.archive.folder.SMALL_BYTES", 1)


@cache
def undisturbed_end() -> str:
    """Return the digest of the run's last state if no file changes."""
    federation = Federation(toys.METHODS, sites(NAMES[:3]))
    return str(federation.run(federation.start(ASKED))["state_digest"])


@pytest.mark.usefixtures("mapped")
@pytest.mark.parametrize("whose", ["state", "reply", "message", "memory"])
def test_a_run_whose_files_change_while_they_are_folded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str) -> None:
    """The round is folded again, or the step done again, and the run ends as it would have; memory is gone, and it says so."""
    there = Flipping.over(tmp_path, toys.METHODS, sites(NAMES[:3]))
    run, done, expected = there.federation.start(ASKED), list[object](), undisturbed_end()
    ways = {"view": FolderParts.view, "peek": FolderParts.peek}

    def opened(way: str, parts: FolderParts, digest: Digest) -> memoryview:
        """Just opened for a fold or a step, and then it changes."""
        found = ways[way](parts, digest)
        if WATCHED.get() is not None and not done and digest in files(there, run, whose):
            done.append(spoil(parts.path(digest)))
        return found

    for way in ways:
        monkeypatch.setattr(FolderParts, way, partialmethod(lambda parts, digest, way: opened(way, parts, digest), way=way))
    after = there.play(run)
    assert done
    if whose == "memory":
        assert after["status"] == "stalled" and "is damaged" in after["cause"]
        there.heal()
        there.federation.run_service.resume(run)
        after = there.play(run)
    assert (after["status"], after["state_digest"]) == ("completed", expected), after["cause"]


def files(there: Flipping, run: RunId, whose: str) -> set[Digest]:
    """Of the run's second exchange; none before it is open."""
    row, on = there.federation.journal.run(run), there.federation
    if row is None or row.cursor != 1:
        return set()
    orders = on.journal.orders(run, 1)
    head = present(on.agents[ClientId("bert")].vault.head(run))
    lists = {
        "state": [on.journal.recent_rounds(run)[-1].state] if all(o.reply for o in orders) else [],
        "reply": [o.reply for o in orders],
        "message": [o.files for o in orders] if not any(o.reply for o in orders) else [],
        "memory": [head.memory] if head.cursor == 0 else [],
    }
    return {digest for each in lists[whose] for digest, _ in each}
