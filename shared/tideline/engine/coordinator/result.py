"""What users read: one schema for `simulate --json`, `run show --json` and the demonstration's result.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tideline.core.algorithm import CLASS_COUNTS, NORMALISE, STORE_BEST
from tideline.core.asked.scoring import Prior
from tideline.core.asked.world import plain_world
from tideline.core.privacy import Clause, Contract, Exposure, to_json
from tideline.core.run import ClientId, Role, RunId
from tideline.core.settings import Plain, plain
from tideline.engine.audit.entries import PART_MENDED
from tideline.engine.audit.log import About
from tideline.engine.coordinator.rounds.rules import floor_of, waiting_of
from tideline.engine.coordinator.scheduler import progress_of, waits_for
from tideline.engine.coordinator.scores import chance_notes, recalls_in, scores_in, selection_in, selection_notes
from tideline.engine.coordinator.verdicts import verdict_notes, verdict_of
from tideline.engine.epsilon.spending import epsilons
from tideline.engine.model.access.spending import Spending, shown, summed
from tideline.engine.model.joins import computed_in
from tideline.engine.model.orders import OrderStatus
from tideline.engine.model.runs import JOIN, OPEN, RoundRow, RunRow, Status
from tideline.engine.model.said.disclosed import disclosed_in
from tideline.engine.model.totals import (
    ACCURACY,
    AnyOrder,
    OrderLine,
    RoundTotals,
    Scores,
    SiteTotals,
    by_client,
    mean,
    newest,
    scores,
    with_orders,
)
from tideline.engine.model.verdicts import Verdict
from tideline.engine.peers.relay import notes
from tideline.engine.ports.journal import Journal

MOST_MENDED = 1000  # parts that were made again, as far as they are counted
MOST_POINTS = 5_000  # of a curve: beyond that it tells means
Lines = tuple[OrderLine, ...]
Sites = Mapping[ClientId, SiteTotals]
Facts = Mapping[str, Plain] | None  # of an answered join; None: the site has not joined
UNASKED, NO_TOTALS = SiteTotals(), RoundTotals()


def result_of(journal: Journal, run_id: RunId, now: float, history: bool = False, admins: bool = True) -> dict[str, Any]:
    """A run's result, or as much as there is of it. Keys: docs/result.md.

    history: with every metric that sites reported, for which all orders are read; else the totals of the closed rounds, and the
    orders of the open one. admins: with the tables that are for admins; who owns the journal sees all.
    """
    run = journal.run(run_id)
    assert run is not None
    now_open = journal.order_lines(run.id, run.cursor)
    rounds, own = journal.rounds(run.id), sites_of(journal, run, now_open)
    sibling = journal.run(run.reference) if run.reference else None
    theirs = own if sibling is None else compared(journal, sibling)
    failures = by_client(journal.missed(run.id))
    clients = [client(run, c, own.get(c, UNASKED), theirs.get(c, UNASKED), failures.get(c, ())) for c in run.roster]
    joined = joined_in(journal, run) if history or run.spec.computing is not None else {}
    spent, epsilon = journal.spent_by_run(run.id), epsilons(run, rounds, now_open)
    clients = [
        each
        | {"computing": computed_by(run, joined.get(each["name"])), "spent": reported_hours(spent.get(each["name"]))}
        | {"epsilon": epsilon.get(each["name"]), "data": data_of(joined.get(each["name"]))}
        for each in clients
    ]
    totals = journal.round_totals(run.id)
    closed = phases(rounds, totals, admins)
    selected = selection_in(rounds, run.spec.scoring.selection, run.roster)
    scores, ended = scores_in(rounds), run.status is Status.COMPLETED
    verdict = verdict_of(journal, run, rounds)
    reports = (
        *notes({"phases": closed, "clients": clients}),
        *selection_notes(selected, ended),
        *chance_notes(scores, run.roster, run.spec.world.classes, ended),
        *verdict_notes(verdict, ended),
        *mending_notes(journal, run),
        *quorum_notes(run),
        *share_notes(clients),
        *declined_notes(clients),
    )
    return {
        "run": run.id,
        "name": run.name,
        "method": run.method,
        "config": dict(run.spec.config),
        "world": plain_world(run.spec.world),
        "seed": run.spec.seed,
        "weights": run.spec.initial_weights,
        "sample": plain(run.spec.sampling),
        "prior": run.spec.scoring.prior.value,
        "augment": plain(run.spec.augment) if run.spec.augment.on else None,
        "computing": plain(run.spec.computing),
        "wire": plain(run.spec.wire) if run.spec.wire.on else None,
        "privacy": None if run.spec.privacy is None else {**plain(run.spec.privacy), "epsilon": run.spec.epsilon},
        "secure_sums": plain(run.spec.secure_sums),
        "track": list(run.spec.track),
        "rounds": run.spec.config.get("rounds"),
        "notes": [*run.spec.notes, *reports],
        "status": run.status.value,
        "cause": run.cause,
        "waits_for": children_wait(verdict)
        or waits(run, journal, now_open, now)
        or (sibling_waits(journal, sibling, now) if sibling else ""),
        "awaited": awaited(journal, run, now_open, now),
        "spent": reported_hours(summed(spent.values())),
        "seconds": None if run.started is None else (now if run.ended is None else run.ended) - run.created,
        "state_digest": run.state_digest,
        "fingerprint": run.fingerprint,
        "reference": run.reference,
        "reference_status": sibling.status.value if sibling else None,
        "clients": clients,
        "generalization": generalization(run, clients, Shares(run, rounds, now_open, own)),
        "scores": scores,
        "recall": recalls_in(rounds),
        "selection": selected,
        "verdict": verdict,
        "phases": closed,
        "groups": groups(closed),
        "curve": curve(journal, run, totals, now_open),
        "history": measured(journal, run) if history else None,
        "contract": to_json(run.contract),
    }


def quorum_notes(run: RunRow) -> tuple[str, ...]:
    """That somebody lowered, or raised, what a round needs."""
    if run.quorum is None:
        return ()
    many = "one reply is" if run.quorum == 1 else f"{run.quorum} replies are"
    return (f"Since the run was resumed, {many} enough in a round",)


def mending_notes(journal: Journal, run: RunRow) -> tuple[str, ...]:
    """That parts of the run were damaged or gone, and made again: the numbers are those of the parts as they were."""
    found = journal.audit(about=About(run=run.id, kind=PART_MENDED), limit=MOST_MENDED)
    if not found:
        return ()
    count = f"{len(found)} parts of this run were" if len(found) > 1 else "A part of this run was"
    more = " or more" if len(found) == MOST_MENDED else ""
    first = f"{str(found[0].details['part'])[:12]}: {found[0].details['how']}"
    return (f"{count.replace(' parts', f'{more} parts')} damaged or gone, and made again to the same bytes ({first})",)


def sites_of(journal: Journal, run: RunRow, now_open: Lines) -> Sites:
    """Each site's totals over all of its orders: those of the closed rounds are kept."""
    kept = journal.site_totals(run.id)
    replied = by_client(order for order in now_open if order.answered is not None)
    return {**kept, **{c: with_orders(kept.get(c, UNASKED), own) for c, own in replied.items()}}


