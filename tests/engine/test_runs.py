"""The scheduler: rounds that close, stall, fail, are cancelled, resumed, replayed; and the parts that stay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.engine.intercepting import intercept
from tests.engine.toys import METHODS, ROSTER, stage, start, until
from tests.laws.stage import Stage
from tests.laws.trace import answered, asked
from tests.synthetic import NAMES, experiment, sites
from tideline.archive.parts import MemoryParts
from tideline.core.errors import ConfigRefused, Refused, StorageFull, Unreachable
from tideline.core.run import ClientId, Digest
from tideline.engine.compute.inline import InlineCompute
from tideline.engine.coordinator.result import result_of
from tideline.engine.coordinator.scheduler import suspects
from tideline.engine.model.orders import Order, OrderStatus
from tideline.engine.model.runs import JOIN, Status
from tideline.engine.ports.compute import CloseRequest
from tideline.engine.simulation.federation import Federation, simulate

ANNA, BERT, CARL = (ClientId(n) for n in NAMES[:3])


def failures(on: Stage, run: Any, name: str = "bert") -> list[Mapping[str, Any]]:
    """What the result says of a site's failures."""
    found: list[Mapping[str, Any]] = next(c for c in on.result(run)["clients"] if c["name"] == name)["failures"]
    return found


STEPS = {
    "raises": ("StepFailed", "The step work raised ValueError"),
    "metric undeclared": ("StepFailed", "'spy'"),
    "metric infinite": ("StepFailed", "loss = inf"),
    "metric text": ("StepFailed", "The step work raised ValueError"),
    "message of another type": ("StepFailed", "gave a Nothing; it declares Part"),
    "memory of another type": ("StepFailed", "keeps a Nothing; the method keeps Diary"),
    "nothing at all": ("StepFailed", "The step work raised AttributeError"),
    "key": ("WrongType", ""),
    "nan": ("NotFinite", "v holds a NaN"),
    "shape": ("WrongDims", "expected [3, 2]"),
    "name": ("WrongDims", "'u'"),
}


@pytest.mark.parametrize("fault", STEPS)
def test_a_step_that_fails_is_a_reason_and_not_a_reply(on: Stage, fault: str) -> None:
    """A step that raises, or gives what it does not declare, fails at its own site, without telling any of its words."""
    kind, words = STEPS[fault]
    run = start(on, fault=fault)
    row = on.play(run)
    assert row.status is Status.STALLED
    assert row.cause.startswith("Round 2 of move: 2 of 3 sites answered. bert: ")
    (failure,) = failures(on, run)
    assert failure["kind"] == kind and words in failure["what"]
    assert "SECRET" not in repr(on.journal.orders(run)) + repr(on.wire.words) + row.cause
    assert on.vaults[BERT].head(run).cursor == 0  # type: ignore[union-attr]


def test_a_failed_step_is_survived_with_a_quorum(on: Stage) -> None:
    """With enough replies the round closes as soon as nobody is awaited, and the site takes part in the next."""
    run = start(on, fault="raises", waiting={"min_replies": 2})
    assert on.play(run).status is Status.COMPLETED
    every = (ANNA, BERT, CARL)
    assert [r.folded for r in on.journal.rounds(run)] == [every, every, (ANNA, CARL), every, every]
    assert on.clock.now() == 1000.0


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("begin", "Gathering the sites: The method's begin raised ValueError: begin is broken"),
        ("ask", "Round 1 of move: The method's ask of move raised KeyError: 'ask is broken'"),
        ("tell", "Round 2 of move: The method's fold of move raised ZeroDivisionError: tell is broken"),
        ("stranger", "Gathering the sites: The phase move asks 'nobody', who is no member"),
    ],
)
def test_an_error_of_the_coordinators_half_ends_the_run_with_a_cause(on: Stage, fault: str, words: str) -> None:
    """A method that breaks on the coordinator ends its own run, visibly, and no other."""
    run = start(on, fault=fault)
    row = on.play(run)
    assert row.status is Status.FAILED and row.cause.startswith(words) and row.ended is not None


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("tell", "Round 2 of move: The method's fold of move raised ZeroDivisionError: tell is broken. "),
        ("infinite", "Round 2 of move: What the method made cannot be kept or sent: v holds a NaN or an infinity. "),
    ],
)
def test_a_fold_that_fails_names_whose_replies_it_had(on: Stage, fault: str, words: str) -> None:
    """One of them may be why, and a person who looks must know that they had all been taken."""
    row = on.play(start(on, fault=fault))
    assert row.status is Status.FAILED and row.cause.startswith(words)
    assert row.cause.endswith("Folded were the replies of anna, bert, carl; each had kept its declaration")


