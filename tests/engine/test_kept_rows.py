"""Rows that a site remembers while a run lasts are gone from its disk once it has answered the last exchange."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from tests.synthetic import NAMES, TRAIN, blobs, experiment, sites
from tideline.algorithms import METHODS
from tideline.algorithms.feddadil.messages import Mine
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.run import ClientId, RunId
from tideline.engine.simulation.federation import Federation

ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
# Without an encoder: what the site remembers are its rows as they are.
WORLD = {"inputs": [8], "classes": 3, "model": "linear", "normalise": "none"}
GIVEN = experiment("feddadil", ROSTER) | {"world": WORLD, "config": {"encoder_rounds": 0}}


def memories(on: Federation, run: RunId, name: str) -> list[Mine]:
    """What a site remembers, and remembered at the run's best scoring."""
    vault = on.agents[ClientId(name)].vault
    head = vault.head(run)
    assert head is not None
    roots = [files[0][0] for files in (head.memory, head.best.memory if head.best else ()) if files]
    return [decode(Mine, root, vault.parts(run), LAX) for root in roots]


def holds(on: Federation, run: RunId, name: str, row: bytes) -> bool:
    """Whether any file of the run at a site has a row's bytes."""
    parts = on.agents[ClientId(name)].vault.parts(run)
    return any(row in bytes(parts.view(digest)) for digest in parts.digests())


def test_while_a_run_lasts_a_site_remembers_its_rows() -> None:
    """So that each exchange has the same ones."""
    with closing(Federation(METHODS, sites())) as on:
        run = on.start(GIVEN)
        seen, held, row = list[int](), list[bool](), next(blobs(TRAIN, 0, 0).x.parts())[0].numpy().tobytes()

        def look(orders: Any) -> Any:
            if on.agents[ClientId("anna")].vault.head(run) is not None:
                seen.append(len(memories(on, run, "anna")[0].z))
                held.append(holds(on, run, "anna", row))
            return orders

        on.run(run, order_of=look)
    assert max(seen) > 0 and any(held)


@pytest.mark.parametrize("selection", ["none", "accuracy"])
def test_afterwards_they_are_gone(selection: str) -> None:
    """From the memory, from that of the best scoring, and from every file of the run there. The model stays."""
    with closing(Federation(METHODS, sites())) as on:
        run = on.start(GIVEN | {"selection": selection})
        assert on.run(run)["status"] == "completed"
        for name, role in ROSTER.items():
            kept = memories(on, run, name)
            assert len(kept) == (2 if selection == "accuracy" else 1)
            assert all(len(mine.z) == 0 and len(mine.y) == 0 for mine in kept), name
            rows = next(blobs(TRAIN, NAMES.index(name), 0).x.parts())
            assert not any(holds(on, run, name, row.numpy().tobytes()) for row in rows[:3]), name
            assert (kept[0].chosen != "") == (role == "target")
