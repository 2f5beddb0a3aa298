"""Runs that protect rows: what they cost, which methods can, and that a step spends what it declares, no more and no less."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tideline.core.algorithm import Methods, resolve
from tideline.core.asked.normalise import NO_SCALING
from tideline.core.asked.private import Charge, Meter, Privacy, together
from tideline.core.asked.scoring import Prior, Scoring, Selection
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, Malformed, StepFailed
from tideline.core.phase import AnyPhase, AnyPlan
from tideline.core.record import Record, leaves
from tideline.core.rows import Augment
from tideline.core.run import Role
from tideline.core.settings import Settings
from tideline.core.step import AnyStep, Outcome, charged_before
from tideline.engine.compute.configured import Configured
from tideline.engine.ports.site import Job
from tideline.learning.local_training import balances_classes, patience_of
from tideline.learning.private import check_private
from tideline.learning.private.quantiles import noise_of_gradients
from tideline.learning.private.summing import MOST_NOISE as LOUDEST
from tideline.nets import build
from tideline.numerics.privacy.accounting import Gaussian, Sampled, Spent, epsilon, noise_for

Names = Callable[[], Sequence[str]]  # of the methods that can
FREE = 1e6  # noise with which training costs next to nothing
LOUD = Privacy(rows=2, noise=1.0)  # to ask whether a step spends anything


def meter_of(job: Job, tick: Callable[[float], None]) -> Meter | None:
    """The meter of a step in a run that protects rows, which alone reports progress.

    Raises Malformed where an agent brings no key for its noise.
    """
    if job.brief.privacy is None:
        return None
    key = bytes.fromhex(job.noise)
    if job.message is not None and not key:
        raise Malformed("A private step has no key for its noise", "The agent and its trainer are of different versions")
    return Meter(job.brief.privacy, key, tick=tick)


def in_private(step: AnyStep, outcome: Outcome[Record, Record], meter: Meter, config: Settings) -> Outcome[Record, Record]:
    """The outcome without metrics that nothing was charged for. Raises StepFailed where it spent otherwise than it says."""
    if step.spends is None:
        raise StepFailed(f"The step {step.name} does not say what it spends", "Leave privacy out, or use another method")
    said, spent = together(step.spends(config, meter.asked)), together(meter.spent)
    if said != spent:
        raise StepFailed(
            f"The step {step.name} spent {words(spent)}, and says that it spends {words(said)}", "Correct the method"
        )
    return replace(outcome, metrics={name: value for name, value in outcome.metrics.items() if name in step.reports})


def words(charges: Sequence[Charge]) -> str:
    said = (f"{each.times} x noise {each.noise:g}{f' at rate {each.rate:g}' if each.rate < 1 else ''}" for each in charges)
    return " + ".join(said) or "nothing"


def charges(plan: Sequence[AnyPhase], config: Settings, privacy: Privacy, role: Role) -> tuple[Charge, ...]:
    """What a site of a role spends that is asked in each exchange of a plan that may ask it. Others spend less."""
    steps = [phase.step for phase in plan if phase.step and (not phase.asks or role in phase.asks)]
    return together(charge for step in steps if step.spends for charge in step.spends(config, privacy))


def events(spent: Sequence[Charge]) -> tuple[Spent, ...]:
    """The same as what accounting works with."""
    return tuple(
        Sampled(rate=each.rate, noise=each.noise, times=each.times)
        if each.rate < 1
        else Gaussian(noise=each.noise, times=each.times)
        for each in spent
    )


def cost(method: Configured, privacy: Privacy) -> float:
    """The epsilon of a run, at its delta, for each row of a site that is asked in every exchange: of the role that pays most."""
    paid = {charges(method.plan, method.config, privacy, role) for role in Role}
    return max(epsilon(events(each), privacy.delta) for each in paid)


def with_noise(method: Configured, privacy: Privacy) -> Privacy:
    """The same with noise, the least that a run may have for its epsilon. Raises ConfigRefused where scorings alone cost more."""
    if privacy.noise is not None or privacy.epsilon is None:
        return privacy

    scores = cost(method, noisy(privacy, FREE))
    if scores >= privacy.epsilon:
        said = f"scorings alone cost {scores:.2g} with score_noise {privacy.score_noise:g}"
        what = f"privacy.epsilon is {privacy.epsilon:g}, and {said}"
        todo = "Raise privacy.score_noise, or score less often: config.evaluate_every"
        raise ConfigRefused(what, todo, path="privacy.epsilon")
    return noisy(privacy, max(noise_of(role, method, privacy, privacy.epsilon) for role in roles_apart(method, privacy)))


def roles_apart(method: Configured, privacy: Privacy) -> list[Role]:
    """A role for each list of charges that some role pays."""
    return list({charges(method.plan, method.config, noisy(privacy, 1.0), role): role for role in Role}.values())


def noise_of(role: Role, method: Configured, privacy: Privacy, epsilon: float) -> float:
    """The least noise with which a site of a role spends no more than an epsilon."""

    def spent(noise: float) -> tuple[Spent, ...]:
        return events(charges(method.plan, method.config, noisy(privacy, noise), role))

    return noise_for(epsilon, privacy.delta, spent)


def noisy(privacy: Privacy, noise: float) -> Privacy:
    return replace(privacy, epsilon=None, noise=noise)


def settled_privacy(privacy: Privacy, method: Configured, world: World, methods: Names) -> tuple[Privacy, float]:
    """A run's privacy with its noise, and its epsilon. Raises ConfigRefused for what cannot protect rows."""
    check_plan(method, methods, privacy)
    check_training(method.config)
    check_private(build(world))
    made = with_noise(method, privacy)
    check_noise(privacy, made)
    return made, cost(method, made)