def test_a_cause_names_some_sites_of_many() -> None:
    """A hundred names would hide the cause."""
    names = [ClientId(f"s{i:02}") for i in range(40)]
    assert "s08, s09 and 30 more; each" in suspects(names)


def test_a_target_closes_the_round_early(on: Stage) -> None:
    """A round closes as soon as target_replies have come; who is slower is late."""
    run = start(on, waiting={"target_replies": 2, "min_replies": 2})
    until(on, run, 0)
    for name in (CARL, ANNA):
        on.handle(on.agent_service.orders(name)[0])
    on.scheduler.turn(run)
    assert on.row(run).cursor == 1 and on.journal.orders(run, 0)[1].status is OrderStatus.EXPIRED


def test_a_floor_holds_whatever_the_run_allows(on: Stage) -> None:
    """A phase that needs three replies stalls with two, though the run's quorum is one."""
    run = start(on, fault="raises", config={"floor": 3}, waiting={"min_replies": 1})
    row = on.play(run)
    assert row.status is Status.STALLED and "2 of 3 sites answered" in row.cause


def test_a_stalled_run_is_resumed_and_ends_as_if_nothing_had_been(on: Stage) -> None:
    """Resuming asks again, with the same seed and a new name, only those who have not answered."""
    whole = stage()
    other = start(whole)
    whole.play(other)
    run = start(on)
    row = on.play(run, lambda orders: [o for o in orders if not (o.cursor == 1 and o.id in names(on, BERT))])
    assert row.status is Status.STALLED
    assert row.cause == "Round 2 of move: 2 of 3 sites answered. bert: no answer in time"
    on.run_service.resume(run)
    assert on.row(run).deadline_at > on.clock.now()
    on.play(run)
    assert on.row(run).state_digest == whole.row(other).state_digest
    assert asked(on.journal, run) == asked(whole.journal, other)
    assert answered(on.journal, run) == answered(whole.journal, other)


def without_bert(on: Stage) -> Callable[[list[Order]], list[Order]]:
    return lambda orders: [o for o in orders if o.id not in names(on, BERT)]


@pytest.mark.parametrize("at", [JOIN, 1])
def test_a_stalled_run_goes_on_without_a_site(on: Stage, at: int) -> None:
    """Resumed with fewer replies, at the join as later, it ends with those that answer; its notes, events and the log say so."""
    run = start(on)
    gone = without_bert(on)
    assert on.play(run, lambda orders: gone(orders) if on.row(run).cursor >= at else orders).status is Status.STALLED
    for wrong in (0, 4, -1):
        with pytest.raises(ConfigRefused, match="has 3 sites"):
            on.run_service.resume(run, quorum=wrong)
    on.run_service.resume(run, quorum=2)
    assert on.play(run, gone).status is Status.COMPLETED
    assert "Since the run was resumed, 2 replies are enough in a round" in result_of(on.journal, run, on.clock.now())["notes"]
    (resumed,) = [e for e in on.journal.events(run) if "min_replies" in e.data]
    assert resumed.data["min_replies"] == 2
    (entry,) = [e for e in on.journal.audit() if e.kind == "run_resumed"]
    assert entry.details["min_replies"] == 2


def test_what_was_said_of_replies_stays_said(on: Stage) -> None:
    """Resumed once more without a number, as many are enough as before."""
    run = start(on)
    gone = without_bert(on)
    on.play(run, gone)
    on.run_service.resume(run, quorum=2)
    on.play(run, lambda orders: [])
    assert on.row(run).status is Status.STALLED
    on.run_service.resume(run)
    assert on.play(run, gone).status is Status.COMPLETED


