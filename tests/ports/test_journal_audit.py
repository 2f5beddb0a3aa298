"""One suite for every journal: what is done stands in the audit log, written with it or not at all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from journal_names import ANN, BOB, CYD, RUN, TEAM
from journal_values import (
    advance,
    answer,
    began,
    client,
    digest,
    files,
    first,
    invite,
    joins,
    order_row,
    push,
    reply,
    run_row,
    together,
    two_rounds_old,
)

from tideline.core.errors import Overtaken, Unreachable
from tideline.core.run import Digest, OrderId
from tideline.engine.audit.entries import KINDS, MOST_FILES
from tideline.engine.audit.log import About, AuditEvent, Entry, Tip, follow
from tideline.engine.model.access.once import IdempotencyRecord
from tideline.engine.model.accounts import ApiKey, KeyRole, Keys, Standing
from tideline.engine.model.orders import Failure, Hold, OrderStatus, Reply
from tideline.engine.model.runs import JOIN, OPEN, Status, Tally
from tideline.engine.ports.journal import Journal


def since(journal: Journal, after: int = 1) -> list[Entry]:
    """What was written behind an entry, once the whole chain has been followed to its tip."""
    every = journal.audit()
    assert follow(Tip(), every) == journal.audit_tip()
    assert {entry.kind for entry in every} <= set(KINDS) | {"test"}
    return [entry for entry in every if entry.seq > after]


def kinds(journal: Journal) -> list[str]:
    """The kinds of all that was written."""
    return [entry.kind for entry in since(journal)]


def only(journal: Journal, kind: str) -> Entry:
    """The one entry of a kind."""
    [found] = journal.audit(about=About(kind=kind))
    return found


def test_a_log_begins_with_an_entry_that_says_so(journal: Journal) -> None:
    """The first entry tells this chain from others."""
    [begun] = journal.audit()
    assert (begun.seq, begun.kind) == (1, "log_begun") and set(begun.details) == {"chain"}
    assert journal.audit_tip() == Tip(1, begun.hash) == follow(Tip(), [begun])


def test_who_came_and_by_which_invitation(journal: Journal) -> None:
    """Invited by whom, enrolled with which keys, approved, asked for new keys, rotated, revoked."""
    journal.add_invite(invite(hold=True), "alice", 3.5)
    journal.enrol("token", client(ANN, sign_key="00" * 32, receive_key="11" * 32, enrolled=4.0))
    journal.ask_rotation(ANN, "bob", 6.0)
    journal.rekey(ANN, "00" * 32, Keys("22" * 32, "33" * 32), 7.0)
    journal.revoke(ANN, "left", 8.0, "carl")
    told = [(e.kind, e.at, e.by, e.client) for e in since(journal)]
    assert told == [
        ("invited", 3.5, "alice", ""),
        ("enrolled", 4.0, "", ANN),
        ("rotation_asked", 6.0, "bob", ANN),
        ("rotated", 7.0, "", ANN),
        ("revoked", 8.0, "carl", ANN),
    ]
    invited, enrolled = only(journal, "invited").details, only(journal, "enrolled").details
    assert invited == {"invite": "token", "expires": 99.5, "hold": True, "labels": {"site": "north"}}
    assert enrolled["invite"] == "token" and enrolled["keys"] != only(journal, "rotated").details["keys"]
    assert only(journal, "revoked").details == {"reason": "left"}


def test_other_roles_are_told(journal: Journal) -> None:
    """Roles say what a client may be asked for: those before, and those since. The same ones again, in any order, are nothing."""
    journal.add_invite(invite())
    journal.enrol("token", client(ANN, roles=("source",)))
    for at, roles in enumerate([("source",), None, ("target", "source"), ("source", "target"), (), ("target",)], 10):
        journal.saw(ANN, float(at), "2", roles)
    journal.saw(BOB, 20.0, "2", ("target",))
    told = [(e.at, e.by, e.client, e.details) for e in since(journal, 3)]
    assert told == [
        (12.0, "", ANN, {"before": ["source"], "roles": ["target", "source"]}),
        (15.0, "", ANN, {"before": ["source", "target"], "roles": ["target"]}),
    ]
    assert {e.kind for e in since(journal, 3)} == {"roles_changed"}


def test_what_is_not_done_is_not_told(journal: Journal) -> None:
    """A second invite, a taken token, nobody's approval, a second revocation, a key whose name is taken."""
    journal.add_invite(invite())
    journal.enrol("token", client())
    journal.revoke(ANN, "left", 5.0)
    key = ApiKey("1", "alice", "hash", KeyRole.VIEWER, 1.0, "admin")
    journal.add_key(key)
    before = journal.audit_tip()
    journal.add_invite(invite())
    journal.enrol("token", client(BOB))
    journal.approve(BOB)
    journal.ask_rotation(BOB)
    journal.rekey(BOB, "", Keys("aa", "bb"))
    journal.revoke(ANN, "again", 6.0)
    journal.revoke(BOB, "nobody", 6.0)
    journal.add_key(key)
    journal.revoke_key("bob", 7.0)
    assert journal.audit_tip() == before


