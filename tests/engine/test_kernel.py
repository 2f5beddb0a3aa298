"""Enter and close, seeds, and what a step sees of its site."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.budgets import examples
from tests.engine.clusters import DEPTH, NORTH, NUMBER, SECRET, SOUTH, WEIGHT, WIDTH, clusters, played
from tests.engine.toys import METHODS, ROSTER, stage, start, toy
from tests.laws.stage import Cuts, Stage, registered
from tests.synthetic import NAMES, SimSite, blobs, experiment, sites
from tideline.core.asked.world import World
from tideline.core.errors import NotFound, RosterRefused, StepFailed
from tideline.core.phase import Each, Folded, Phase, Replies, Table, folded
from tideline.core.record import Nothing, field, record
from tideline.core.run import ClientId, Member, Role, RunId
from tideline.core.settings import EMPTY, plain
from tideline.core.step import Data, Outcome, Site, View, step
from tideline.engine.compute.configured import Configured
from tideline.engine.compute.inline import InlineCompute
from tideline.engine.compute.turns import game as turns
from tideline.engine.compute.turns.game import Game
from tideline.engine.compute.turns.reproducible import reproducible
from tideline.engine.coordinator.result import result_of
from tideline.engine.model.fold_report import groups_in, tables_in
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


# Groups and tables that a fold tells people: kept whole, bounded, and never sent to a site.


EARLY = {SOUTH: ["bert", "carl"], NORTH: ["anna"]}
LATE = {SOUTH: ["carl"], NORTH: ["anna", "bert"]}


def weight(number: int) -> dict[str, Any]:
    """The table of a round as plain data."""
    line = [number / 3, 0.0, 0.0]
    return {"rows": ["anna", "bert", "carl"], "columns": ["source", "target", "peer"], "values": [line] * 3}


def test_a_result_has_what_folds_told() -> None:
    """Round by round, beside the marks, without the group that nobody is in; and the last grouping by itself."""
    on, run = played()
    result = on.result(run)
    rounds = {(p["name"], p["round"]): (p["groups"], p["tables"]) for p in result["phases"]}
    assert rounds == {
        ("join", 1): ({}, {}),
        ("count", 1): (EARLY, {WEIGHT: weight(1)}),
        ("count", 2): (EARLY, {WEIGHT: weight(2)}),
        ("count", 3): (LATE, {WEIGHT: weight(3)}),
        ("quiet", 1): ({}, {}),
    }
    assert [p["marks"] for p in result["phases"]] == [{}, *[{"first": ["anna"]}] * 3, {}]
    assert result["groups"] == {"last": LATE, "adjusted_rand_index": None}
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    (table, *_) = (closed.tables[WEIGHT] for closed in on.journal.rounds(run) if closed.tables)
    assert all(type(value) is float for line in table.values for value in line), "whole numbers are told as floats"


def test_a_method_without_groups_has_none() -> None:
    """The key is there, and null."""
    on, run = played(rounds=1, fault="as much as there may be")
    assert on.result(run)["groups"] == {"last": {"g" * 200: ["anna"]}, "adjusted_rand_index": None}
    fresh = on.start(experiment("clusters", ROSTER))
    assert on.result(fresh)["groups"] is None


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("stranger", "puts 'nobody', who is no member, into the group 'one'"),
        ("two groups", "puts 'bert' into the group 'one' and into 'two'"),
        ("twice", "puts 'anna' into the group 'one' and into 'one'"),
        ("long group", "a group has the name 'gggg"),
        ("nameless group", "a group has the name '' (0 characters)"),
        ("numbered group", "a group has the name 1 (int)"),
        ("no table", "gives a list as the table 't'"),
        ("too many values", "gives 2 tables of 10,001 values in all; of one round at most 32 tables of 10,000 values are kept"),
        ("too many tables", "gives 33 tables of 33 values in all"),
        ("long table", "a table has the name 'tttt"),
        ("two lines", r"a table has the name 'a\nb' (3 characters)"),
        ("long row", "the table 't': a row has the name 'rrrr"),
        ("same column", "the table 't': a column has the name 'c', and so has another"),
        ("ragged", "the table 't' of 2 rows and 1 columns has not a value for each of them"),
        ("no rows", "the table 't' of 0 rows and 1 columns has not a value"),
        ("nan", "the table 't' has nan in the row 'r0', column 'c0'"),
        ("infinite", "the table 't' has -inf in the row 'r0'"),
        ("half a secret", "the table 't' has 1 as admins. Say True or False"),
        ("odd drawing", "the table 't' has 'cake' as drawn. Say one of: '', 'graph'"),
        ("text", "ValueError: could not convert string to float"),
    ],
)
def test_what_is_not_kept_ends_the_run(fault: str, said: str) -> None:
    """With the method's phase and what was wrong; the rounds before it stand as they were told."""
    on, run = played(fault=fault)
    row = on.row(run)
    assert row.status == "failed" and said in row.cause and "fold of count" in row.cause, row.cause
    assert len(row.cause) < 600 and on.result(run)["groups"]["last"] == EARLY