def joined_in(journal: Journal, run: RunRow) -> Mapping[ClientId, Mapping[str, Plain]]:
    """What each site said that has joined: rows of all sites, which a look at a run under way does without."""
    return {o.client: o.facts for o in journal.orders(run.id, JOIN) if o.status is OrderStatus.ANSWERED}


def computed_by(run: RunRow, joined: Facts) -> Mapping[str, Plain] | None:
    """How a site that joined computes; of a run that does not say how to, sites tell nothing."""
    return None if run.spec.computing is None or joined is None else computed_in(joined)


def data_of(joined: Facts) -> str | None:
    """The digest of a site's data, where its owner discloses it."""
    disclosed = None if joined is None else disclosed_in(joined)
    return (disclosed.data or None) if disclosed else None


def reported_hours(spending: Spending | None) -> dict[str, Any] | None:
    """What steps took, where a reply says so."""
    return shown(spending) if spending is not None and spending.reported else None


def compared(journal: Journal, sibling: RunRow) -> Sites:
    """The reference's sites, once it has completed: before that its scores are those of another round."""
    return journal.site_totals(sibling.id) if sibling.status is Status.COMPLETED else {}


def client(run: RunRow, name: ClientId, own: SiteTotals, theirs: SiteTotals, missed: Iterable[OrderLine]) -> dict[str, Any]:
    """One site's line, from its own totals and those of the run that it is compared with."""
    samples, orders = own.metrics.get("samples"), tuple(missed)
    return {
        "name": name,
        "domain": None,
        "role": run.roster[name].value,
        "samples": None if samples is None else int(samples),
        "accuracy": own.metrics.get("accuracy"),
        "source_only": theirs.metrics.get("accuracy" if run.reference else "source_only"),
        "bytes_up": own.bytes_up,
        "bytes_down": own.bytes_down,
        "metrics": dict(own.metrics),
        "failures": [failure(run, o) for o in orders],
        "declined": next((o.failure.what for o in reversed(orders) if o.failure and o.failure.kind in OWNERS), None),
    }


