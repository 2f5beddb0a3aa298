"""A simulation in a folder goes on after it was killed, wherever that was, to the bytes of one that nobody disturbed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.engine import passing, peaks
from tests.laws.case import WIRES
from tests.laws.laws import EVERYTHING
from tests.synthetic import FEATURES, NAMES, Opener, experiment, sites
from tideline.algorithms import METHODS
from tideline.archive.errors import PartDamaged, PartMissing
from tideline.archive.folder import FolderParts
from tideline.core.algorithm import Methods
from tideline.core.errors import ConfigRefused
from tideline.engine.model.orders import Order
from tideline.engine.ports.journal import (
    Accounts,
    AuditLog,
    Deletions,
    Idempotency,
    PartRecords,
    Runs,
    Spendings,
    UserSessions,
    Witnessed,
)
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.engine.simulation.lasting import FILE, PARTS, KeptParts, Lasting
from tideline.engine.simulation.recording import WRITES

ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
ALIKE = ("status", "state_digest", "clients", "phases", "groups", "curve", "generalization", "notes", "selection")
# Without memories, with memories of sites, with values that sites seal for each other, and with what rounding left out.
CASES: dict[str, tuple[Methods, Mapping[str, Any], Mapping[str, SimSite]]] = {
    **{name: (METHODS, experiment(name, ROSTER), sites()) for name in ("fedavg", "feddadil")},
    "passing": (
        passing.METHODS,
        {"method": "passing", "world": FEATURES, "roster": dict.fromkeys(NAMES[:3], "peer"), "config": {"rounds": 3}, "seed": 7},
        {name: SimSite(Opener(i, 0), EVERYTHING) for i, name in enumerate(NAMES[:3])},
    ),
    "peaks": (peaks.METHODS, peaks.EXPERIMENT, sites()),
    "packed": (METHODS, experiment("fedavg", ROSTER, wire=WIRES["topk"]), sites()),
}


def at_night(*cases: str) -> list[Any]:
    """Return these cases as parameters of tests that are played at night."""
    return [pytest.param(case, marks=pytest.mark.nightly(job="services")) for case in cases]


class Killed(Exception):
    """Stands for the end of the process."""


def comes_to(on: Federation) -> dict[str, Any]:
    """The result of a run that is begun, or goes on, without its times."""
    known = [run for run in on.journal.run_ids() if (row := on.journal.run(run)) and row.parent is None]
    return untimed(on.run(known[0] if known else on.start(on.given)))  # type: ignore[attr-defined]


def untimed(result: Mapping[str, Any]) -> dict[str, Any]:
    return {key: result[key] for key in ALIKE}


def at(folder: Path, case: str) -> Federation:
    """A federation that keeps its journal in a folder."""
    methods, given, there = CASES[case]
    made = Federation(methods, there, Lasting(folder, {"experiment": str(sorted(given.items()))}))
    made.given = given  # type: ignore[attr-defined]
    return made


@cache
def undisturbed(case: str) -> dict[str, Any]:
    methods, given, there = CASES[case]
    with closing(Federation(methods, there)) as on:
        return untimed(on.run(on.start(given)))


def killed(folder: Path, case: str, when: int) -> bool:
    """Play until so many orders were answered, and be killed then; whether there were so many."""
    left = when

    def one_by_one(orders: list[Order]) -> list[Order]:
        nonlocal left
        if left == 0:
            raise Killed
        left -= 1
        return orders[:1]

    with closing(at(folder, case)) as on, suppress(Killed):
        known = on.journal.run_ids()
        on.run(known[0] if known else on.start(on.given), order_of=one_by_one)  # type: ignore[attr-defined]
        return False
    return True


@pytest.mark.parametrize("case", ["fedavg", "passing", "peaks", "packed", *at_night("feddadil")])
def test_killed_anywhere(case: str, tmp_path: Path) -> None:
    """Killed after its second answer, and after the next two, and so on to its end: each time it goes on, and gets further."""
    times = 0
    while killed(tmp_path, case, 2) and times < 100:
        times += 1
    assert 3 < times < 100
    with closing(at(tmp_path, case)) as on:
        assert comes_to(on) == undisturbed(case)


@pytest.mark.parametrize("when", [1, 4, 7])
@pytest.mark.parametrize("case", ["fedavg", "passing", *at_night("feddadil", "peaks", "packed")])
def test_killed_once(case: str, when: int, tmp_path: Path) -> None:
    assert killed(tmp_path, case, when)
    with closing(at(tmp_path, case)) as on:
        assert comes_to(on) == undisturbed(case)


def test_what_has_closed_is_not_run_again(tmp_path: Path) -> None:
    """A kill loses the open round at most."""
    assert killed(tmp_path, "fedavg", 7)
    with closing(at(tmp_path, "fedavg")) as on:
        run = on.journal.run_ids()[0]
        before = on.journal.rounds(run)
        assert len(before) == 2  # the join and the first training, of three sites each, or of two
        asked: list[Order] = []
        on.run(run, order_of=lambda orders: asked.extend(orders) or orders)  # type: ignore[func-returns-value]
        assert min(order.cursor for order in asked) == before[-1].next_cursor


def test_little_is_kept(tmp_path: Path) -> None:
    """What no later round needs goes from the folder: in the end the last state and message are there, an empty
    one, and what each of the three sites told of its last scoring."""
    with closing(at(tmp_path, "fedavg")) as on:
        result = comes_to(on)
        files = {path.name for path in (tmp_path / PARTS).rglob("*") if path.is_file()}
        assert result["state_digest"] in files and len(files) <= 6


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Path]:
    assert killed(tmp_path, "fedavg", 4)
    yield tmp_path


def test_a_folder_of_another_experiment(begun: Path) -> None:
    with pytest.raises(ConfigRefused, match=r"another experiment \(they differ in experiment\)") as refused:
        at(begun, "feddadil")
    assert refused.value.context["path"] == "out" and str(begun) in refused.value.todo


def test_a_folder_of_another_version(begun: Path) -> None:
    with closing(sqlite3.connect(begun / FILE)) as file:
        file.execute("update about set value = '0.0.1' where name = 'version'")
        file.commit()
    with pytest.raises(ConfigRefused, match="another version"):
        at(begun, "fedavg")


def test_a_folder_in_use(begun: Path) -> None:
    with closing(at(begun, "fedavg")), pytest.raises(ConfigRefused, match="in use"):
        at(begun, "fedavg")


def test_a_file_of_something_else(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"This is no database at all, however long it may be." * 50)
    with pytest.raises(ConfigRefused, match="no journal of a simulation"):
        at(tmp_path, "fedavg")


def test_keys_are_for_the_owner_alone(begun: Path) -> None:
    assert (begun / FILE).stat().st_mode & 0o077 == 0


def test_every_method_that_changes_something_is_recorded() -> None:
    """Each method of the port is known to write or to read; a new one has to be sorted in."""
    reads = {"run", "run_ids", "headlines", "count_runs", "last_event", "tally", "leases", "rounds", "order", "orders"}
    reads |= {"open_orders", "last_answers", "round", "recent_rounds", "order_lines", "missed", "standing", "round_totals"}
    reads |= {"site_totals", "scores", "barred", "last_seen"}
    reads |= {"envelopes", "events", "invite", "client", "clients", "api_keys", "audit", "audit_tip", "record"}
    reads |= {"witness", "witness_mark", "tombstone", "tombstones", "audit_base", "due_runs", "projects", "usage", "uploaded"}
    reads |= {"user_session", "user_sessions", "current", "recent_orders", "mentions"}
    reads |= {"spent_by_run", "spent_in", "spent_by_site", "spent_by_day"}
    reads |= {"beat_all"}  # it makes a call of `beat` for each, and these are recorded
    kinds = (Runs, Spendings, Deletions, Accounts, UserSessions, PartRecords, Idempotency, AuditLog, Witnessed)
    port = {name for kind in kinds for name in vars(kind) if name[0] != "_"}
    assert port == reads | set(WRITES)


def test_a_folder_in_which_nothing_has_closed_is_anybodys(tmp_path: Path) -> None:
    """An experiment that was refused leaves no mark: the corrected one may be begun in the same folder."""
    with closing(at(tmp_path, "feddadil")):
        pass
    with closing(at(tmp_path, "fedavg")) as on:
        assert comes_to(on) == undisturbed("fedavg")


def test_a_part_that_is_gone_or_damaged(tmp_path: Path) -> None:
    """A part of the folder that is not there is missing, as everywhere; one that was changed is not read."""
    folder = FolderParts(tmp_path, durable=False)
    parts = KeptParts(folder)
    gone, damaged = (parts.put([bytes(100), name]) for name in (b"gone", b"damaged"))
    parts.save(frozenset((gone, damaged)), forget=True)
    folder.drop(gone)
    folder.path(damaged).write_bytes(b"something else")
    with pytest.raises(PartMissing):
        parts.view(gone)
    with pytest.raises(PartDamaged):
        parts.view(damaged)


def test_a_kill_amid_the_removal(tmp_path: Path) -> None:
    """The journal goes first: whatever was left of the parts, the next simulation in the folder begins anew."""
    with closing(at(tmp_path, "fedavg")) as on:
        assert comes_to(on)["status"] == "completed"
        for name in (FILE, f"{FILE}-wal"):
            (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / PARTS / "ab").mkdir(exist_ok=True)
    (tmp_path / PARTS / "ab" / ".DS_Store").touch()
    with closing(at(tmp_path, "fedavg")) as on:
        assert comes_to(on) == undisturbed("fedavg")
        on.home.remove()  # type: ignore[attr-defined]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".DS_Store"]


def test_a_journal_that_is_a_link(tmp_path: Path) -> None:
    """Keys are written into no file that somebody else chose, and one that others may read is closed to them."""
    (tmp_path / "elsewhere").touch()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigRefused, match="cannot be opened"):
        at(tmp_path / "home", "fedavg")
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / FILE).touch(0o644)
    with closing(at(tmp_path / "open", "fedavg")):
        assert (tmp_path / "open" / FILE).stat().st_mode & 0o077 == 0
