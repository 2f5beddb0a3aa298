"""The owner of a site as its policy, its ledger and its accounting make it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tideline.core.run import Role
from tideline.engine.model.said.disclosed import Disclosed
from tideline.engine.ports.ledger import Ledger
from tideline.engine.site.owner import Owner
from tideline_agent.home.budget.accounting import close_bound
from tideline_agent.policy_file import SitePolicy


def owner_of(
    policy: SitePolicy,
    ledger: Ledger,
    roles: Iterable[Role],
    private_methods: Callable[[], Sequence[str]],
    discloses: Callable[[str], Disclosed | None] = lambda project: None,
) -> Owner:
    return Owner(
        policy=policy.allowed,
        rules=policy.rules,
        ledger=ledger,
        roles=frozenset(roles),
        projects=policy.said,
        close=close_bound(),
        private_methods=private_methods,
        discloses=discloses,
    )