def test_an_approval_that_is_awaited_is_told_once(journal: Journal) -> None:
    """However often the agent says so; again once work had begun. Not of another's order, nor of other reasons."""
    began(journal)
    order = first(ANN)
    for at, why in enumerate([Hold.HOURS, Hold.APPROVAL, Hold.APPROVAL]):
        journal.hold(ANN, {order: why}, 5.0 + at)
    journal.hold(BOB, {order: Hold.APPROVAL, first(BOB): Hold.QUOTA}, 9.0)
    found = only(journal, "approval_awaited")
    assert (found.at, found.by, found.client, found.run, found.details) == (6.0, "", ANN, RUN, {"order": order})
    journal.beat(ANN, {order: 0.5}, 10.0)
    journal.hold(ANN, {order: Hold.APPROVAL}, 11.0)
    assert kinds(journal).count("approval_awaited") == 2


def test_keys_of_people(journal: Journal) -> None:
    """Made by whom, for what role; ended by whom. No hash of the key is told."""
    journal.add_key(ApiKey("1", "alice", "its hash", KeyRole.OPERATOR, 2.0, "admin", expires=9.5))
    journal.revoke_key("alice", 3.0, "bob")
    made, ended = since(journal)
    assert (made.kind, made.at, made.by) == ("key_made", 2.0, "admin")
    assert made.details == {"name": "alice", "id": "1", "role": "operator", "expires": 9.5}
    assert (ended.kind, ended.by, ended.details) == ("key_ended", "bob", {"name": "alice"})


def test_a_run_from_its_start_to_its_result(journal: Journal) -> None:
    """Who started it, what was sent to whom, what came back, and the result."""
    journal.create([run_row()], joins(), "alice")
    journal.advance(advance(JOIN, files("m"), files("s")))
    push(journal, files("r", "r2"))
    answer(journal, first(ANN, 0), files("r", "r2"))
    journal.advance(advance(0, state=files("end", "more"), status=Status.COMPLETED))
    started, joined, replied, closed, completed = since(journal)
    assert (started.kind, started.by, started.run) == ("run_started", "alice", RUN)
    assert started.details["roster"] == dict.fromkeys(TEAM, "peer")
    assert joined.kind == closed.kind == "round_closed"
    assert joined.details["sent"] == [{"to": sorted(TEAM), "files": [[digest("m"), 100]]}]
    assert (replied.kind, replied.client, replied.at) == ("reply_accepted", ANN, 30.0)
    assert replied.details == {"order": first(ANN, 0), "cursor": 0, "files": [[digest("r"), 100], [digest("r2"), 101]]}
    assert closed.details["folded"] == [ANN, BOB] and closed.details["sent"] == []
    assert (completed.kind, completed.details["result"]["files"][0]) == ("run_completed", [digest("end"), 100])


def test_each_is_told_what_he_was_sent(journal: Journal) -> None:
    """Whoever was sent the same stands together; a long message is told by its root, its size and one hash."""
    began(journal)
    long = files(*range(MOST_FILES + 1))
    orders = (order_row(0, ANN, files("a")), order_row(0, BOB, long), order_row(0, CYD, files("a")))
    journal.advance(advance(JOIN, state=files("s"), orders=orders))
    same, big = only(journal, "round_closed").details["sent"]
    assert (same["to"], big["to"]) == ([ANN, CYD], [BOB])
    assert big["files"] == [[digest(0), 100]] and big["count"] == len(long) and big["bytes"] == sum(n for _, n in long)
    assert len(big["listing"]) == 64


