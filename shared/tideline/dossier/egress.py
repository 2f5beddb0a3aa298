"""What left each site in a run: a row for each order that was answered, and totals by phase."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NotRequired, TypedDict

from tideline.core.privacy import Contract
from tideline.core.run import ClientId
from tideline.core.settings import Plain
from tideline.dossier.layout import Part
from tideline.dossier.words import moment
from tideline.engine.audit.entries import listed
from tideline.engine.model.orders import OrderRow, OrderStatus
from tideline.engine.model.runs import JOIN, RunRow
from tideline.engine.model.said.stages import STAGES
from tideline.engine.ports.journal import Journal

ACCEPTED, LATE, FAILED, CANCELLED = "accepted", "late", "failed", "cancelled"
OUTCOMES = {OrderStatus.ANSWERED: ACCEPTED, OrderStatus.EXPIRED: LATE, OrderStatus.FAILED: FAILED}


class ReplyLine(TypedDict):
    """One answered order, as a line of the dossier has it.

    files: digests and sizes; of many the root alone, with count and the hash of the whole list. asked, answered: seconds.
    bytes: of the files; bytes_up: of what travelled. metrics, facts: as the site told them; stages: when it began to fetch,
    to compute and to send, as it told. sealed: what it brought for others.
    """

    order: str
    site: ClientId
    cursor: int
    phase: str
    step: str
    round: int
    attempt: int
    outcome: str
    asked: float
    answered: float
    utc: str | None
    files: Plain
    count: NotRequired[Plain]
    listing: NotRequired[Plain]
    bytes: int
    bytes_up: int
    metrics: dict[str, float]
    facts: dict[str, Plain]
    sealed: list[Plain]
    stages: NotRequired[list[float]]
    failure: NotRequired[dict[str, Plain]]


@dataclass
class PhaseOut:
    """What one step sent from one site: replies, the bytes of their files, when the first and the last came."""

    replies: int = 0
    bytes: int = 0
    first: float | None = None
    last: float | None = None


@dataclass
class SiteOut:
    """What left one site, by phase and step.

    bytes_up: what travelled, repeats included. outcomes: replies by what became of them. steps: replies after the join.
    """

    phases: dict[tuple[str, str], PhaseOut] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Plain] = field(default_factory=dict)
    bytes_up: int = 0
    sealed: int = 0
    steps: int = 0

    def add(self, row: ReplyLine) -> None:
        """Count a row of `rows`."""
        of = self.phases.setdefault((row["phase"], row["step"]), PhaseOut())
        of.replies, of.bytes = of.replies + 1, of.bytes + row["bytes"]
        of.first = row["answered"] if of.first is None else min(of.first, row["answered"])
        of.last = row["answered"] if of.last is None else max(of.last, row["answered"])
        self.outcomes[row["outcome"]] = self.outcomes.get(row["outcome"], 0) + 1
        self.facts |= row["facts"]
        self.steps += row["cursor"] != JOIN
        self.bytes_up, self.sealed = self.bytes_up + row["bytes_up"], self.sealed + len(row["sealed"])


def rows(journal: Journal, run: RunRow, sealed: Mapping[str, list[Plain]]) -> Iterator[ReplyLine]:
    """A row for each answered order, by exchange, site and attempt. sealed: by order, what it brought for other sites."""
    for cursor in range(JOIN, run.cursor + 1):
        if cursor >= len(run.plan):
            return
        for order in journal.orders(run.id, cursor):
            if order.answered is not None:
                yield row_of(run, order, order.answered, sealed.get(order.id, []))


def row_of(run: RunRow, order: OrderRow, answered: float, sealed: list[Plain]) -> ReplyLine:
    fact, files = run.fact(order.cursor), listed(order.reply)
    row: ReplyLine = {
        "order": order.id,
        "site": order.client,
        "cursor": order.cursor,
        "phase": fact.phase,
        "step": fact.step,
        "round": fact.round,
        "attempt": order.attempt,
        "outcome": OUTCOMES.get(order.status, CANCELLED),
        "asked": order.created,
        "answered": answered,
        "utc": moment(answered),
        "files": files["files"],
        "bytes": sum(size for _, size in order.reply),
        "bytes_up": order.bytes_up,
        "metrics": dict(order.metrics),
        "facts": {name: value for name, value in order.facts.items() if name != STAGES},
        "sealed": sealed,
    }
    if "listing" in files:  # too many to name
        row["count"], row["listing"] = files["count"], files["listing"]
    if order.stages is not None:
        row["stages"] = order.stages
    if order.failure:
        row["failure"] = dict(vars(order.failure))
    return row


def totals(run: RunRow, found: Mapping[ClientId, SiteOut]) -> list[Part]:
    """Each site's totals, in the order of the roster, with what the contract says of each step's fields."""
    return [site_totals(run, name, found.get(name, SiteOut())) for name in run.roster]


def site_totals(run: RunRow, name: ClientId, out: SiteOut) -> Part:
    phases: list[Part] = [
        {
            "phase": phase,
            "step": step,
            "replies": of.replies,
            "bytes": of.bytes,
            "first": of.first,
            "last": of.last,
            "first_utc": moment(of.first),
            "last_utc": moment(of.last),
            "fields": fields_of(run.contract, phase, step),
        }
        for (phase, step), of in out.phases.items()
    ]
    return {
        "site": name,
        "role": run.roster[name].value,
        "replies": sum(out.outcomes.values()),
        "outcomes": dict(sorted(out.outcomes.items())),
        "bytes": sum(of.bytes for of in out.phases.values()),
        "bytes_up": out.bytes_up,
        "sealed_for_other_sites": out.sealed,
        "facts": out.facts,
        "phases": phases,
    }


def fields_of(contract: Contract, phase: str, step: str) -> list[list[str]]:
    """Each field of a step's reply with its exposure and whom it may reach, by the contract."""
    mine = (each for each in contract if (each.phase, each.step) == (phase, step))
    return [[each.field, each.exposure.value, " and ".join(sorted(each.audience))] for each in mine]
