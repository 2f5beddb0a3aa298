"""What agents may ask of the coordinator, and which replies are replies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.engine.intercepting import intercept
from tests.engine.present import present
from tests.engine.toys import BRIEF_KEYS, Part, start, until
from tests.laws.stage import Stage, ready
from tests.synthetic import NAMES
from tideline.archive.checks import LAX, Rules
from tideline.archive.digests import digest_of
from tideline.archive.errors import TooLarge
from tideline.archive.parts import MemoryParts
from tideline.archive.writer import encode
from tideline.core.errors import IdentityRefused, NotFound, Stale, Unreachable
from tideline.core.privacy import Exposure
from tideline.core.record import Weights, field, record
from tideline.core.run import ClientId, Digest, OrderId, RunId
from tideline.engine.coordinator.agent_service import MOST_ORDERS, SEEN_SECONDS
from tideline.engine.coordinator.part_store import GRACE_SECONDS
from tideline.engine.model.orders import Failure, Files, Order, OrderStatus, Receipt, Reply
from tideline.engine.model.runs import JOIN, Status

ANNA, BERT, CARL = (ClientId(n) for n in NAMES[:3])


@record
class Chatty:
    """A Part that says more than it declares."""

    v: Tensor = field("d", Exposure.STATISTIC)
    model: Weights = field("", Exposure.WEIGHTS)
    rows: Tensor = field("", Exposure.SAMPLES)


@record
class Quiet:
    """A Part that says less."""

    v: Tensor = field("d", Exposure.STATISTIC)


@record
class Loose:
    """A Part whose shapes nobody checks on the way out."""

    v: Tensor = field("", Exposure.STATISTIC)
    model: Weights = field("", Exposure.WEIGHTS)


def opened(on: Stage, **more: Any) -> tuple[Any, Order]:
    """A run whose first round is open, and bert's order."""
    run = start(on, **more)
    until(on, run, 0)
    (order,) = on.agent_service.orders(BERT)
    return run, order


def message(kind: type[Any] = Part, **fields: Any) -> Any:
    """A good message with some fields changed."""
    good = {"v": torch.ones(4), "model": {"w": torch.ones(3, 2)}}
    return kind(**{k: v for k, v in (good | fields).items() if k in kind.__annotations__})


def send(on: Stage, order: Order, given: Any, client: ClientId = BERT) -> Files:
    """Push the files of a message that no agent of ours would write."""
    parts = MemoryParts()
    like = Rules(like=(given,), finite=False)
    files = encode(given, parts, LAX if type(given) is not Part else like).files
    for digest, size in files:
        put(on, order, digest, bytes(parts.view(digest)), size, client)
    return files


def put(on: Stage, order: Order, digest: Digest, data: bytes, size: int, client: ClientId = BERT) -> None:
    with on.agent_service.push(client, order.id, ((digest, size, 0),)) as intake:
        intake.write(data)
        on.agent_service.received(client, order.id, intake)


def report(on: Stage, order: Order, files: Files, **more: Any) -> Receipt:
    return on.agent_service.report(BERT, Reply(order.id, files, **({"metrics": {"loss": 1.0}} | more)))


def refused(on: Stage, order: Order, receipt: Receipt, kind: str) -> None:
    """The reply is refused with a reason, and the reason is recorded."""
    assert receipt.verdict == "refused" and receipt.error is not None and receipt.error.kind == kind
    row = present(on.journal.order(order.id))
    assert row.status is OrderStatus.FAILED and row.failure == receipt.error and row.reply == ()
    assert dict(row.metrics) == {}


def test_a_good_reply_is_accepted_once(on: Stage) -> None:
    """The first reply counts; any later one, good or bad, is acknowledged and dropped."""
    _, order = opened(on)
    files = send(on, order, message())
    assert report(on, order, files).verdict == "accepted" and report(on, order, files).verdict == "stale"
    assert report(on, order, (), failure=Failure("StepFailed", "too late")).verdict == "stale"
    row = present(on.journal.order(order.id))
    assert (row.status, row.reply, row.failure) == (OrderStatus.ANSWERED, files, None)


