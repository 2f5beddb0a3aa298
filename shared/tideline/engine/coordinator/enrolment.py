"""Who is admitted: invitations, enrolment, and what becomes of a client afterwards. Signatures are checked at the gRPC port."""

from __future__ import annotations

import hashlib
import hmac
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tideline.archive import sealing
from tideline.core.errors import ConfigRefused, IdentityRefused, Malformed, NotFound, Refused, Unreachable
from tideline.core.run import ClientId, Role
from tideline.core.settings import nearest
from tideline.core.tokens import secret_of
from tideline.engine.audit.log import Tip
from tideline.engine.coordinator.idempotency import Identity
from tideline.engine.coordinator.witness import Witness
from tideline.engine.model.access.projects import DEFAULT, EVERY, shares
from tideline.engine.model.accounts import (
    NAME,
    NO_SESSION,
    Client,
    Invite,
    Keys,
    Session,
    ShownLedger,
    Standing,
    session_in,
)
from tideline.engine.model.transitions import revocation
from tideline.engine.ports.clock import Clock
from tideline.engine.ports.journal import Journal

AHEAD_SECONDS = 2.0  # after which rows that are asked for are read again, beside the calls that go on with the old ones
FRESH_SECONDS = 5.0  # for so long a client's row is good without a look at the journal, where another coordinator may change it
LATE_SECONDS = 5.0  # for so long after an agent has started again, calls of its last start may still come
MOST_VERSION, MOST_SECRET = 80, 4096  # characters that an applicant may bring; a whole token has fewer than 3000


@dataclass(frozen=True)
class Applicant:
    """An agent that enrols or comes back. keys: proven by its signature, of the time `signed`; session: that of its start;
    device: what it computes on; empty: it does not say.
    """

    name: str
    roles: tuple[str, ...]
    version: str
    keys: Keys
    session: Session = NO_SESSION
    signed: float = math.inf
    device: str = ""


