"""Sealed values that do not stay whole, at the coordinator and where they were opened: they are asked for again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine import passing
from tests.engine.flipping import Flipping
from tests.engine.present import present
from tests.engine.sealing_stage import ANNA, BERT, given
from tests.synthetic import sites
from tideline.core.errors import FederationError
from tideline.core.run import RunId
from tideline.engine.coordinator.integrity.verifying import Verifier
from tideline.engine.model.orders import Order
from tideline.engine.peers.sealing import ciphers, plaintexts
from tideline.engine.simulation.federation import Federation


@pytest.fixture(autouse=True, scope="module")
def mapped() -> Iterator[None]:
    """All parts are as long as those of real models: they are mapped, and not kept in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tideline.archive.folder.SMALL_BYTES", 1)
        yield


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    """What the run comes to."""
    federation = Federation(passing.METHODS, sites())
    return federation.run(federation.start(given()))


def begun(folder: Path) -> tuple[Flipping, RunId]:
    """Three sites on a disk, and a run in which they seal for each other."""
    there = Flipping.over(folder, passing.METHODS, sites())
    return there, there.federation.start(given())


def spoil(path: Path) -> None:
    """Change a file's last byte."""
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def same(result: dict[str, Any], expected: dict[str, Any]) -> None:
    """Both runs came to the same."""
    assert (result["status"], result["state_digest"]) == ("completed", expected["state_digest"]), result["cause"]


def test_a_sealed_file_at_the_coordinator(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    """While the exchange is open whose answer brought it: its holder is asked again, and sends the file that was signed."""
    there, run = begun(tmp_path)
    sealed: list[str] = []

    def answered() -> None:
        row = present(there.federation.journal.run(run))
        orders = [o for o in there.federation.journal.orders(run, row.cursor) if o.client == ANNA and o.reply]
        values = [each for _, each in there.federation.journal._sealed.get(run, {}).values()]
        mine = [each for each in values if each.handle.holder == ANNA]
        if sealed or not orders or not mine or there.federation.journal.standing(run, row.cursor).answered != 2:
            return
        sealed.extend(digest for digest, _ in ciphers([mine[-1]]))
        [path] = (there.folder / "coordinator").glob(f"??/{sealed[0]}")
        spoil(path)
        found = Verifier(there.federation.part_store, there.federation.scheduler.mender).verify(repair=True)
        assert (found.aside, found.lost, found.cleared) == ((sealed[0],), (), ())

    same(there.play(run, answered), undisturbed)
    told = [e.details for e in there.federation.journal.audit() if e.kind == "part_mended"]
    assert [(each["part"], each["how"]) for each in told] == [(sealed[0], f"{ANNA} was asked for it again")]


def test_a_value_that_waits_in_a_state(tmp_path: Path) -> None:
    """It is handed out at the end alone, and nobody is asked for it by then: nothing calls it unneeded, or deletes it."""
    there = Flipping.over(tmp_path, passing.METHODS, sites())
    run = there.federation.start(given(rounds=6) | {"checkpoint_every": 1})
    journal, kept = there.federation.journal, list[str]()

    def spoilt() -> None:
        row = present(journal.run(run))
        values = [each for _, each in journal._sealed.get(run, {}).values() if each.handle.holder == ANNA]
        if kept or row.cursor < 4 or len(values) < 2 or there.federation.agent_service.orders(ANNA) == ():
            return
        kept.append(values[0].cipher)
        [path] = (there.folder / "coordinator").glob(f"??/{kept[0]}")
        spoil(path)
        found = Verifier(there.federation.part_store, there.federation.scheduler.mender).verify(repair=True)
        assert (found.aside, found.cleared) == ((kept[0],), ())
        assert f"a value that {ANNA} sealed for other sites, which the state after" in found.lost[0]

    assert there.ended(run, spoilt)["status"] == "completed" and kept


def test_a_value_that_a_site_has_opened(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    """It changes on the site's disk before the step reads it: its sealed file is fetched and opened once more."""
    there, run = begun(tmp_path)
    agent, seen, fetched = there.federation.agents[BERT], list[str](), list[str]()
    fetch = agent.link.fetch

    def fetching(order: Order, files: Any, parts: Any) -> None:
        fetched.extend(digest for digest, _ in files)
        fetch(order, files, parts)

    def hear(what: str, order: Order, error: FederationError | None) -> None:
        seen.append(what)
        if what == "begun" and order.sealed and "damaged" not in seen and "spoilt" not in seen:
            [path] = (there.folder / f"site-{BERT}").rglob(plaintexts(order.sealed)[0][0])
            spoil(path)
            seen.append("spoilt")

    agent.link.fetch, agent.log = fetching, hear  # type: ignore[method-assign]
    same(there.play(run), undisturbed)
    assert seen.count("damaged") == 1
    assert [fetched.count(digest) for digest in set(fetched) if fetched.count(digest) > 1] == [2]
