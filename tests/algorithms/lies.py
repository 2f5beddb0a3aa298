"""What an agent that is not ours could answer: an honest reply, changed."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

import pytest
import torch

from tests.laws.stage import Stage, ready
from tideline.algorithms import METHODS
from tideline.archive.checks import LAX
from tideline.archive.parts import MemoryParts
from tideline.archive.reader import decode, decode_order
from tideline.archive.writer import encode
from tideline.core.algorithm import plan_of, resolve
from tideline.core.errors import Malformed
from tideline.core.record import record
from tideline.core.run import ClientId
from tideline.engine.model.orders import Order, Receipt, Reply

Change = Callable[[dict[str, Any]], dict[str, Any]]
NIGHT = pytest.mark.nightly(job="numbers")


def night_params(*cases: Any) -> list[Any]:
    """Return cases as parameters of tests that come at night; a tuple is a value for each parameter."""
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=NIGHT) for case in cases]


def tier_params(cases: Mapping[str, Any], *quick: str) -> list[Any]:
    """Return named cases as parameters; those that are not named as quick come at night."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), id=name, marks=() if name in quick else NIGHT)
        for name, case in cases.items()
    ]


def honest(stage: Stage, run: Any, order: Order, who: ClientId) -> Any:
    """What a site's own agent would answer."""
    head = ready(stage.agents[who], order)
    row = stage.row(run)
    algorithm = resolve(METHODS, row.method)
    step = plan_of(algorithm, algorithm.configure(dict(row.spec.config)), row.spec.scoring)[order.cursor].step
    assert step is not None
    _, rules = decode_order(step.takes, order.files[0][0], stage.parts, LAX)
    return decode(step.gives, head.reply[0][0], stage.vaults[who].parts(run), rules)


def free(given: dict[str, Any], kind: type[Any]) -> Any:
    """The same fields, held to nothing."""
    hints = typing.get_type_hints(kind)
    made: Any = record(type("Free", (), {"__annotations__": {name: hints[name] for name in given}}))
    return made(**given)


def reported(stage: Stage, run: Any, order: Order, who: ClientId, change: Change) -> Receipt:
    """A site's answer, changed."""
    reply, parts = honest(stage, run, order, who), MemoryParts()
    given = {f.name: getattr(reply, f.name) for f in fields(reply)}
    files = encode(free(given | change(given), type(reply)), parts, LAX).files
    arrivals = tuple((digest, size, 0) for digest, size in files)
    with stage.agent_service.push(who, order.id, arrivals) as intake:
        for digest, _ in files:
            intake.write(parts.view(digest))
        stage.agent_service.received(who, order.id, intake)
    return stage.agent_service.report(who, Reply(order.id, files))


def refused_alone(stage: Stage, run: Any, order: Order, who: ClientId, change: Change, kind: str) -> None:
    """A changed answer is refused by name: its order has failed, and the round goes on without it."""
    receipt = reported(stage, run, order, who, change)
    assert receipt.verdict == "refused" and receipt.error is not None and receipt.error.kind == kind
    stage.play(run, lambda orders: [each for each in orders if each.cursor == order.cursor])
    assert who not in next(r for r in stage.journal.rounds(run) if r.cursor == order.cursor).folded


def refusal_kinds(stage: Stage, run: Any, order: Order, who: ClientId, changes: Iterable[Change]) -> Iterator[str]:
    """Yield for each changed answer the kind of its refusal, or nothing if it would be taken; the order stays open."""
    reply, row = honest(stage, run, order, who), stage.agent_service.own(who, order.id)
    given = {f.name: getattr(reply, f.name) for f in fields(reply)}
    for change in changes:
        files = encode(free(given | change(given), type(reply)), stage.parts, LAX).files
        try:
            stage.agent_service.check(row, Reply(order.id, files))
        except Malformed as error:
            yield error.kind
        else:
            yield ""


def open_round(stage: Stage, given: dict[str, Any], phase: str, who: str = "") -> tuple[Stage, Any, Order]:
    """Play a run, with whoever answers in a minute, until a phase is open; return the order of one site, or of the first."""
    run = stage.start({"waiting": {"min_replies": 1, "deadline": 60.0}, **given})
    for action in stage.actions(run):
        action()
        for name in [ClientId(who)] if who else stage.agents:
            for order in stage.agent_service.orders(name):
                if order.phase == phase:
                    return stage, run, order
    raise AssertionError(f"{stage.row(run).status}: {stage.row(run).cause}")


def filled(field: str, value: float) -> Change:
    """Weights of equal numbers."""
    return lambda given: {field: {name: torch.full_like(w, value) for name, w in given[field].items()}}
