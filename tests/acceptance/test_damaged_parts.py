"""Real processes, and bytes that change where they lie: the result is that of undamaged bytes, or the run says what it lacks."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.acceptance.conftest import SITES, joined
from tests.acceptance.harness import Net, net
from tests.acceptance.test_survival import at_the_gate, begun, undisturbed
from tideline.archive.writer import PART_BYTES
from tideline.cli.app import app
from tideline.core.errors import FederationError
from tideline_agent.vault import read_checked

pytestmark = pytest.mark.processes
LARGE = PART_BYTES // 4 + 1000  # elements of a vector that is a part of its own
FLIPS, AT_ONCE = 200, 4  # of a night, and within one run
NAMED = 12  # characters of a part's name that a cause tells at least
TRUE_CAUSES = ("is damaged", "no longer whole")


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Path]) -> Iterator[Net]:
    """A federation of this module's own: its files are spoilt."""
    with net(tmp_path_factory.mktemp("spoilt"), "tests.acceptance.registry:METHODS") as made:
        made.coordinator("--rate", "0", "--rate-enrol", "0")
        with joined(made, data, SITES):
            yield made


def replies(there: Net, run: str) -> list[str]:
    """The parts of the replies that the coordinator has of the open exchange."""
    with there.journal() as journal:
        row = journal.run(run)  # type: ignore[arg-type]
        assert row is not None
        return [d for o in journal.orders(row.id, row.cursor) for d, _ in o.reply]


def state(there: Net, run: str) -> list[str]:
    """The parts of the last state, and of the messages that were made of it."""
    with there.journal() as journal:
        row = journal.run(run)  # type: ignore[arg-type]
        assert row is not None
        last = journal.recent_rounds(row.id)[-1].state
        return [d for files in (last, *(o.files for o in journal.orders(row.id, row.cursor))) for d, _ in files]


def spoil(there: Net, digests: Iterable[str]) -> None:
    """Flip the last bit of each of these parts of the coordinator's."""
    for digest in set(digests):
        [path] = (there.folder / "parts").glob(f"??/{digest}")
        path.write_bytes((content := path.read_bytes())[:-1] + bytes([content[-1] ^ 1]))


def begun_again(there: Net) -> None:
    """The coordinator starts again; it has nothing in memory."""
    there.again("coordinator")
    there.ready()


@pytest.mark.parametrize("size", [4, LARGE], ids=["small", "large"])
def test_replies_that_changed_after_they_were_accepted(there: Net, data: dict[str, Path], tmp_path: Path, size: int) -> None:
    run = at_the_gate(there, tmp_path, size=size, closing=True)
    (tmp_path / "go").touch()
    there.until(lambda: bool(begun(tmp_path, "closing")), "the coordinator to close the round")
    there.kill("coordinator")
    accepted = replies(there, run)
    assert len(accepted) >= len(SITES)
    spoil(there, accepted)
    (tmp_path / "go-closing").touch()
    begun_again(there)
    result = there.completed(run, undisturbed(data, size=size))
    assert any("damaged or gone, and made again" in note for note in result["notes"]), result["notes"]
    assert [len(begun(tmp_path, name)) for name in SITES] == [1, 1, 1], "no step was done twice"


@pytest.mark.parametrize("size", [4, LARGE], ids=["small", "large"])
def test_a_damaged_state(there: Net, data: dict[str, Path], tmp_path: Path, size: int) -> None:
    """It is computed again; and a later run of the same seed does not stumble over it."""
    run = at_the_gate(there, tmp_path, size=size)
    there.kill("coordinator")
    spoil(there, state(there, run))
    (tmp_path / "go").touch()
    begun_again(there)
    result = there.completed(run, undisturbed(data, size=size))
    spoil(there, state(there, run))
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "go").touch()
    there.completed(at_the_gate(there, tmp_path / "again", size=size), result["state_digest"])


def verified(there: Net, *more: str, code: int) -> str:
    """What `tideline parts verify` says of the coordinator's parts."""
    said = CliRunner().invoke(app, ["parts", "verify", *more, "--home", str(there.folder)])
    assert said.exit_code == code, said.output
    return said.stdout


def forget_damaged(there: Net) -> None:
    """Delete what lies of damaged parts that were made again, and that no run needs any more, as `parts verify` says to do."""
    for path in (there.folder / "parts" / "damaged").glob("*"):
        path.unlink()


