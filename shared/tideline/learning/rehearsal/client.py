"""What a site counts in a rehearsal: its own labels against predictions that other runs left here, made without seeing them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tideline.core.errors import MemoryLost
from tideline.core.record import Nothing
from tideline.core.run import RunId
from tideline.core.step import AnyStep, Outcome, Site, Step, View, step
from tideline.learning.loading.ahead import in_parts
from tideline.learning.normalising import moments_of
from tideline.learning.rehearsal.messages import (
    Agreed,
    Compared,
    Counts,
    Foretold,
    Known,
    Moments,
    Voted,
    Weights,
    as_record,
    no_moments,
)
from tideline.learning.rehearsal.settings import Rehearsing
from tideline.learning.rehearsal.state import width
from tideline.learning.scoring.judging import Judged
from tideline.learning.scoring.kept_outputs import Outputs, choose
from tideline.numerics.labels.scores import share_right

TINY = torch.finfo(torch.float32).tiny


def prepare(config: Rehearsing, site: Site[Rehearsing]) -> Compared:
    none = no_moments(width(site.world))
    return Compared(none, none, torch.zeros(0, 2, dtype=torch.float64))


@step()
def shifts(order: Nothing, memory: Compared, site: Site[Rehearsing]) -> Outcome[Moments, Compared]:
    """Moments of training rows, of which no label is looked at."""
    own = as_record(moments_of(in_parts(site.data.x), width(site.world)))
    return Outcome(own, replace(memory, own=own))


def counting(view: View) -> AnyStep:
    """The step that counts the rows of a view by what each candidate predicts."""

    def rehearsed(order: Nothing, memory: Compared, site: Site[Rehearsing]) -> Outcome[Counts, Compared]:
        found, y = predicted(site, view), labels(site)
        made = torch.zeros(6, len(site.config.candidates), dtype=torch.float64)
        for i, p in enumerate(found):
            if p is not None and y is not None:
                none = p if found[0] is None else found[0]
                made[:, i] = torch.stack([*compared(p.argmax(1), none.argmax(1), y), p.amax(1).sum()])
        rows, gained, lost, changed, right, confidence = made
        counts = Counts(rows=rows, right=right, gained=gained, lost=lost, changed=changed, confidence=confidence)
        return Outcome(counts, memory)

    return Step(name="rehearsed", run=rehearsed, takes=Nothing, keeps=Compared, gives=Counts, view=view)


def compared(guess: Tensor, none: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Rows, gained, lost, changed and right ones: predictions (n,), those without adaptation, and labels."""
    right, before = guess == y, none == y
    counts = (torch.ones_like(y), right & ~before, before & ~right, guess != none, right)
    return tuple(each.double().sum() for each in counts)


def voting(view: View) -> AnyStep:
    """The step that counts the rows of a view by the weighed predictions."""

    def voted(order: Weights, memory: Compared, site: Site[Rehearsing]) -> Outcome[Voted, Compared]:
        found, y = predicted(site, view), labels(site)
        p = weighed(found, order.w)
        if p is None or found[0] is None or y is None:
            return Outcome(Voted(torch.zeros(4, dtype=torch.float64), torch.zeros((), dtype=torch.float64)), memory)
        rows, gained, lost, changed, _ = compared(p.argmax(1), found[0].argmax(1), y)
        return Outcome(Voted(torch.stack([rows, gained, lost, changed]), p.amax(1).sum().double()), memory)

    return Step(name="voted", run=voted, takes=Weights, keeps=Compared, gives=Voted, view=view)


@step()
def agreeing(order: Nothing, memory: Compared, site: Site[Rehearsing]) -> Outcome[Agreed, Compared]:
    """Where nothing could be rehearsed: at how many rows each candidate agrees with the mean of all (Hu et al., EnsV, 2024)."""
    found, m = predicted(site, View.TRAIN), len(site.config.candidates)
    known = [p for p in found if p is not None]
    if not known:
        return Outcome(Agreed(0, torch.zeros(m, dtype=torch.int64)), memory)
    mean = torch.stack(known).mean(0).argmax(1)
    agreed = [0 if p is None else int((p.argmax(1) == mean).sum()) for p in found]
    return Outcome(Agreed(len(mean), torch.tensor(agreed)), memory)


@step()
def foretelling(order: Known, memory: Compared, site: Site[Rehearsing]) -> Outcome[Foretold, Compared]:
    """At a target, of training rows without labels. It remembers by what later rows can be compared with them."""
    kept, found = replace(memory, labelled=order.labelled, shifts=order.shifts), predicted(site, View.TRAIN)
    p = weighed(found, order.w)
    if p is None or found[0] is None:
        return Outcome(Foretold(0, 0, 0.0), kept)
    changed = int((p.argmax(1) != found[0].argmax(1)).sum())
    return Outcome(Foretold(len(p), changed, float(p.amax(1).sum())), kept)


def judge(order: Weights, memory: Compared, site: Site[Rehearsing]) -> Judged:
    """The weighed predictions for held-out rows, whose labels score them and no adaptation."""
    found = predicted(site, View.HELD_OUT)
    p = weighed(found, order.w)
    if p is None or site.data.y is None or len(p) != len(site.data):
        return Judged(None)
    others = {} if found[0] is None else {"source_only": share_right(found[0], site.data.y)}
    return Judged(p.clamp_min(TINY).log(), others)


def predicted(site: Site[Rehearsing], view: View) -> list[Tensor | None]:
    """Each candidate's probabilities (n, classes) of the chosen rows; None for one that left none. Raises MemoryLost."""
    config = site.config
    runs: Sequence[str] = config.rehearsals.get(site.me, ()) if site.role is not site.role.TARGET else config.at_targets
    n = len(choose(len(site.data), site.world.classes)) if len(site.data) else 0
    return [probabilities(site, RunId(run), view, n) for run in runs]


def probabilities(site: Site[Rehearsing], run: RunId, view: View, n: int) -> Tensor | None:
    kept = site.outputs(run)
    if not isinstance(kept, Outputs) or any(bool(side.isnan().any()) for side in (kept.training, kept.held_out)):
        return None  # what predicts no numbers predicts nothing
    p = (kept.held_out if view is View.HELD_OUT else kept.training).double().exp()
    if len(p) != n:
        what = f"The run {run} predicted {len(p)} rows here, and there are {n} now"
        raise MemoryLost(what, "The data of this site have changed since: begin the rehearsal again")
    return p / p.sum(1, keepdim=True).clamp_min(TINY)


def weighed(found: Sequence[Tensor | None], w: Tensor) -> Tensor | None:
    """The weighed mean of probabilities; None where one that counts left none."""
    parts = [(float(each), p) for each, p in zip(w, found, strict=True) if float(each) > 0]
    if not parts or any(p is None for _, p in parts):
        return None
    return torch.stack([each * p for each, p in parts if p is not None]).sum(0)


def labels(site: Site[Rehearsing]) -> Tensor | None:
    """Of the rows that were chosen; None where a site has none, as its held-out rows may have."""
    y = site.data.y
    return None if y is None else y[choose(len(y), site.world.classes)]