def test_the_join_waits_for_every_site_whatever_a_round_needs(on: Stage) -> None:
    """Stall at the join without a site, even if two replies are enough in a round: who misses the join misses the whole run."""
    run = start(on, waiting={"min_replies": 2})
    assert on.play(run, without_bert(on)).status is Status.STALLED
    assert on.row(run).cursor == JOIN and on.row(run).cause.startswith("Gathering the sites: 2 of 3 sites answered")


def names(on: Stage, client: ClientId) -> set[str]:
    return {o.id for o in on.journal.open_orders(client)}


def test_resuming_after_a_failure_makes_a_second_attempt(on: Stage) -> None:
    """A failed order is offered again under a new name, with the same message and seed."""
    run = start(on, fault="raises")
    on.play(run)
    on.run_service.resume(run)
    first, second = (o for o in on.journal.orders(run, 1) if o.client == BERT)
    assert (first.status, second.status) == (OrderStatus.FAILED, OrderStatus.OPEN)
    assert (first.attempt, second.attempt) == (1, 2) and first.id != second.id
    assert (first.files, first.seed) == (second.files, second.seed) and second.after == 0
    assert on.play(run).status is Status.STALLED


def test_a_reply_that_comes_while_the_run_is_stalled_counts(on: Stage) -> None:
    """A stalled run takes replies; resumed, it does not ask for them again."""
    run = start(on)
    on.play(run, lambda orders: [o for o in orders if not (o.cursor == 1 and o.id in names(on, BERT))])
    (order,) = on.agent_service.orders(BERT)
    assert on.handle(order).verdict == "accepted"  # type: ignore[union-attr]
    on.run_service.resume(run)
    assert on.play(run).status is Status.COMPLETED
    assert len([o for o in on.journal.orders(run, 1) if o.client == BERT]) == 1


def test_a_cancelled_run_ends_in_mid_round(on: Stage) -> None:
    """Cancelling withdraws every open order, keeps the reason, and cannot be undone or repeated."""
    run = start(on)
    until(on, run, 1)
    first = on.agent_service.orders(ANNA)[0]
    on.handle(first)
    on.run_service.cancel(run)
    row = on.row(run)
    assert (row.status, row.cause) == (Status.CANCELLED, "cancelled by a person") and on.waiting() == []
    assert on.scheduler.turn(run) is None
    for change in (on.run_service.cancel, on.run_service.resume):
        with pytest.raises(Refused):
            change(run)


def test_only_a_stalled_run_can_be_resumed(on: Stage) -> None:
    """Resuming an open run is refused with its status."""
    run = start(on)
    with pytest.raises(Refused, match="waiting"):
        on.run_service.resume(run)


def test_turns_are_idempotent(on: Stage) -> None:
    """The scheduler may look at a run any number of times: nothing happens until something has happened."""
    run = start(on)
    assert on.scheduler.turn(run) == on.row(run).deadline_at
    until(on, run, 1)
    before = (on.row(run), on.journal.orders(run), on.journal.events(run))
    for _ in range(3):
        assert on.scheduler.turn(run) == on.row(run).deadline_at
    assert (on.row(run), on.journal.orders(run), on.journal.events(run)) == before


@pytest.mark.parametrize("every", [2, 5])
def test_rounds_since_the_checkpoint_are_computed_again_after_a_restart(every: int) -> None:
    """With rarer checkpoints a restart before every turn gives the same digest."""
    plain = stage()
    expected = start(plain, rounds=6)
    plain.play(expected)
    on = stage()
    run = start(on, rounds=6, checkpoint_every=every)
    for action in on.actions(run):
        on.rebuild()
        action()
    assert on.row(run).state_digest == plain.row(expected).state_digest
    kept = [r.cursor for r in on.journal.rounds(run) if r.state]
    assert kept == [JOIN, *range(every - 1, 7, every), *([6] if 7 % every else [])]


def tampered(on: Stage, run: Any, cursor: int, client: ClientId) -> None:
    """Somebody changed what the journal says was asked."""
    rounds = on.journal._rounds[run]
    at = next(i for i, r in enumerate(rounds) if r.cursor == cursor)
    rounds[at] = replace(rounds[at], asked={**rounds[at].asked, client: Digest("b3-" + "0" * 64)})


