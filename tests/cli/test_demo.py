"""The demo: its experiment, its images, what a run bought and took, and the runs that show what privacy costs."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_report import client, result
from tests.cli.world import refusal_of, tide
from tideline.cli.local import demo_private
from tideline.cli.local.demo import DemoOptions, MethodFacts, one_method
from tideline.cli.local.demo_gains import At, at_labelled_sites, bought, gain_of, taken
from tideline.cli.local.demo_private import BUDGET, EPSILON, METHOD, beside, check_private, lines_of, policy_in, protected
from tideline.cli.local.demo_world import shape_for
from tideline.core.asked.private import Privacy
from tideline.core.errors import ConfigRefused
from tideline.core.settings import Plain
from tideline.report.graphs import JOULES, LINKS
from tideline_agent.policy_file import read_policy


def site(name: str, role: str, accuracy: float | None, source_only: float | None = None, **changed: Any) -> dict[str, Any]:
    made = {"name": name, "role": role, "accuracy": accuracy, "source_only": source_only, "metrics": {}}
    return made | {"bytes_up": 1000, "bytes_down": 3000} | changed


def outcome(*clients: dict[str, Any], **changed: Any) -> Any:
    """As much of a result as the sentences read."""
    return {"method": "m", "clients": list(clients), "contract": [], "phases": []} | changed


SOURCE = site("a", "source", 0.9)


@pytest.mark.parametrize(
    ("accuracy", "words"),
    [
        (0.8, "m: 80.0 % at b, 20.0 points above the best baseline shown (source-only, 60.0 %; 95 % interval +7.3 to +31.9"),
        (0.62, "2.0 points above the best baseline shown"),
        (0.4, "m: 40.0 % at b, 20.0 points below the best baseline shown (source-only, 60.0 %"),
        (0.6, "m: 60.0 % at b, as much as the best baseline shown (source-only, 60.0 %"),
    ],
)
def test_what_a_method_bought(accuracy: float, words: str) -> None:
    said = bought(outcome(SOURCE, site("b", "target", accuracy, 0.6)), {"b": 100})
    assert words in said and "over 100 held-out rows" in said
    assert ("do not tell from chance" in said) == (accuracy == 0.62)


def test_the_best_of_several_baselines() -> None:
    """The model of the labelled sites that is better, by the run beside it or by this one, on average over the targets."""
    both = (site(name, "target", 0.8, 0.6, metrics={"source_only": 0.7}) for name in "bc")
    assert "10.0 points above the best baseline shown (source_only of this run, 70.0 %" in bought(
        outcome(*both), {"b": 50, "c": 50}
    )


def test_what_labelled_sites_have() -> None:
    """A sentence of their own where their models are compared with something, and no word on targets."""
    own = (site(name, "source", 0.9, 0.8) for name in "ade")
    said = at_labelled_sites(outcome(*own, site("b", "target", 0.2, 0.6)), dict.fromkeys("ade", 50))
    assert said.startswith("With labels, 90.0 % at the 3 sites, 10.0 points above the best baseline shown (source-only, 80.0 %")
    assert "over 150 held-out rows" in said
    assert at_labelled_sites(outcome(SOURCE, site("b", "target", 0.2, 0.6)), {"a": 50}) == ""


def test_nothing_to_say() -> None:
    assert bought(outcome(SOURCE, site("b", "target", None)), {}) == ""
    assert bought(outcome(SOURCE, site("b", "target", 0.5)), {"b": 9}) == ""


def test_more_targets_tell_more() -> None:
    """The interval of a mean over two targets is narrower than that of each, and includes the gain."""
    one, two = gain_of([At(0.8, 0.6, 100)]), gain_of([At(0.8, 0.6, 100)] * 2)
    assert one.value == pytest.approx(two.value) and one.low < two.low < two.value < two.high < one.high
    assert (one.rows, two.rows) == (100, 200)


def test_what_a_run_took() -> None:
    """Traffic beside that of the reference, kinds of values in the order of the contract, and links with their joules."""
    clauses = [{"exposure": kind} for kind in ("weights", "count", "weights")]
    table = {"rows": ["a to b"], "columns": ["weight", JOULES], "values": [[0.5, 1.25]]}
    run = outcome(SOURCE, site("b", "target", 0.5), contract=clauses, phases=[{"tables": {LINKS: table}}])
    beside = outcome(site("a", "source", 0.9, bytes_up=16_000, bytes_down=0))
    words = "sites sent 2.0 kB (weights, count) and received 6.0 kB, 50 % of the traffic of source-only; 1 link, 1.25 J"
    assert taken(run, beside).startswith(f"What it took: {words}")
    assert taken(outcome(SOURCE)) == "What it took: sites sent 1.0 kB and received 3.0 kB."


GIVEN: dict[str, Any] = {"method": METHOD, "preset": "demo", "roster": {}, "reference": {}, "seed": 3}
GIVEN |= {"world": {"model": "lenet"}}


def test_the_two_runs_differ_in_privacy_alone() -> None:
    made: Any = protected(GIVEN, None)
    assert Privacy(**made["privacy"]).epsilon == EPSILON < BUDGET < 2 * EPSILON, "one run fits into the budget, two do not"
    assert made["world"]["normalise"] == "none" and made["reference"] is None and made["seed"] == 3
    assert made["config"]["evaluate_every"] == made["config"]["rounds"], "scorings cost"
    other: Any = beside(made)
    assert "privacy" not in other and other["world"] == made["world"] and other["reference"] is None
    assert other["config"] == made["config"]
    few: Any = protected(GIVEN, 0)
    assert few["config"]["rounds"] == 0 and few["config"]["evaluate_every"] == 1


def test_owners_set_a_budget(tmp_path: Path) -> None:
    read_policy(policy_in(tmp_path, None))
    assert f"epsilon = {BUDGET}" in policy_in(tmp_path, None).read_text()
    assert policy_in(tmp_path, tmp_path / "own.toml") == tmp_path / "own.toml"


def test_what_cannot_be_shown_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_private(None)
    check_private(METHOD)
    assert "--private shows fedavg, and --method is feddadil" in refusal_of(tide("demo", "--private", "--method", "feddadil"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigRefused, match="dp-accounting is not installed") as raised:
        check_private(None)
    assert raised.value.todo == "pip install 'tideline[privacy]'"


def test_it_says_what_privacy_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Per kind of site, against the run without; who was not scored is left out, and a run that is not private is mute."""
    monkeypatch.setattr(demo_private, "budgets_of", lambda names, home: iter([f"budgets of {names}"]))
    sites = [
        client("anna", "source", accuracy=0.8),
        client("bert", "source", accuracy=None),
        client("carl", "target", accuracy=0.5),
    ]
    own: Any = result(sites, privacy={"epsilon": 6.0, "delta": 1e-5})
    plain: Any = result([{**each, "accuracy": 0.9} for each in sites])
    promise, without, labelled, budgets = lines_of(own, plain, tmp_path)
    assert "e^6 at most" in promise and "1e-05" in promise
    assert without.startswith("Accuracy at sites without labels: 50.0") and "it costs 40.0 points here" in without
    assert labelled.startswith("Accuracy at sites with labels: 80.0") and "it costs 10.0 points here" in labelled
    assert budgets == "budgets of ['anna', 'bert']"
    assert list(lines_of(plain, plain, tmp_path)) == []


