"""Runs, their closed rounds and their events, and how many there are of everything."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    exists,
    func,
    insert,
    or_,
    select,
    true,
    union_all,
    update,
)

from tideline.core.privacy import Contract, from_json, to_json
from tideline.core.run import ClientId, Member, Role, Roster, RunId, RunSpec
from tideline.core.settings import EMPTY, Plain, parse
from tideline.core.settings import plain as as_plain
from tideline.engine.model.access.projects import EVERY
from tideline.engine.model.accounts import Standing
from tideline.engine.model.fold_report import groups_in, tables_in
from tideline.engine.model.orders import OrderStatus
from tideline.engine.model.runs import (
    EVERYTHING,
    FINAL,
    JOIN,
    Event,
    Headline,
    PhaseFact,
    RoundRow,
    RunRow,
    Sought,
    Status,
    Tally,
)
from tideline_server.store.database.dialect import upsert
from tideline_server.store.database.prepared import prepared
from tideline_server.store.listings import Listed, batches, files_of, in_batches
from tideline_server.store.schema import (
    audit_tip,
    clients,
    drafts,
    events,
    listings,
    orders,
    parts,
    rosters,
    rounds,
    runs,
    tombstones,
)

T = TypeVar("T")
ALL = true()
# Only the exchange at which a run stands has open orders: nobody looks through those of all rounds.
OPEN_ORDERS = (
    select(func.count())
    .select_from(runs.join(orders, (orders.c.run == runs.c.id) & (orders.c.cursor == runs.c.cursor)))
    .where(runs.c.status.not_in(FINAL), orders.c.status == OrderStatus.OPEN)
)
KEPT_RUNS = 64  # runs whose unchanging facts stay decoded
KEPT_FILES = 100_000  # a run's rounds are remembered up to so many files of states and values of tables; more are read each time

ONE = prepared(select(runs).where(runs.c.id == bindparam("of")))
LOCK = prepared(select(runs.c.id).where(runs.c.id == bindparam("of")).with_for_update(key_share=True))
REWRITE = update(runs).where(runs.c.id == bindparam("of")).values({column.name: bindparam(column.name) for column in runs.c})
LAST = select(func.coalesce(func.max(events.c.seq), 0) + 1).where(events.c.run == bindparam("of")).scalar_subquery()
NOTE = prepared(insert(events).values({column.name: bindparam(column.name) for column in events.c} | {"seq": LAST}))

MEMBERS = select(rosters.c.members).where(rosters.c.run == bindparam("of"))
CHECKPOINTS = (
    select(rounds.c.cursor)
    .where(rounds.c.run == bindparam("of"), rounds.c.state.is_not(None))
    .order_by(rounds.c.cursor.desc())
    .limit(2)
)

IDS = select(runs.c.id).order_by(runs.c.created, runs.c.id)
OF_PROJECT = runs.c.project == bindparam("project")
LENGTH = func.json_array_length(drafts.c.plan)
NEWER = ("privacy", "epsilon", "charges", "secure_sums")  # keys of a spec since 0.2.0
TRACK = drafts.c.spec["track"].label("track")  # null in rows of versions before
ELSEWHERE = {"of": LENGTH.label("of"), "track": TRACK}
LINE = [ELSEWHERE[field.name] if field.name in ELSEWHERE else runs.c[field.name] for field in fields(Headline)]
LINES = select(*LINE).join(drafts, drafts.c.run == runs.c.id).order_by(runs.c.created, runs.c.id)
SHORT = [runs.c[field.name] for field in fields(Headline) if field.name not in ELSEWHERE]
UNENDED = select(*SHORT).where(runs.c.ended.is_(None))  # by the index of ends
NAMED = select(*SHORT).where(runs.c.id.in_(bindparam("names", expanding=True)))
UNCHANGING = select(drafts.c.run, *ELSEWHERE.values()).where(drafts.c.run.in_(bindparam("names", expanding=True)))
MARK = runs.alias("mark")
BEFORE = select(MARK.c.created).where(MARK.c.id == bindparam("after")).scalar_subquery()
SEEN = exists().where(MARK.c.id == bindparam("after"), MARK.c.project == bindparam("project"))
LATER = or_(runs.c.created > BEFORE, (runs.c.created == BEFORE) & (runs.c.id > bindparam("after")))
EARLIER = or_(runs.c.created < BEFORE, (runs.c.created == BEFORE) & (runs.c.id < bindparam("after")))
SEARCHED = (runs.c.name, runs.c.method, runs.c.id, runs.c.project)


@dataclass(frozen=True)
class Draft:
    """What never changes in a run."""

    spec: RunSpec
    roster: Mapping[ClientId, Role]
    plan: tuple[PhaseFact, ...]
    contract: Contract


class Remembered:
    """Decodes once what never changes after it is written: drafts and closed rounds. Any number of threads.

    The next look finds rounds that other processes add. After a database is set back to an older state, restart.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._drafts: dict[RunId, Draft] = {}
        self._members: dict[RunId, Roster] = {}
        self._rounds: dict[RunId, tuple[RoundRow, ...]] = {}
        self._unchanging: dict[RunId, dict[str, Any]] = {}

    def for_writers(self) -> Remembered:
        """The same, but what is read by it is not remembered: a writer may read what is undone, its own or of those with whom
        it shares a transaction.
        """
        copy = Remembered()
        with self._lock:
            copy._drafts, copy._members = self._drafts, self._members  # which are never changed in place
        return copy

    def drafts(self, connection: Connection, wanted: Iterable[RunId]) -> dict[RunId, Draft]:
        wanted = list(wanted)
        with self._lock:
            found = {run: self._drafts[run] for run in wanted if run in self._drafts}
        for batch in batches([run for run in wanted if run not in found]):
            found |= {r.run: draft_of(r) for r in connection.execute(select(drafts).where(drafts.c.run.in_(batch)))}
        with self._lock:
            self._drafts = newest(self._drafts, found)
        return found

    def members(self, connection: Connection, run: RunId, cursor: int) -> Roster:
        """Who joined a run that has reached this cursor: nobody before the join has closed."""
        if cursor == JOIN:
            return ()
        with self._lock:
            known = self._members.get(run, ())
        found = known or members_of(connection, run)
        if found and not known:
            with self._lock:
                self._members = newest(self._members, {run: found})
        return found

    def unchanging(self, connection: Connection, wanted: Collection[RunId]) -> dict[RunId, dict[str, Any]]:
        """What of these runs' lines stands in their drafts. Those are remembered that were asked for last."""
        with self._lock:
            known = self._unchanging
        found = {run: known[run] for run in wanted if run in known}
        unread = [run for run in wanted if run not in found]
        rows = in_batches(connection, UNCHANGING, "names", unread)
        found |= {RunId(row.run): {"of": row.of, "track": row.track} for row in rows}
        with self._lock:
            self._unchanging = found
        return found

    def rounds(self, connection: Connection, run: RunId) -> tuple[RoundRow, ...]:
        """A run's closed rounds. Reads only those since the last look."""
        with self._lock:
            known = self._rounds.get(run, ())
        every = known + rounds_since(connection, run, known[-1].cursor if known else None)
        if every and sum(map(weight, every)) <= KEPT_FILES:
            with self._lock:
                self._rounds = newest(self._rounds, {run: every})
        return every


