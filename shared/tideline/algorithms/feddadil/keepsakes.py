"""What a site's owner may take home: labelled summaries, the classifier that was chosen, a picture. None of it is ever sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tideline.algorithms.feddadil.messages import Labelled, Mine
from tideline.algorithms.feddadil.target import guesses

if TYPE_CHECKING:
    from tideline.algorithms.feddadil import Config


def keepsakes(config: Config, memory: Mine) -> Mapping[str, Mapping[str, Tensor]]:
    """Empty before the first adaptation, and at sources."""
    if not memory.chosen:
        return {}
    taken = {f"summary_{spc}": summary(each) for spc, each in memory.summaries.items()}
    taken["classifier"] = classifier(memory)
    if len(memory.picture.z):
        taken["picture"] = picture(memory)
    return taken


def summary(points: Labelled) -> dict[str, Tensor]:
    """Labelled points in feature space: x (r, d), y (r,), soft (r, n_c)."""
    return {"x": points.z, "y": points.y.argmax(1), "soft": points.y}


def classifier(memory: Mine) -> dict[str, Tensor]:
    """All that predicting takes: the network's weights and, unless the unadapted network was chosen, the scaling of its features
    and the linear layers with their shares."""
    network = {f"network/{name}": weights for name, weights in memory.model.items()}
    linear = memory.candidates.get(memory.chosen)
    if linear is None:
        return network
    own = {"shift": memory.shift, "stretch": memory.stretch}
    return own | {"weight": linear.weight, "bias": linear.bias, "share": linear.share} | network


def picture(memory: Mine) -> dict[str, Tensor]:
    """The site's rows and their barycenter along the directions in which both vary most; classes as the choice guesses them."""
    guess = guesses(memory.candidates, memory)[memory.chosen]
    both = torch.cat([memory.z, memory.picture.z])
    flat = plane(both)
    return {
        "site": flat[: len(memory.z)],
        "site_class": guess.argmax(1),
        "barycenter": flat[len(memory.z) :],
        "barycenter_class": memory.picture.y.argmax(1),
    }


def plane(z: Tensor) -> Tensor:
    """The first two principal components of rows (n, d): (n, 2). By whichever of covariance and Gram matrix is smaller."""
    x = (z - z.mean(0)).double()
    if x.shape[1] <= x.shape[0]:
        axes: Tensor = torch.linalg.eigh(x.mT @ x).eigenvectors[:, -2:]
        return (x @ axes).flip(1).float()
    found = torch.linalg.eigh(x @ x.mT)
    components: Tensor = found.eigenvectors[:, -2:] * found.eigenvalues[-2:].clamp_min(0).sqrt()
    return components.flip(1).float()