def test_a_round_that_replays_differently_ends_the_run_as_diverged(on: Stage) -> None:
    """A recomputed order that is not the recorded one ends the run, never silently."""
    run = start(on, rounds=6, checkpoint_every=5)
    until(on, run, 3)
    tampered(on, run, 2, CARL)
    on.rebuild()
    row = on.play(run)
    assert row.status is Status.FAILED
    assert row.cause.startswith("Round 4 of move: diverged: Round 2 computed again differs from the recorded one")


def test_a_live_state_of_another_history_is_not_used(on: Stage) -> None:
    """A worker that closed a round with other replies than the journal recorded computes it again from the checkpoint."""
    run = start(on, rounds=4, checkpoint_every=9, waiting={"min_replies": 2, "target_replies": 2})
    until(on, run, 0)
    for name in (ANNA, BERT, CARL):
        on.handle(on.agent_service.orders(name)[0])
    spare = InlineCompute(on.parts, METHODS)
    calls: list[CloseRequest] = []

    def ahead_of_us(name: str, real: Callable[..., Any], *asked: Any) -> Any:
        # Another coordinator, which had not seen carl's reply, computed the same round in this worker before.
        if name == "close" and not calls:
            (request,) = asked
            calls.append(request)
            without = {k: v for k, v in request.closing.replies.items() if k != CARL}
            real(replace(request, closing=replace(request.closing, replies=without)))
            return spare.close(request)
        return real(*asked)

    intercept(on.compute, ahead_of_us)
    row = on.play(run)
    fresh = stage()
    other = start(fresh, rounds=4, waiting={"min_replies": 2, "target_replies": 2})
    until(fresh, other, 0)
    for name in (ANNA, BERT, CARL):
        fresh.handle(fresh.agent_service.orders(name)[0])
    assert row.state_digest == fresh.play(other).state_digest


@pytest.mark.parametrize("error", [Unreachable, StorageFull])
def test_trouble_of_the_machine_is_not_the_runs(on: Stage, error: type[Exception]) -> None:
    """A worker that cannot be reached, or a full disk, leaves the run open; a later turn goes on."""
    run = start(on)
    until(on, run, 1)
    for order in on.waiting():
        on.handle(order)

    def broken(name: str, real: Callable[..., Any], *asked: Any) -> Any:
        raise error("gone")

    mend = intercept(on.compute, broken)
    with pytest.raises(error):
        on.scheduler.turn(run)
    assert on.row(run).status is Status.RUNNING
    mend()
    assert on.play(run).status is Status.COMPLETED


def test_parts_that_are_away_end_no_run(on: Stage) -> None:
    """A disk that is not mounted is not the fault of the run whose round cannot be closed."""
    on.part_store.own("here")
    run = start(on)
    until(on, run, 1)
    for order in on.waiting():
        on.handle(order)
    on.part_store.parts, here = MemoryParts(), on.part_store.parts
    on.compute.parts = on.part_store.parts
    with pytest.raises(Unreachable, match="parts are away"):
        on.scheduler.turn(run)
    assert on.row(run).status is Status.RUNNING
    on.part_store.parts = on.compute.parts = here
    assert on.play(run).status is Status.COMPLETED


def test_two_runs_on_the_same_sites_do_not_meet(on: Stage) -> None:
    """Runs of one seed on the same sites end alike, and each has memories of its own."""
    first, second = start(on), start(on)
    while any(on.scheduler.turn(run) is not None for run in (first, second)):
        for order in on.waiting():
            on.handle(order)
    assert on.row(first).state_digest == on.row(second).state_digest
    assert on.memories(first) == on.memories(second) and start(on, seed=8) != first


def files(folder: Path) -> int:
    return sum(1 for f in folder.rglob("*") if f.is_file())


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.nightly(job="services")), 4])
def test_the_storeroom_keeps_what_open_runs_need_and_no_more(tmp_path: Path, every: int) -> None:
    """The number of kept files does not grow with the rounds, and a run that has ended keeps its last state only."""
    federation = Federation(METHODS, sites(), tmp_path)
    counts = []

    def watch(result: Any) -> None:
        counts.append(files(tmp_path / "coordinator"))

    run = federation.start(experiment("toy", ROSTER, config={"rounds": 20}, checkpoint_every=every))
    federation.run(run, watch)
    row = federation.run_service.find(run)
    assert row.status is Status.COMPLETED and max(counts) <= 5 * (2 * every + 1)
    assert [f.name for f in (tmp_path / "coordinator").rglob("*") if f.is_file()] == [row.state_digest]
    assert all(files(tmp_path / f"site-{name}") <= 5 for name in NAMES[:3])