def weight(closed: RoundRow) -> int:
    """Files of a round's state and values of its tables: what remembering it costs."""
    return len(closed.state) + sum(len(table.rows) * len(table.columns) for table in closed.tables.values())


def newest(known: dict[RunId, T], more: Mapping[RunId, T]) -> dict[RunId, T]:
    joined = {k: v for k, v in known.items() if k not in more} | dict(more)
    return dict(list(joined.items())[-KEPT_RUNS:])


def draft_of(row: Row[Any]) -> Draft:
    roster = {ClientId(name): Role(role) for name, role in row.roster.items()}
    return Draft(parse(RunSpec, row.spec, "spec"), roster, tuple(PhaseFact(*fact) for fact in row.plan), from_json(row.contract))


def run_of(row: Row[Any], draft: Draft, members: Roster) -> RunRow:
    return RunRow(**{**row._mapping, **vars(draft), "status": Status(row.status), "members": members})


def members_of(connection: Connection, run: RunId) -> Roster:
    found = connection.scalar(MEMBERS, {"of": run})
    return tuple(parse(Member, each, "member") for each in found or ())


def write_members(connection: Connection, run: RunId, members: Roster) -> None:
    upsert(connection, rosters, [{"run": run, "members": as_plain(members)}], "members")


def write(connection: Connection, run: RunRow) -> None:
    """Write a new run. Raises IntegrityError for a known one."""
    plan = [[fact.phase, fact.step, fact.round, fact.floor, fact.needs] for fact in run.plan]
    connection.execute(insert(runs), changing(run))
    # Keys that earlier versions do not know are left out where a run has nothing of them, so that they read the others.
    spec = {name: value for name, value in as_plain(run.spec).items() if value is not None or name not in NEWER}
    facts = {"spec": spec, "roster": as_plain(run.roster), "plan": plan, "contract": to_json(run.contract)}
    connection.execute(insert(drafts), {"run": run.id, **facts})
    if run.members:
        write_members(connection, run.id, run.members)