def failure(run: RunRow, order: OrderLine) -> dict[str, Any]:
    fact = run.fact(order.cursor)
    return {
        "phase": fact.phase,
        "round": fact.round,
        "attempt": order.attempt,
        "kind": order.failure.kind if order.failure else "Late" if order.answered is not None else "Silent",
        "what": order.failure.what if order.failure else "no answer before the round closed",
    }


def phases(rounds: Iterable[RoundRow], totals: Mapping[int, RoundTotals], admins: bool) -> list[dict[str, Any]]:
    """The closed rounds, with the traffic of all attempts. totals: by cursor; admins: with the tables that are for them."""
    return [
        {"name": r.phase, "round": r.round, "seconds": r.closed - r.opened, "replies": len(r.folded), "clients": list(r.folded)}
        | {"marks": plain(r.marks), "groups": plain(r.groups), "tables": tables_for(r, admins)}
        | traffic(totals.get(r.cursor, NO_TOTALS))
        for r in rounds
    ]


def tables_for(closed: RoundRow, admins: bool) -> dict[str, Any]:
    """The tables of a round that are shown: to admins, all of them. `admins` and `drawn` are there where they say something."""
    shown = {name: plain(table) for name, table in closed.tables.items() if admins or not table.admins}
    return {name: {key: value for key, value in table.items() if value not in (False, "")} for name, table in shown.items()}