def test_a_part_is_handed_out_only_to_whom_an_order_names_it(on: Stage) -> None:
    """A digest alone opens nothing: the client's own open order must name the part."""
    _, order = opened(on)
    (root, size), *_ = order.files
    assert sum(len(chunk) for chunk in on.agent_service.fetch(BERT, order.id, [(root, 0)])) == size
    secret = send(on, order, message())[0][0]
    with pytest.raises(NotFound):
        on.agent_service.fetch(BERT, order.id, [(root, 0), (secret, 0)])
    with pytest.raises(IdentityRefused):
        on.agent_service.fetch(ANNA, order.id, [(root, 0)])
    with pytest.raises(NotFound):
        on.agent_service.fetch(BERT, OrderId("0" * 32), [(root, 0)])


def test_another_clients_order_cannot_be_answered(on: Stage) -> None:
    """Pushing and reporting need the client's own order."""
    _, order = opened(on)
    files = send(on, order, message())
    with pytest.raises(IdentityRefused):
        on.agent_service.push(ANNA, order.id, ((*files[0], 0),))
    with pytest.raises(IdentityRefused):
        on.agent_service.report(ANNA, Reply(order.id, files))
    assert on.journal.order(order.id).status is OrderStatus.OPEN  # type: ignore[union-attr]


def test_what_another_client_sent_counts_as_missing(on: Stage) -> None:
    """Nobody can answer with, or learn of, a part that only another client holds."""
    _, order = opened(on)
    (theirs,) = on.agent_service.orders(ANNA)
    files = send(on, theirs, message(), ANNA)
    assert report(on, order, files).missing == ((files[0][0], 0),)


def test_a_closed_order_takes_no_parts(on: Stage) -> None:
    """Neither fetching for nor pushing to an order that has ended is possible."""
    _, order = opened(on)
    files = send(on, order, message())
    report(on, order, files)
    with pytest.raises(Stale):
        on.agent_service.push(BERT, order.id, ((*files[0], 0),))
    with pytest.raises(Stale):
        on.agent_service.fetch(BERT, order.id, [(order.files[0][0], 0)])


@pytest.mark.parametrize("size", [0, -1, 1 << 41])
def test_a_part_of_an_impossible_size_is_refused(on: Stage, size: int) -> None:
    """An announced size is checked before anything is kept."""
    _, order = opened(on)
    with pytest.raises(TooLarge):
        on.agent_service.push(BERT, order.id, ((Digest("b3-" + "0" * 64), size, 0),))


def test_missing_parts_are_asked_for_from_where_they_broke_off(on: Stage) -> None:
    """A report names the parts that lack, with the offset from which to go on."""
    _, order = opened(on)
    parts = MemoryParts()
    files = encode(message(Loose), parts).files
    digest, size = files[0]
    assert report(on, order, files).missing == ((digest, 0),)
    with on.agent_service.push(BERT, order.id, ((digest, size, 0),)) as intake:
        intake.write(parts.view(digest)[:10])
    assert report(on, order, files).missing == ((digest, 10),)


