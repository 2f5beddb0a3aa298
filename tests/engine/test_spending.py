"""What each site of a private run has spent so far: in results, events, reports and metrics, while the run goes on."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.engine.test_private_runs import ROSTER, asked
from tests.laws.stage import Stage
from tests.synthetic import sites
from tideline.algorithms import METHODS
from tideline.core.asked.private import Charge
from tideline.core.run import RunId, RunSpec
from tideline.core.settings import parse, plain
from tideline.engine.epsilon.renyi import renyi_epsilon
from tideline.engine.epsilon.spending import epsilons
from tideline.engine.model.runs import Status
from tideline_agent.home.budget.shown import standings
from tideline_agent.home.ledger import FileLedger
from tideline_agent.metrics import AgentMetrics
from tideline_server.metrics import MOST_EPSILONS, Metrics

TRAIN, SCORE, DELTA = Charge(2.0, 0.5, 2), Charge(8.0, 1.0, 1), 1e-3


def spent(stage: Stage, run: RunId) -> dict[str, float]:
    return {each["name"]: each["epsilon"] for each in stage.result(run)["clients"]}


def test_it_grows_with_each_exchange() -> None:
    """Of sites that train more than of those that are only scored; an open exchange counts once it is asked."""
    stage = Stage(METHODS, sites())
    run = stage.start(asked())
    assert spent(stage, run) == dict.fromkeys(ROSTER, 0.0)
    seen = []
    for action in stage.actions(run):
        action()
        seen.append(spent(stage, run))
    assert all(before[name] <= after[name] for before, after in pairwise(seen) for name in ROSTER)
    assert renyi_epsilon([TRAIN], DELTA) in {each["anna"] for each in seen}
    last, most = seen[-1], stage.result(run)["privacy"]["epsilon"]
    assert last["anna"] == last["bert"] == most and 0 < last["carl"] == renyi_epsilon([replace(SCORE, times=2)], DELTA) < most


def test_events_tell_it_live() -> None:
    """Of the sites that a closed round asked."""
    stage = Stage(METHODS, sites())
    run = stage.start(asked())
    assert stage.play(run).status == "completed"
    told = [event.data.get("epsilon") for event in stage.journal.events(run) if event.kind == "closed"]
    assert told[0] is None  # the join
    assert told[1] == dict.fromkeys(("anna", "bert"), renyi_epsilon([TRAIN], DELTA))
    assert told[-1] == spent(stage, run)


def test_other_runs_tell_none() -> None:
    stage = Stage(METHODS, sites())
    run = stage.start(asked(privacy=None))
    assert stage.play(run).status == "completed"
    assert spent(stage, run) == dict.fromkeys(ROSTER)
    assert not any("epsilon" in event.data for event in stage.journal.events(run))


def test_a_run_from_before_its_charges_were_written_tells_none() -> None:
    """It says what it costs in all, as it did."""
    stage = Stage(METHODS, sites())
    row = stage.row(stage.start(asked()))
    raw = {name: value for name, value in plain(row.spec).items() if name != "charges"}
    old = replace(row, spec=parse(RunSpec, raw))
    assert row.spec.charges == {"train/train": (TRAIN,), "score/score": (SCORE,)} and parse(RunSpec, plain(row.spec)) == row.spec
    assert epsilons(old, ()) == {} and set(epsilons(row, ()).values()) == {0.0}


def test_a_gauge_for_each_site_of_an_open_run() -> None:
    """It is gone when the run is over, and of many runs the oldest are."""
    stage, metrics = Stage(METHODS, sites()), Metrics("test")
    stage.scheduler.meter = metrics
    run = stage.start(asked())
    text = ""
    for action in stage.actions(run):
        action()
        text = metrics.text()[0].decode() if stage.row(run).status is Status.RUNNING else text
    assert f'tideline_run_epsilon{{client="anna",run="{run}"}} ' in text
    assert "tideline_run_epsilon{" not in metrics.text()[0].decode()
    for number in range(3):
        metrics.epsilons.closed(RunId(f"r{number}"), {f"s{i}": 1.0 for i in range(MOST_EPSILONS // 2)}, over=False)  # type: ignore[misc]
    text = metrics.text()[0].decode()
    assert 'run="r0"' not in text and text.count('run="r1"') == text.count('run="r2"') == MOST_EPSILONS // 2


def test_an_agent_tells_its_budget(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """And goes on telling the rest where the ledger cannot be read."""
    from prometheus_client import generate_latest

    from tests.site.test_budget import ONE, charged, reserved
    from tideline_agent.home.obeyed import obey

    file = tmp_path / "policy.toml"
    file.write_text("[privacy]\nepsilon = 4.0\n")
    obey(tmp_path, file, file.read_text())
    ledger, metrics = FileLedger(tmp_path), AgentMetrics("test")
    reserved(ledger, ONE)
    charged(ledger, ONE, "a")
    metrics.show_budgets(lambda: standings(tmp_path, ledger))
    text = generate_latest(metrics.registry).decode()
    for name in ("spent", "reserved", "left"):
        assert f'tideline_agent_epsilon_{name}{{limit="4",population="rows"}} ' in text
    ledger.path.unlink()
    text = generate_latest(metrics.registry).decode()
    assert "tideline_agent_build_info" in text and 'population="rows"' not in text


@pytest.mark.parametrize("private", [True, False])
def test_a_report_has_a_column_for_it(private: bool) -> None:
    from tideline.cli.tables import spent_epsilon
    from tideline.report.tables.sites import site_table

    stage = Stage(METHODS, sites())
    run = stage.start(asked() if private else asked(privacy=None))
    stage.play(run)
    result = stage.result(run)
    made = site_table(result)  # type: ignore[arg-type]
    assert (">epsilon<" in made) is private and bool(spent_epsilon(result)) is private  # type: ignore[arg-type]
