"""What every journal writes of a closed round and of a reply, and what it refuses to write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from tideline.core.errors import Overtaken, Unreachable
from tideline.core.phase import WEIGHT_OF
from tideline.core.run import Digest
from tideline.core.settings import EMPTY, Plain, plain
from tideline.engine.model.accounts import Client, Handover, Keys, Session, ShownLedger, Standing, session_in
from tideline.engine.model.orders import Failure, OrderRow, OrderStatus, Reply
from tideline.engine.model.runs import FINAL, Lease, RunRow
from tideline.engine.ports.journal import Advance

MOST_DOUBLES = 8  # sessions of a client that are named at once
MOST_HANDOVERS = 64  # of a client that are kept
REMEMBERED_SECONDS = 86400.0  # for so long it is known that a part was dropped


def fence(lease: Lease, token: int | None) -> None:
    """Raises Overtaken for a token that is not the lease's newest."""
    if token is not None and token != lease.token:
        raise Overtaken(f"Run {lease.run} has been conducted by {lease.holder or 'another coordinator'} since, and goes on there")


class PartCollected(Unreachable):
    """A part was here when a round's result was stored, and its last reference ended before the result was noted."""


def present(doubtful: Iterable[Digest], here: Callable[[Digest], bool]) -> None:
    """Raises PartCollected if one of these parts, to which a step refers, is not here."""
    gone = sorted(digest for digest in doubtful if not here(digest))
    if gone:
        what = f"Part {gone[0][:12]} was collected while the round was closed"
        raise PartCollected(what, "The round is closed again by itself")


def advanced(row: RunRow, step: Advance) -> RunRow:
    return replace(
        row,
        cursor=step.cursor,
        status=step.status,
        cause="",
        deadline_at=step.deadline_at,
        opened=step.closed.closed,
        started=row.started if row.started is not None else step.closed.closed,
        ended=step.closed.closed if step.status in FINAL else None,
        members=row.members if step.members is None else step.members,
        state_digest=step.state_digest,
        fingerprint=row.fingerprint if step.fingerprint is None else step.fingerprint,
        best=row.best if step.best is None else step.from_cursor,
    )


def reopened(row: RunRow, deadline_at: float, quorum: int | None) -> RunRow:
    """A run that is resumed, with as many replies as are enough from now on; None: as before."""
    return replace(row, deadline_at=deadline_at, quorum=row.quorum if quorum is None else quorum)


def resuming(cause: str, quorum: int | None) -> dict[str, Plain]:
    """What its event says."""
    return {"cause": cause} if quorum is None else {"cause": cause, "min_replies": quorum}


def answered(row: OrderRow, reply: Reply, status: OrderStatus, now: float, down: int, up: int) -> OrderRow:
    return replace(
        row,
        status=status,
        reply=reply.files,
        metrics=dict(reply.metrics) if reply.metrics else EMPTY,
        facts=dict(reply.facts) if reply.facts else EMPTY,
        failure=reply.failure,
        answered=now,
        progress=1.0,
        bytes_down=row.bytes_down + down,
        bytes_up=row.bytes_up + up,
    )


def rekeyed(known: Client, keys: Keys, handover: str = "") -> Client:
    """A client's row with new keys: nothing that it had shows who it is any more, but for the old keys' signature of these."""
    changed = replace(known, sign_key=keys.sign, receive_key=keys.receive, rotate=False)
    before = known.handovers or (Handover(known.keys, ""),)
    # Without a signature the line is cut: an owner must say that the new keys are right.
    handovers = (*before, Handover(keys, handover))[-MOST_HANDOVERS:] if handover else ()
    return replace(changed, handovers=handovers)


def sessioned(known: Client, session: Session, now: float) -> Client:
    """A client's row once a session has shown itself. One that does not count further than the last is a double."""
    if session == known.current or str(session) in known.doubles:
        return known
    if known.standing is Standing.DOUBLED or session.count <= known.session:
        named = dict.fromkeys((*(known.doubles or (str(known.current),)), str(session)))
        return replace(known, standing=Standing.DOUBLED, doubles=tuple(named)[-MOST_DOUBLES:])
    return replace(known, session=session.count, session_id=session.id, session_began=now)


def let_on(known: Client, session: Session, now: float) -> Client:
    """A doubled client of which one session goes on: it makes new keys, which the others do not have."""
    others = [found.id for each in known.doubles if (found := session_in(each)) is not None and found != session]
    return replace(
        known,
        standing=Standing.APPROVED,
        session=session.count,
        session_id=session.id,
        session_began=now,
        doubles=(),
        shut=(*known.shut, *others)[-MOST_DOUBLES:],
        rotate=True,
    )


def ledger_shown(known: Client, shown: ShownLedger) -> Client:
    """A client's row once its agent has shown its ledger, which must have the entry that it reported last.

    Where another entry was reported since the agent asked for that one, there is nothing to compare.
    """
    if shown.reported.seq != known.reported.seq or not shown.last.seq:
        return known
    if known.reported.seq and shown.reported.hash != known.reported.hash and not shown.accepted:
        return replace(known, ledger_now=shown.last.seq)
    charged = 0 if shown.accepted and known.charged is not None else known.charged
    return replace(known, ledger_entries=shown.last.seq, ledger_hash=shown.last.hash, ledger_now=None, charged=charged)


def succeeding(before: Client | None, client: Client) -> Client:
    """A client that enrols under the name of a revoked one. Of a site with a budget, what was known of its ledger stays."""
    if before is None or before.charged is None:
        return client
    names = ("ledger_entries", "ledger_hash", "charged", "charged_at")
    return replace(client, **{name: getattr(before, name) for name in names})


def day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def revocation(known: Client) -> str:
    return f"revoked on {day(known.revoked or 0.0)}{': ' if known.reason else ''}{known.reason}"


def revoked_reply(row: OrderRow, known: Client) -> Reply:
    return Reply(row.id, failure=Failure("Revoked", f"{known.name} was {revocation(known)}"))


def closed_event(step: Advance) -> dict[str, Plain]:
    closed = step.closed
    more: dict[str, Plain] = {} if step.token is None else {"token": step.token}
    if closed.marks:
        more["marks"] = plain(closed.marks)
    if step.without:
        more["without"] = {str(name): kind for name, kind in step.without.items()}
    if step.best is not None:
        more["best"] = dict(step.best)
    if epsilon := {str(name): step.epsilon[name] for name in closed.asked if name in step.epsilon}:
        more["epsilon"] = dict[str, Plain](epsilon)
    if (chosen := closed.tables.get(WEIGHT_OF)) is not None:
        lines = zip(chosen.rows, chosen.values, strict=True)
        more["chosen"] = {row: {c: w for c, w in zip(chosen.columns, line, strict=True) if w > 0} for row, line in lines}
    return more | {
        "phase": closed.phase,
        "round": closed.round,
        "seconds": closed.closed - closed.opened,
        "replies": len(closed.folded),
        "cursor": step.cursor,
        "asked": len(step.orders),
    }


def reply_event(row: OrderRow, reply: Reply) -> dict[str, Plain]:
    data: dict[str, Plain] = {"client": row.client, "cursor": row.cursor, "metrics": dict(reply.metrics)}
    if reply.failure:
        data |= {"kind": reply.failure.kind, "what": reply.failure.what}
    return data


def late_event(row: OrderRow) -> dict[str, Plain]:
    return reply_event(row, Reply(row.id, metrics=row.metrics))


def with_author(data: Mapping[str, Plain], by: str) -> dict[str, Plain]:
    """An event's data, with the name of who asked for it, if somebody did."""
    return {**data, "by": by} if by else dict(data)
