"""What travels around a secure sum, and what the state has beside a method's own while some are to come.

The protocol's own messages are files of `tideline.secure.rounds.forms`, as bytes here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from functools import cache
from typing import Any, cast

from torch import Tensor

from tideline.core.privacy import TO_SUM, Exposure
from tideline.core.record import field, leaves, record
from tideline.learning.around.beside import Beside

OF_MASKS = "of keys and masks alone, not of rows"


@record
class Asked:
    """What a site is asked between values: the file of a message."""

    file: Tensor = field("asked_bytes", doc="a message of the secure sum, as its file's bytes")


@record
class Answered:
    """What it answers."""

    file: Tensor = field(
        "told_bytes", Exposure.MASKED, private=OF_MASKS, doc="public keys, sealed shares or signatures, as a file's bytes"
    )


@record
class SumAsked:
    """Beside the order that values answer: how they become whole numbers, and what they are masked by.

    span (n, 0): no numbers, but how many of 32 bits there are to be. delivery: the file of the site's shares, and of whose masks
    its own are to cancel with; None in a simulation, which masks nothing. orders: the digest of what each site is asked, where
    these differ.
    """

    span: Tensor = field("summed 0", doc="no numbers: how many there are to be")
    exponent: int = field(doc="a whole number stands for a step of 2^-exponent")
    sites: int = field(low=1, doc="how many sites are asked, all together")
    delivery: Tensor | None = field("delivery_bytes", doc="shares of masks, sealed to the site")
    orders: dict[str, str] = field(doc="digests of what sites are asked, where these differ")


@record
class Rounds:
    """What the coordinator keeps of one phase's rounds whose keys it has: files of messages, and the sum that is under way.

    first: the round of the first roll.
    """

    first: int = field(doc="the round whose keys come first")
    rolls: tuple[Tensor, ...] = field("...", doc="the keys of all sites, of each round")
    parcels: dict[str, Tensor] = field(doc="the sealed shares of each site, of each round: by `parcels_key`")
    order: str = field(doc="the digest of what was asked")
    total: Tensor | None = field("...", doc="the sum under masks")
    survivors: tuple[str, ...] = field(doc="whose values it is of")
    agreements: Tensor | None = field("...", doc="their signatures")


def parcels_key(number: int, author: str) -> str:
    """Each site's are a file of their own: those of 65 sites are more than one message may have."""
    return f"{number} {author}"


@record
class Sums:
    """The same of all phases."""

    of: dict[str, Rounds] = field(doc="by the phase's name")


SUMS = Beside("sums", Sums, "keys of secure sums to come, and one that is not complete yet")
ASKED = Beside("sum_asked", SumAsked, "how values are added up")


def summand_of(kind: type[Any], form: str, private: bool, lone: str = "") -> type[Any]:
    """The record that is sent in place of another of which all numbers are added up. lone: as in core.phase.Sums."""
    return summand(cast(Hashable, kind), form, private, lone)


@cache
def summand(kind: Any, form: str, private: bool, lone: str) -> type[Any]:
    known = tuple(leaves(kind))
    exposure = max((each.exposure for each in known if each.exposure), key=tuple(Exposure).index)
    noise = "; ".join(dict.fromkeys(each.private for each in known if each.private))
    doc = f"{', '.join(each.path for each in known)}, each of them added up over sites{f'; {lone}' if lone else ''}"
    audience = TO_SUM.union(*(each.audience for each in known if lone))
    values = field("summed", exposure, audience=audience, form=form, private=noise, doc=doc)
    order = field("", Exposure.MASKED, private=OF_MASKS, doc="the digest of what the site was asked")
    made = dataclasses.make_dataclass(
        f"Summed{kind.__name__}", [("values", Tensor, values), ("order", str, order)], frozen=True, eq=False
    )
    made.__record__ = True  # type: ignore[attr-defined]
    return made
