"""Enter and close, seeds, and what a step sees of its site."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.budgets import examples
from tests.engine.toys import METHODS, ROSTER, stage, start, toy
from tests.synthetic import NAMES, SimSite, blobs, experiment, sites
from tideline.core.asked.world import World
from tideline.core.errors import NotFound, RosterRefused, StepFailed
from tideline.core.phase import Each, Phase, Replies
from tideline.core.record import Nothing, field, record
from tideline.core.run import ClientId, Member, Role, RunId
from tideline.core.settings import EMPTY
from tideline.core.step import Data, Outcome, Site, View, step
from tideline.engine.compute.configured import Configured
from tideline.engine.compute.inline import InlineCompute
from tideline.engine.compute.turns import game as turns
from tideline.engine.compute.turns.game import Game
from tideline.engine.compute.turns.reproducible import reproducible
from tideline.engine.model.orders import Purpose, order_id, seed_for
from tideline.engine.model.runs import Status
from tideline.engine.process.pipe import CHECK, DESCRIBE, GIVES, answered
from tideline.engine.simulation.federation import simulate

ROLL = tuple(Member(ClientId(n), Role.SOURCE, True) for n in ("carl", "anna", "bert"))


@record
class Log:
    """A state that says what happened to it."""

    said: str = field(doc="words")


@step()
def idle(order: Log, memory: Nothing, site: Site) -> Outcome[Nothing, Nothing]:
    """Nothing."""
    return Outcome(Nothing(), memory)


def told(name: str) -> Any:
    return lambda state, replies, turn: Log(f"{state.said} {name}{turn.round}({len(replies)})")


def game(*plan: Phase) -> Game:
    algorithm = replace(toy, begin=lambda c, w, r, g: Log("begun"), plan=lambda c: plan, state=Log)
    return Game(method=Configured(algorithm, None), world=World(), roster=ROLL, seed=3)


def to_everybody(state: Log, turn: Any) -> Any:
    return {m.id: state for m in turn.roster}


def test_phases_that_ask_nobody_are_passed() -> None:
    """A computation is told at once, an empty ask is skipped without being told, and a skipped phase leaves no trace."""
    fold = Phase("fold", None, fold=told("fold"))
    empty = Phase("empty", idle, fold=told("empty"))
    ask = Phase("ask", idle, ask=to_everybody, fold=told("ask"))
    over = Phase("over", idle, ask=to_everybody, fold=told("over"), skip=lambda state: "fold2" in state.said)
    plan = game(fold, empty, fold, over, ask, fold, over)
    turned = turns.begin(plan)
    assert (turned.state.said, turned.cursor) == ("begun fold1(0) fold2(0)", 4)
    assert list(turned.orders) == ["anna", "bert", "carl"]
    last = turns.close(plan, turned.state, turned.cursor, Replies({ClientId("anna"): Nothing}))
    assert (last.state.said, last.cursor, dict(last.orders)) == ("begun fold1(0) fold2(0) ask1(1) fold3(0)", 7, {})


def test_an_empty_plan_ends_where_it_begins() -> None:
    """A plan without phases gives the first state."""
    turned = turns.begin(game())
    assert (turned.state.said, turned.cursor, turned.orders) == ("begun", 0, EMPTY)


def one_by_one(looked: list[str], *clients: str) -> Any:
    """An ask whose messages are made when they are looked at, from torch's global generator."""

    def make(client: ClientId) -> Log:
        looked.append(client)
        return Log(f"{client} {torch.get_num_threads()} {float(torch.rand(())):.6f}")

    return lambda state, turn: Each(map(ClientId, clients), make)


def test_messages_may_be_made_one_by_one() -> None:
    """In the order of names, when they are looked at and no sooner; each as in the ask itself: its seed, its threads."""
    looked: list[str] = []
    turned = turns.begin(game(Phase("ask", idle, ask=one_by_one(looked, "carl", "anna"))))
    assert list(turned.orders) == ["anna", "carl"] and len(turned.orders) == 2 and looked == []
    torch.manual_seed(9)
    first = {client: order.said for client, order in turned.orders.items()}
    assert looked == ["anna", "carl"] and first["anna"].split()[1:] == first["carl"].split()[1:]
    torch.manual_seed(10)
    assert {client: order.said for client, order in turned.orders.items()} == first
    with pytest.raises(KeyError):
        turned.orders[ClientId("bert")]


def test_who_is_asked_one_by_one_is_a_member() -> None:
    """A stranger is refused before anything is made."""
    looked: list[str] = []
    with pytest.raises(RosterRefused, match="'dora', who is no member"):
        turns.begin(game(Phase("ask", idle, ask=one_by_one(looked, "dora"))))
    assert looked == []


def test_an_error_in_a_message_that_is_made_later_is_the_asks() -> None:
    """It names the ask that it belongs to."""

    def make(client: ClientId) -> Log:
        raise ZeroDivisionError("no such thing")

    turned = turns.begin(game(Phase("ask", idle, ask=lambda state, turn: Each([ClientId("anna")], make))))
    with pytest.raises(StepFailed, match="ask of ask raised ZeroDivisionError: no such thing"):
        list(turned.orders.values())