class Enrolment:
    """The clients of a federation, read at most every few seconds. Any number of threads.

    Rows are read all at once, as many clients call all the time. What changes here is seen here at once: what was read of a
    client before it was changed, or meanwhile, counts no more. Nobody waits for the change of another.
    """

    def __init__(self, journal: Journal, clock: Clock, witness: Witness | None = None) -> None:
        self.journal, self.clock = journal, clock
        self.witness = witness or Witness(journal, clock)
        self.noticed: Callable[[Client], object] = lambda client: None  # hears of each client that is doubled from now on
        self.differing: Callable[[Client], object] = lambda client: None  # and of each whose ledger is not as it reported it
        self._turn = threading.Lock()  # never held while the journal is asked
        self._reading = threading.Lock()  # one reads everybody's rows for all who want them
        self._known: dict[ClientId, Client | None] = {}  # None: changed here since it was read
        self._read = -math.inf
        self._changes = 0
        self._changed: dict[ClientId, int] = {}  # the number of each client's last change here

    # Invitations

    def invite(
        self, name: str, labels: Mapping[str, str], ttl: float, identity: Identity | None = None, hold: bool = False
    ) -> str:
        """A one-use secret, stored hashed. hold: whom it admits is pending first. Raises ConfigRefused, Refused."""
        secret = (identity or Identity()).token
        if identity and self.journal.invite(secret_hash(secret)):
            return secret
        check_client_name(name)
        scope = identity.scope if identity else EVERY
        known = self.journal.client(name) if name else None
        if known is not None and shares(scope, known.projects) and known.standing is not Standing.REVOKED:
            raise Refused(f"A client named {name!r} is enrolled already", "Invite under another name")
        if not 0 < ttl <= 366 * 86400:
            raise ConfigRefused(f"A lifetime of {ttl:g} s is out of range", "Give between a second and a year", path="ttl")
        made, by = self.clock.now(), identity.by if identity else ""
        invite = Invite(
            token_hash=secret_hash(secret),
            name=name,
            labels=dict(labels),
            expires=made + ttl,
            hold=hold,
            project=scope or DEFAULT,
        )
        self.journal.add_invite(invite, by, made)
        return secret

    def invited(self, token: str) -> Invite:
        """The invite of a token or of its secret. Raises IdentityRefused."""
        invite = self.journal.invite(secret_hash(secret_of(token)))
        if invite is None:
            raise IdentityRefused("The token is not known here", "Ask for a new one: tideline invite --name NAME")
        return invite

    # Enrolment

    def admit(self, token: str, who: Applicant) -> Client:
        """Admit an agent. Repeating it changes nothing: a killed agent starts again the same way. Raises IdentityRefused."""
        check_applicant(token, who)
        known = self.journal.client(who.name)
        if known is None or (known.standing is Standing.REVOKED and self.usable(token, known)):
            return self.first(token, who)
        return self.again(known, who)

    def usable(self, token: str, known: Client) -> bool:
        invite = self.journal.invite(secret_hash(secret_of(token))) if token else None
        return invite is not None and not invite.used_by and invite.name == known.name

    def would(self, token: str, who: Applicant) -> str:
        """What `admit` would come to: the client's standing, or `invited`. Nothing is changed. Raises as it does."""
        check_applicant(token, who)
        known = self.journal.client(who.name)
        if known is not None and not (known.standing is Standing.REVOKED and self.usable(token, known)):
            self.same(known, who)
            return known.standing.value
        self.fitting(token, who)
        return "invited"

    def first(self, token: str, who: Applicant) -> Client:
        invite = self.fitting(token, who)
        client = newcomer(invite, who, self.clock.now())
        with self._changing(client.name):
            if not self.journal.enrol(invite.token_hash, client):
                raise IdentityRefused("The token or the name was taken a moment ago", "Ask for a new token")
        self.witness.seal()
        return client

    def fitting(self, token: str, who: Applicant) -> Invite:
        now, invite = self.clock.now(), self.invited(token)
        if invite.used_by:
            raise IdentityRefused(f"The token was used by {invite.used_by!r}", "A token serves once; ask for a new one")
        if invite.expires <= now:
            raise IdentityRefused(f"The token expired {now - invite.expires:.0f} s ago", "Ask for a new one: tideline invite")
        if invite.name and invite.name != who.name:
            what = f"The token is for {invite.name!r}, not {who.name!r}"
            raise IdentityRefused(what, f"Start the agent with --name {invite.name}")
        return invite

    def again(self, known: Client, who: Applicant) -> Client:
        """An enrolled agent that came back."""
        self.same(known, who)
        if self.witness.behind:
            self.witness.seal()
        self.journal.saw(known.name, self.clock.now(), who.version, who.roles, who.device)
        return self.in_session(self.read(known.name), who.session, who.signed)

    def in_session(self, known: Client, session: Session, signed: float) -> Client:
        """A client that calls from a session of its agent; another than the last may show that it is doubled.

        signed: when it was signed. What an agent sent before it was killed may come after its next start: it is put off, as
        Unreachable. Raises IdentityRefused for a session that was not let go on.
        """
        if session == known.current:
            return known
        if session.id and session.id in known.shut:
            what = f"Another agent with the keys of {known.name!r} was let go on, and this session {session} was not"
            raise IdentityRefused(what, "This home is a copy, or an old one: enrol under another name, with a home of its own")
        if session.count < known.session and signed < known.session_began + LATE_SECONDS:
            raise Unreachable(f"A later session of {known.name!r} has begun", "If that is another agent, both are held soon")
        with self._changing(known.name):
            new = self.journal.begin_session(known.name, session, self.clock.now())
        found = self.read(known.name)
        if new:
            self.noticed(found)
        return found

    def doubled(self) -> int:
        """How many clients are doubled, as it was a short while ago."""
        self._refresh()
        return sum(each is not None and each.standing is Standing.DOUBLED for each in tuple(self._known.values()))

    def reported(self, name: str) -> Tip:
        """The last entry of its ledger that a client reported; the beginning of one that is none, or is revoked."""
        known = self.journal.client(name)
        return Tip() if known is None or known.standing is Standing.REVOKED else known.reported

    def show_ledger(self, name: ClientId, shown: ShownLedger) -> None:
        """Compare a client's ledger with what it reported."""
        with self._changing(name):
            differs = self.journal.show_ledger(name, shown, self.clock.now())
        if differs:
            self.differing(self.read(name))

    def differ(self) -> int:
        """How many clients' ledgers are not as they were reported, as it was a short while ago."""
        self._refresh()
        return sum(each is not None and each.ledger_now is not None for each in tuple(self._known.values()))

    def same(self, known: Client, who: Applicant) -> None:
        """Raises IdentityRefused for an agent that is not the one that enrolled, or that was revoked."""
        if known.standing is Standing.REVOKED:
            raise barred(known)
        if not hmac.compare_digest(known.keys.sign + known.keys.receive, who.keys.sign + who.keys.receive):
            raise IdentityRefused(
                f"The name {known.name!r} belongs to another agent",
                "Start with the home directory that enrolled under this name, or enrol under another name",
            )

    def rekey(self, known: Client, keys: Keys, handover: str = "") -> None:
        """Bind new keys to a client. Raises IdentityRefused if another call did so meanwhile, Malformed for what are no keys."""
        check_receives(keys)
        with self._changing(known.name):
            if not self.journal.rekey(known.name, known.sign_key, keys, self.clock.now(), handover):
                raise IdentityRefused(f"The keys of {known.name!r} were changed a moment ago", "Start the agent again")
        self.witness.seal()

    # Who calls

    def cached(self, name: str) -> Client | None:
        """A client's row, if it was read a short while ago. Asks nobody: hundreds of agents call all the time."""
        return self._known.get(ClientId(name)) if self._fresh() else None

    def knew(self, name: str) -> bool:
        """Whether a name was a client's that is let in, however long ago rows were read. Asks nobody, and proves nothing."""
        found = self._known.get(ClientId(name))
        return found is not None and found.standing is not Standing.REVOKED

    def recent(self, name: str) -> Client | None:
        """A client's row as it was a short while ago, or after its last change here. None of a name that nobody had then."""
        self._refresh()
        who, known = ClientId(name), self._known
        found = known.get(who)
        return self._read_one(who) if found is None and who in known else found

    def read(self, name: str, anew: bool = True) -> Client:
        """A client's row; anew: from the journal, whatever was read before. Raises IdentityRefused for a name that nobody has."""
        found = (None if anew else self.recent(name)) or self._read_one(ClientId(name))
        if found is None:
            raise IdentityRefused(f"{name[:80]!r} is not enrolled here", "Enrol this agent with a token: tideline invite")
        return found

    def _read_one(self, name: ClientId) -> Client | None:
        before = self._changes
        found = self.journal.client(name)
        with self._turn:
            if found is not None and self._changed.get(name, 0) <= before:
                self._known[name] = found
        return found

    def ageing(self) -> bool:
        """Whether rows should be read again soon, so that no call has to wait for that. Asks nobody."""
        return not self._fresh(AHEAD_SECONDS)

    def read_ahead(self) -> None:
        self._refresh(AHEAD_SECONDS)

    def _refresh(self, due: float = FRESH_SECONDS) -> None:
        if self._fresh(due):
            return
        with self._reading:
            if self._fresh(due):
                return
            before, now = self._changes, self.clock.now()
            rows: dict[ClientId, Client | None] = {each.name: each for each in self.journal.clients()}
            with self._turn:
                newer = {name: row for name, row in self._known.items() if self._changed.get(name, 0) > before}
                self._known = rows | newer
                self._read = now

    @contextmanager
    def _changing(self, name: ClientId) -> Iterator[None]:
        """A write about a client. Also one that failed may have been done: the client is read anew."""
        try:
            yield
        finally:
            with self._turn:
                self._changes += 1
                self._changed[name] = self._changes
                self._known[name] = None

    def _fresh(self, seconds: float = FRESH_SECONDS) -> bool:
        return 0.0 <= self.clock.now() - self._read < seconds

    # What users decide

    def approve(self, name: str, by: str = "", session: str = "", scope: str = EVERY) -> Client:
        """Let a pending client work, or one session of a doubled one; one that is approved stays so.

        Raises NotFound, Refused for a revoked one, and for a doubled one without one of its sessions.
        """
        known = self.find_admitted(name, scope)
        chosen = session_in(session)
        if known.standing is Standing.DOUBLED and (not session or chosen is None or session not in known.doubles):
            each = " or ".join(f"tideline clients approve {name} --session {it}" for it in known.doubles if it)
            what = f"{name} is doubled: which of its sessions is to go on is not said"
            raise Refused(what, f"Find it in the log of the agent that is the right one, then: {each}")
        with self._changing(known.name):
            if chosen is not None and known.standing is Standing.DOUBLED:
                self.journal.let_on(known.name, chosen, by, self.clock.now())
            else:
                self.journal.approve(known.name, by, self.clock.now())
        return self.find(name)

    def revoke(self, name: str, reason: str, by: str = "") -> tuple[Client, tuple[str, ...]]:
        """Stop admitting a client: its row, and the runs in which it was asked for something. Twice is as good as once."""
        known = self.find(name)
        with self._changing(known.name):
            ended = self.journal.revoke(known.name, " ".join(reason.split())[:1000], self.clock.now(), by)
        self.witness.seal()
        return self.find(name), tuple(dict.fromkeys(str(order.run) for order in ended))

    def ask_rotation(self, name: str, by: str = "") -> Client:
        """Ask a client for new keys at its next sign of life. Raises NotFound, Refused for one that is revoked."""
        known = self.find_admitted(name)
        with self._changing(known.name):
            self.journal.ask_rotation(known.name, by, self.clock.now())
        return self.find(name)

    def find_admitted(self, name: str, scope: str = EVERY) -> Client:
        """A client by name that is not revoked. Raises NotFound, Refused."""
        known = self.find(name, scope)
        if known.standing is Standing.REVOKED:
            raise Refused(f"{name} was {revocation(known)}", f"Invite it again: tideline invite --name {name}")
        return known

    def find(self, name: str, scope: str = EVERY) -> Client:
        """A client that is seen in this scope. Raises NotFound, the same for one that serves other projects alone."""
        known = self.journal.client(name)
        if known is None or not shares(scope, known.projects):
            names = [each.name for each in self.journal.clients() if shares(scope, each.projects)]
            raise NotFound(f"There is no client {name!r}", f"See the list of clients{nearest(name, names)}")
        return known