def test_replies_that_are_none(journal: Journal) -> None:
    """Failed at the site, refused by the agent service with its reason, late; and one that nobody folded."""
    began(journal)
    failure = Failure("StepFailed", "no memory " * 200)
    journal.answer(first(ANN), Reply(first(ANN), failure=failure), OrderStatus.FAILED, 5.0, 0, 0)
    why = Failure("Undeclared", "The metric 'x' is not declared")
    journal.answer(first(BOB), Reply(first(BOB), failure=why, refused=True), OrderStatus.FAILED, 6.0, 0, 0)
    journal.advance(advance(JOIN))
    answer(journal, first(CYD))
    failed, refused, late = (only(journal, f"reply_{kind}") for kind in ("failed", "refused", "late"))
    assert failed.client == ANN and failed.details["reason"] == "StepFailed" and len(failed.details["what"]) == 500
    assert (refused.client, refused.details["what"]) == (BOB, "The metric 'x' is not declared")
    assert (late.client, late.details) == (CYD, {"order": first(CYD), "cursor": JOIN})
    push(journal, files("r"), CYD)
    answer(journal, first(CYD, 0), files("r"))
    journal.advance(advance(0))
    assert journal.audit(about=About(kind="round_closed"))[-1].details["late"] == [CYD]


def test_what_people_and_conductors_do_to_a_run(journal: Journal) -> None:
    """Stalled, resumed, asked again, cancelled: by whom and why."""
    began(journal)
    journal.set_status(RUN, OPEN, Status.STALLED, "too few", 40.0)
    again = order_row(JOIN, ANN, attempt=2)
    journal.reopen(RUN, Status.WAITING, "resumed by a person", 50.0, 99.0, [again], "alice")
    journal.reissue([again, order_row(JOIN, BOB, attempt=3)])
    journal.set_status(RUN, OPEN, Status.CANCELLED, "cancelled by a person", 60.0, by="bob")
    assert not journal.set_status(RUN, OPEN, Status.CANCELLED, "", 61.0) and not journal.reopen(
        RUN, Status.WAITING, "", 62.0, 1.0, []
    )
    told = [(e.kind, e.by, e.client) for e in since(journal)[1:]]
    assert told == [("run_stalled", "", ""), ("run_resumed", "alice", ""), ("asked_again", "", BOB), ("run_cancelled", "bob", "")]
    assert only(journal, "run_stalled").details["cause"] == "too few"
    assert only(journal, "run_resumed").details["sent"] == [{"to": [ANN], "files": []}]


def test_a_revocation_ends_what_was_asked(journal: Journal) -> None:
    """The client's open orders fail in the same breath."""
    journal.add_invite(invite())
    journal.enrol("token", client(ANN))
    began(journal)
    journal.revoke(ANN, "left", 5.0)
    assert kinds(journal)[-2:] == ["revoked", "reply_failed"]
    assert only(journal, "reply_failed").details["reason"] == "Revoked"


def test_a_call_with_a_key_is_told_once(journal: Journal) -> None:
    """The second try of a start finds the run and writes nothing."""
    journal.reserve(IdempotencyRecord("key", "asked", "seed", 1.0, "me"))
    for _ in range(2):
        journal.create_once("key", "me", [run_row()], joins(), "alice")
    assert kinds(journal) == ["run_started"]


def broken(digest: Digest) -> bool:
    """A store that fails while it is asked."""
    raise Unreachable("The bucket is away", "Wait")


@pytest.mark.parametrize("what", ["advance", "answer", "set_status", "overtaken"])
def test_an_act_that_fails_leaves_no_entry(journal: Journal, what: str) -> None:
    """Whatever is undone is untold, and the chain is whole."""
    two_rounds_old(journal)
    journal.add_parts([digest("gone")], RUN, ANN, 1.0)
    journal.collect(1e9)
    before, nobodys = journal.audit_tip(), OrderId("nobody's")
    acts: dict[str, Callable[[], Any]] = {
        "advance": partial(journal.advance, advance(1, files("gone"), files("s3")), broken),
        "answer": partial(journal.answer, nobodys, reply(nobodys), OrderStatus.ANSWERED, 1.0, 0, 0),
        "set_status": partial(journal.set_status, RUN, OPEN, Status.FAILED, "", 1.0, token=9),
        "overtaken": partial(journal.advance, advance(1, token=7)),
    }
    with pytest.raises((Unreachable, KeyError, Overtaken)):
        acts[what]()
    assert journal.audit_tip() == before
    since(journal)


def test_entries_are_found(journal: Journal) -> None:
    """By run, client, kind and time, behind a number, at most so many."""
    journal.record(AuditEvent("test", float(at), client=ANN if at % 2 else BOB, run=RUN if at < 4 else "") for at in range(8))
    assert [e.at for e in journal.audit(about=About(client=ANN))] == [1.0, 3.0, 5.0, 7.0]
    assert [e.at for e in journal.audit(about=About(client=ANN, run=RUN))] == [1.0, 3.0]
    assert [e.at for e in journal.audit(about=About(kind="test", since=6.0))] == [6.0, 7.0]
    assert [e.seq for e in journal.audit(after=3, limit=2)] == [4, 5]
    assert journal.audit(after=99) == () and journal.audit(about=About(run="another")) == ()


