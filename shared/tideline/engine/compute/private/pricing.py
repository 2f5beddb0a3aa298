"""What an order of a run that protects rows costs, by the site's own code: asked before any data are opened."""

from __future__ import annotations

from collections.abc import Callable

from tideline.core.asked.private import Charge, Price, together
from tideline.core.errors import Malformed
from tideline.core.phase import AnyPhase
from tideline.engine.compute.configured import Configured
from tideline.engine.compute.private.metering import Names, charges, check_plan
from tideline.engine.epsilon.spending import exchange
from tideline.engine.model.runs import JOIN
from tideline.engine.ports.site import Job


def charges_of(method: Configured) -> dict[str, tuple[Charge, ...]]:
    """What each exchange of a run that protects rows costs a site, by its name."""
    if method.privacy is None:
        return {}
    steps = {exchange(phase.name, phase.step.name): phase.step for phase in method.plan if phase.step}
    return {name: together(step.spends(method.config, method.privacy)) for name, step in steps.items() if step.spends is not None}


def price(method: Configured, job: Job, placed: Callable[[Configured, Job], AnyPhase], methods: Names, seen: str) -> Price:
    """The price of a job's order. Raises ConfigRefused for a plan of which something has no price, Malformed for no such place.

    methods: that can protect rows. seen: a digest of the data that lie here now.
    """
    if method.privacy is None:
        raise Malformed("The order has no section privacy, so nothing of it has a price", "Look at the agent's own log")
    check_plan(method, methods, method.privacy)
    whole = charges(method.plan, method.config, method.privacy, job.brief.role)
    if job.cursor == JOIN:
        return Price((), whole, seen)
    step = placed(method, job).step
    own = step.spends(method.config, method.privacy) if step and step.spends else ()
    return Price(together(own), whole, seen)
