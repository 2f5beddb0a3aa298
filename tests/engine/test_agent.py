"""The life of an order at a site."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.engine.present import present
from tests.engine.toys import stage, start, until
from tests.laws.stage import Stage, ready
from tests.synthetic import NAMES, SimSite, opener
from tideline.core.errors import Cancelled, MemoryAhead, Refused, Unreachable
from tideline.core.privacy import Audience, Exposure
from tideline.core.run import ClientId, Role
from tideline.engine.model.orders import OrderStatus, Receipt
from tideline.engine.model.runs import JOIN, Status
from tideline.engine.process.private import close_home
from tideline_server.store import SqlJournal

BERT = ClientId(NAMES[1])


def opened(on: Stage, cursor: int = 0, **more: Any) -> Any:
    """A run with an open exchange, and bert's order."""
    run = start(on, **more)
    until(on, run, cursor)
    return run, on.agent_service.orders(BERT)[0]


def test_an_order_handled_twice_is_worked_once(on: Stage) -> None:
    """A repeated order is answered from the vault; its step does not run again, not even after a restart."""
    _, order = opened(on)
    assert on.handle(order).verdict == "accepted"  # type: ignore[union-attr]
    head = on.vaults[BERT].head(order.run)
    on.rebuild()
    assert on.handle(order).verdict == "stale"  # type: ignore[union-attr]
    assert on.jobs.count((BERT, 0)) == 1 and on.vaults[BERT].head(order.run) is head


def test_an_order_is_finished_after_a_crash_without_working_again(on: Stage) -> None:
    """Work that was committed and not delivered is delivered after the restart."""
    _, order = opened(on)
    ready(on.agents[BERT], order)
    on.rebuild()
    assert on.handle(order).verdict == "accepted"  # type: ignore[union-attr]
    assert on.jobs.count((BERT, 0)) == 1


def test_memory_and_reply_are_one_commit(on: Stage) -> None:
    """There is no moment at which the memory has moved and the order is not answered: a death there would work on it twice."""
    _, order = opened(on)
    vault = on.vaults[BERT]
    before = len(vault.past)
    ready(on.agents[BERT], order)
    (made,) = vault.past[before:]
    assert (made.order, made.cursor) == (order.id, order.cursor) and made.memory and made.reply


def test_a_policy_holds_for_orders_whose_join_never_came() -> None:
    """A coordinator that leaves out the join gets nothing that the owner forbids: no step runs."""
    run_of = stage()
    _, order = opened(run_of)
    strict = stage(bert=SimSite(opener(1), frozenset({(Exposure.METRIC, Audience.COORDINATOR)})))
    agent = strict.agents[BERT]
    agent.link = run_of.agents[BERT].link
    assert agent.handle(order).verdict == "accepted"  # type: ignore[union-attr]
    row = present(run_of.journal.order(order.id))
    assert row.failure is not None and row.failure.kind == "ContractRefused" and strict.jobs == []


def test_an_owners_roles_hold_at_the_site_too(on: Stage) -> None:
    """A coordinator that makes a source of a site whose owner allows target only opens no labels."""
    run = start(on)
    on.scheduler.turn(run)
    on.agents[BERT].owner.roles = frozenset({Role.TARGET})
    (order,) = on.agent_service.orders(BERT)
    on.handle(order)
    failure = on.journal.order(order.id).failure  # type: ignore[union-attr]
    assert failure is not None and (failure.kind, on.jobs) == ("RosterRefused", [])
    assert "This site may not be a source: its owner allows target" in failure.what


def test_a_shorter_contract_talks_no_site_into_more(on: Stage) -> None:
    """A coordinator that hides a clause is refused: the site derives the contract from its own code."""
    _, order = opened(on)
    short = replace(order, brief={**order.brief, "contract": order.brief["contract"][:1]})
    on.handle(short)
    failure = on.journal.order(order.id).failure  # type: ignore[union-attr]
    assert failure is not None and failure.kind == "ContractRefused"
    assert "derives another contract" in failure.what


def test_a_coordinator_cannot_ask_for_other_files_than_the_replys(on: Stage) -> None:
    """A receipt that names a part of the memory opens nothing."""
    _, order = opened(on)
    agent = on.agents[BERT]
    head = ready(agent, order)
    report, asked = agent.link.report, []

    def greedy(order: Any, reply: Any) -> Receipt:
        asked.append(reply)
        return Receipt("missing", ((head.memory[0][0], 0),)) if len(asked) == 1 else report(order, reply)

    agent.link.report = greedy  # type: ignore[method-assign]
    agent.handle(order)
    assert on.wire.up == [] and asked[1].failure.kind == "NotFound"


def test_an_order_that_has_ended_is_left_alone(on: Stage) -> None:
    """A cancelled order is not worked for, and nothing is reported."""
    run, order = opened(on)
    on.run_service.cancel(run)
    assert on.handle(order) is None and (BERT, 0) not in on.jobs
    row = present(on.journal.order(order.id))
    assert (row.status, row.failure) == (OrderStatus.CANCELLED, None)


def test_a_cancel_reaches_a_step_at_its_next_tick(on: Stage) -> None:
    """A step whose tick raises Cancelled ends without a reply, a failure or a memory."""
    run = on.start(
        {
            "method": "fedavg",
            "preset": "tiny",
            "world": {"inputs": [8], "classes": 3, "model": "mlp"},
            "roster": {"bert": "source"},
        }
    )
    until(on, run, 0)
    (order,) = on.agent_service.orders(BERT)

    def tick(share: float) -> None:
        raise Cancelled("withdrawn")

    assert on.agents[BERT].handle(order, tick) is None
    assert on.journal.order(order.id).status is OrderStatus.OPEN  # type: ignore[union-attr]
    assert on.vaults[BERT].head(run).cursor == JOIN  # type: ignore[union-attr]