def lock(connection: Connection, run: RunId) -> None:
    """Lock a run until this transaction ends; others may still write rows that refer to it."""
    connection.execute(LOCK, {"of": run})


def rewrite(connection: Connection, run: RunRow) -> None:
    connection.execute(REWRITE, {"of": run.id} | changing(run))


def changing(run: RunRow) -> dict[str, Any]:
    return {column.name: getattr(run, column.name) for column in runs.columns}


def find(connection: Connection, memory: Remembered, run: RunId) -> RunRow | None:
    row = connection.execute(ONE, {"of": run}).one_or_none()
    if row is None:
        return None
    return run_of(row, memory.drafts(connection, [run])[run], memory.members(connection, run, row.cursor))


def is_known(connection: Connection, run: RunId) -> bool:
    """Whether there is a run, or was one that is deleted."""
    known = union_all(select(runs.c.id).where(runs.c.id == run), select(tombstones.c.run).where(tombstones.c.run == run))
    return connection.scalar(known) is not None


def open_at(connection: Connection, run: RunId) -> int | None:
    """The cursor of a run that has not ended."""
    row = connection.execute(ONE, {"of": run}).one_or_none()
    return None if row is None or row.status in FINAL else int(row.cursor)


def project_of(connection: Connection, run: RunId) -> str:
    return str(connection.scalar(select(runs.c.project).where(runs.c.id == run)))


def ids(connection: Connection, scope: str = EVERY) -> tuple[RunId, ...]:
    chosen = IDS.where(OF_PROJECT) if scope else IDS
    return tuple(RunId(run) for run in connection.scalars(chosen, {"project": scope} if scope else {}))


def headlines(
    connection: Connection,
    limit: int | None = None,
    after: RunId | None = None,
    scope: str = EVERY,
    sought: Sought = EVERYTHING,
) -> tuple[Headline, ...]:
    """Runs in one line each. The database counts a plan's phases."""
    chosen = LINES if after is None else LINES.where(EARLIER if sought.newest else LATER)
    if sought.newest:
        chosen = chosen.order_by(None).order_by(runs.c.created.desc(), runs.c.id.desc())
    chosen = chosen.where(fits(sought))
    chosen = chosen.where(OF_PROJECT) if scope else chosen
    chosen = chosen.where(SEEN) if scope and after is not None else chosen
    values = {"after": after} if after is not None else {}
    rows = connection.execute(chosen.limit(limit), values | ({"project": scope} if scope else {}))
    return tuple(map(headline_of, rows))


def count_runs(connection: Connection, scope: str = EVERY, sought: Sought = EVERYTHING) -> int:
    chosen = select(func.count()).select_from(runs).where(fits(sought))
    return connection.scalar(chosen.where(runs.c.project == scope) if scope else chosen) or 0


def fits(sought: Sought) -> ColumnElement[bool]:
    wanted = runs.c.status.in_(sorted(sought.statuses)) if sought.statuses else ALL
    found = or_(*(column.icontains(sought.words, autoescape=True) for column in SEARCHED)) if sought.words else ALL
    return and_(wanted, found, runs.c.parent.is_(None) if sought.tops else ALL)


def headline_of(row: Row[Any], more: Mapping[str, Any] = EMPTY) -> Headline:
    """more: what stands elsewhere, where the row does not have it."""
    found = {**row._mapping, **more}
    return Headline(**{**found, "status": Status(row.status), "track": tuple(found["track"] or ())})


