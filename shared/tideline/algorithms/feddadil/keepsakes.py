"""What a site's owner may take home: labelled summaries, the classifier that was chosen, a picture. None of it is ever sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tideline.algorithms.feddadil.client import own
from tideline.algorithms.feddadil.messages import Labelled, Linear, Mine
from tideline.algorithms.feddadil.target import BY_OWN, COMMITTEE, NONE, OWN, E, R, guesses
from tideline.numerics.clustering.cosine import plane

if TYPE_CHECKING:
    from tideline.algorithms.feddadil import Config

PARTS = {COMMITTEE: dict.fromkeys((NONE, OWN, R, E), 0.25)}


def keepsakes(config: Config, memory: Mine) -> Mapping[str, Mapping[str, Tensor]]:
    """Empty before the first adaptation, and at sources."""
    if not memory.chosen:
        return {}
    taken = {f"summary_{spc}": summary(each) for spc, each in memory.summaries.items()}
    taken["classifier"] = classifier(memory)
    if len(memory.picture.z):
        taken["picture"] = picture(config, memory)
    return taken


def summary(points: Labelled) -> dict[str, Tensor]:
    """Labelled points in feature space: x (r, d), y (r,), soft (r, n_c)."""
    return {"x": points.z, "y": points.y.argmax(1), "soft": points.y}


def classifier(memory: Mine) -> dict[str, Tensor]:
    """All that predicting takes. The prediction is the sum over members of share times softmax(weight z + bias), where z is

    for `own_*` (m, n_c, d)     the encoder's feature, (x - shift) / stretch, and then as the setting `scaling` says;
    for `common_*` (1, n_c, d)  (x - common_shift) / common_stretch;
    and `network_share` times the whole network's own softmax, whose weights stand under `network/`.
    """
    members = PARTS.get(memory.chosen, {memory.chosen: 1.0})
    linear = [(share, each) for name, share in members.items() for each in on_own_scale(name, memory)]
    taken = {"shift": memory.shift, "stretch": memory.stretch, **{f"network/{n}": w for n, w in memory.model.items()}}
    if NONE in members:
        taken |= unadapted(memory, members[NONE])
    if linear:
        taken |= {f"own_{part}": torch.cat([getattr(each, part) for _, each in linear]) for part in ("weight", "bias")}
        taken["own_share"] = torch.cat([share * each.share for share, each in linear])
    return taken


def unadapted(memory: Mine, share: float) -> dict[str, Tensor]:
    """The network's share; or, where data are features, the layer of all sources' rows with its share and its scale."""
    told = torch.tensor([share])
    if memory.model:
        return {"network_share": told}
    layer = {"common_weight": memory.heads.weight[:1], "common_bias": memory.heads.bias[:1], "common_share": told}
    return layer | {"common_shift": memory.heads.shift, "common_stretch": memory.heads.stretch}


def on_own_scale(name: str, memory: Mine) -> list[Linear]:
    """The layers on own-scaled features behind a prediction's name, their shares summing to one."""
    if name == OWN:
        return [Linear(memory.heads.weight[BY_OWN:], memory.heads.bias[BY_OWN:], torch.ones(1))]
    if name == NONE:
        return []
    found = [each for key, each in sorted(memory.candidates.items()) if key.startswith(name)]
    return [replace(each, share=each.share / len(found)) for each in found]


def picture(config: Config, memory: Mine) -> dict[str, Tensor]:
    """The site's rows and their barycenter along the directions in which both vary most; classes as the choice guesses them."""
    z = own(memory, config)
    guess = guesses(memory, memory.heads, memory.z, memory.guess, config)[memory.chosen]
    flat = plane(torch.cat([z, memory.picture.z]))
    return {
        "site": flat[: len(z)],
        "site_class": guess.argmax(1),
        "barycenter": flat[len(z) :],
        "barycenter_class": memory.picture.y.argmax(1),
    }
