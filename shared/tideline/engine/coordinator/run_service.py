"""What users ask of the coordinator: start, read, cancel and resume runs. `enrolment` admits agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tideline.core.asked.scoring import Prior
from tideline.core.asked.wire import wire_of
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, NotFound, Refused, RosterRefused
from tideline.core.privacy import Contract
from tideline.core.rows import NO_AUGMENT
from tideline.core.run import ClientId, Digest, Role, RunId, RunSpec, Shares
from tideline.core.settings import Plain, nearest
from tideline.engine.coordinator.enrolment import Enrolment, check_client_name
from tideline.engine.coordinator.history import next_attempt
from tideline.engine.coordinator.idempotency import Identity, done_since, last_seen
from tideline.engine.coordinator.rehearsals import Child, comparing, laid_out, placed, request_of
from tideline.engine.coordinator.witness import Witness
from tideline.engine.model.access.projects import DEFAULT, EVERY, within
from tideline.engine.model.accounts import Client, Keys, Standing
from tideline.engine.model.brief import check_room
from tideline.engine.model.deletion import refusal
from tideline.engine.model.experiment import (
    Experiment,
    Reference,
    base_files,
    check_weights_digest,
    read_experiment,
    uploader,
    weights_missing,
)
from tideline.engine.model.orders import OrderRow, OrderStatus, Purpose, hashed, new_order, seed_for
from tideline.engine.model.runs import JOIN, OPEN, RunRow, Status
from tideline.engine.model.totals import newest
from tideline.engine.model.transitions import revocation
from tideline.engine.peers.relay import check_keys, seals
from tideline.engine.ports.clock import Bell, Clock
from tideline.engine.ports.compute import Compute, Draft
from tideline.engine.ports.journal import Journal, Present, all_present

CANCELLED, RESUMED = "cancelled by a person", "resumed by a person"


class RunService:
    """The service for users. What an earlier try of a request has done, a later one of the same identity leaves.

    here     whether a part's bytes are in the store: asked of weights that a run names
    witness  what outlives a restore of the journal
    """

    def __init__(
        self,
        journal: Journal,
        compute: Compute,
        bell: Bell,
        clock: Clock,
        here: Present = all_present,
        witness: Witness | None = None,
    ) -> None:
        self.journal, self.compute, self.bell, self.clock, self.here = journal, compute, bell, clock, here
        self.enrolment = Enrolment(journal, clock, witness)
        self.invite, self.invited = self.enrolment.invite, self.enrolment.invited

    def approve(self, name: str, by: str = "", session: str = "", scope: str = EVERY) -> Client:
        """Let a pending client work, or one session of a doubled one. Raises NotFound, Refused."""
        client = self.enrolment.approve(name, by, session, scope)
        self.bell.ring(f"client:{name}")
        return client

    def revoke(self, name: str, reason: str = "", by: str = "") -> Client:
        """Revoke a client, and end what it was asked for. Raises NotFound."""
        client, runs = self.enrolment.revoke(name, reason, by)
        for topic in (f"client:{name}", *(f"run:{run}" for run in runs)):
            self.bell.ring(topic)
        return client

    def rekey(self, known: Client, keys: Keys, handover: str = "") -> None:
        """Put new keys in the place of a client's; what it began with the old ones ends. Raises IdentityRefused.

        handover: the old keys' signature of the new ones, if the client gave one.
        """
        self.enrolment.rekey(known, keys, handover)
        self.bell.ring(f"client:{known.name}")

    def start(self, given: Mapping[str, Plain], identity: Identity | None = None) -> RunId:
        """Check an experiment and start it, with its reference beside it. Raises Refused errors with `context["path"]`."""
        identity = identity or Identity()
        run = identity.run
        if identity.idempotency_record and self.journal.run(run):
            return self.started(run)
        rows = self.check(given, identity)
        self.write(identity, rows, [order for row in rows for order in joins(row, self.clock.now())])
        return self.started(run)

    def check(self, given: Mapping[str, Plain], identity: Identity) -> list[RunRow]:
        """The runs that an experiment would be, of which the first is the one that is asked for. Raises as `start` does."""
        run, experiment, project = identity.run, read_experiment(given), identity.scope or DEFAULT
        self.check_initial_weights(experiment.weights, project)
        roster = self.roster(experiment, project)
        rows = self.compared(run, experiment, roster) if experiment.rehearse is None else self.rehearsed(run, experiment, roster)
        asked = Digest(hashed("experiment", experiment.asked))
        rows = [replace(row, project=project, spec=replace(row.spec, by=identity.by, experiment=asked)) for row in rows]
        rows = [row if row.parent else replace(row, spec=replace(row.spec, track=experiment.track)) for row in rows]
        self.check_peers(rows)
        return rows

    def compared(self, run: RunId, experiment: Experiment, roster: Mapping[ClientId, Role]) -> list[RunRow]:
        """A run, and its reference if it has one."""
        main = self.draft(run, experiment, roster)
        # A run whose own plan scores the source-only model needs no second run.
        scored = any(clause.field == "metrics.source_only" for clause in main.contract)
        if experiment.reference is None or scored:
            return [main]
        sibling = self.sibling(RunId(f"{run}-ref"), experiment, main, roster)
        return [replace(main, reference=sibling.id), replace(sibling, parent=run)]

    def rehearsed(self, run: RunId, experiment: Experiment, roster: Mapping[ClientId, Role]) -> list[RunRow]:
        """The run that compares, and all runs of the rehearsal."""
        laid = laid_out(run, experiment, roster, self.compute)
        main = self.draft(run, comparing(experiment, laid), roster)
        children = self.children(run, laid.children)
        name = experiment.name or "rehearsal"
        return [replace(main, name=name, spec=replace(main.spec, children=tuple(row.id for row in children))), *children]

    def children(self, run: RunId, laid: tuple[Child, ...]) -> list[RunRow]:
        """All runs of a rehearsal. Rows are normalised at the targets as they are with a labelled site fewer."""
        made, worlds = list[RunRow](), dict[str, World]()
        for each in laid:
            world = worlds.get(each.path, each.experiment.world)
            row = self.child(run, replace(each, experiment=replace(each.experiment, world=world)))
            worlds[each.path] = row.spec.world
            made.append(row)
        return made

    def child(self, run: RunId, of: Child) -> RunRow:
        """One run of a rehearsal. What is wrong with it is named at its candidate's place in the experiment."""
        with placed(of):
            row = self.draft(of.id, of.experiment, of.roster, outputs=True)
        return replace(row, parent=run, spec=replace(row.spec, rehearses=of.rehearses))

    def write(self, identity: Identity, rows: list[RunRow], orders: list[OrderRow]) -> None:
        if identity.idempotency_record:
            self.journal.create_once(identity.idempotency_record, identity.worker, rows, orders, identity.by, self.here)
        else:
            self.journal.create(rows, orders, identity.by, self.here)

    def check_initial_weights(self, weights: str, project: str = DEFAULT) -> None:
        """The file that a run is to begin from was uploaded in its project and is here; its collection is put off.

        Raises ConfigRefused.
        """
        check_weights_digest(weights)
        digest = Digest(weights)
        if weights and not (self.journal.held(((digest, 0),), *uploader(project), self.clock.now()) and self.here(digest)):
            raise weights_missing(weights)

    def started(self, run: RunId) -> RunId:
        self.announce(self.family(run))
        return run

    def sibling(self, run: RunId, experiment: Experiment, main: RunRow, roster: Mapping[ClientId, Role]) -> RunRow:
        """The reference's run. What is wrong with it is named at its own place in the experiment."""
        try:
            return self.draft(run, reference_of(experiment, main, self.compute), roster)
        except Refused as error:
            path = f"reference.{error.context.get('path', '')}".rstrip(".")
            raise type(error)(f"The reference: {error.what}", error.todo, **{**error.context, "path": path}) from error

    def announce(self, rows: list[RunRow]) -> None:
        for row in rows:
            self.bell.ring(f"run:{row.id}")
            for client in row.roster:
                self.bell.ring(f"client:{client}")

    def roster(self, experiment: Experiment, project: str) -> dict[ClientId, Role]:
        """Who is asked: sites of the project. A name that is another project's site is to this one's users nobody's."""
        roster = {ClientId(name): role for name, role in experiment.roster.items()}
        for i, selector in enumerate(experiment.select):
            ours = [c for c in self.journal.clients() if project in c.projects]
            labelled = [c for c in ours if dict(selector.labels).items() <= dict(c.labels).items()]
            found = [c for c in labelled if c.standing is Standing.APPROVED]
            if not found:
                who = "approved" if labelled else "enrolled"
                what = f"No {who} client has the labels {dict(selector.labels)}"
                raise RosterRefused(what, "See /clients", path=f"select[{i}]")
            roster = {c.name: selector.role for c in found} | roster  # a name that is written out keeps its role
        if not roster:
            raise RosterRefused("The experiment names no client", "Add roster: {NAME: source, ...} or select", path="roster")
        for name, role in roster.items():
            self.check_member(name, role, project)
        return roster

    def check_member(self, name: ClientId, role: Role, project: str) -> None:
        """A named client may be enrolled later; one that is enrolled must allow the role."""
        check_client_name(name, empty=False)
        client = self.journal.client(name)
        if client is not None and project not in client.projects:
            return
        if client is not None and client.standing is Standing.REVOKED:
            raise RosterRefused(f"{name} was {revocation(client)}", "Leave it out, or invite it again", path=f"roster.{name}")
        if client is not None and role.value not in client.roles:
            allowed = ", ".join(client.roles)
            raise RosterRefused(
                f"{name} may not be a {role.value}: its owner allows {allowed}",
                f"Give it a role that it allows, or start its agent with --role {role.value}",
                path=f"roster.{name}",
            )

    def draft(self, run: RunId, experiment: Experiment, roster: Mapping[ClientId, Role], outputs: bool = False) -> RunRow:
        """outputs: whether targets keep what is predicted. Raises Refused errors with `context["path"]`."""
        scoring = replace(experiment.scoring, outputs=outputs)
        made = self.compute.draft(request_of(experiment, roster, scoring))
        check_shares(experiment.shares, roster, made.contract)
        now = self.clock.now()
        row = RunRow(
            id=run,
            name=experiment.name or experiment.method,
            method=experiment.method,
            spec=replace(spec_of(run, experiment, made), scoring=scoring),
            roster=dict(sorted(roster.items())),
            plan=made.plan,
            contract=made.contract,
            created=now,
            deadline_at=now + experiment.waiting.deadline,
            opened=now,
        )
        if seals(made.contract):
            check_room(row)
        return row

    def check_peers(self, rows: list[RunRow]) -> None:
        """Raises RosterRefused where sites are to seal for each other and one of them has no key that this can be done with."""
        named = {name: row.project for row in rows if seals(row.contract) for name in row.roster}
        if named:
            known = (c for c in self.journal.clients() if named.get(c.name) in c.projects)
            check_keys(c for c in known if c.standing is not Standing.REVOKED)

    def cancel(self, run: RunId, identity: Identity | None = None) -> None:
        """End a run, and its reference or rehearsals. Their agents give up the steps at the next beat."""
        rows, now = self.family(run, identity.scope if identity else EVERY), self.clock.now()
        seen = last_seen(self.journal, identity, rows)
        by = identity.by if identity else ""
        among = (*OPEN, Status.STALLED)
        ended = [r for r in rows if self.journal.set_status(r.id, among, Status.CANCELLED, CANCELLED, now, by=by)]
        if not ended and not done_since(self.journal, seen, CANCELLED):
            raise Refused(f"Run {run} is {rows[0].status.value} already", "Nothing is left to cancel")
        self.announce(ended or rows)

    def resume(self, run: RunId, identity: Identity | None = None, quorum: int | None = None) -> None:
        """Ask those again who did not answer, with the same seed; what was answered stays. So for its reference or rehearsals.

        quorum: how many replies are enough from now on. Raises ConfigRefused for more than a run has sites.
        """
        rows = self.family(run, identity.scope if identity else EVERY)
        check_quorum(quorum, rows)
        seen = last_seen(self.journal, identity, rows)
        done = done_since(self.journal, seen, RESUMED)
        stalled = [r for r in rows if r.status is Status.STALLED and r.id not in done]
        if not stalled and not done:
            raise Refused(f"Run {run} is {rows[0].status.value}; only a stalled run can be resumed", "Look at its cause")
        resumed = [r for r in stalled if self.resume_one(r, identity.by if identity else "", quorum)]
        if not resumed and not done_since(self.journal, seen, RESUMED):
            raise Refused(f"Run {run} is no longer stalled", "See its state with run show")
        self.announce(resumed or rows)

    def family(self, run: RunId, scope: str = EVERY) -> list[RunRow]:
        """A run, its reference, and those of its rehearsal."""
        row = self.find(run, scope)
        return [row, *map(self.find, row.serving)]

    def resume_one(self, row: RunRow, by: str = "", quorum: int | None = None) -> bool:
        """Reissue and reopen in one transaction, so that a cancel at the same moment wins or loses as a whole."""
        now = self.clock.now()
        latest = newest(self.journal.orders(row.id, row.cursor))
        # An order that is still open stays as it is, and may be answered while this runs.
        again = [o for o in latest if o.status not in (OrderStatus.ANSWERED, OrderStatus.OPEN)]
        last = self.journal.last_answers(row.id, {o.client for o in again})
        orders = [next_attempt(o, last[o.client], now) for o in again]
        status = Status.WAITING if row.cursor == JOIN else Status.RUNNING
        deadline = now + row.spec.waiting.deadline
        return self.journal.reopen(row.id, status, RESUMED, now, deadline, orders, by, quorum)

    def find(self, run: RunId, scope: str = EVERY) -> RunRow:
        """A run that is seen in this scope. Raises NotFound, the same for one that is another project's."""
        row = self.journal.run(run)
        if row is None and (deleted := self.journal.tombstone(run)) is not None and within(scope, deleted.project):
            raise refusal(deleted)
        if row is None or not within(scope, row.project):
            raise NotFound(f"There is no run {run!r}", f"See the list of runs{nearest(run, self.journal.run_ids(scope))}")
        return row