def current(connection: Connection, memory: Remembered, also: Collection[RunId] = ()) -> tuple[Headline, ...]:
    """The runs that are not over, and these, in one line each, the oldest first. The length of a plan is counted once."""
    rows = {row.id: row for row in connection.execute(UNENDED)}
    rows |= {row.id: row for row in in_batches(connection, NAMED, "names", [run for run in also if run not in rows])}
    more = memory.unchanging(connection, rows)
    return tuple(headline_of(row, more[row.id]) for row in sorted(rows.values(), key=lambda row: (row.created, row.id)))


def write_round(connection: Connection, closed: RoundRow, known: Listed) -> None:
    connection.execute(insert(rounds), {**vars(closed), "state": known[closed.state], "tables": as_plain(closed.tables)})


def closed_rounds(run: RunId) -> Select[Any]:
    """A run's rounds, each with the files of its state."""
    joined = rounds.outerjoin(listings, rounds.c.state == listings.c.id)
    return select(rounds, listings.c.files).select_from(joined).where(rounds.c.run == run)


def rounds_since(connection: Connection, run: RunId, cursor: int | None) -> tuple[RoundRow, ...]:
    """A run's rounds closed after the one at `cursor`, or all."""
    chosen = closed_rounds(run) if cursor is None else closed_rounds(run).where(rounds.c.cursor > cursor)
    return tuple(round_of(row) for row in connection.execute(chosen.order_by(rounds.c.cursor)))


def round_at(connection: Connection, run: RunId, cursor: int) -> RoundRow | None:
    """The round that a run closed at a cursor."""
    found = connection.execute(closed_rounds(run).where(rounds.c.cursor == cursor)).one_or_none()
    return None if found is None else round_of(found)


def recent_rounds(connection: Connection, run: RunId) -> tuple[RoundRow, ...]:
    """A run's closed rounds from the last checkpoint but one on."""
    last = connection.scalars(CHECKPOINTS, {"of": run}).all()
    return rounds_since(connection, run, last[1] - 1 if len(last) == 2 else None)


def round_of(row: Row[Any]) -> RoundRow:
    columns = dict(row._mapping)
    columns |= {"state": files_of(columns.pop("files")), "folded": tuple(row.folded)}
    columns |= {"marks": groups_in(row.marks), "groups": groups_in(row.groups), "tables": tables_in(row.tables)}
    return RoundRow(**columns)


def note(connection: Connection, run: RunId, kind: str, data: Mapping[str, Plain], now: float) -> None:
    connection.execute(NOTE, {"of": run, "run": run, "at": now, "kind": kind, "data": data})


def events_after(connection: Connection, run: RunId, after: int = 0, limit: int | None = None) -> tuple[Event, ...]:
    chosen = select(events).where(events.c.run == run, events.c.seq > after).order_by(events.c.seq).limit(limit)
    return tuple(Event(**row._mapping) for row in connection.execute(chosen))


def last_event(connection: Connection, run: RunId, before: float | None = None) -> int:
    chosen = select(events.c.seq).where(events.c.run == run, ALL if before is None else events.c.at < before)
    return connection.scalar(chosen.order_by(events.c.seq.desc()).limit(1)) or 0


def tally(connection: Connection, scope: str = EVERY) -> Tally:
    asked = OPEN_ORDERS.where(runs.c.project == scope) if scope else OPEN_ORDERS
    return Tally(
        runs=by(connection, runs.c.status, Status, runs.c.project == scope if scope else ALL),
        clients=serving(connection, scope) if scope else by(connection, clients.c.standing, Standing),
        orders=connection.scalar(asked) or 0,
        parts=connection.scalar(select(func.count()).select_from(parts)) or 0,
        entries=connection.scalar(select(audit_tip.c.seq)) or 0,
    )


def serving(connection: Connection, project: str) -> dict[str, int]:
    """A project's sites by their standing."""
    rows = connection.execute(select(clients.c.standing, clients.c.projects)).all()
    return {word.value: sum(row.standing == word and project in row.projects for row in rows) for word in Standing}


def by(connection: Connection, column: Column[str], words: type[StrEnum], where: ColumnElement[bool] = ALL) -> dict[str, int]:
    rows = connection.execute(select(column, func.count().label("many")).where(where).group_by(column))
    found = {str(row[0]): int(row.many) for row in rows}
    return {word.value: found.get(word.value, 0) for word in words}