def test_replies_are_read_in_sorted_order() -> None:
    """However they are given, replies are iterated by client and decoded when they are looked at."""
    looked: list[str] = []
    replies = Replies({ClientId(c): (lambda c=c: looked.append(c) or c) for c in ("bert", "carl", "anna")})
    assert list(replies) == ["anna", "bert", "carl"] and looked == []
    assert list(replies.values()) == looked == ["anna", "bert", "carl"]


def test_the_host_process_is_left_as_it_was() -> None:
    """A turn uses generators and threads of its own; the host's are untouched, also after an error."""
    torch.manual_seed(5)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    with pytest.raises(ValueError, match="x"), reproducible(1, threads + 1) as rng:
        assert torch.get_num_threads() == threads + 1
        torch.randn(3)
        torch.randn(3, generator=rng)
        raise ValueError("x")
    assert torch.equal(torch.get_rng_state(), before) and torch.get_num_threads() == threads


@settings(max_examples=examples(50))
@given(st.integers(0, 2**62), st.sampled_from(Purpose), st.integers(-1, 1000), st.text(max_size=8))
def test_seeds_fit_and_differ(seed: int, purpose: Purpose, cursor: int, client: str) -> None:
    """A seed fits torch's generator and changes with each of its four ingredients."""
    made = seed_for(seed, purpose, cursor, client)
    assert 0 <= made < 2**63
    others = [seed_for(seed + 1, purpose, cursor, client), seed_for(seed, purpose, cursor + 1, client)]
    others += [
        seed_for(seed, purpose, cursor, client + "x"),
        *(seed_for(seed, p, cursor, client) for p in Purpose if p != purpose),
    ]
    assert made not in others


def test_seeds_and_order_ids_never_change() -> None:
    """Golden values: a release that changed them would break every recorded run."""
    assert seed_for(7, Purpose.STEP, 3, "anna") == GOLDEN_SEED
    assert order_id(RunId("r"), 3, ClientId("anna"), 1) == GOLDEN_ORDER


GOLDEN_SEED = 8987740226232045516
GOLDEN_ORDER = "049d8d03e10a6263656e118a5ab00c68"


class Poisoned(torch.Tensor):
    """Labels that nobody may read."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("a target's training labels were read")


class Careless:
    """A shelf that forgets to hide a target's labels."""

    def view(self, view: View, role: Role) -> Data:
        data = blobs(41, 2, 0)
        if view is View.HELD_OUT or role is not Role.TARGET:
            return data
        assert data.y is not None
        return replace(data, y=data.y.as_subclass(Poisoned))


@pytest.mark.parametrize("method", ["fedavg", "toy"])
def test_a_targets_training_labels_reach_no_step(method: str) -> None:
    """Even a careless shelf's labels are taken away before the site's code sees them; held-out labels still score."""
    result = simulate(METHODS, experiment(method, ROSTER), sites() | {"carl": SimSite(lambda world, role: Careless())})
    assert result["status"] == "completed", result["cause"]
    assert result["clients"][2]["accuracy"] is not None


def test_a_site_that_cannot_read_its_data_says_no_more_than_that() -> None:
    """An error while data are opened or read is told by its type only."""

    def broken(world: World, role: Role) -> Any:
        raise OSError("/home/owner/patients.csv is locked")

    on = stage(bert=SimSite(broken))
    row = on.play(start(on))
    assert row.status is Status.STALLED and "raised OSError" in row.cause and "patients" not in row.cause


def test_calls_are_known_by_name() -> None:
    """An unknown call is refused; across a process the known ones give what they give here."""
    compute = InlineCompute(stage().parts, METHODS)
    assert [m.name for m in compute.methods()] == ["toy", "fedavg"]
    described = compute.describe("fedavg", "tiny")
    assert {s.name for s in described.settings} >= {"rounds", "epochs", "rate"}
    assert all(s.doc for s in described.settings) and len(described.digest) == 64
    asked = {"method": "fedavg", "preset": "tiny", "secure_sums": False}
    assert DESCRIBE.result(answered(compute, "describe", asked)) == described
    assert CHECK.result({GIVES: None}) is None, "a check gives nothing"
    with pytest.raises(NotFound, match="no call 'halt'"):
        answered(compute, "halt", {})


def test_names_of_sites_do_not_meet_their_data() -> None:
    """Every site opens its own data, once a run, for the world and role that the run gives it."""
    opened: list[tuple[str, Role]] = []

    def opening(name: str, site: SimSite) -> SimSite:
        return SimSite(lambda world, role: opened.append((name, role)) or site.open_site_data(world, role))  # type: ignore[func-returns-value]

    simulate(METHODS, experiment("toy", ROSTER), {n: opening(n, s) for n, s in sites().items()})
    assert opened == [(NAMES[0], Role.SOURCE), (NAMES[1], Role.SOURCE), (NAMES[2], Role.TARGET)]
