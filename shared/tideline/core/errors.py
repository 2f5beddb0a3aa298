"""Every error that Tideline raises on purpose."""

from __future__ import annotations

import re
from collections.abc import Mapping


def kind_of(value: object) -> str:
    """A value's type as a sentence names it: an int, a list; None is None.

    >>> kind_of(3), kind_of([]), kind_of(None)
    ('an int', 'a list', 'None')
    """
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


class FederationError(Exception):
    """Something that a user can act on: `what` happened, `todo` about it, and `context` as plain data."""

    def __init__(self, what: str, todo: str = "", **context: object) -> None:
        super().__init__(what)
        self.what = what
        self.todo = todo
        self.context: Mapping[str, object] = context

    @property
    def kind(self) -> str:
        """The class's name: stable, so that programs may match on it."""
        return type(self).__name__

    def __str__(self) -> str:
        return f"{self.what}. {self.todo}" if self.todo else self.what


class Refused(FederationError):
    """The request was understood and declined; sending it again changes nothing."""


class ConfigRefused(Refused):
    """A setting has an unknown name, a wrong type or a value out of range."""


class RosterRefused(Refused):
    """The members of a run, their roles, sizes or classes do not fit its method."""


class ContractRefused(Refused):
    """A site's policy forbids clauses of the run's contract, or the two ends derive different contracts."""


class PolicyRefused(Refused):
    """A site's owner does not let a run run there. `context["rules"]` names the lines of the policy that say so."""


class BudgetExceeded(PolicyRefused):
    """A run would cost a site's rows more than its owner lets all runs together cost. `context["left"]` is what is left."""


class DataRefused(Refused):
    """A site's data cannot be read or do not fit the run's world."""


class DeviceMissing(Refused):
    """A site is to compute on a device that is not there. `context["device"]` names it."""


class IdentityRefused(Refused):
    """A token that is unknown, used or expired, a proof that does not belong to the name, or a client that was revoked."""


class PeerRefused(IdentityRefused):
    """Another site is shown with unknown keys, or such that nothing is sealed to, or was none of the run's when it began."""


class ClockRefused(IdentityRefused):
    """A call that is signed for a time too far from the coordinator's. Whoever asks for the time and signs anew gets on."""


class PermissionRefused(Refused):
    """The key is valid, but its role does not cover what was asked for."""


class VersionRefused(Refused):
    """The two ends speak different versions of the protocol, or of the HTTP API."""


class KeyReused(Refused):
    """A key that was sent with another call before."""


class NotFound(Refused):
    """There is no run, method, client or part of that name."""


class Deleted(NotFound):
    """The run was deleted. `context` says when and by whom."""


class Malformed(FederationError):
    """Bytes that contradict their declaration. Each way of being malformed is a subclass."""


class NetworkDiffers(Malformed):
    """A site's network is not the one that the coordinator has under that name."""


class AgentTooOld(Malformed):
    """A site's agent lacks an ability that the run asks for."""


class StepFailed(FederationError):
    """A client's step raised. The round may go on without it; the reason is recorded."""


class Cancelled(FederationError):
    """The order that a step works for was withdrawn."""


class MemoryLost(FederationError):
    """A site's memory is older than the last reply that the coordinator accepted from it."""


class MemoryAhead(FederationError):
    """A site's memory is newer than the order and the reply that made it so is gone."""


class Stale(FederationError):
    """A reply to an order that is already settled or superseded; acknowledged and dropped."""


class Overtaken(Stale):
    """A write by a scheduler whose lease on the run another has taken since. Nothing was written."""


class Underway(FederationError):
    """The first call with this key is not answered yet. Sent again a little later, it gets that answer."""


class Stalled(FederationError):
    """The quorum was missed at the deadline; the run waits for a user."""


class ChainBroken(FederationError):
    """The audit log is not as it was written: an entry was changed, taken out or put in. `context["entry"]` says which."""


class DossierBroken(ChainBroken):
    """A dossier is not as it was signed, or was signed by somebody else. `context["member"]` says which file in it."""


class Diverged(FederationError):
    """A round computed again has other bytes than the recorded one: the numerics of the machine changed."""


class PartLost(FederationError):
    """A part that the coordinator needs is damaged or gone, and nothing that is kept makes it again. The words say which part,
    where it lay, and what to bring back.
    """


class StorageFull(FederationError):
    """There is no room for the bytes offered. Nothing was acknowledged, so nothing is lost."""


class Unreachable(FederationError):
    """The other end, or a store, does not answer. Retried with growing, jittered pauses."""


class TooMany(Unreachable):
    """More calls than the limit allows. `context["retry_after"]` says how many seconds to wait."""


# An error as a problem document (RFC 9457): the one shape in which the HTTP API and commands report what is wrong.
MEDIA_TYPE = "application/problem+json"
TYPE = "urn:tideline:error:"
INCIDENT = "urn:tideline:incident:"


def problem(error: FederationError, kind: str | None = None) -> dict[str, object]:
    """The members of an error's document. `path` is the dotted place of what is wrong; `context` may hold any values."""
    context = dict(error.context)
    path = context.pop("path", None)
    kind = kind or error.kind
    return {
        "type": TYPE + kind,
        "title": words(kind),
        "detail": error.what,
        "kind": kind,
        "todo": error.todo,
        "path": str(path) if path else None,
        "context": context,
    }


def words(kind: str) -> str:
    """A kind in words: `ConfigRefused` is "Config refused"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", kind).capitalize()
