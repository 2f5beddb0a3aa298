"""Who calls: the signature of each call, and a certificate where one is asked for."""

from __future__ import annotations

import base64
import binascii
import functools
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tideline.core.errors import ClockRefused, FederationError, IdentityRefused, Malformed, Unreachable, VersionRefused
from tideline.core.signing import KEY_BYTES, OLDEST, PROTOCOL, WINDOW_SECONDS, call_bytes
from tideline.engine.coordinator.enrolment import Enrolment, admitted
from tideline.engine.model.accounts import NO_SESSION, Client, Keys, Session, session_in
from tideline_protos.v1 import federation_pb2 as pb
from tideline_server.limits import Limits, address_of
from tideline_server.rpc.certificates import Certificates
from tideline_server.rpc.wire import Context, method

log = structlog.get_logger()
Run = Callable[..., Awaitable[Any]]
ENROL_FIRST = "Enrol this agent first"
BESIDE = frozenset({"Probe"})  # what `tideline doctor` calls beside a running agent; nothing of it stays


@dataclass(frozen=True)
class Proof:
    """What a call's metadata say of its caller."""

    client: str
    time_ms: int
    signature: bytes
    session: Session = NO_SESSION


class Rekeyed(Unreachable):
    """The client has other keys by now than those that began a call. To an agent it is an outage: it calls again."""

    @property
    def kind(self) -> str:
        """Known by its base to whoever is told."""
        return Unreachable.__name__


class Callers:
    """Proves who calls. `run` does on a thread what asks the journal; certified: only with a certificate of the client's name."""

    def __init__(self, enrolment: Enrolment, run: Run, version: str, certified: bool, limits: Limits) -> None:
        self.enrolment, self.run, self.version, self.certified, self.limits = enrolment, run, version, certified, limits
        self.certificates = Certificates(enrolment.clock)
        self._thread = ThreadPoolExecutor(1, "callers")
        self._ahead: Future[None] | None = None

    async def caller(self, name: str, request: bytes, context: Context) -> Client:
        """The client that a call proves to be, and that may work.

        Raises IdentityRefused, ClockRefused, and TooMany for one who is not known from where as many came.
        """
        sent = dict(context.invocation_metadata())
        if "tideline-signature" not in sent:
            raise IdentityRefused("The call carries no signature", ENROL_FIRST)
        proof = proof_in(sent)
        self.certify(proof.client, context)
        known = await self.vouched(proof.client, lambda known: self.signed(known, proof, name, request), context)
        return known if name in BESIDE else await self.in_session(known, proof)

    async def in_session(self, known: Client, proof: Proof) -> Client:
        """A client that calls from the session that is served. Raises as `Enrolment.in_session` does."""
        if proof.session == known.current:
            return known
        fresh = await self.run(self.enrolment.read, known.name)  # another coordinator may have seen its start
        return admitted(await self.run(self.enrolment.in_session, fresh, proof.session, proof.time_ms / 1000))

    async def vouched(self, name: str, check: Callable[[Client], Client], context: Context) -> Client:
        """A client that passes a check; who does not is looked up anew, as another coordinator may have changed it.

        That look is what a stranger costs, so it is counted. What was read may be a few seconds old, so nobody is
        refused by it alone: an agent ends when it is refused, and comes again when it is put off.
        """
        self.read_ahead()
        known = self.enrolment.cached(name) or await self.run(self.enrolment.recent, name)
        if known is not None:
            try:
                return check(known)
            except ClockRefused:
                raise
            except IdentityRefused:
                pass
        await self.limits.wrong_key(address_of(context.peer()))
        return check(await self.run(self.enrolment.read, name))

    def read_ahead(self) -> None:
        """Have rows read before they are too old, on a thread of its own: hundreds of calls would wait for that, and at once."""
        if self.enrolment.ageing() and (self._ahead is None or self._ahead.done()):
            self._ahead = self._thread.submit(read_ahead, self.enrolment)

    async def still(self, opened: Client) -> None:
        """For calls under way; mostly it asks nobody. opened: the client as it was when the call was proven.

        Raises IdentityRefused for a client that is let in no more, Rekeyed for one that has other keys.
        """
        self.same(opened, self.enrolment.cached(opened.name) or await self.run(self.enrolment.read, opened.name, False))

    def still_here(self, opened: Client) -> None:
        """The same on a thread, which may ask the journal."""
        self.same(opened, self.enrolment.cached(opened.name) or self.enrolment.read(opened.name, False))

    def same(self, opened: Client, now: Client) -> None:
        """Raises as `still` does."""
        known = admitted(now)
        self.enrolment.witness.check()
        if known.sign_key != opened.sign_key:
            raise Rekeyed(f"{known.name!r} has other keys than those that began this call", "Call again; an agent does by itself")
        if known.current != opened.current:
            raise Rekeyed(f"A later session of {known.name!r} has begun", "Call again; an agent does by itself")

    def signed(self, known: Client, proof: Proof, name: str, request: bytes) -> Client:
        """A client whose signature is good. Raises IdentityRefused, ClockRefused."""
        if not verified(known.keys.sign, proof.signature, signed_of(name, proof, request)):
            raise IdentityRefused(
                f"The call's signature is not that of {known.name!r}",
                "Start the agent with the home directory that enrolled under this name",
            )
        self.timely(proof)
        self.enrolment.witness.check()
        return admitted(known)

    def timely(self, proof: Proof) -> None:
        ours = self.enrolment.clock.now()
        if abs(ours - proof.time_ms / 1000) > WINDOW_SECONDS:
            raise ClockRefused(
                f"The call is signed for {moment(proof.time_ms / 1000)}; the coordinator's clock says {moment(ours)}",
                "An agent asks for the time again by itself; if this comes back, set the coordinators' clocks",
            )

    def enrolling(self, request: pb.EnrolRequest, raw: bytes, context: Context, call: str) -> tuple[Keys, Proof]:
        """The keys with which an agent enrols: it has them, as it signs with them."""
        self.speaks(request.protocol, request.version)
        self.certify(request.name, context)
        keys = keys_in(request.sign_key, request.receive_key)
        proof = proof_in(dict(context.invocation_metadata()))
        if proof.client != request.name or not verified(keys.sign, proof.signature, signed_of(call, proof, raw)):
            raise IdentityRefused(f"The enrolment of {request.name[:80]!r} is not signed by its own key", "Start the agent again")
        self.timely(proof)
        return keys, proof

    def speaks(self, protocol: int, version: str) -> None:
        """Raises VersionRefused for an agent of a protocol that is not spoken here."""
        if OLDEST <= protocol <= PROTOCOL:
            return
        whose = f" (tideline {version[:80]})" if version else ""
        spoken = f"{OLDEST} to {PROTOCOL}" if OLDEST < PROTOCOL else f"{PROTOCOL}, and no older one"
        raise VersionRefused(
            f"The agent{whose} speaks protocol {protocol}; this coordinator (tideline {self.version}) speaks {spoken}",
            "Install the same version on both ends, the coordinator's first",
        )

    def certify(self, name: str, context: Context) -> None:
        """Raises IdentityRefused for a caller whose certificate is of another name."""
        if not self.certified:
            return
        shown = context.auth_context()
        names = [*shown.get("x509_common_name", ()), *shown.get("x509_subject_alternative_name", ())]
        if name.encode() not in names:
            there = ", ".join(sorted({each.decode(errors="replace") for each in names})) or "no client"
            raise IdentityRefused(
                f"The certificate is that of {there}, not of {name[:80]!r}",
                "Give the agent --tls-cert and --tls-key of a certificate whose name is the client's",
            )
        for shown_chain in shown.get("x509_pem_cert", ()):
            self.certificates.saw(name, shown_chain)