def test_odd_texts_come_back(journal: Journal) -> None:
    """What people typed is told as it was, and the chain holds."""
    odd = {"reason": 'a "quote", \\, ümläut, 漢字, \n, \x00, 💧', "n": -(2**62), "x": 0.1 + 0.2, "deep": {"a": [1, None, True]}}
    journal.record(
        [AuditEvent("test", 1e-7, details=odd), AuditEvent("test", 1.7e9 + 0.1234567, details=dict(reversed(odd.items())))]
    )
    one, other = since(journal)
    assert one.details == other.details == odd and one.at == 1e-7


def test_writers_at_once_write_one_chain(journal: Journal) -> None:
    """Of threads that do things at the same moment none waits for ever, and every entry has its place."""
    began(journal)

    def person(name: str) -> None:
        for turn in range(6):
            journal.add_invite(invite(f"{name}{turn}"), name)
            journal.enrol(f"{name}{turn}", client(f"{name}-{turn}"))

    def site(who: Any) -> None:
        answer(journal, first(who))
        journal.record([AuditEvent("test", 1.0, client=who)])

    together(*(partial(person, n) for n in "pq"), *(partial(site, who) for who in TEAM))
    told = since(journal)
    assert len(told) == 1 + 2 * 12 + 2 * len(TEAM) and journal.audit_tip().seq == told[-1].seq == len(told) + 1


# One suite for every journal: entries that stand in an archive leave the audit log, and nothing else does.
TOLD = AuditEvent("audit_archived", 9.0, details={"last": 2})


def filled(journal: Journal) -> list[Tip]:
    """A log of four entries: the last after each."""
    journal.add_invite(invite(), "alice", 1.0)
    journal.enrol("token", client())
    journal.revoke(ANN, "left", 5.0, "bob")
    return [Tip(entry.seq, entry.hash) for entry in journal.audit()]


def test_entries_go_up_to_one(journal: Journal) -> None:
    """The log goes on behind it, with an entry that says so; the witness is as it was."""
    tips, mark = filled(journal), journal.witness_mark()
    assert journal.audit_base() == Tip() and journal.trim_audit(Tip(), tips[1], TOLD)
    assert journal.audit_base() == tips[1]
    left = journal.audit()
    assert [entry.seq for entry in left] == [3, 4, 5] and left[-1].kind == TOLD.kind
    assert follow(tips[1], left) == journal.audit_tip() and journal.witness_mark() == mark
    journal.record([AuditEvent("test", 10.0)])
    assert follow(tips[1], journal.audit()) == journal.audit_tip()


def test_who_comes_second_takes_nothing(journal: Journal) -> None:
    """Nor does who knows another entry than the one that is there, or would take the last."""
    tips = filled(journal)
    before = journal.audit()
    assert not journal.trim_audit(tips[0], tips[1], TOLD)
    assert not journal.trim_audit(Tip(), Tip(2, "0" * 64), TOLD)
    assert not journal.trim_audit(Tip(), Tip(99, tips[1].hash), TOLD)
    assert not journal.trim_audit(Tip(), tips[-1], TOLD) and journal.audit() == before
    assert journal.trim_audit(Tip(), tips[1], TOLD) and not journal.trim_audit(Tip(), tips[1], TOLD)
    assert journal.trim_audit(tips[1], tips[2], TOLD) and journal.audit_base() == tips[2]


# One suite for every journal: how much there is.


def test_an_empty_journal_has_nothing(journal: Journal) -> None:
    """Every word is there; the audit log has its beginning."""
    assert journal.tally() == Tally({s.value: 0 for s in Status}, {s.value: 0 for s in Standing}, 0, 0, 1)


def test_what_there_is_is_counted(journal: Journal) -> None:
    """Runs by status, clients by standing, open orders, parts, entries."""
    for name in (ANN, BOB):
        journal.add_invite(invite(name))
        journal.enrol(name, client(name))
    journal.revoke(BOB, "left", 1.0)
    began(journal)
    push(journal, files("r", "q"))
    answer(journal, first(), files("r"))
    told = journal.tally()
    assert {k: v for k, v in told.runs.items() if v} == {"waiting": 1}
    assert {k: v for k, v in told.clients.items() if v} == {"approved": 1, "revoked": 1}
    assert (told.orders, told.parts, told.entries) == (2, 2, journal.audit_tip().seq)
    journal.set_status(RUN, OPEN, Status.CANCELLED, "", 2.0)
    assert journal.tally().orders == 0 and journal.tally().runs["cancelled"] == 1
