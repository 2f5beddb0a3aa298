"""`tideline.simulate`: sites, worlds that are inferred, networks of one call, and what is done with the run."""

from __future__ import annotations

import importlib.util
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tideline
from tests.python.rows import FAST, build, rows, sites
from tideline import Metric, Site
from tideline.core.errors import ConfigRefused, DataRefused, NotFound, Refused
from tideline.learning.datasets import digits
from tideline.learning.weights import read_weights
from tideline.nets import registry


def test_a_simulation_learns_and_gives_a_model_that_predicts() -> None:
    run = tideline.simulate(**{**FAST, "config": {"rounds": 12, "rate": 0.3}}, sites=sites())
    assert run.status == "completed" and run.cause == "", run.result.cause
    accuracy = run.result.accuracy("target")
    assert accuracy is not None and accuracy > 0.9
    x, y = rows(seed=9)
    assert float((run.model().predict(x).classes == y).float().mean()) > 0.9
    assert run.watch() is run and run.id in repr(run)


def test_the_same_seed_gives_the_same_digest_whatever_form_asks() -> None:
    given = {key: value for key, value in FAST.items() if key != "progress"}
    first = tideline.simulate(given, sites=sites(), progress=False)
    second = tideline.simulate({**given, "config": {"rounds": 5}}, config=given["config"], sites=sites(), progress=False)
    assert first.result.state_digest == second.result.state_digest


def test_a_file_and_out(tmp_path: Path) -> None:
    """A path is read as the command reads it; the folder takes result and model."""
    file = tmp_path / "experiment.yaml"
    file.write_text("method: fedavg\nconfig: {rounds: 1}\nworld: {model: mlp}\n")
    run = tideline.simulate(file, sites=sites(), out=tmp_path / "out", progress=False)
    assert json.loads((tmp_path / "out" / "result.json").read_text())["run"] == run.id
    assert tideline.load(tmp_path / "out" / "model.safetensors").world.inputs == (6,)


def test_how_the_world_was_found_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    run = tideline.simulate(**{**FAST, "progress": True}, sites=sites())
    assert "world.inputs is [6], as the sites' first rows are" in run.result.notes
    assert "world.classes is 3, the largest label plus 1" in run.result.notes
    assert "world.inputs is [6]" in capsys.readouterr().err
    named = {name: Site(train=site.train, role=site.role, class_names=["x", "y", "z"]) for name, site in sites().items()}
    assert tideline.simulate(**FAST, sites=named).model().class_names == ("x", "y", "z")


def test_what_is_said_is_not_inferred() -> None:
    run = tideline.simulate(**{**FAST, "world": {"model": "mlp", "inputs": [6], "classes": 5}}, sites=sites())
    assert run.result.data["world"]["classes"] == 5 and not any("world." in note for note in run.result.notes)


def test_folders_are_sites_too(tmp_path: Path) -> None:
    digits.write_site(tmp_path / "a", "usps", 0, 20)
    digits.write_site(tmp_path / "b", "usps", 1, 20)
    given = {"a": Site(train=tmp_path / "a"), "b": Site(train=str(tmp_path / "b"), role="target")}
    run = tideline.simulate({"method": "fedavg", "config": {"rounds": 1}}, sites=given, progress=False)
    assert run.status == "completed" and run.result.data["world"]["inputs"] == [1, 16, 16]


def test_networks_are_known_to_their_call_alone() -> None:
    """A model of one is still built afterwards, and loaded where its function is named."""
    world = {"model": {"name": "mine", "options": {"width": 5}}}
    run = tideline.simulate(**{**FAST, "world": world}, sites=sites(), networks={"mine": build})
    assert run.status == "completed" and "mine" not in registry.known()
    assert run.model().predict(rows()[0]).probabilities.shape == (60, 3)
    with pytest.raises(ConfigRefused, match=r"world\.model is 'mine'; there is no such network here"):
        tideline.simulate(**{**FAST, "world": world}, sites=sites())


def test_the_best_round_and_the_last(tmp_path: Path) -> None:
    """A run that selects has both models, of the run or of its sites; another has no best."""
    given = {**FAST, "config": {"rounds": 4, "rate": 0.3}, "selection": "accuracy"}
    run = tideline.simulate(**given, sites=sites())
    best = run.result.data["selection"]["best"]
    models = {which: run.model(which=which).model for which in ("final", "best")}
    assert (models["final"].origin.which, models["best"].origin.round) == ("final", best["round"]) and best["round"] < 4
    assert models["best"].origin.selected == {"accuracy": best["value"]}
    assert tideline.load(run.export(tmp_path / "best.safetensors", which="best")).model.origin.which == "best"
    own = tideline.simulate(**{**given, "method": "local"}, sites=sites())
    assert own.model(site="a", which="best").model.origin.site == "a"
    with pytest.raises(NotFound, match="has a model of its own") as refused:
        own.model(which="best")
    assert refused.value.todo == "Name one: run.model(site='a'), or another of a, b"
    with pytest.raises(NotFound, match="selects by no score"):
        tideline.simulate(**FAST, sites=sites()).model(which="best")
    with pytest.raises(ConfigRefused, match="There is no model 'worst'"):
        run.model(which="worst")