def check_noise(asked: Privacy, made: Privacy) -> None:
    """Raises ConfigRefused for more noise than is drawn: before anybody is asked, and charged."""
    noise = noise_of_gradients(made, made.noise or 0.0)
    if noise > LOUDEST:
        what = f"Gradients would get noise of {noise:.4g} clips, and {LOUDEST:g} are the most"
        path = "privacy.epsilon" if asked.noise is None else "privacy.noise"
        raise ConfigRefused(what, "So much leaves nothing of what is learnt: raise epsilon, or name less noise", path=path)


def promised(privacy: Privacy, epsilon: float) -> str:
    """What a run promises, in a sentence."""
    whose, at = f"each {privacy.whose} of a site", f"at delta {privacy.delta:g}, with noise {privacy.noise:.4g}"
    return f"{whose} is protected: epsilon {epsilon:.3g} {at}; what another run learns of the same rows comes on top"


def private_world(world: World) -> World:
    """The world of a run that protects rows: vectors that nobody said how to normalise stay as they are."""
    return world if world.normalise is not None else replace(world, normalise=NO_SCALING)


def check_asked(world: World, scoring: Scoring, augment: Augment) -> None:
    """Raises ConfigRefused for what a run does around its method that reads rows and has no noise."""
    for odd, what, todo, path in (
        (
            world.scaling.kind.found,
            "rows are normalised by statistics of rows",
            "Write normalise: none, or give constants",
            "world.normalise",
        ),
        (
            world.fills,
            "missing cells are filled by medians of rows",
            "Fill them before, and declare no missing cells",
            "world.columns",
        ),
        (
            scoring.selection is not Selection.NONE,
            "the best round is found by scores of rows",
            "Leave selection out",
            "selection",
        ),
        (scoring.prior is Prior.EM, "predictions are corrected by shares of classes", "Leave prior out", "prior"),
        (augment.on, "images are changed at random before a gradient is made of them", "Leave augment out", "augment"),
    ):
        if odd:
            raise ConfigRefused(f"The run protects rows, and {what}, to which no noise is added", todo, path=path)


def check_plan(method: Configured, methods: Names, privacy: Privacy) -> None:
    """Raises ConfigRefused for a method of which an exchange or a field of a reply does not say what it costs."""
    never = method.algorithm.unprotected
    unpaids = filter(None, (unpaid(phase, method.config) for phase in distinct(method.plan)))
    why = f": {never}" if never else next((f" with these settings: {each}" for each in unpaids), None)
    if why is not None:
        able = ", ".join(methods()) or "none"
        what = f"{method.algorithm.name} cannot protect rows{why}"
        raise ConfigRefused(what, f"Use one of: {able}; or leave privacy out", path="privacy")
    for phase in distinct(method.plan):
        if privacy.unit is not None and phase.step is not None and not phase.step.by_unit:
            what = (
                f"{method.algorithm.name} protects rows, and no {privacy.unit} of several: its exchange {phase.name} counts rows"
            )
            raise ConfigRefused(what, "Leave unit out, or use another method", path="privacy.unit")
    if privacy.follows and not any(phase.step and phase.step.adapts for phase in method.plan):
        what = f"privacy.quantile is said, and {method.algorithm.name} has no training whose clip could follow it"
        raise ConfigRefused(what, "Leave quantile out: clip stays as it is", path="privacy.quantile")


def distinct(plan: AnyPlan) -> Iterable[AnyPhase]:
    """Return each phase of a plan once: a plan of thousands of rounds repeats the same few."""
    return {id(phase): phase for phase in plan}.values()


def unpaid(phase: AnyPhase, config: Settings) -> str | None:
    """What of an exchange has no price; None where all has one."""
    step = phase.step
    if step is None:
        return None
    if step.spends is None:
        return f"its exchange {phase.name} reads rows without adding noise"
    sent = list(leaves(step.gives))
    if (bare := next((each.path for each in sent if not each.private), None)) is not None:
        return f"what {phase.name} sends as {bare} has no noise"
    if (sent or step.reports) and step.spends is not charged_before and not step.spends(config, LOUD):
        return f"its exchange {phase.name} tells something and spends nothing"
    unknown = [name for name in step.reports if name not in step.metrics]
    return f"{phase.name} reports {unknown[0]}, which it does not measure" if unknown else None


def check_training(config: Settings) -> None:
    """Raises ConfigRefused for settings of local training that read rows beside their gradients."""
    for name, odd in (("patience", patience_of(config) > 0), ("class_weights", balances_classes(config))):
        if odd:
            what = f"config.{name} follows from a site's rows, and nothing is charged for it"
            raise ConfigRefused(what, f"Leave {name} out, or leave privacy out", path=f"config.{name}")


def able(methods: Methods) -> list[str]:
    """The names of the methods whose plans, by their defaults, can protect rows."""
    found = (resolve(methods, name) for name, _ in methods)
    known = (Configured(each, each.configure({})) for each in found)
    paid = (each for each in known if not each.algorithm.unprotected)
    return [each.algorithm.name for each in paid if all(unpaid(phase, each.config) is None for phase in distinct(each.plan))]