def check_quorum(quorum: int | None, rows: Sequence[RunRow]) -> None:
    """Raises ConfigRefused."""
    sites = len(rows[0].roster)
    if quorum is not None and not 1 <= quorum <= sites:
        what = f"min_replies is {quorum}, and run {rows[0].id} has {sites} sites"
        raise ConfigRefused(what, f"Say a number from 1 to {sites}", path="min_replies")


def check_shares(shares: Shares, roster: Mapping[ClientId, Role], contract: Contract) -> None:
    """Raises ConfigRefused for counts of a site that the run does not name, and where nothing is weighed by them."""
    if strangers := sorted(set(shares.counts) - set(roster)):
        what, path = f"shares.counts names {strangers[0]!r}, who is not in the roster", f"shares.counts.{strangers[0]}"
        raise ConfigRefused(what, f"Name sites of the run{nearest(strangers[0], sorted(roster))}", path=path)
    if shares != Shares() and all(clause.field != "metrics.samples" for clause in contract):
        what = "shares is given, and no site of this method tells how many rows its replies are of"
        raise ConfigRefused(what, "Leave shares out", path="shares")


def joins(row: RunRow, now: float) -> list[OrderRow]:
    seeds = {client: seed_for(row.spec.seed, Purpose.PREPARE, JOIN, client) for client in row.roster}
    return [new_order(row.id, JOIN, client, base_files(row.spec), seed, JOIN - 1, now) for client, seed in seeds.items()]