def newcomer(invite: Invite, who: Applicant, now: float) -> Client:
    return Client(
        name=ClientId(who.name),
        roles=who.roles,
        labels=invite.labels,
        version=who.version,
        enrolled=now,
        seen=now,
        sign_key=who.keys.sign,
        receive_key=who.keys.receive,
        standing=Standing.PENDING if invite.hold else Standing.APPROVED,
        session=who.session.count,
        session_id=who.session.id,
        session_began=now,
        projects=(invite.project,),
        device=who.device or None,
    )


def admitted(known: Client) -> Client:
    """A client that may work. Raises IdentityRefused for one that is pending or revoked, Unreachable for one that is doubled."""
    if known.standing is Standing.REVOKED:
        raise barred(known)
    if known.standing is Standing.DOUBLED:
        raise held(known)
    if known.standing is Standing.PENDING:
        what = f"{known.name!r} waits for approval"
        raise IdentityRefused(what, f"Compare its fingerprint, then: tideline clients approve {known.name}")
    return known


def held(known: Client) -> Unreachable:
    """What an agent waits out: it goes on as it is, once somebody has decided."""
    what = f"{known.name!r} is held: two agents show its keys, or one whose home is older than it was"
    return Unreachable(what, "Ask whoever runs the coordinator which one goes on (tideline clients list); stop the other one")