def test_a_run_that_stalls_keeps_what_it_needs(on: Stage) -> None:
    """Collecting while a run is stalled takes nothing that its resumption reads."""
    run = start(on, rounds=5, checkpoint_every=3)
    on.play(run, lambda orders: [o for o in orders if not (o.cursor == 4 and o.id in names(on, BERT))])
    assert on.row(run).status is Status.STALLED
    on.clock.advance(10 * 86400.0)
    on.part_store.collect()
    on.rebuild()
    on.run_service.resume(run)
    assert on.play(run).status is Status.COMPLETED


def test_simulate_lets_the_deadline_pass_when_nobody_answers() -> None:
    """A simulation in which a site falls silent ends by its waiting rules instead of waiting for ever."""
    federation = Federation(METHODS, sites())
    run = federation.start(experiment("toy", ROSTER, waiting={"min_replies": 2}))

    def without_bert(orders: list[Any]) -> list[Any]:
        open_now = {o.id for o in federation.agent_service.orders(BERT)}
        return [o for o in orders if o.id not in open_now or o.cursor == JOIN]

    result = federation.run(run, order_of=without_bert)
    assert result["status"] == "completed"
    assert [f["kind"] for f in result["clients"][1]["failures"]] == ["Silent"] * 4


def test_simulate_is_the_stage(on: Stage) -> None:
    """The shipped simulation ends in the digest of the same experiment on any other wiring, in memory and in folders."""
    run = start(on)
    on.play(run)
    given = experiment("toy", ROSTER, config={"rounds": 3})
    assert simulate(METHODS, given, sites())["state_digest"] == on.row(run).state_digest


def test_a_plan_without_rounds_only_scores(on: Stage) -> None:
    """Zero rounds are no phase; the run ends with its scoring."""
    run = start(on, rounds=0)
    assert on.play(run).status is Status.COMPLETED
    assert [r.phase for r in on.journal.rounds(run)] == ["join", "score"]


def test_two_coordinators_close_a_round_once(on: Stage) -> None:
    """Of two schedulers that compute the same turn, the first writes it; the other drops its own and goes on from there."""
    plain = stage()
    expected = start(plain)
    plain.play(expected)
    run = start(on)
    until(on, run, 1)
    for order in on.waiting():
        on.handle(order)
    first = on.scheduler
    on.rebuild()
    second = on.scheduler

    def overtaken(name: str, real: Callable[..., Any], *asked: Any) -> Any:
        made = real(*asked)
        second.turn(run)
        return made

    intercept(first.compute, overtaken)
    first.turn(run)
    assert [r.cursor for r in on.journal.rounds(run)] == [JOIN, 0, 1]
    assert on.play(run).state_digest == plain.row(expected).state_digest


def test_a_reply_that_comes_while_its_round_is_closed_is_late(on: Stage) -> None:
    """It was not there when the fold began: the site is told so as one that came later is, and its parts are let go."""
    run = start(on, waiting={"target_replies": 2})
    until(on, run, 0)
    slow = on.agent_service.orders(CARL)[0]

    def meanwhile(name: str, real: Callable[..., Any], *asked: Any) -> Any:
        made = real(*asked)
        if name == "close" and asked[0].closing.cursor == 0:
            assert on.handle(slow).verdict == "accepted"  # type: ignore[union-attr]
        return made

    intercept(on.compute, meanwhile)
    for name in (ANNA, BERT):
        on.handle(on.agent_service.orders(name)[0])
    on.scheduler.turn(run)
    row = on.journal.order(slow.id)
    assert on.journal.rounds(run)[-1].folded == (ANNA, BERT)
    assert row is not None and row.status is OrderStatus.EXPIRED and row.answered is not None
    told = on.journal.events(run)[-2]
    assert (told.kind, told.data["client"]) == ("late", CARL)
    assert [f["kind"] for f in failures(on, run, CARL)] == ["Late"] and not on.parts.has(row.reply[0][0])
    assert on.play(run).status is Status.COMPLETED