def test_all_parts_are_read_by_hand(there: Net, data: dict[str, Path], tmp_path: Path) -> None:
    """Words, JSON and exit codes of the command, and the call beneath it: of what is made again, and of what nobody has."""
    run = at_the_gate(there, tmp_path, size=5)
    forget_damaged(there)
    assert "none damaged" in verified(there, code=0)
    spoil(there, damaged := set(state(there, run)))
    found = there.client().post("/parts/verify?after=&repair=false")
    assert set(found["damaged"]) == set(found["aside"]) == damaged and found["after"] == "", found
    assert (found["mended"], found["lost"]) == ([], [])
    words = verified(there, code=5)
    assert all(f"{digest} is damaged, and was put aside." in words for digest in damaged), words
    assert set(json.loads(verified(there, "--json", code=5))["aside"]) == damaged
    assert set(json.loads(verified(there, "--repair", "--json", code=0))["mended"]) == damaged
    (tmp_path / "go").touch()
    result = there.completed(run, undisturbed(data, size=5))

    forget_damaged(there)
    spoil(there, damaged := {result["state_digest"]})
    words = verified(there, "--repair", code=5)
    assert f"It is the final state of run {run}, which has completed" in words, words
    told = json.loads(verified(there, "--repair", "--json", code=5))
    assert (set(told["aside"]), told["damaged"], len(told["lost"])) == (damaged, [], 1), told
    with pytest.raises(FederationError, match="damaged"):
        list(there.client().download(f"/parts/{result['state_digest']}?run={run}"))
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "go").touch()
    assert there.ended(at_the_gate(there, tmp_path / "again", size=5))["state_digest"] == result["state_digest"]
    assert json.loads(verified(there, "--repair", "--json", code=0))["aside"] == []
    with pytest.raises(FederationError, match="after"):
        there.client().post("/parts/verify?after=nothing")


def lying(there: Net, run: str) -> list[Path]:
    """The files that somebody may read again: the coordinator's parts, and the run's in each site's vault."""
    own = [there.home / f"home-{name}" / "runs" / run for name in SITES]
    vaults = [path for folder in own for path in (*folder.glob("*.json"), *folder.glob("parts/??/*"))]
    return sorted([*(there.folder / "parts").glob("??/*"), *vaults])


def healed(written: dict[Path, bytes]) -> None:
    """Good copies brought back, of what is damaged or gone."""
    for path, content in written.items():
        if path.suffix == ".json":
            try:
                read_checked(path)
                continue
            except (ValueError, FileNotFoundError):
                pass
        path.write_bytes(content)


@pytest.mark.nightly(job="journeys")
@pytest.mark.timeout(3600)
def test_a_night_of_flips(there: Net, data: dict[str, Path], tmp_path: Path) -> None:
    """Any bits of any files of either side: no result changes. What nobody makes again is named, and with it the run goes on:
    good copies are brought back once, and it is resumed once.
    """
    pick, expected, stalled, began = random.Random(7), undisturbed(data), 0, time.monotonic()
    for at in range(FLIPS // AT_ONCE):
        gate = tmp_path / str(at)
        gate.mkdir()
        run, written = at_the_gate(there, gate), dict[Path, bytes]()
        there.kill("coordinator")
        for path in pick.sample(lying(there, run), AT_ONCE):
            written[path] = path.read_bytes()
            flipped = bytearray(written[path])
            flipped[pick.randrange(len(flipped))] ^= 1 << pick.randrange(8)
            path.write_bytes(flipped)
        (gate / "go").touch()
        begun_again(there)
        result = there.ended(run)
        if result["status"] == "stalled":
            stalled += 1
            cause = result["cause"]
            assert any(words in cause for words in TRUE_CAUSES), cause
            assert any(path.name[:NAMED] in cause for path in written), (cause, list(written))
            print(f"run {at} stalled: {cause}")
            healed(written)
            there.client().post(f"/runs/{run}/resume")
            there.completed(run, expected), (at, list(written), result["cause"])
    seconds = time.monotonic() - began
    print(f"{FLIPS} flips in {FLIPS // AT_ONCE} runs: {stalled} stalled once and went on, no other said a word; {seconds:.0f} s")