def test_no_site_is_told() -> None:
    """Neither orders nor parts nor replies have a word of it, in either direction; nor have the events and the audit log."""
    on, run = played()
    briefs: list[str] = []
    live = Stage(registered(clusters), sites(NAMES[:3]))
    again = live.start(experiment("clusters", ROSTER))
    for action in live.actions(again):
        briefs += [repr(order) for order in live.waiting()]
        action()
    crossed = live.wire.all() + on.wire.all() + "".join(briefs).encode()
    assert crossed and briefs and live.result(again)["groups"] == on.result(run)["groups"]
    told = repr([on.journal.events(run), on.journal.audit()])
    assert "round_closed" in told and "closed" in told
    for word in (NORTH, SOUTH, WEIGHT):
        assert word in repr(on.journal.rounds(run)) and word not in told and word.encode() not in crossed


def test_a_killed_coordinator_tells_the_same() -> None:
    """Ended at every place once, and with rounds between checkpoints computed again."""
    on, run = played(rounds=7)
    cut = Stage(registered(clusters), sites(NAMES[:3]), Cuts(every=True))
    again = cut.start(experiment("clusters", ROSTER, config={"rounds": 7}))
    assert cut.play(again).status == "completed", cut.row(again).cause
    whole, torn = (stage.result(each)["phases"] for stage, each in ((on, run), (cut, again)))
    assert [(p["groups"], p["tables"]) for p in whole] == [(p["groups"], p["tables"]) for p in torn]


def test_plain_data_come_back() -> None:
    """Groups and tables through JSON, and what rounds of before have: nothing."""
    table = Table(("a", "b"), ("x",), ((0.1,), (1e300,)))
    given = Folded(None, groups=groups_in({"one": ["a"]}), tables={"t": table})
    assert folded(given) is given and folded(3) == Folded(3)
    assert tables_in(json.loads(json.dumps(plain(given.tables)))) == given.tables
    assert groups_in(json.loads(json.dumps(plain(given.groups)))) == given.groups == {"one": ("a",)}
    assert (groups_in(None), tables_in(None)) == ({}, {})


def test_a_table_for_admins() -> None:
    """Who owns the journal sees it, and that it is for admins; a result that is not for admins has no word of it."""
    on, run = played(secret=True)
    whole, part = on.result(run), result_of(on.journal, run, on.clock.now(), history=True, admins=False)
    told = [p["tables"] for p in whole["phases"] if p["name"] == "count"]
    values = [[NUMBER + 1], [NUMBER]]
    assert told[0] == {WEIGHT: weight(1), SECRET: {"rows": [DEPTH, WIDTH], "columns": ["at"], "values": values, "admins": True}}
    assert json.loads(json.dumps(whole)) == whole
    assert [p["tables"] for p in part["phases"] if p["name"] == "count"] == [{WEIGHT: weight(r)} for r in (1, 2, 3)]
    assert all(word in repr(whole) and word not in repr(part) for word in (SECRET, DEPTH, WIDTH, repr(NUMBER), "admins"))
    crossed = on.wire.all() + repr([on.journal.events(run), on.journal.audit()]).encode()
    assert SECRET.encode() not in crossed and repr(NUMBER).encode() not in crossed


def test_tables_are_read_back() -> None:
    """How they are drawn and whether they are for admins too; a table without these is as one by default."""
    bare = {"rows": ["a"], "columns": ["x"], "values": [[0.5]]}
    default = Table(("a",), ("x",), ((0.5,),))
    assert tables_in({"t": bare})["t"] == default and plain(default) == bare | {"admins": False, "drawn": ""}
    for each in (default, replace(default, drawn="graph"), replace(default, admins=True)):
        assert tables_in(json.loads(json.dumps(plain({"t": each})))) == {"t": each}
