"""What people ask of the coordinator: invite, enrol, start, look, cancel, resume."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tideline.core.errors import ConfigRefused, IdentityRefused, NotFound, Refused, RosterRefused
from tideline.core.run import ClientId, Role, RunId
from tideline.core.settings import nearest, plain
from tideline.engine.errands import Identity, done_since, last_seen
from tideline.engine.experiment import Experiment, Reference, read_experiment
from tideline.engine.ports import Bell, Clock, Journal, Mill
from tideline.engine.progress import newest
from tideline.engine.rows import JOIN, OPEN, Client, Invite, OrderRow, OrderStatus, PhaseFact, RunRow, Status
from tideline.engine.seeds import Purpose, order_id, seed_for

CANCELLED, RESUMED = "cancelled by a person", "resumed by a person"
PROVEN_SECONDS = 60.0  # for so long a credential that was good is good without a look at the journal; it never changes


class Office:
    """The people's side of the desk. What an earlier try of a request has done, a later one of the same identity leaves."""

    def __init__(self, journal: Journal, mill: Mill, bell: Bell, clock: Clock) -> None:
        self.journal, self.mill, self.bell, self.clock = journal, mill, bell, clock
        self._proven: dict[ClientId, tuple[str, float]] = {}

    def invite(self, name: str, labels: Mapping[str, str], ttl: float, identity: Identity | None = None) -> str:
        """A one-use token, shown once and stored hashed. Raises ConfigRefused."""
        token = (identity or Identity()).token
        if identity and self.journal.invite(secret_hash(token)):
            return token
        check_client_name(name)
        if name and self.journal.client(name):
            raise Refused(f"A client named {name!r} is enrolled already", "Invite under another name")
        if not 0 < ttl <= 366 * 86400:
            raise ConfigRefused(f"A lifetime of {ttl:g} s is out of range", "Give between a second and a year", path="ttl")
        self.journal.add_invite(Invite(secret_hash(token), name, dict(labels), self.clock.now() + ttl))
        return token

    def invited(self, token: str) -> Invite:
        """The invite of a token. Raises IdentityRefused."""
        invite = self.journal.invite(secret_hash(token))
        if invite is None:
            raise IdentityRefused("The token is not known here", "Ask for a new one: tideline invite --name NAME")
        return invite

    def enrol(self, token: str, name: str, credential: str, roles: tuple[str, ...], version: str) -> Client:
        """Admit an agent. Repeating it with the same credential changes nothing, so a killed agent starts again the same way."""
        check_client_name(name, empty=False)
        known = self.journal.client(name)
        if known is not None:
            return self.again(known, credential, roles, version)
        return self.first(token, name, credential, roles, version)

    def again(self, known: Client, credential: str, roles: tuple[str, ...], version: str) -> Client:
        """An enrolled agent that came back."""
        if not hmac.compare_digest(known.credential_hash, secret_hash(credential)):
            raise IdentityRefused(
                f"The name {known.name!r} belongs to another agent",
                "Start with the home directory that enrolled under this name, or enrol under another name",
            )
        self.journal.saw(known.name, self.clock.now(), version, roles)
        return replace(known, version=version, roles=roles)

    def first(self, token: str, name: str, credential: str, roles: tuple[str, ...], version: str) -> Client:
        """A new agent with its token."""
        hashed, now, invite = secret_hash(token), self.clock.now(), self.invited(token)
        if invite.used_by:
            raise IdentityRefused(f"The token was used by {invite.used_by!r}", "A token serves once; ask for a new one")
        if invite.expires <= now:
            raise IdentityRefused(f"The token expired {now - invite.expires:.0f} s ago", "Ask for a new one: tideline invite")
        if invite.name and invite.name != name:
            raise IdentityRefused(f"The token is for {invite.name!r}, not {name!r}", f"Start the agent with --name {invite.name}")
        client = Client(ClientId(name), secret_hash(credential), roles, invite.labels, version, now, now)
        if not self.journal.enrol(hashed, client):
            raise IdentityRefused("The token or the name was taken a moment ago", "Ask for a new token")
        return client

    def authenticate(self, name: str, credential: str) -> ClientId:
        """The client that a credential proves."""
        client, hashed = self.journal.client(name), secret_hash(credential)
        if client is None or not hmac.compare_digest(client.credential_hash, hashed):
            raise IdentityRefused(f"The credential is not that of {name!r}", "Enrol this agent again with a new token")
        self._proven[client.name] = (hashed, self.clock.now())
        return client.name

    def proven(self, name: str, credential: str) -> ClientId | None:
        """The client, if this credential was good a short while ago. Asks nobody: hundreds of agents call all the time."""
        client = ClientId(name)
        hashed, at = self._proven.get(client, ("", 0.0))
        fresh = 0.0 <= self.clock.now() - at < PROVEN_SECONDS
        return client if fresh and hmac.compare_digest(hashed, secret_hash(credential)) else None

    def start(self, given: Mapping[str, Any], identity: Identity | None = None) -> RunId:
        """Check an experiment and start it, with its reference beside it. Raises Refused errors with `context["path"]`."""
        identity = identity or Identity()
        run = identity.run
        if identity.errand and self.journal.run(run):
            return self.started(run)
        experiment = read_experiment(given)
        roster = self.roster(experiment)
        main = self.draft(run, experiment, roster)
        rows = [main]
        if experiment.reference is not None and not tells_source_only(main):
            sibling = self.sibling(RunId(f"{run}-ref"), experiment, main, roster)
            main = replace(main, reference=sibling.id)
            rows = [main, replace(sibling, reference_of=run)]
        self.write(identity, rows, [order for row in rows for order in joins(row, self.clock.now())])
        return self.started(run)

    def write(self, identity: Identity, rows: list[RunRow], orders: list[OrderRow]) -> None:
        """Write new runs. What another try has written meanwhile stays as it is."""
        if identity.errand:
            self.journal.create_once(identity.errand, identity.worker, rows, orders)
        else:
            self.journal.create(rows, orders)

    def started(self, run: RunId) -> RunId:
        """A run that is there; an earlier try may have died before it rang."""
        self.ring(self.with_reference(run))
        return run

    def sibling(self, run: RunId, experiment: Experiment, main: RunRow, roster: Mapping[ClientId, Role]) -> RunRow:
        """The reference's run. What is wrong with it is named at its own place in the experiment."""
        try:
            return self.draft(run, reference_of(experiment, main, self.mill), roster)
        except Refused as error:
            path = f"reference.{error.context.get('path', '')}".rstrip(".")
            raise type(error)(f"The reference: {error.what}", error.todo, **{**error.context, "path": path}) from error

    def ring(self, rows: list[RunRow]) -> None:
        """Wake the clients that a run asks for, and its conductor."""
        for row in rows:
            self.bell.ring(f"run:{row.id}")
            for client in row.roster:
                self.bell.ring(f"client:{client}")

    def roster(self, experiment: Experiment) -> dict[ClientId, Role]:
        """Who takes part, by name and by label."""
        roster = {ClientId(name): role for name, role in experiment.roster.items()}
        for i, selector in enumerate(experiment.select):
            found = [c for c in self.journal.clients() if dict(selector.labels).items() <= dict(c.labels).items()]
            if not found:
                raise RosterRefused(
                    f"No enrolled client has the labels {dict(selector.labels)}", "See /clients", path=f"select[{i}]"
                )
            roster = {c.name: selector.role for c in found} | roster  # a name that is written out keeps its role
        if not roster:
            raise RosterRefused("The experiment names no client", "Add roster: {NAME: source, ...} or select", path="roster")
        for name, role in roster.items():
            self.check_member(name, role)
        return roster

    def check_member(self, name: ClientId, role: Role) -> None:
        """A named client may be enrolled later; one that is enrolled must allow the role."""
        check_client_name(name, empty=False)
        client = self.journal.client(name)
        if client is not None and role.value not in client.roles:
            allowed = ", ".join(client.roles)
            raise RosterRefused(
                f"{name} may not be a {role.value}: its owner allows {allowed}",
                f"Give it a role that it allows, or start its agent with --role {role.value}",
                path=f"roster.{name}",
            )

    def draft(self, run: RunId, experiment: Experiment, roster: Mapping[ClientId, Role]) -> RunRow:
        """The run's row, if the method can use what was asked for."""
        assumed = [{"id": n, "role": r.value, "labelled": r is not Role.TARGET} for n, r in sorted(roster.items())]
        made = self.mill.call(
            "draft",
            {
                "method": experiment.method,
                "preset": experiment.preset,
                "config": plain(experiment.config),
                "world": plain(experiment.world),
                "roster": assumed,
            },
        )
        now = self.clock.now()
        spec = {
            "id": run,
            "method": experiment.method,
            "config": made["config"],
            "world": made["world"],
            "seed": experiment.seed,
            "contract": made["digest"],
            "keeps": made["keeps"],
            "notes": made["notes"],
            "waiting": plain(experiment.waiting),
            "checkpoint_every": experiment.checkpoint_every,
            "threads": experiment.threads,
        }
        return RunRow(
            run,
            experiment.name or experiment.method,
            experiment.method,
            spec,
            {n: r.value for n, r in sorted(roster.items())},
            tuple(PhaseFact(**fact) for fact in made["plan"]),
            tuple(made["contract"]),
            now,
            now + experiment.waiting.deadline,
            opened=now,
        )

    def cancel(self, run: RunId, identity: Identity | None = None) -> None:
        """End a run and its reference. Their agents give up the steps at the next beat."""
        rows, now = self.with_reference(run), self.clock.now()
        seen = last_seen(self.journal, identity, rows)
        ended = [r for r in rows if self.journal.settle(r.id, (*OPEN, Status.STALLED), Status.CANCELLED, CANCELLED, now)]
        if not ended and not done_since(self.journal, seen, CANCELLED):
            raise Refused(f"Run {run} is {rows[0].status.value} already", "Nothing is left to cancel")
        self.ring(ended or rows)

    def resume(self, run: RunId, identity: Identity | None = None) -> None:
        """Ask those again who did not answer, with the same seed; what was answered stays. The run's reference likewise."""
        rows = self.with_reference(run)
        seen = last_seen(self.journal, identity, rows)
        done = done_since(self.journal, seen, RESUMED)
        stalled = [r for r in rows if r.status is Status.STALLED and r.id not in done]
        if not stalled and not done:
            raise Refused(f"Run {run} is {rows[0].status.value}; only a stalled run can be resumed", "Look at its cause")
        resumed = [r for r in stalled if self.resume_one(r)]
        if not resumed and not done_since(self.journal, seen, RESUMED):
            raise Refused(f"Run {run} is no longer stalled", "See its state with run show")
        self.ring(resumed or rows)

    def with_reference(self, run: RunId) -> list[RunRow]:
        """A run, and the run that it is compared with."""
        row = self.find(run)
        return [row] if row.reference is None else [row, self.find(row.reference)]

    def resume_one(self, row: RunRow) -> bool:
        """Reissue and reopen in one transaction, so that a cancel at the same moment wins or loses as a whole."""
        now = self.clock.now()
        latest = newest(self.journal.orders(row.id, row.cursor))
        # An order that is still open stays as it is, and may be answered while this runs.
        again = [o for o in latest if o.status not in (OrderStatus.ANSWERED, OrderStatus.OPEN)]
        orders = [self.next_attempt(o, now) for o in again]
        status = Status.WAITING if row.cursor == JOIN else Status.RUNNING
        deadline = now + float(row.spec["waiting"]["deadline"])
        return self.journal.reopen(row.id, status, RESUMED, now, deadline, orders)

    def next_attempt(self, order: OrderRow, now: float) -> OrderRow:
        """The same order once more: same seed, new name."""
        attempt = order.attempt + 1
        name = order_id(order.run, order.cursor, order.client, attempt)
        after = self.journal.last_answer(order.run, order.client)
        return OrderRow(name, order.run, order.cursor, attempt, order.client, order.files, order.seed, after, now)

    def find(self, run: RunId) -> RunRow:
        """A run by id. Raises NotFound."""
        row = self.journal.run(run)
        if row is None:
            raise NotFound(f"There is no run {run!r}", f"See the list of runs{nearest(run, self.journal.run_ids())}")
        return row


