"""By what rows are normalised, as a world says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tideline.core.settings import Plain, setting


class Scaling(StrEnum):
    """By what rows are normalised. SHARED: the labelled sites' pooled statistics. SITE, SITE_WHITEN: each site's own, of which
    nothing leaves. IMAGENET, GIVEN: constants.
    """

    NONE = "none"
    SHARED = "shared"
    SITE = "site"
    SITE_WHITEN = "site_whiten"
    IMAGENET = "imagenet"
    GIVEN = "given"

    @property
    def own(self) -> bool:
        """Whether each site has statistics of its own."""
        return self in (Scaling.SITE, Scaling.SITE_WHITEN)

    @property
    def found(self) -> bool:
        """Whether statistics are found in the run, by rows."""
        return self.own or self is Scaling.SHARED


class Place(StrEnum):
    """Where rows are normalised: before the network, or behind a frozen encoder."""

    INPUTS = "inputs"
    FEATURES = "features"


@dataclass(frozen=True)
class Normalise:
    """What is done to rows before anything is computed of them: for each channel of images, for each number of vectors."""

    kind: Scaling = setting(Scaling.NONE, doc="none, shared, site, site_whiten, imagenet; or give mean and std")
    at: Place = setting(Place.INPUTS, doc="inputs; or features, those of a frozen encoder")
    mean: tuple[float, ...] = setting((), doc="a constant for each channel or number, which is subtracted")
    std: tuple[float, ...] = setting((), doc="a constant for each channel or number, which is divided by")

    @classmethod
    def unfolded(cls, given: Mapping[str, Any], where: str) -> Mapping[str, Any]:
        """Who gives constants need not name a kind."""
        return {"kind": Scaling.GIVEN.value, **given} if {"mean", "std"} & given.keys() else given

    @property
    def named(self) -> Normalise:
        """The same without constants."""
        return Normalise(self.kind, self.at)

    @property
    def plain(self) -> Plain:
        """In its shortest form."""
        given = self.kind is Scaling.GIVEN
        if self.at is Place.INPUTS and not given:
            return self.kind.value
        named: dict[str, Plain] = {"mean": list(self.mean), "std": list(self.std)} if given else {"kind": self.kind.value}
        return named if self.at is Place.INPUTS else {**named, "at": self.at.value}


NO_SCALING = Normalise()
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and spread of red, green and blue, for pixels in [0, 1]