def facts(preset: dict[str, Plain] | None, extra_rounds: int) -> MethodFacts:
    presets = {} if preset is None else {"demo": preset}
    return MethodFacts(cast=[], unlike="styles", extra_rounds=extra_rounds, network="lenet", presets=presets)


def test_averaging_beside_it_trains_as_long() -> None:
    """By as many rounds more as the method's sites train beside its own rounds, also where those are named."""
    two: dict[str, Plain] = {"rounds": 2}
    for preset, extra, rounds, config in ((two, 20, None, {"rounds": 22}), (two, 20, 1, {"rounds": 21}), (two, 0, None, {})):
        made: Any = one_method(DemoOptions("m", agents=4, rounds=rounds), facts(preset, extra))
        assert made["reference"] == {"method": "fedavg", "config": config}
        assert made["config"] == ({} if rounds is None else {"rounds": rounds})
    without: Any = one_method(DemoOptions("m", agents=4), facts(None, 0))
    assert without["reference"]["config"] == {} == without["config"]


OWN = "tests.nets.foreign"


def test_the_first_shape_that_a_network_takes() -> None:
    shapes = {"lenet": (3, 28, 28), "resnet18": (3, 32, 32), "torchvision/mobilenet_v3_small": (3, 32, 32)}
    shapes |= {"convolutions": (3, 28, 28), "grey": (1, 32, 32)}
    assert {network: shape_for(network, [f"{OWN}:convolutions", f"{OWN}:grey"]) for network in shapes} == shapes


def test_shapes_that_do_not_fit_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    shape_for("grey", [f"{OWN}:grey"])
    assert not caplog.records and logging.root.manager.disable == logging.NOTSET