MALFORMED = {
    "an extra field": (lambda: message(Chatty, rows=torch.ones(2, 2)), "Undeclared"),
    "a field too few": (lambda: message(Quiet), "Missing"),
    "a NaN": (lambda: message(Loose, v=torch.full((4,), float("nan"))), "NotFinite"),
    "an infinity in the weights": (lambda: message(Loose, model={"w": torch.full((3, 2), float("inf"))}), "NotFinite"),
    "an axis too many": (lambda: message(Loose, v=torch.ones(4, 1)), "WrongDims"),
    "weights of another shape": (lambda: message(Loose, model={"w": torch.ones(2, 3)}), "WrongDims"),
    "weights of another dtype": (lambda: message(Loose, model={"w": torch.ones(3, 2, dtype=torch.float64)}), "WrongDims"),
    "weights of another name": (lambda: message(Loose, model={"u": torch.ones(3, 2)}), "WrongDims"),
    "a dim of another size than the order's": (lambda: message(Loose, v=torch.ones(5)), "WrongDims"),
    "a number beyond all measure": (lambda: message(Loose, v=torch.full((4,), -1e30)), "OutOfRange"),
    "a weight beyond all measure": (lambda: message(Loose, model={"w": torch.full((3, 2), 1e30)}), "OutOfRange"),
    "too few weights": (lambda: message(Loose, model={}), "WrongDims"),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_reply_against_its_declaration_is_refused_with_the_reason(on: Stage, what: str) -> None:
    """What breaks the contract is refused and recorded as a failure, and the round lives on with a quorum."""
    make, kind = MALFORMED[what]
    run, order = opened(on, waiting={"min_replies": 2})
    refused(on, order, report(on, order, send(on, order, make())), kind)
    row = on.play(run)
    assert row.status is Status.COMPLETED and on.journal.rounds(run)[1].folded == (ANNA, CARL)


def test_a_refused_reply_without_a_quorum_stalls_with_the_reason(on: Stage) -> None:
    """The run's cause names the site and what was wrong with its reply."""
    run, order = opened(on)
    report(on, order, send(on, order, message(Quiet)))
    row = on.play(run)
    assert row.status is Status.STALLED
    assert "Round 1 of move: 2 of 3 sites answered. bert: model is declared by Part and missing" in row.cause


def test_files_must_be_those_of_the_root(on: Stage) -> None:
    """A reply may name no file that its root does not name."""
    _, order = opened(on)
    files = (*send(on, order, message()), *send(on, order, message(v=torch.zeros(4))))
    refused(on, order, report(on, order, files), "Undeclared")


def test_a_root_whose_part_is_not_offered_is_refused(on: Stage) -> None:
    """A reply names every part of its root."""
    _, order = opened(on)
    files = send(on, order, message(Loose, v=torch.ones(1 << 18)))
    assert len(files) == 2
    refused(on, order, report(on, order, files[:1]), "Undeclared")


def test_a_reply_without_a_message_is_refused(on: Stage) -> None:
    """A step's reply has a root, even where it declares nothing."""
    _, order = opened(on)
    refused(on, order, report(on, order, ()), "PartMissing")


def test_bytes_that_are_no_archive_are_refused(on: Stage) -> None:
    """Whatever the bytes are, the agent service answers with a refusal."""
    for junk in (b"x", b"\xff" * 100, bytes(8), (2).to_bytes(8, "little") + b"[]"):
        run, order = opened(on)
        digest = digest_of([junk])
        put(on, order, digest, junk, len(junk))
        assert report(on, order, ((digest, len(junk)),)).verdict == "refused"
        on.run_service.cancel(run)


@pytest.mark.parametrize(
    ("metrics", "kind"), [({"spy": 1.0}, "Undeclared"), ({"loss": float("nan")}, "NotFinite"), ({"loss": -1e308}, "NotFinite")]
)
def test_metrics_are_declared_and_finite(on: Stage, metrics: dict[str, float], kind: str) -> None:
    """A number that has no clause, or is no number, is not taken."""
    _, order = opened(on)
    refused(on, order, report(on, order, send(on, order, message()), metrics=metrics), kind)


def test_facts_belong_to_the_join(on: Stage) -> None:
    """A step's reply tells nothing beside its message and metrics."""
    _, order = opened(on)
    refused(on, order, report(on, order, send(on, order, message()), facts={"rows": [1, 2]}), "Undeclared")


@pytest.mark.parametrize(
    "more",
    [
        {"facts": {}},
        {"facts": {"labelled": True, "rows": 41}},
        {"facts": {"labelled": [0.1, 0.2]}},
        {"facts": {"labelled": True}, "metrics": {"loss": 1.0}},
    ],
)
def test_a_join_tells_only_whether_there_are_labels(on: Stage, more: dict[str, Any]) -> None:
    """The answer to a join holds one truth value and nothing else."""
    run = start(on)
    on.scheduler.turn(run)
    (order,) = on.agent_service.orders(BERT)
    assert order.cursor == JOIN
    refused(on, order, on.agent_service.report(BERT, Reply(order.id, **more)), "Undeclared")


def test_a_failure_brings_nothing_else(on: Stage) -> None:
    """A failure is a kind and a sentence; files and metrics that come with it are not kept."""
    _, order = opened(on)
    files = send(on, order, message())
    failure = Failure("StepFailed", "no luck")
    assert report(on, order, files, failure=failure).verdict == "accepted"
    row = present(on.journal.order(order.id))
    assert (row.status, row.reply, dict(row.metrics), row.failure) == (OrderStatus.FAILED, (), {}, failure)


def test_a_late_reply_is_recorded_and_not_folded(on: Stage) -> None:
    """A reply to a closed round is acknowledged as late, needs no upload, and changes no state."""
    run, order = opened(on, waiting={"min_replies": 2, "deadline": 60.0})
    ready(on.agents[BERT], order)
    for name in (ANNA, CARL):
        on.handle(on.agent_service.orders(name)[0])
    on.clock.advance(60.0)
    on.scheduler.turn(run)
    assert on.row(run).cursor == 1
    pushes = len(on.wire.up)
    receipt = present(on.handle(order))
    assert receipt.verdict == "late" and len(on.wire.up) == pushes
    row = present(on.journal.order(order.id))
    assert (row.status, row.failure, row.reply) == (OrderStatus.EXPIRED, None, ())
    assert row.metrics.keys() == {"loss"}
    assert on.handle(order).verdict == "stale"  # type: ignore[union-attr]
    assert on.journal.rounds(run)[1].folded == (ANNA, CARL)
    assert [e.kind for e in on.journal.events(run)].count("late") == 1
    assert on.play(run).status is Status.COMPLETED
    bert = on.result(run)["clients"][1]
    assert [f["kind"] for f in bert["failures"]] == ["Late"]


def test_a_late_reply_leaves_the_site_able_to_go_on(on: Stage) -> None:
    """A site that worked for a closed round keeps its newer memory and answers the next order from it."""
    run, order = opened(on, waiting={"min_replies": 2, "deadline": 60.0})
    ready(on.agents[BERT], order)
    on.play(run, lambda orders: [o for o in orders if o.id != order.id])
    assert on.row(run).status is Status.COMPLETED
    assert [r.folded for r in on.journal.rounds(run)][1:] == [(ANNA, CARL), *[(ANNA, BERT, CARL)] * 3]


def test_a_round_that_closes_while_parts_are_pushed_makes_the_reply_late(on: Stage) -> None:
    """An agent whose push comes too late reports once more and hears that it is late."""
    run, order = opened(on, waiting={"min_replies": 2, "deadline": 60.0})
    link = on.agents[BERT].link
    push = link.push

    def slow(*args: Any) -> None:
        for name in (ANNA, CARL):
            on.handle(on.agent_service.orders(name)[0])
        on.clock.advance(60.0)
        on.scheduler.turn(run)
        push(*args)

    link.push = slow  # type: ignore[method-assign]
    assert on.handle(order).verdict == "late"  # type: ignore[union-attr]


def test_bytes_of_withdrawn_orders_are_forgotten(on: Stage) -> None:
    """Nobody settles them; the newest orders are counted all the same."""
    for at in range(MOST_ORDERS + 5):
        on.agent_service.sent(OrderId(f"order {at}"), 7)
        on.agent_service.sent(OrderId(f"order {at}"), 7)
    assert len(on.agent_service._down) == MOST_ORDERS
    assert set(on.agent_service._down.values()) == {14} and f"order {MOST_ORDERS + 4}" in on.agent_service._down


def checked_slowly(on: Stage, meanwhile: Callable[[], object]) -> None:
    """Something happens when the agent service sets about checking the next reply."""

    def slow(name: str, real: Callable[..., Any], *asked: Any) -> Any:
        if name == "check":
            end()
            meanwhile()
        return real(*asked)

    end = intercept(on.compute, slow)


def test_a_reply_whose_parts_are_collected_while_it_is_checked_is_sent_again(on: Stage) -> None:
    """A coordinator that was frozen for hours in the middle of a check says what is missing; the reply is none the worse."""
    run, order = opened(on)

    def hours() -> None:
        on.clock.advance(2 * GRACE_SECONDS)
        on.part_store.collect()

    checked_slowly(on, hours)
    assert on.handle(order).verdict == "accepted"  # type: ignore[union-attr]
    row = on.journal.order(order.id)
    assert row is not None and row.status is OrderStatus.ANSWERED and on.play(run).status is Status.COMPLETED


def test_a_reply_whose_round_closes_while_it_is_checked_is_late(on: Stage) -> None:
    """Even if all that it could be checked against has been collected."""
    run, order = opened(on, waiting={"target_replies": 1, "deadline": 4 * GRACE_SECONDS})

    def others() -> None:
        for at in range(3):
            until(on, run, at)
            on.handle(on.agent_service.orders(ANNA)[0])
            on.scheduler.turn(run)
        on.clock.advance(2 * GRACE_SECONDS)
        on.part_store.collect()

    checked_slowly(on, others)
    assert on.handle(order).verdict == "late"  # type: ignore[union-attr]
    row = on.journal.order(order.id)
    assert row is not None and (row.status, row.failure) == (OrderStatus.EXPIRED, None)


def test_bytes_are_counted_both_ways(on: Stage) -> None:
    """An order's row says how many archive bytes went down and up for it."""
    _, order = opened(on)
    on.handle(order)
    row = present(on.journal.order(order.id))
    assert row.bytes_down == sum(size for _, size in order.files)
    assert row.bytes_up == sum(size for _, size in row.reply)


def test_a_beat_notes_progress_and_names_what_is_over(on: Stage) -> None:
    """A heartbeat keeps progress and hands back the orders that are no longer open, or never were this client's."""
    run, order = opened(on)
    (theirs,) = on.agent_service.orders(ANNA)
    on.clock.advance(5.0)
    assert on.agent_service.beat(BERT, {order.id: 0.5, theirs.id: 0.9}) == (theirs.id,)
    assert on.journal.order(order.id).progress == 0.5  # type: ignore[union-attr]
    on.run_service.cancel(run)
    assert on.agent_service.beat(BERT, {order.id: 0.6}) == (order.id,)


def test_a_client_hears_which_runs_ask_it_for_nothing_more(on: Stage) -> None:
    """Those that have ended, are unknown, or another's; an open one may still ask."""
    run, _ = opened(on)
    odd = RunId("unknown"), RunId("\0")
    assert on.agent_service.over(BERT, (run, *odd)) == (RunId("unknown"),)
    assert on.agent_service.over(ClientId("nobody"), (run,)) == (run,)
    on.run_service.cancel(run)
    assert on.agent_service.over(BERT, (run,)) == (run,)


def test_a_sign_of_life_is_written_now_and_then(on: Stage) -> None:
    """Hundreds of agents beat every few seconds; the database hears of each a few times a minute."""
    seen = []
    for _ in range(60):
        on.clock.advance(3.0)
        if on.agent_service.lives(BERT):
            on.agent_service.write_living()
        seen.append(on.journal.client(BERT).seen)  # type: ignore[union-attr]
    assert len(set(seen)) == 60 * 3.0 / SEEN_SECONDS and not on.agent_service.lives(BERT)


def test_signs_of_life_that_cannot_be_written_are_written_later(on: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is away for a moment: who has lived then is written with those of whom that was heard since."""

    def away(names: object, now: float) -> None:
        raise Unreachable("away")

    assert on.agent_service.lives(BERT)
    with monkeypatch.context() as gone:
        gone.setattr(on.journal, "saw_all", away)
        with pytest.raises(Unreachable):
            on.agent_service.write_living()
    on.clock.advance(5.0)
    assert on.agent_service.lives(ANNA)
    on.agent_service.write_living()
    assert {on.journal.client(who).seen for who in (ANNA, BERT)} == {on.clock.now()}  # type: ignore[union-attr]


def test_an_offer_tells_seconds_left_and_only_what_concerns_the_client(on: Stage) -> None:
    """An order holds no wall time, no roster and no run seed."""
    _, order = opened(on, waiting={"deadline": 100.0})
    on.clock.advance(30.0)
    (again,) = on.agent_service.orders(BERT)
    assert again == replace(order, seconds_left=70.0)
    assert set(order.brief) == BRIEF_KEYS
    on.clock.advance(1000.0)
    assert on.agent_service.orders(BERT)[0].seconds_left == 0.0


def test_an_order_that_a_client_seems_to_have_lost_is_offered_again(on: Stage) -> None:
    """It is told once, and again when nothing was heard of it for a while; a beat puts that off; a settled one is forgotten."""
    _, order = opened(on)
    offered, told = on.agent_service.news(BERT, frozenset())
    assert [o.id for o in offered] == [order.id] and told == {order.id}
    assert on.agent_service.news(BERT, told) == ((), told)
    on.clock.advance(20.0)
    on.agent_service.beat(BERT, {order.id: 0.5})
    on.clock.advance(29.0)
    assert on.agent_service.news(BERT, told)[0] == ()
    on.clock.advance(2.0)
    assert [o.id for o in on.agent_service.news(BERT, told)[0]] == [order.id]
    on.agent_service.report(BERT, Reply(order.id, failure=Failure("StepFailed", "it raised")))
    assert on.agent_service.news(BERT, told) == ((), frozenset())