def read_ahead(enrolment: Enrolment) -> None:
    """Read who is enrolled. Where that cannot be had, the call that needs it tells."""
    with suppress(FederationError):
        enrolment.read_ahead()


def proof_in(sent: Mapping[str, Any]) -> Proof:
    """What a call's metadata say. Raises IdentityRefused."""
    client, time, signature = (str(sent.get(f"tideline-{key}", "")) for key in ("client", "time", "signature"))
    if not (time.isascii() and time.isdigit() and len(time) <= 15):
        raise IdentityRefused("The call carries no time", ENROL_FIRST)
    session = session_in(str(sent.get("tideline-session", "")))
    if session is None:
        raise IdentityRefused("The call's session is none", ENROL_FIRST)
    try:
        return Proof(client, int(time), base64.b64decode(signature, validate=True), session)
    except (binascii.Error, ValueError):
        raise IdentityRefused("The call's signature is no base64", ENROL_FIRST) from None


def signed_of(call: str, proof: Proof, request: bytes) -> bytes:
    """What a call's signature has to be of."""
    return call_bytes(method(call), proof.client, proof.time_ms, request, str(proof.session))


def keys_in(sign: bytes, receive: bytes) -> Keys:
    """Public keys from the wire. Raises Malformed."""
    if len(sign) != KEY_BYTES or len(receive) != KEY_BYTES:
        raise Malformed("The call brings no two keys of 32 bytes", "Install the same version on both ends")
    return Keys(sign.hex(), receive.hex())


def verified(sign_key: str, signature: bytes, message: bytes) -> bool:
    """Whether a signature is by a key. One that is no point of the curve signs nothing."""
    try:
        public_key(sign_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@functools.lru_cache(4096)
def public_key(sign_key: str) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(bytes.fromhex(sign_key))


def moment(seconds: float) -> str:
    """A time for people; far ones, which somebody made up, as numbers."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{seconds:.0f} s after 1970"