class Small(nn.Module):
    """A network that works on few rows, as it is tried on, and on no more."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.classifier = nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > 9:
            raise ValueError("too many rows")
        logits: torch.Tensor = self.classifier(self.hidden(x))
        return logits


def test_what_a_network_raises_in_a_step_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """With its words and its place, once: a simulation has no agent whose log would have them."""
    run = tideline.simulate(**{**FAST, "world": {"model": "mine"}}, sites=sites(), networks={"mine": lambda world: Small()})
    assert run.status == "stalled" and "raised ValueError" in run.cause and "too many rows" not in run.cause
    assert caplog.text.count("ValueError: too many rows") == 1 and "in forward" in caplog.text and "At a:" in caplog.text
    with pytest.raises(Refused, match="The run is stalled, so it has no model: Round 1 of train"):
        run.model()


def test_a_file_of_an_own_network_is_loaded_where_its_function_is_given(tmp_path: Path) -> None:
    run = tideline.simulate(**{**FAST, "world": {"model": "mine"}}, sites=sites(), networks={"mine": build})
    file, x = run.export(tmp_path / "model.safetensors"), rows()[0]
    loaded = tideline.load(file, networks={"mine": build})
    assert torch.equal(loaded.predict(x).probabilities, run.model().predict(x).probabilities)
    with pytest.raises(DataRefused, match="there is no such network here"):
        tideline.load(file)


def test_networks_of_two_threads_are_two() -> None:
    shapes, both = {}, threading.Barrier(2)

    def play(width: int) -> None:
        def mine(world: Any) -> torch.nn.Module:
            return build(world, width)

        with registry.beside({"mine": mine}):
            both.wait()
            shapes[width] = registry.builder("mine") is mine
            both.wait()

    threads = [threading.Thread(target=play, args=(width,)) for width in (3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shapes == {3: True, 4: True} and not registry.known()


def test_metrics_are_rows_or_a_frame() -> None:
    run = tideline.simulate(**FAST, sites=sites())
    found = run.metrics()
    if importlib.util.find_spec("pandas"):
        assert list(found.columns) == list(Metric.__dataclass_fields__)
        found = [Metric(**row) for row in found.astype(object).where(found.notna(), None).to_dict("records")]
    last = next(row for row in found if (row.round, row.site, row.metric) == (2, "c", "accuracy"))
    assert last.role == "target" and last.n == 12 and last.low <= last.value <= last.high
    assert any(row.metric == "loss" and row.round == 1 and row.n is None for row in found)
    assert not any(row.metric == "accuracy_low" for row in found)


def test_a_plot_has_the_unit_and_n() -> None:
    run = tideline.simulate(**FAST, sites=sites())
    (axes,) = run.plot().axes
    assert axes.get_ylabel() == "accuracy, % of held-out rows" and "n = 12 (a)" in axes.get_xlabel()
    none = tideline.simulate(**FAST, sites={"a": Site(train=rows()), "b": Site(train=rows()[0], role="target")})
    assert none.plot().axes


def test_each_site_s_own_model() -> None:
    run = tideline.simulate(
        {"method": "local", "config": {"rounds": 1}, "world": {"model": "mlp"}}, sites=sites(), progress=False
    )
    assert run.model(site="a").model.origin.site == "a"
    with pytest.raises(NotFound, match="each site has a model of its own") as caught:
        run.model()
    assert "run.model(site='a')" in caught.value.todo
    with pytest.raises(NotFound, match="has no site 'z'"):
        run.model(site="z")


def test_export_writes_each_format(tmp_path: Path) -> None:
    run = tideline.simulate(**FAST, sites=sites())
    assert tideline.load(run.export(tmp_path / "model.safetensors")).predict(rows()[0]).classes.shape == (60,)
    beside = {"normalisation.mean", "normalisation.scale"}
    assert set(read_weights(run.export(tmp_path / "model.pt"))) == set(run.model().model.own) | beside


class Unreadable:
    """Rows that cannot be read."""

    def __init__(self, n: int = 9) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        raise OSError("gone")


NAMES = {"a": ["x", "z", "y"], "b": ["x", "y", "z"]}
BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"sites": {}}, ConfigRefused, "sites is empty"),
    ({"sites": {"a": rows()}}, ConfigRefused, r"sites\['a'\] is a tuple"),
    ({"experiment": 7}, ConfigRefused, "The experiment is an int"),
    ({"experiment": "no-such.yaml"}, ConfigRefused, "no-such.yaml cannot be read"),
    ({"method": "fedavgg"}, NotFound, "There is no method 'fedavgg'"),
    ({"config": {"roundz": 1}}, ConfigRefused, "config.roundz is not a known setting"),
    ({"world": 7}, ConfigRefused, "world is an int"),
    ({"data": {"a": {"role": "source", "dataset": "digits"}}}, ConfigRefused, "data and sites both say which sites"),
    ({"roster": {"a": "source"}}, ConfigRefused, "roster differs from the sites"),
    ({"weights": "b3-" + "0" * 64}, ConfigRefused, "a simulation has none that were uploaded"),
    ({"networks": {"mlp": build}}, ConfigRefused, "networks adds 'mlp', and there is such a network"),
    ({"networks": {"mine": 7}}, ConfigRefused, "networks: 'mine' is an int"),
    ({"networks": "no.such:thing"}, ConfigRefused, "No module named 'no'"),
    ({"methods": (("fedavg", "x:y"),)}, ConfigRefused, "methods adds 'fedavg'"),
    ({"methods": "no.such:THING"}, ConfigRefused, "No module named 'no'"),
    ({"sites": sites(b=Site(train=rows(width=7)))}, ConfigRefused, "samples differ: a has 6, b has 7"),
    ({"sites": {n: Site(rows(), class_names=names) for n, names in NAMES.items()}}, ConfigRefused, "a has x, z, y, b has x"),
    ({"sites": {"a": Site(train=rows()[0], role="target")}}, ConfigRefused, "world.classes is missing, and no site has labels"),
    ({"sites": sites(b=Site(train=(rows()[0], rows()[1] * 1000)))}, DataRefused, "b: a label is beyond 999"),
    ({"sites": sites(b=Site(train=Unreadable()))}, DataRefused, "b: row 0 of the training dataset: reading it raised OSError"),
    ({"sites": sites(b=Site(train=Unreadable(-1)))}, DataRefused, "b: the training dataset has no length"),
    ({"sites": sites(best=Site(train=rows())), "selection": "accuracy"}, ConfigRefused, "sites.best: its model's file"),
    ({"sites": sites(b=Site(train=rows()[0]))}, DataRefused, "b: row 0 of the training dataset: there is no label"),
    ({"world": {"model": "mlp", "inputs": [6], "classes": 2}}, DataRefused, "a: row 2 of the training dataset: the label"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "kind", "words"), BAD, ids=lambda value: value[:40] if isinstance(value, str) else "")
def test_what_is_wrong_is_raised(given: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        tideline.simulate(**{**FAST, "sites": sites(), **given})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([{"x": 1}] * 9, "row 0 of the training dataset: x is of the type dict"),
        (list(range(9)), "row 0 of the training dataset: x is of the type int"),
        ((rows()[0], torch.full((60,), -5)), "the label is no class: below -1, or far too large"),
    ],
)
def test_rows_of_which_no_world_can_be_found(given: Any, words: str) -> None:
    with pytest.raises(DataRefused, match=words):
        tideline.simulate(**FAST, sites=sites(d=Site(train=given)))


def test_rows_to_predict() -> None:
    """Tensors and arrays of any numbers; anything else, and what is not finite, is refused."""
    model = tideline.simulate(**FAST, sites=sites()).model()
    x = rows()[0]
    assert torch.equal(model.predict(x.numpy()).probabilities, model.predict(x).probabilities)
    assert torch.equal(model.predict(x.double()).classes, model.predict(x).classes)
    x[17, 2] = float("nan")
    for wrong, words in ((x, "Row 17 holds NaN"), (x.tolist(), "The rows are a list"), (x[:, :3], "A row is 3")):
        with pytest.raises(DataRefused, match=words):
            model.predict(wrong)


def test_a_run_with_secure_sums_has_its_model(tmp_path: Path) -> None:
    """Its final state has a place for sums, which the model is read beside; and the result says that there were some."""
    three = {**sites(), "third": next(iter(sites().values())), "fourth": next(iter(sites().values()))}
    run = tideline.simulate(**{**FAST, "secure_sums": True, "seed": 3}, sites=three, out=tmp_path / "out")
    assert run.status == "completed" and run.model().predict(rows(seed=9)[0]).classes.shape == rows(seed=9)[1].shape
    said = json.loads(next((tmp_path / "out").rglob("result.json")).read_text())
    assert said["secure_sums"]["bits"] == 32


def test_patients_are_said_from_python() -> None:
    """A private run over them completes; a site that does not say whose its rows are is told what to write."""
    given = {**FAST, "privacy": {"unit": "patient", "rows": 20, "noise": 2.0, "delta": 1e-3, "rate": 0.5}}
    given["world"] = {**FAST.get("world", {}), "normalise": "none"}
    x, y = rows(60)
    of = tideline.Site(train=(x, y), unit="patient", units=[i // 3 for i in range(60)])
    run = tideline.simulate(**given, sites={"anna": of})
    assert run.status == "completed", run.result.cause
    assert any("each patient of a site is protected" in note for note in run.result.notes)
    without = tideline.simulate(**given, sites={"anna": tideline.Site(train=(x, y))})
    assert without.status == "stalled" and "do not say which rows belong together" in without.cause
