"""What a run that protects rows would cost them, before anybody is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tideline.core.algorithm import AnyAlgorithm, Methods
from tideline.core.asked.private import Privacy
from tideline.core.errors import ConfigRefused
from tideline.core.privacy import Contract
from tideline.core.settings import Plain, parse, plain
from tideline.engine.compute.configured import Configured

ASKED = (1.0, 2.0, 4.0, 8.0)
ROWS = 1000  # unless you say so: it bounds delta, and nothing else here follows from it


@dataclass(frozen=True)
class Cost:
    """An epsilon, the noise of training that it needs, and what the run costs with it; why not, where there is none."""

    asked: float | None
    noise: float | None
    epsilon: float | None
    why: str = ""


@dataclass(frozen=True)
class Costs:
    """Of a method with some settings. privacy: what they were worked out with. contract: of such a run."""

    rounds: Plain
    privacy: Privacy
    of: Sequence[Cost]
    contract: Contract


def costs(algorithm: AnyAlgorithm, methods: Methods, preset: str | None, given: Mapping[str, Any], sums: bool = False) -> Costs:
    """Costs of usual epsilons, or of the epsilon or the noise that `given` names. given: {config: ..., privacy: ...}. sums:
    whether the run has secure ones.

    Raises ConfigRefused for other keys, and for methods and settings that cannot protect rows.
    """
    from tideline.archive.parts import MemoryParts
    from tideline.core.asked.scoring import NO_MORE
    from tideline.engine.compute.drafts import Drafts
    from tideline.engine.compute.private.metering import check_plan, check_training
    from tideline.learning.around.clipping import adapting

    if odd := sorted(given.keys() - {"config", "privacy"}):
        raise ConfigRefused(f"--set names {odd[0]}", "Set config.KEY or privacy.KEY, such as --set config.rounds=20", path=odd[0])
    config, drafts = algorithm.configure(given.get("config", {}), preset), Drafts(MemoryParts(), methods)
    if sums:
        algorithm, _ = drafts.in_sums(algorithm, config, private=True)
    method = Configured(algorithm, config, NO_MORE)
    check_training(config)
    asked = {"rows": ROWS, **given.get("privacy", {})}
    wanted = [{}] if asked.keys() & {"epsilon", "noise"} else [{"epsilon": epsilon} for epsilon in ASKED]
    each = [parse(Privacy, {**asked, **more}, "privacy") for more in wanted]
    check_plan(method, drafts.private_methods, each[0])
    of = [cost_of(method, privacy) for privacy in each]
    played = replace(method, algorithm=adapting(algorithm, each[0].follows), privacy=each[0])
    return Costs(getattr(config, "rounds", None), each[0], of, played.contract)


def cost_of(method: Configured, privacy: Privacy) -> Cost:
    from tideline.engine.compute.private.metering import cost, with_noise

    try:
        made = with_noise(method, privacy)
    except ConfigRefused as error:
        return Cost(privacy.epsilon, None, None, f"{error.what}. {error.todo}")
    return Cost(privacy.epsilon, made.noise, cost(method, made))


def lines_of(found: Costs) -> list[list[str]]:
    """A row for each cost: the epsilon that was asked, its noise, and what it comes to."""
    return [
        ["" if c.asked is None else f"{c.asked:g}", "none" if c.noise is None else f"{c.noise:.4g}", c.why or f"{c.epsilon:.3f}"]
        for c in found.of
    ]


def plain_costs(found: Costs) -> dict[str, Plain]:
    """The same as plain data, beside the contract."""
    return {"rounds": found.rounds, "privacy": plain(found.privacy), "of": [plain(each) for each in found.of]}