def spec_of(run: RunId, experiment: Experiment, made: Draft) -> RunSpec:
    return RunSpec(
        id=run,
        method=experiment.method,
        config=made.config,
        world=made.world,
        seed=experiment.seed,
        contract=made.digest,
        keeps=made.keeps,
        waiting=experiment.waiting,
        notes=made.notes,
        kept=made.kept,
        admins=made.admins,
        checkpoint_every=experiment.checkpoint_every,
        threads=experiment.threads,
        initial_weights=made.initial_weights,
        initial_weights_bytes=made.initial_weights_bytes,
        sampling=experiment.sampling,
        network=made.network,
        scoring=experiment.scoring,
        shares=experiment.shares,
        augment=experiment.augment,
        computing=experiment.computing,
        wire=wire_of(experiment.wire),
        privacy=made.privacy,
        epsilon=made.epsilon,
        charges=made.charges,
        secure_sums=experiment.sums,
    )


def reference_of(experiment: Experiment, main: RunRow, compute: Compute) -> Experiment:
    """The experiment to compare with: the reference's method, with the settings that both methods have.

    It begins from the same weights if its method takes any, or if they are to be frozen; else as it always does. It is sampled
    alike, if its method may be, and has images changed alike, if sites train on them. It corrects no predictions: that is an
    adaptation.
    """
    reference = experiment.reference
    assert isinstance(reference, Reference)
    described = compute.describe(reference.method)
    names, weights = (
        {s.name for s in described.settings},
        experiment.weights if described.weights or main.spec.world.frozen else "",
    )
    shared = {k: v for k, v in main.spec.config.items() if k in names}
    roles = {"roles": [r.value for r in reference.roles]} if "roles" in names else {}
    config = {**shared, **roles, **reference.config}
    same = replace(experiment, method=reference.method, preset=None, reference=None, world=main.spec.world, prior=Prior.SOURCE)
    sample = experiment.sample if described.sample else None
    same = same if described.augments else replace(same, augment=NO_AUGMENT)
    return replace(same, name=f"{main.name} reference", config=config, weights=weights, sample=sample)
