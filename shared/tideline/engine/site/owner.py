"""The owner of a site, as its agent asks: what may run, what waits for a word or an hour, and what is written in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tideline.core import errors
from tideline.core.asked.private import Price
from tideline.core.privacy import DEFAULT_POLICY, Contract, Policy, refused
from tideline.core.recent import Recent
from tideline.core.run import ClientId, Role, RunId
from tideline.core.settings import EMPTY, Plain
from tideline.engine.epsilon.budget import CHARGED, RESERVED, Budgets, charge, reserve
from tideline.engine.epsilon.renyi import Bound
from tideline.engine.model.brief import Brief
from tideline.engine.model.orders import Files, Hold, Order
from tideline.engine.model.runs import JOIN
from tideline.engine.model.said.disclosed import Disclosed
from tideline.engine.ports.ledger import NO_LEDGER, Ledger
from tideline.engine.ports.site import Limits
from tideline.engine.site.admission import carried, check_run, facts_of, intent_digest, unprotected
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

    projects: what holds in the place of both for the runs of some projects. close: an accounting that comes closer than the one
    that needs no library. private_methods: the names of those that can protect rows. discloses: what is told of policy
    and data, at the join of a run of a project.
    """

    policy: Policy = DEFAULT_POLICY
    rules: SiteRules = FREE
    ledger: Ledger = NO_LEDGER
    roles: frozenset[Role] = frozenset(Role)
    now: Callable[[], datetime] = datetime.now
    projects: Mapping[str, Said] = field(default_factory=lambda: EMPTY)
    close: Bound | None = None
    private_methods: Callable[[], Sequence[str]] = tuple
    discloses: Callable[[str], Disclosed | None] = lambda project: None
    _refused: Recent[Contract] = field(default_factory=lambda: Recent(2))
    _said: dict[tuple[RunId, str], None] = field(default_factory=dict)

    def said(self, brief: Brief) -> Said:
        """What holds for a run, by the project that the coordinator says it is of."""
        return self.projects.get(brief.intent.project) or Said(self.policy, self.rules)

    def check(self, me: ClientId, order: Order, brief: Brief) -> None:
        """Hold a run to all that the owner says, before any work. Raises RosterRefused, ContractRefused, PolicyRefused."""
        self.allow(me, brief)
        self.permit(brief.contract, brief)
        self.protected(brief)
        check_run(self.said(brief).rules, brief)
        if self.ledger.stands(brief.method, intent_digest(brief)) is False:
            what = f"The owner of this site lets no run of the method {brief.method} work here"
            raise errors.PolicyRefused(what, "Ask the site's owner: tideline site standing list", rules=["standing decisions"])
        said = self.word(order.run, brief)
        if not said:
            what = f"The owner of this site has {'not approved the run' if said is None else 'declined the run'}"
            raise errors.PolicyRefused(what, f"Ask the site's owner: tideline site approve {order.run}", rules=["[runs] approve"])

    def holds(self, order: Order, brief: Brief) -> Hold | None:
        """Why an order is to wait; None for one that need not, and for one that would be refused."""
        rules, now = self.said(brief).rules, self.now()
        runs, quotas = rules.runs, rules.quotas
        stands = self.ledger.stands(brief.method, intent_digest(brief))
        if stands is False:
            return None
        if self.ledger.paused():
            return Hold.PAUSED
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
        """Whether the run may run as far as the owner's word goes: that of the run that it belongs to may cover it, too.

        A word is held to what the owner was shown: who approved a run has approved nothing else that comes under its name.
        """
        asks, intent = self.said(brief).rules.runs.approve, intent_digest(brief)
        said = self.ledger.word(run, intent)
        if said is None and brief.intent.parent is not None:
            said = self.ledger.word(brief.intent.parent, intent)
        if said is not None or asks is Approval.NEVER:
            return True if said is None else said
        if self.ledger.stands(brief.method, intent):
            return True
        return True if asks is Approval.NEW and self.ledger.approved(intent) else None

    def protected(self, brief: Brief) -> None:
        """Raises PolicyRefused for a run that protects no rows, where the owner requires it; with the methods that can."""
        rules = self.said(brief).rules
        if unprotected(rules, brief):
            able = ", ".join(self.private_methods())
            what = (
                f"The owner of this site lets runs of {brief.method} work here only if they protect rows, and this one does not"
            )
            todo = f"Give the experiment a section privacy{f', with one of these methods: {able}' if able else ''}"
            raise errors.PolicyRefused(what, todo, rules=["[privacy] require"])

    def charges(self, brief: Brief) -> bool:
        """Whether what a run asks for is charged to a budget."""
        return brief.privacy is not None and self.said(brief).rules.privacy.limit is not None

    def spends(self, order: Order, brief: Brief, price: Price, place: str) -> None:
        """Write down what an order costs, before any work: at the join, and where no join has come, the whole run is reserved.

        place: a digest of all that the answer follows from. Raises BudgetExceeded.
        """
        limit = self.said(brief).rules.privacy.limit
        assert limit is not None, "only such runs are priced"

        def decide(budgets: Budgets) -> Iterator[tuple[str, Mapping[str, Plain]]]:
            joins, facts = order.cursor == JOIN, None
            if joins or order.run not in budgets.accounts:
                facts = reserve(budgets, order.run, limit, price.run, self.close)
            if facts is not None:
                yield RESERVED, facts
            if not joins and (facts := charge(budgets, order.run, limit, price.step, place, self.close)) is not None:
                yield CHARGED, {"order": order.id, **facts}

        self.ledger.account(order.run, decide)

    def begins(self, order: Order, brief: Brief) -> None:
        """Write down that an order is worked on, and what its run is: at the join, and where no join has come."""
        if order.cursor == JOIN or not self.ledger.began(order.run):
            self.ledger.record("run", run=order.run, **facts_of(brief))
        step = f"{order.phase}/{order.step}"
        self.ledger.record("order", run=order.run, order=order.id, step=step, round=order.round, files=listed(order.files))

    def disclosed(self, order: Order, brief: Brief) -> Disclosed | None:
        """What is told of policy and data with an answer: with that to a join, where the owner lets it."""
        return self.discloses(brief.intent.project) if order.cursor == JOIN else None

    def replies(
        self, order: Order, brief: Brief, files: Files, sizes: Sequence[Sequence[Plain]] = (), disclosed: Disclosed | None = None
    ) -> None:
        """Write down what is about to leave, and as what by the run's contract. sizes: of each field, as far as known."""
        self.ledger.record(
            "reply",
            run=order.run,
            order=order.id,
            files=listed(files),
            bytes=sum(size for _, size in files),
            step=f"{order.phase}/{order.step}",
            round=order.round,
            fields=fields_of(order, brief.contract),
            sizes=[list(each) for each in sizes],
            **({} if disclosed is None else {"disclosed": disclosed.names}),
        )

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
            delta=rules.privacy.delta if self.charges(brief) else 0.0,
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


def fields_of(order: Order, contract: Contract) -> list[list[str]]:
    """Each field of an order's reply with its exposure and whom it may reach, by the contract."""
    mine = (each for each in contract if (each.phase, each.step) == (order.phase, order.step))
    return [[each.field, each.exposure.value, " and ".join(sorted(each.audience))] for each in mine]


def listed(files: Files) -> list[list[str | int]]:
    """Digests and sizes, of many the first alone: it names the others."""
    return [[digest, size] for digest, size in files[: MOST_FILES if len(files) <= MOST_FILES else 1]]
