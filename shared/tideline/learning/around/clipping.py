"""The clip of a private run that follows a quantile: it stands in the state, and goes from round to round with it.

Each site's clip moves while it trains, out of counts with noise. Where it ends is a metric of the reply, which says no more of
rows than those counts do; the geometric mean over the sites is the next round's. No method knows of it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tideline.core.algorithm import AnyAlgorithm
from tideline.core.errors import StepFailed
from tideline.core.phase import AnyPhase, AnyPlan, Folded, Replies, Turn, folded
from tideline.core.step import AnyStep, Outcome, Site
from tideline.learning.around.beside import Beside, bare, bringing
from tideline.learning.private.quantiles import LEAST, MOST, within

CLIP = Beside("clip", float, "the clip of gradients, once it has moved")


def clip_in(value: object) -> float | None:
    """That beside a state or a message; None before it has moved."""
    found: float | None = CLIP.found(value)
    return found


def adapting(algorithm: AnyAlgorithm, follows: bool) -> AnyAlgorithm:
    """The method in a run whose clip follows a quantile; as it is in any other."""
    if not follows:
        return algorithm

    def begin(*given: Any) -> Any:
        return CLIP.joined(algorithm.begin(*given), None)

    def around(plan: AnyPlan) -> AnyPlan:
        return tuple(carrying(phase, algorithm.state) for phase in algorithm.around(plan))

    starts = algorithm.initial_weights
    if starts is not None:
        plain = starts.begin
        starts = replace(starts, begin=lambda *given: CLIP.joined(plain(*given), None))
    return replace(algorithm, state=CLIP.of(algorithm.state), begin=begin, initial_weights=starts, around=around)


def carrying(phase: AnyPhase, own: type[Any]) -> AnyPhase:
    """The method's phase over its own state. Where its step trains, messages bring the clip, and replies tell where it ended."""
    adapts = phase.step is not None and phase.step.adapts
    made = bringing(phase, own, CLIP, brings=False)
    if not adapts or phase.step is None:
        return made
    brings = bringing(phase, own, CLIP, brings=True)

    def next_state(state: Any, replies: Replies[Any], turn: Turn[Any]) -> Folded[Any]:
        after = folded(made.fold(state, replies, turn))
        return replace(after, state=replace(after.state, clip=together(replies, clip_in(state))))

    return replace(brings, fold=next_state, step=following(phase.step))


def following(step: AnyStep) -> AnyStep:
    """A step that begins with the clip that its message brings, and tells where it ended."""
    takes = step.takes

    def run(order: Any, memory: Any, site: Site[Any]) -> Outcome[Any, Any]:
        meter, found = site.private, clip_in(order)
        assert meter is not None, "the run protects rows"
        if found is not None:
            if not LEAST <= found <= MOST:
                what = f"The order's clip of gradients is {found}, which is none"
                raise StepFailed(what, "The coordinator is of another version, or is not to be trusted")
            meter.clip = found
        made = step.run(bare(order, takes), memory, site)
        return replace(made, metrics={**made.metrics, CLIP.name: meter.clip})

    metrics, reports = (*step.metrics, CLIP.name), (*step.reports, CLIP.name)
    return replace(step, run=run, takes=CLIP.of(takes), metrics=metrics, reports=reports)


def together(replies: Replies[Any], before: float | None) -> float | None:
    """The geometric mean of the sites' clips; what is none is left out, as a site may send any number."""
    ended = [replies.metrics.get(site, {}).get(CLIP.name, math.nan) for site in replies]
    logs = [math.log(within(each)) for each in ended if math.isfinite(each) and each > 0]
    return math.exp(math.fsum(logs) / len(logs)) if logs else before