def test_a_link_that_gives_up_is_not_a_failure(on: Stage) -> None:
    """Unreachable goes up to whoever drives the agent; the order stays open and is answered later."""
    _, order = opened(on)
    link = on.agents[BERT].link

    def down(*args: Any) -> Receipt:
        raise Unreachable("no line")

    kept, link.report = link.report, down  # type: ignore[method-assign, assignment]
    with pytest.raises(Unreachable):
        on.handle(order)
    link.report = kept  # type: ignore[method-assign]
    assert on.handle(order).verdict == "accepted"  # type: ignore[union-attr]


def test_a_memory_with_a_hole_is_memory_lost(on: Stage) -> None:
    """A vault whose memory file is gone says so, instead of settling anew."""
    run, order = opened(on, 1)
    head = present(on.vaults[BERT].head(run))
    on.vaults[BERT].parts(run).drop(head.memory[0][0])
    row = on.play(run)
    assert row.status is Status.STALLED
    assert on.journal.order(order.id).failure.kind == "MemoryLost"  # type: ignore[union-attr]


def test_a_reply_to_another_message_is_not_given_again(on: Stage) -> None:
    """A coordinator that was set back may ask the same exchange with another message: what was answered before is no answer."""
    _, order = opened(on, 1)
    agent = on.agents[BERT]
    ready(agent, order)
    assert ready(agent, order).cursor == 1 and on.jobs.count((BERT, 1)) == 1
    with pytest.raises(MemoryAhead, match="has answered exchange 1 when something else was asked there"):
        ready(agent, replace(order, files=(*order.files, order.files[0])))
    before = present(on.vaults[BERT].head(order.run))
    on.vaults[BERT].commit(order.run, replace(before, asked=None))
    assert ready(agent, replace(order, files=())).reply == before.reply, "a record from before this was kept"


def test_a_site_forgets_the_parts_of_earlier_orders(on: Stage) -> None:
    """A vault holds the parts of its head and of the order at hand, however long the run is."""
    run = start(on, rounds=12)
    on.play(run)
    assert on.row(run).status is Status.COMPLETED and len(list(on.vaults[BERT].parts(run).digests())) <= 5


@pytest.mark.parametrize(
    ("key", "odd"),
    [
        ("role", ["source"]),
        ("role", "owner"),
        ("method", 7),
        ("keeps", None),
        ("threads", "all"),
        ("threads", 0),
        ("threads", 1 << 31),
    ],
)
def test_an_order_that_makes_no_sense_is_answered(on: Stage, key: str, odd: object) -> None:
    """The agent service hears which word of the brief is wrong; no step runs."""
    _, order = opened(on)
    on.handle(replace(order, brief={**order.brief, key: odd}))
    told = on.journal.order(order.id)
    assert told is not None and told.failure is not None and told.failure.kind == "Malformed"
    assert f"its {key} is missing or wrong" in told.failure.what and on.jobs.count((BERT, 0)) == 0


# What lies in a home is for its owner: also where the home was there before, open to all.


def mode(path: Path) -> int:
    """What it lets whom do."""
    return stat.S_IMODE(path.stat().st_mode)


def open_to_all(folder: Path) -> Path:
    """A home as a tired administrator makes it."""
    (folder / "runs" / "one").mkdir(parents=True)
    for name in ("admin.key", "keys.pem", "coordinator.json"):
        (folder / name).write_text("x")
        (folder / name).chmod(0o644)
    (folder / "elsewhere").symlink_to("/")
    for each in (folder, folder / "runs"):
        each.chmod(0o755)
    return folder


def test_a_home_that_was_open_is_closed(tmp_path: Path) -> None:
    """The folder, and what lies directly in it. Keys that may have been read are left for those who refuse them."""
    home = open_to_all(tmp_path / "home")
    close_home(home)
    assert (mode(home), mode(home / "runs"), mode(home / "admin.key")) == (0o700, 0o700, 0o600)
    assert mode(home / "keys.pem") == 0o644
    assert mode(Path("/")) & 0o005, "what a link leads to is left alone"


def test_a_new_home_is_closed(tmp_path: Path) -> None:
    """From the start."""
    close_home(tmp_path / "home")
    assert mode(tmp_path / "home") == 0o700


def test_a_volumes_group_stays(tmp_path: Path) -> None:
    """A folder that gives its group to what is made in it has one on purpose."""
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o2775)
    close_home(home)
    assert mode(home) == 0o2770


def test_a_database_elsewhere_is_closed(tmp_path: Path) -> None:
    """With the files that SQLite has beside it."""
    path = tmp_path / "a.db"
    SqlJournal(path).close()
    path.chmod(0o644)
    with closing(SqlJournal(path)):
        assert [mode(each) for each in sorted(tmp_path.iterdir())] == [0o600] * len(list(tmp_path.iterdir()))


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's file takes root to make")
def test_what_belongs_to_another_user_is_refused() -> None:
    """In words. The home itself may be another's."""
    with tempfile.TemporaryDirectory() as folder:  # which another user can reach, as those of pytest are not
        Path(folder).chmod(0o755)
        refuse_anothers(open_to_all(Path(folder) / "home"))


def refuse_anothers(home: Path) -> None:
    """Play a user to whom neither a home nor a file in it belongs."""
    for each in (home, home / "admin.key"):
        os.chown(each, 1234, -1)
    os.seteuid(4321)
    try:
        with pytest.raises(Refused, match=r"Others may read .*/admin.key \(mode 0644\), which belongs to another user"):
            close_home(home)
    finally:
        os.seteuid(0)