def joins(row: RunRow, now: float) -> list[OrderRow]:
    """The orders of the exchange before the first phase."""
    return [
        OrderRow(
            order_id(row.id, JOIN, client, 1),
            row.id,
            JOIN,
            1,
            client,
            (),
            seed_for(row.spec["seed"], Purpose.SETTLE, JOIN, client),
            JOIN - 1,
            now,
        )
        for client in row.roster
    ]


def reference_of(experiment: Experiment, main: RunRow, mill: Mill) -> Experiment:
    """The experiment to compare with: the reference's method, with the settings that both methods have."""
    reference = experiment.reference
    assert isinstance(reference, Reference)
    names = {s["name"] for s in mill.call("describe", {"method": reference.method})["settings"]}
    shared = {k: v for k, v in main.spec["config"].items() if k in names}
    roles = {"roles": [r.value for r in reference.roles]} if "roles" in names else {}
    config = {**shared, **roles, **reference.config}
    return replace(experiment, method=reference.method, name=f"{main.name} reference", preset=None, config=config, reference=None)


def tells_source_only(run: RunRow) -> bool:
    """Whether the run's own plan scores the source-only model, so that no second run is needed."""
    return any(clause["field"] == "metrics.source_only" for clause in run.contract)


def secret_hash(secret: str) -> str:
    """Secrets are random and long, so one SHA-256 is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


def check_client_name(name: str, empty: bool = True) -> None:
    """Names are 1 to 64 letters, digits, dots, dashes and underscores (or empty, in an invite that lets the client choose)."""
    good = all(c.isascii() and (c.isalnum() or c in "._-") for c in name) and (empty or name) and len(name) <= 64
    if not good or name.startswith("."):
        raise ConfigRefused(
            f"{name[:80]!r} cannot name a client", "Use up to 64 letters, digits, dots, dashes, underscores", path="name"
        )
