"""Groups and tables that a fold tells people: kept whole, bounded, and never sent to a site."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.clusters import DEPTH, NORTH, NUMBER, ROSTER, SECRET, SOUTH, WEIGHT, WIDTH, clusters, played
from tests.laws.stage import Cuts, Stage, registered
from tests.synthetic import NAMES, experiment, sites
from tideline.core.phase import Folded, Table, folded
from tideline.core.settings import plain
from tideline.engine.coordinator.result import result_of
from tideline.engine.model.fold_report import groups_in, tables_in

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