def barred(known: Client) -> IdentityRefused:
    return IdentityRefused(f"{known.name!r} was {revocation(known)}", "Ask whoever runs the coordinator for a new invitation")


def secret_hash(secret: str) -> str:
    """Secrets are random and long, so one SHA-256 is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


def check_client_name(name: str, empty: bool = True) -> None:
    """Names are 1 to 64 letters, digits, dots, dashes and underscores (or empty, in an invite that lets the client choose)."""
    if not (NAME.fullmatch(name) or (empty and not name)):
        what = f"{name[:80]!r} cannot name a client"
        raise ConfigRefused(what, "Use up to 64 letters, digits, dots, dashes, underscores", path="name")


def check_applicant(token: str, who: Applicant) -> None:
    """What an agent says of itself is kept, so it has bounds. Raises ConfigRefused for its name, Malformed for the rest."""
    check_client_name(who.name, empty=False)
    check_receives(who.keys)
    odd = next((role for at, role in enumerate(who.roles) if role not in tuple(Role) or role in who.roles[:at]), None)
    if odd is not None:
        what = f"The enrolment names a role that there is not, or one twice: {odd[:40]!r}"
        raise Malformed(what, f"Name some of {', '.join(Role)}, each once")
    if len(who.version) > MOST_VERSION or not who.version.isprintable():
        what = f"The enrolment's version has {len(who.version)} characters, or some that cannot be printed"
        raise Malformed(what, f"Send at most {MOST_VERSION} that can")
    if len(who.device) > MOST_VERSION or not who.device.isprintable():
        what = f"The enrolment's device has {len(who.device)} characters, or some that cannot be printed"
        raise Malformed(what, f"Send at most {MOST_VERSION} that can")
    if len(token) > MOST_SECRET:
        raise Malformed(f"The enrolment's token has {len(token)} characters", f"Send at most {MOST_SECRET}")


def check_receives(keys: Keys) -> None:
    """Raises Malformed for a public key to receive of low order: what is sealed to it, anybody could open."""
    if not sealing.receives(bytes.fromhex(keys.receive)):
        raise Malformed(
            f"The key to receive (X25519) {keys.receive[:8]} is none, or of low order: anybody could open what is sealed to it",
            "Let the agent make its keys by itself: it makes no such ones",
        )