def groups(closed: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The last grouping that a closed round reported; None where none did. Whoever knows the domains adds how well it fits."""
    groupings = [phase["groups"] for phase in closed if phase["groups"]]
    return {"last": groupings[-1], "adjusted_rand_index": None} if groupings else None


def traffic(totals: RoundTotals) -> dict[str, int]:
    return {"asked": totals.asked, "bytes_down": totals.bytes_down, "bytes_up": totals.bytes_up}


def curve(journal: Journal, run: RunRow, totals: Mapping[int, RoundTotals], now_open: Lines) -> list[dict[str, Any]]:
    """A point for each site and scoring; for many, one for each scoring: the mean over its sites, with their number."""
    last = scores(now_open)
    if sum(each.scored for each in totals.values()) + len(last) > MOST_POINTS:
        means = {at: (each.scored, each.accuracy) for at, each in totals.items()} | {run.cursor: (len(last), mean(last))}
        return [place(run, at, None) | {"accuracy": m, "sites": n} for at, (n, m) in sorted(means.items()) if n]
    every: dict[int, Scores] = {**journal.scores(run.id), run.cursor: last}
    return [place(run, at, who) | {"accuracy": accuracy} for at, each in sorted(every.items()) for who, accuracy in each]


def measured(journal: Journal, run: RunRow) -> list[dict[str, Any]]:
    """Everything that sites measured, an entry per answered order."""
    answered = (o for o in journal.orders(run.id) if o.status is OrderStatus.ANSWERED and o.metrics)
    return [place(run, o.cursor, o.client) | {"metrics": dict(o.metrics)} for o in answered]


def place(run: RunRow, cursor: int, client: ClientId | None) -> dict[str, Any]:
    fact = run.plan[cursor]
    return {"client": client, "phase": fact.phase, "round": fact.round, "cursor": cursor}


def awaited(journal: Journal, run: RunRow, now_open: Lines, now: float) -> list[dict[str, Any]]:
    """Each site that an open run waits for, and for how many seconds nothing was heard of it; null: it never enrolled."""
    if run.status not in OPEN:
        return []
    waiting = [order for order in newest(now_open) if order.status is OrderStatus.OPEN]
    heard = journal.last_seen([order.client for order in waiting], run.project)
    return [
        {
            "client": order.client,
            "silent_seconds": max(now - max(heard[order.client], order.beat), 0.0) if order.client in heard else None,
            "progress": order.progress,
            "held": order.held,
        }
        for order in waiting
    ]


def waits(run: RunRow, journal: Journal, now_open: Lines, now: float) -> str:
    if run.status not in OPEN:
        return ""
    floor = floor_of(run, journal)
    return waits_for(progress_of(now_open), waiting_of(run, floor), run.deadline_at - now, floor)


def children_wait(verdict: Verdict | None) -> str:
    """What a rehearsal waits for before it compares."""
    if verdict is None or not verdict["unfinished"]:
        return ""
    return f"waiting for {verdict['unfinished']} runs of the rehearsal"


def sibling_waits(journal: Journal, sibling: RunRow, now: float) -> str:
    return waits(sibling, journal, journal.order_lines(sibling.id, sibling.cursor), now) if sibling.status in OPEN else ""


OWNERS = ("PolicyRefused", "ContractRefused", "BudgetExceeded")  # kinds by which an owner says no
DECLINED = "{name} takes no part: {what}"
ALONE = 0.9  # of all rows, beyond which one site is nearly the mean
NEARLY = "{name} tells {share:.1%} of all training rows, so that a mean is nearly its own: look at its count, or set shares"


def declined_notes(clients: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The sites whose owners said no, each with what they said."""
    return tuple(DECLINED.format(name=each["name"], what=each["declined"]) for each in clients if each["declined"])


def share_notes(clients: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """A site that outweighs two or more others by the number of rows that it tells."""
    counts = {each["name"]: each["samples"] for each in clients if each["samples"]}
    whole = sum(counts.values())
    if len(counts) < 3:
        return ()
    return tuple(NEARLY.format(name=name, share=n / whole) for name, n in counts.items() if n > ALONE * whole)


METRIC = "metrics."
SCORES = (Exposure.METRIC, Exposure.COUNT)  # all that a scoring sends: accuracies, and counts of rows by confidence
Step = tuple[str, str]  # of a phase of this name, the step of that name


class Shares:
    """Who was asked for more than scores in a run after the join, who gave more, and who told an accuracy with each answer.

    rounds: the closed ones. now_open: the orders of the open one. sites: their totals.
    """

    def __init__(self, run: RunRow, rounds: Sequence[RoundRow], now_open: Sequence[AnyOrder], sites: Sites) -> None:
        last = STORE_BEST, STORE_BEST  # what no site learns from, and tells nothing
        scorings = scorings_of(run.contract) | {last, (NORMALISE, NORMALISE), (CLASS_COUNTS, CLASS_COUNTS)}
        self.corrects = run.spec.scoring.prior is Prior.EM
        self.asked, self.taught, self.sites = set[ClientId](), set[ClientId](), sites
        answered = [(o.cursor, o.client) for o in now_open if o.status is OrderStatus.ANSWERED]
        answered += [(closed.cursor, client) for closed in rounds for client in closed.folded]
        self.stored = {client for cursor, client in answered if cursor != JOIN and step_of(run, cursor) == last}
        for closed in rounds:
            if closed.cursor != JOIN and step_of(run, closed.cursor) not in scorings:
                self.asked.update(closed.asked)
                self.taught.update(closed.folded)
        more = [o for o in now_open if o.cursor != JOIN and step_of(run, o.cursor) not in scorings]
        self.asked.update(o.client for o in more)
        self.taught.update(o.client for o in more if o.status is OrderStatus.ANSWERED)

    def only_scored(self, target: ClientId) -> bool:
        """Whether a target was asked for scores alone, and gave some each time, of predictions that its rows had no part in.

        An accuracy needs labels, and a target sees none of its training rows: a step that tells one looked at held-out rows.
        """
        totals = self.sites.get(target, UNASKED)
        return not self.corrects and target not in self.asked and totals.scored == totals.answered - (target in self.stored)


def generalization(run: RunRow, clients: Iterable[Mapping[str, Any]], shares: Shares) -> dict[str, Any] | None:
    """Mean accuracies in [0, 1] over the scored sites that taught, and over the unseen targets; None unless there are both.

    clients: the result's lines.
    """
    labelled = {m.id for m in run.members if m.labelled}
    own, unseen = [], []
    for client in clients:
        if client["accuracy"] is None:
            continue
        if client["role"] == Role.TARGET:
            unseen += [client["accuracy"]] if shares.only_scored(client["name"]) else []
        elif client["name"] in labelled and client["name"] in shares.taught:
            own.append(client["accuracy"])
    return {"id": mean_over(own), "ood": mean_over(unseen)} if own and unseen else None


def mean_over(accuracies: list[float]) -> dict[str, Any]:
    return {"accuracy": sum(accuracies) / len(accuracies), "sites": len(accuracies)}


def scorings_of(contract: Contract) -> frozenset[Step]:
    """The steps that declare an accuracy, and nothing that is more than a number or a count."""
    fields: dict[Step, list[Clause]] = {}
    for clause in contract:
        fields.setdefault((clause.phase, clause.step), []).append(clause)
    scored = {step for step, clauses in fields.items() if any(map(tells_accuracy, clauses))}
    return frozenset(step for step in scored if all(c.exposure in SCORES for c in fields[step]))


def tells_accuracy(clause: Clause) -> bool:
    """Whether a clause is of a metric that needs labels."""
    return clause.field.startswith(METRIC) and ACCURACY.fullmatch(clause.field.removeprefix(METRIC)) is not None


def step_of(run: RunRow, cursor: int) -> Step:
    fact = run.plan[cursor]
    return fact.phase, fact.step
