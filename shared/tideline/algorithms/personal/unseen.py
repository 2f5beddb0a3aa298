"""How models that sites trained alone do in a domain that none of them saw: every target scores all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

from tideline import nets
from tideline.algorithms.personal.messages import Mine, Models, Shared, Start
from tideline.core.phase import Folded, Phase, Plan, Replies, Turn
from tideline.core.record import Nothing, Weights
from tideline.core.run import ClientId, Role
from tideline.core.step import Outcome, Site, step
from tideline.learning.evaluate import evaluate, outputs

if TYPE_CHECKING:
    from tideline.algorithms.personal import LocalConfig


def last_look(confidence: bool) -> Plan[LocalConfig, Start]:
    """Every model up once, and all of them to each target."""
    send = Phase("share", share, ask=end_to_labelled, fold=gather)
    return send, evaluate(
        models_to_targets, score_one, takes=Models, keeps=Mine, name="unseen", each=models_in, confidence=confidence
    )


@step()
def share(order: Nothing, memory: Mine, site: Site[LocalConfig]) -> Outcome[Shared, Mine]:
    """The site's own model goes up, once; empty where the site has trained none."""
    return Outcome(Shared(memory.model), memory)


def end_to_labelled(state: Start, turn: Turn[LocalConfig]) -> dict[ClientId, Nothing]:
    """That it is over, to all who have labels; to nobody where there is no target to score a model."""
    return dict.fromkeys(turn.labelled(), Nothing()) if turn.members(Role.TARGET) else {}


def gather(state: Start, replies: Replies[Shared], turn: Turn[LocalConfig]) -> Folded[Start]:
    """The models that are the network's by names, shapes and dtypes. A site that has trained none sent none."""
    like = nets.template(turn.world)
    there = {client: reply.model for client, reply in replies.items() if alike(reply.model, like)}
    left_out = tuple(client for client in replies if client not in there)
    return Folded(replace(state, models=tuple(there.values())), {"left out": left_out} if left_out else {})


def alike(model: Weights, like: Weights) -> bool:
    """Whether names, shapes and dtypes agree."""
    return model.keys() == like.keys() and all((w.shape, w.dtype) == (like[k].shape, like[k].dtype) for k, w in model.items())


def models_to_targets(state: Start, turn: Turn[LocalConfig]) -> dict[ClientId, Models]:
    """All models, without names, to every target."""
    return dict.fromkeys(turn.members(Role.TARGET), Models(state.models)) if state.models else {}


def models_in(order: Models) -> tuple[Weights, ...]:
    """What a target scores, one after the other: they are mapped files, and one network is in memory."""
    return order.models


def score_one(order: Weights, memory: Mine, site: Site[LocalConfig], x: Tensor) -> Tensor:
    """Outputs of one site's model."""
    return outputs(nets.loaded(site.world, order, site.device), x, site.device)
