"""The owner of a site, as its agent asks: what may run, what waits for a word or an hour, and what is written in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tideline.core import errors
from tideline.core.privacy import DEFAULT_POLICY, Contract, Policy, refused
from tideline.core.recent import Recent
from tideline.core.run import ClientId, Role, RunId
from tideline.core.settings import EMPTY
from tideline.engine.model.brief import Brief
from tideline.engine.model.orders import Files, Hold, Order
from tideline.engine.model.runs import JOIN
from tideline.engine.ports.ledger import NO_LEDGER, Ledger
from tideline.engine.ports.site import Limits
from tideline.engine.site.admission import carried, check_run, facts_of, intent_digest
from tideline.engine.site.rules import BATCH_SHARE, FREE, Approval, SiteRules, within

REFUSALS = (errors.PolicyRefused, errors.ContractRefused, errors.RosterRefused)
MOST_SAID = 1024  # refusals that are remembered, so that none stands twice
MOST_WORDS, MOST_FILES = 500, 16  # of a refusal, in characters; of a message, by digest


@dataclass(frozen=True)
class Said:
    """What an owner says of the runs of a project: which exposures may reach whom, and which runs may run."""

    policy: Policy
    rules: SiteRules


@dataclass
class Owner:
    """policy: which exposures may reach whom. rules: which runs may run. now: the site's own clock, in its own time zone.

    projects: what holds in the place of both for the runs of some projects.
    """

    policy: Policy = DEFAULT_POLICY
    rules: SiteRules = FREE
    ledger: Ledger = NO_LEDGER
    roles: frozenset[Role] = frozenset(Role)
    now: Callable[[], datetime] = datetime.now
    projects: Mapping[str, Said] = field(default_factory=lambda: EMPTY)
    _refused: Recent[Contract] = field(default_factory=lambda: Recent(2))
    _said: dict[tuple[RunId, str], None] = field(default_factory=dict)

    def said(self, brief: Brief) -> Said:
        """What holds for a run, by the project that the coordinator says it is of."""
        return self.projects.get(brief.intent.project) or Said(self.policy, self.rules)

    def check(self, me: ClientId, order: Order, brief: Brief) -> None:
        """Hold a run to all that the owner says, before any work. Raises RosterRefused, ContractRefused, PolicyRefused."""
        self.allow(me, brief)
        self.permit(brief.contract, brief)
        check_run(self.said(brief).rules, brief)
        said = self.word(order.run, brief)
        if not said:
            what = f"The owner of this site has {'not approved the run' if said is None else 'declined the run'}"
            raise errors.PolicyRefused(what, f"Ask the site's owner: tideline site approve {order.run}", rules=["[runs] approve"])

    def holds(self, order: Order, brief: Brief) -> Hold | None:
        """Why an order is to wait; None for one that need not, and for one that would be refused."""
        rules, now = self.said(brief).rules, self.now()
        runs, quotas = rules.runs, rules.quotas
        if self.word(order.run, brief) is None:
            return Hold.APPROVAL
        if not within(runs.hours, now):
            return Hold.HOURS
        if not (quotas.runs or quotas.replies or quotas.bytes):
            return None
        spent = self.ledger.spent(now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp())
        begins = not self.ledger.began(order.run)
        over = (begins and 0 < quotas.runs <= spent.runs, 0 < quotas.replies <= spent.replies, 0 < quotas.bytes <= spent.bytes)
        return Hold.QUOTA if any(over) else None

    def word(self, run: RunId, brief: Brief) -> bool | None:
        """Whether the run may run as far as the owner's word goes: that of the run that it belongs to covers it, too."""
        asks = self.said(brief).rules.runs.approve
        said = self.ledger.word(run)
        if said is None and brief.intent.parent is not None:
            said = self.ledger.word(brief.intent.parent)
        if said is not None or asks is Approval.ALWAYS:
            return said
        return True if asks is Approval.NEVER or self.ledger.approved(intent_digest(brief)) else None

    def begins(self, order: Order, brief: Brief) -> None:
        """Write down that an order is worked on, and what its run is: at the join, and where no join has come."""
        if order.cursor == JOIN or not self.ledger.began(order.run):
            self.ledger.record("run", run=order.run, **facts_of(brief))
        step = f"{order.phase}/{order.step}"
        self.ledger.record("order", run=order.run, order=order.id, step=step, round=order.round, files=listed(order.files))

    def replies(self, order: Order, files: Files) -> None:
        """Write down what is about to leave."""
        sizes = {"bytes": sum(size for _, size in files)}
        self.ledger.record("reply", run=order.run, order=order.id, files=listed(files), **sizes)

    def refuses(self, order: Order, error: errors.FederationError) -> None:
        """Write down what was refused, once for each run and reason: whoever asks again and again fills no disk."""
        said = order.run, error.what
        if isinstance(error, REFUSALS) and said not in self._said:
            self._said = dict([*self._said.items(), (said, None)][-MOST_SAID:])
            self.ledger.record("refused", run=order.run, order=order.id, kind_of_error=error.kind, what=error.what[:MOST_WORDS])

    def limits(self, brief: Brief) -> Limits:
        """What a trainer holds each step of a run to."""
        rules = self.said(brief).rules
        least, bounds, own = rules.least, rules.bounds, carried(rules, brief)
        return Limits(
            rows=least.rows,
            per_class=least.rows_per_class,
            share=bounds.get(BATCH_SHARE, 1.0),
            clip=rules.runs.clip,
            own_base=own,
        )

    def allow(self, me: ClientId, brief: Brief) -> None:
        """Hold the run's role to those that the owner allows: the coordinator checks it too, but the labels lie here.

        To play the target with labels masked is no other role, for less leaves than in its own; but an owner may forbid it.
        """
        rehearses = brief.rehearses == me and brief.role is Role.TARGET
        if rehearses and not self.said(brief).rules.runs.rehearse:
            what = "This site's policy forbids rehearsing: it plays no target"
            raise errors.RosterRefused(what, "Its owner can allow it in the site's policy file: [runs] rehearse = true")
        if rehearses and self.roles & {Role.SOURCE, Role.PEER}:
            return
        if brief.role not in self.roles:
            allowed = ", ".join(sorted(self.roles))
            what = f"This site may not be a {brief.role}: its owner allows {allowed}"
            raise errors.RosterRefused(what, "Give it a role that it allows")

    def permit(self, contract: Contract, brief: Brief) -> None:
        """Hold a run's contract to the owner's policy. Every order is held to it before any work: a join may never have come.

        The pool holds the order's contract to the one that this site derives, so a shorter one gains nothing.
        """
        policy = self.said(brief).policy
        no = self._refused.of(contract, lambda: refused(contract, policy), policy)
        if no:
            raise errors.ContractRefused(
                "This site's policy forbids: " + "; ".join(c.sentence() for c in no),
                "Its owner can allow them in the site's policy file",
                clauses=[c.sentence() for c in no],
            )


def listed(files: Files) -> list[list[str | int]]:
    """Digests and sizes, of many the first alone: it names the others."""
    return [[digest, size] for digest, size in files[: MOST_FILES if len(files) <= MOST_FILES else 1]]
