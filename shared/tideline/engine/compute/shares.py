"""How much one site's reply may count in a fold: counts of rows that an operator knows, and a cap on shares.

A count that a site tells weighs its reply in a mean, and nobody else has counted. So it must be the number that the site reports
as its metric of the same name, which users see; a run may pin it, and may cap what one site comes to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any, TypeVar

from tideline.archive.errors import Undeclared
from tideline.core.phase import Replies, marked
from tideline.core.privacy import Exposure
from tideline.core.record import Record, specs
from tideline.core.run import ClientId, Shares

R = TypeVar("R", bound=Record)
SAMPLES = "samples"  # the count of rows that weighs a reply, and the metric that tells it
CAPPED, PINNED = "capped", "pinned"


def counts_in(reply: Record) -> dict[str, int]:
    """The fields of a reply that are one count."""
    names = [spec.name for spec in specs(type(reply)) if spec.exposure is Exposure.COUNT]
    found: dict[str, Any] = {name: getattr(reply, name) for name in names}
    return {name: value for name, value in found.items() if type(value) is int}


def agree(reply: Record, metrics: Mapping[str, float]) -> None:
    """Raises Undeclared for a count that is not the metric of the same name."""
    for name, value in counts_in(reply).items():
        if name in metrics and metrics[name] != value:
            what = f"The reply counts {value} {name}, and reports {metrics[name]:g}"
            raise Undeclared(what, "Look at the site: its agent's own code tells the same number twice")


def shared_out(replies: Replies[R], shares: Shares) -> Replies[R]:
    """Replies whose counts are the pinned ones, and at most as large as the cap allows. marks: whose were changed."""
    said = {c: each[SAMPLES] for c, each in replies.metrics.items() if c in replies and SAMPLES in each}
    if shares == Shares() or not said:
        return replies
    pinned = {c: float(shares.counts[c]) for c in said if c in shares.counts}
    known = {**said, **pinned}
    most = known if shares.max is None else capped(known, shares.max)
    made = {c: max(int(most[c]), 1) for c in said if most[c] != said[c]}
    load = {c: partial(with_count, replies.loader(c), made[c]) if c in made else replies.loader(c) for c in replies}
    words = {PINNED: sorted(pinned), CAPPED: sorted(c for c in said if most[c] < known[c])}
    return Replies(load, replies.metrics, marked(words))


def with_count(load: Callable[[], R], count: int) -> R:
    """A reply with another count, if it has one that is above 0: a site that has no rows has none."""
    reply = load()
    if not any(each.name == SAMPLES for each in fields(reply)) or not reply.samples:  # type: ignore[attr-defined]
        return reply
    return replace(reply, samples=count)


def capped(counts: Mapping[ClientId, float], most: float) -> dict[ClientId, float]:
    """Counts, the largest brought down to one height, so that none is more than so much of their sum.

    Where fewer sites than 1 / most are there, that cannot be: then all count alike.
    """
    heights, rest = sorted(counts.values(), reverse=True), sum(counts.values())
    for k, highest in enumerate(heights):
        height = most * rest / (1 - k * most) if k * most < 1 else heights[-1]
        if highest <= height:
            return {client: min(count, height) for client, count in counts.items()}
        rest -= highest
    return dict.fromkeys(counts, heights[-1])
