"""The laws of weights in fewer bytes, for every method: none of them knows of it."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator
from typing import Any

import pytest

from tests.laws import laws
from tests.laws.case import WIRES, Case
from tests.laws.stage import Stage
from tests.laws.trace import answered, asked
from tideline.algorithms import METHODS
from tideline.archive.layout import parse
from tideline.core.privacy import Exposure
from tideline.core.run import RunId
from tideline.core.settings import Plain
from tideline.engine.model.runs import JOIN, Status

AT_NIGHT = pytest.mark.nightly(job="methods")

NAMES = [name for name, _ in METHODS]
every = pytest.mark.parametrize("case", [Case(name, METHODS) for name in NAMES], ids=str)
# Models that travel whole, differences, and sealed ones; sites with a memory and without one.
FEW = ("fedavg", "fdan", "stlf")
# In the quick tier each wire once or twice, and each of the few methods; at night every method with every wire.
QUICK = {("fedavg", "bfloat16"), ("fedavg", "topk"), ("fdan", "int8"), ("stlf", "int8"), ("feddadil", "int8")}


def wire_params(names: Iterable[str], quick: Container[tuple[str, str]] = QUICK) -> pytest.MarkDecorator:
    """Parametrise a test over methods and wires."""
    pairs = [(name, wire) for name in names for wire in WIRES]
    cases = [
        pytest.param(Case(name, METHODS, wire=wire), id=f"{name}-{wire}", marks=() if (name, wire) in quick else AT_NIGHT)
        for name, wire in pairs
    ]
    return pytest.mark.parametrize("case", cases)


def nodes(tree: Plain) -> Iterator[str]:
    """The formats of a root's packed tensors."""
    match tree:
        case [str(name), dict()]:
            yield name
        case dict():
            for each in tree.values():
                yield from nodes(each)
        case [*many]:
            for each in many:
                yield from nodes(each)


def formats(stage: Stage, run: RunId) -> set[str]:
    """Those that a run's sites sent, sealed values apart."""
    orders = [order for order in stage.journal.orders(run) if order.cursor != JOIN and order.reply]
    return {name for order in orders for name in nodes(parse(stage.parts.view(order.reply[0][0])).structure)}


@every
def test_float32_changes_no_byte(case: Case) -> None:
    """A run that says so, and one that says nothing, ask, answer, promise and end alike."""
    plain, before = case.played()
    stage, run = case.played(wire={"format": "float32", "scale": "row", "feedback": False})
    assert stage.row(run).state_digest == plain.row(before).state_digest
    assert answered(stage.journal, run) == answered(plain.journal, before)
    assert asked(stage.journal, run) == asked(plain.journal, before)
    assert stage.row(run).contract == plain.row(before).contract
    assert stage.result(run)["wire"] is None
    assert not any(head.unsent for vault in stage.vaults.values() for head in vault.past)


@wire_params(NAMES)
def test_it_runs_to_its_end_whatever_the_order_of_arrival(case: Case) -> None:
    """Every message is finite and within its bounds; replies in any order, twice, and by another host end in the same bytes."""
    stage, run = case.played()
    row = stage.row(run)
    assert row.status is Status.COMPLETED, row.cause
    assert all(math.isfinite(value) for each in stage.result(run)["clients"] for value in each["metrics"].values())
    laws.arrival_does_not_matter(case, laws.HOSTS[-1:])


@wire_params(NAMES)
def test_the_contract_says_what_travels(case: Case) -> None:
    """In which form each field of weights is sent: what it does not say, no reply has; and every other clause is as it was."""
    (stage, run), (plain, before) = case.played(), Case(case.name, METHODS).played()
    with_wire, without = stage.row(run).contract, plain.row(before).contract
    assert [(c.phase, c.field, c.exposure) for c in with_wire] == [(c.phase, c.field, c.exposure) for c in without]
    said = [clause for clause in with_wire if clause.wire]
    assert all(clause.exposure is Exposure.WEIGHTS for clause in said)
    asked_for: Any = WIRES[case.wire]
    if not said:
        assert formats(stage, run) == set()
        whole = any(clause.exposure is Exposure.WEIGHTS for clause in with_wire)
        assert any("wire.format" in note for note in stage.row(run).spec.notes) and (not whole or case.wire == "topk")
    assert formats(stage, run) <= {asked_for["format"]}


# Of topk sites keep most of what they did not send.
@wire_params(FEW, quick={("fedavg", "topk")})
def test_restarts_change_nothing(case: Case) -> None:
    """A stop at any moment and a restart end where the uninterrupted run ends, what was not sent yet included."""
    laws.restarts_change_nothing(case)


@wire_params(FEW)
def test_functions_stay_pure(case: Case) -> None:
    """What is packed is not written to: an ask, step or fold that is called twice gives equal bytes."""
    laws.functions_are_pure(case)


def test_sites_train_from_what_was_sent() -> None:
    """The coordinator's own state is exact; the orders are not, and differences are to them."""
    stage, run = Case("fedavg", METHODS, wire="int8").played()
    first = next(order for order in stage.journal.orders(run) if order.cursor == 0)
    assert set(nodes(parse(stage.parts.view(first.files[0][0])).structure)) == {"int8"}
    state = stage.journal.rounds(run)[-1].state
    assert not set(nodes(parse(stage.parts.view(state[0][0])).structure))


def test_what_was_left_out_is_kept_until_the_last_exchange() -> None:
    """Beside the memory, of a method that keeps none, too; then it goes."""
    stage, run = Case("fedavg", METHODS, wire="topk").played()
    past = stage.vaults["anna"].past  # type: ignore[index]
    kept = [bool(head.unsent) for head in past]
    assert any(kept) and not kept[0] and not kept[-1]
    assert stage.row(run).spec.keeps is False
