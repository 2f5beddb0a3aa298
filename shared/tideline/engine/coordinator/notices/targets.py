"""The targets of notices: added, tried and removed by operators, each within what they see."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from tideline.core.errors import ConfigRefused, NotFound, Refused, TooMany
from tideline.core.settings import nearest
from tideline.engine.coordinator.idempotency import Identity
from tideline.engine.model.access.projects import EVERY, within
from tideline.engine.model.accounts import NAME
from tideline.engine.model.notices import OF_COORDINATOR, Form, Kind, Notice, Outgoing, Target, id_of
from tideline.engine.ports.clock import Clock
from tideline.engine.ports.notices import Notices, Sender, Sent

MAIL = "mailto:"
TEST_SECONDS = 10.0  # between two tries of a target by hand
MOST_URL = 2000  # characters


@dataclass(frozen=True)
class Wanted:
    """A target as it is asked for. Without a name it is called after its host, or after who gets the mail."""

    url: str
    kinds: Sequence[Kind]
    form: Form | None = None
    name: str = ""


class Targets:
    """The targets. Any number of threads. `scope`: the project of who asks; targets of others are not there."""

    def __init__(self, notices: Notices, sender: Sender, clock: Clock) -> None:
        self._notices, self._sender, self._clock = notices, sender, clock

    def every(self, scope: str = EVERY) -> tuple[Target, ...]:
        return self._notices.targets(scope)

    def add(self, wanted: Wanted, identity: Identity) -> Target:
        """A new target of the scope's project, or of all. Raises ConfigRefused; Refused for a taken name, and for too many."""
        made = self._made(wanted, identity)
        self._sender.check(made)
        if not self._notices.add_target(made):
            for known in self._notices.targets(made.project):
                if known.id == made.id:  # an earlier try of the same call made it
                    return known
            raise Refused(f"There is a target named {made.name!r} already", "Give another one with --name, or remove that one")
        return made

    def _made(self, wanted: Wanted, identity: Identity) -> Target:
        form, name = form_of(wanted), wanted.name or name_of(wanted.url)
        if not NAME.fullmatch(name):
            raise ConfigRefused(f"{name[:80]!r} cannot name a target", "Use up to 64 letters, digits, -, _ and .", path="name")
        return Target(
            id=hashlib.sha256(f"target {identity.seed}".encode()).hexdigest()[:16],
            name=name,
            project=identity.scope,
            url=wanted.url,
            form=form,
            kinds=kinds_of(wanted.kinds, identity.scope),
            secret="" if form is Form.EMAIL else f"whsec_{base64.b64encode(identity.webhook_secret).decode()}",
            created=self._clock.now(),
            created_by=identity.by,
        )

    def remove(self, name: str, by: str = "", scope: str = EVERY) -> Target:
        """Remove a target, and what waits for it. Raises NotFound."""
        found = self.find(name, scope)
        self._notices.remove_target(found, by, self._clock.now())
        return found

    def try_out(self, name: str, scope: str = EVERY) -> Sent:
        """Send a notice that says it is a test; how that went. Raises NotFound, and TooMany where that was done just now."""
        found, now = self.find(name, scope), self._clock.now()
        if (left := self._notices.begin_test(found, now, TEST_SECONDS)) > 0:
            what = f"{name} was tried less than {TEST_SECONDS:.0f} seconds ago"
            raise TooMany(what, "Try again in a moment", retry_after=int(left) + 1)
        words = "This is a test: notices of Tideline arrive here"
        notice = Notice(kind=Kind.TEST, at=now, words=words, source=f"{now}", project=found.project)
        return self._sender.send(found, Outgoing(id_of(found.id, notice), found.id, notice, attempts=1), now)

    def find(self, name: str, scope: str = EVERY) -> Target:
        """A target by its name. Raises NotFound; ConfigRefused where projects have several of that name."""
        known = [each for each in self.every(scope) if within(scope, each.project)]
        found = [each for each in known if each.name == name]
        if not found:
            guess = nearest(name, [each.name for each in known])
            raise NotFound(f"There is no target {name[:80]!r}", f"See the list of targets{guess}")
        if len(found) > 1:
            whose = ", ".join(each.project or "all" for each in found)
            raise ConfigRefused(f"Several targets are named {name}, of {whose}", "Name the project too", path="project")
        return found[0]


def form_of(wanted: Wanted) -> Form:
    """The form of a target. Raises ConfigRefused for one that its address cannot have, and for a long address."""
    if not 0 < len(wanted.url) <= MOST_URL:
        todo = f"Give https://HOST/PATH or mailto:NAME@HOST, up to {MOST_URL} characters"
        raise ConfigRefused("url is empty or too long", todo, path="url")
    mail = wanted.url.startswith(MAIL)
    if wanted.form is not None and (wanted.form is Form.EMAIL) != mail:
        todo = "Leave the form out for mailto:, and give json, slack or teams for https://"
        raise ConfigRefused(f"form is {wanted.form.value}, which does not go with this address", todo, path="form")
    return wanted.form or (Form.EMAIL if mail else Form.JSON)


def kinds_of(kinds: Sequence[Kind], scope: str) -> tuple[Kind, ...]:
    """What a target hears, each kind once. Raises ConfigRefused for none, and for what its project does not see."""
    chosen = tuple(each for each in Kind if each in kinds and each is not Kind.TEST)
    words = ", ".join(each.value for each in Kind if each is not Kind.TEST)
    if not chosen or Kind.TEST in kinds:
        raise ConfigRefused("on names nothing of which notices are sent", f"Give some of: {words}", path="on")
    hidden = [each.value for each in chosen if each in OF_COORDINATOR]
    if hidden and scope != EVERY:
        what = f"{' and '.join(hidden)} are about the coordinator, which the project {scope} does not see"
        raise ConfigRefused(what, "Leave them out, or have an admin add the target with --project all", path="on")
    return chosen


def name_of(url: str) -> str:
    """What a target is called that nobody named: its host, or who gets the mail."""
    if url.startswith(MAIL):
        return url.removeprefix(MAIL).partition("@")[0]
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
