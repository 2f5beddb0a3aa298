"""What users do with a run's result: export its last or best model, predict with it, and begin another run from it."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import tideline
from tests.cli.world import EXPERIMENT, Coordinator, json_of, output_of, refusal_of, tide
from tests.laws.stage import registered
from tideline import nets
from tideline.algorithms.averaging import fedavg
from tideline.client.answers import RunResult
from tideline.core.algorithm import NoModel
from tideline.core.asked.world import World
from tideline.core.errors import NotFound
from tideline.core.run import RunId
from tideline.core.settings import parse
from tideline.engine.model.brief import brief_of
from tideline.experiments.results import Ended
from tideline_agent.home.runs import UNFINISHED
from tideline_agent.vault import FolderVault, with_digest

WORLD: dict[str, Any] = {"inputs": [1, 28, 28], "classes": 10, "model": "lenet_bn"}


def exported(there: Coordinator, run: str, out: Path, *more: str) -> dict[str, Any]:
    """What `run export` says of a model that it wrote."""
    return dict(json_of(tide("run", "export", run, "--out", out, *more, "--home", there.home, "--json")))


def refused(there: Coordinator, run: str, out: Path, *more: str) -> str:
    """The sentences of a refused `run export`, which wrote nothing."""
    told = tide("run", "export", run, "--out", out, *more, "--home", there.home)
    assert told.exit_code == 2 and not out.exists(), told.output
    return told.stderr


def predicted(model: Path, folder: Path, out: Path, *more: str) -> dict[str, Any]:
    return dict(json_of(tide("predict", "--model", model, "--data", folder, "--out", out, "--device", "cpu", *more, "--json")))


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def home_of(there: Coordinator, run: RunId, site: str, folder: Path) -> Path:
    """An agent's home with what a site of this process remembers of a run."""
    ours, vault, row = there.federation.agents[site].vault, FolderVault(folder / "runs"), there.federation.run_service.find(run)
    head = ours.head(run)
    assert head is not None
    for digest, _ in head.memory:
        vault.parts(run).put([bytes(ours.parts(run).view(digest))])
    vault.note(run, brief_of(row, row.roster[site]))
    vault.commit(run, head)
    return folder


def test_a_model_that_lies_at_its_site_is_not_the_start(there: Coordinator, tmp_path: Path, data: dict[str, Path]) -> None:
    """A method whose targets keep their models: no start weights are written, but the command that the owner types; it works."""
    run = there.complete(method="fada", world=WORLD)
    out = tmp_path / "model.safetensors"
    for more in ((), ("--site", "bert")):
        said = refused(there, run, out, *more)
        assert "each site has a model of its own, which the coordinator does not have" in said
        assert f"bert: tideline site export --home HOME --run {run} model --out model.safetensors" in said
    home = home_of(there, run, "bert", tmp_path / "bert")
    told = tide("site", "export", "--home", home, "--run", run, "model", "--out", out, "--json")
    assert told.exit_code == 0 and json.loads(told.stdout)["metrics"].keys() >= {"accuracy"}, told.output
    scores = predicted(out, data["bert"], tmp_path / "rows.csv", "--held-out")
    stated = json_of(tide("run", "show", run, "--home", there.home, "--json"))["clients"]
    assert [scores["accuracy"]["value"]] == [c["accuracy"] for c in stated if c["name"] == "bert"]
    assert scores["accuracy"]["rows"] == 8


def test_a_runs_model_predicts_and_begins_another_run(there: Coordinator, tmp_path: Path, data: dict[str, Path]) -> None:
    """The same file in plain torch, in `predict`, in `tideline.load`, and as the weights of a run of no rounds."""
    run, out = there.complete(), tmp_path / "model.safetensors"
    said = exported(there, run, out)
    assert (said["method"], said["run"], said["site"], said["round"]) == ("fedavg", run, "", 2)
    world = parse(World, EXPERIMENT["world"])
    net = nets.build(world)
    net.load_state_dict(load_file(out))
    loaded = tideline.load(out)
    x = torch.rand(5, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    found = loaded.predict(x)
    assert torch.equal(found.probabilities, net(x).softmax(1).detach()) and len(loaded.class_names) == 10
    assert found.names == tuple(map(str, found.classes.tolist()))
    scores = predicted(out, data["bert"], tmp_path / "rows.csv", "--held-out")
    file = tmp_path / "e.yaml"
    file.write_text(json.dumps({**EXPERIMENT, "config": {"rounds": 0}, "weights": "model.safetensors"}))
    begun = json_of(tide("run", "start", file, "--home", there.home, "--json"))["run"]
    result = there.federation.run(begun)
    assert next(c["accuracy"] for c in result["clients"] if c["name"] == "bert") == scores["accuracy"]["value"]


def test_a_site_export_begins_a_run(there: Coordinator, tmp_path: Path) -> None:
    """What a site's owner exports can be brought back as weights; a model of another network, or other classes, cannot."""
    run = there.complete(method="shot", world=WORLD)
    home, out = home_of(there, run, "bert", tmp_path / "bert"), tmp_path / "model.safetensors"
    assert tide("site", "export", "--home", home, "--run", run, "model", "--out", out).exit_code == 0
    file, base = tmp_path / "e.json", {"method": "shot", "preset": "tiny", "weights": str(out), "roster": {"bert": "target"}}
    for world, words in (
        (WORLD, ""),
        ({**WORLD, "model": "lenet"}, "the file holds a model of lenet_bn; world.model is lenet"),
        ({**WORLD, "classes": 7}, "a model of 10 classes; this world has 7"),
    ):
        file.write_text(json.dumps({**base, "world": world}))
        told = tide("run", "start", file, "--home", there.home)
        assert told.exit_code == (2 if words else 0) and words in told.stderr, told.output


@pytest.mark.parametrize(("method", "kind", "role"), [("local", "shared", "source"), ("shot", "site", "target")])
def test_a_site_export_normalises_by_itself(
    there: Coordinator, tmp_path: Path, data: dict[str, Path], method: str, kind: str, role: str
) -> None:
    """By what its site's rows were normalised by; it begins a run of the same kind alone."""
    roster, out = {"anna": "source", "bert": role}, tmp_path / "model.safetensors"
    run = there.complete(method=method, world={**WORLD, "normalise": kind}, roster=roster)
    home = home_of(there, run, "bert", tmp_path / "bert")
    output_of(tide("site", "export", "--home", home, "--run", run, "model", "--out", out))
    scores = predicted(out, data["bert"], tmp_path / "rows.csv", "--held-out")
    stated = json_of(tide("run", "show", run, "--home", there.home, "--json"))["clients"]
    assert [scores["accuracy"]["value"]] == [c["accuracy"] for c in stated if c["name"] == "bert"]
    made = tideline.load(out).model
    assert made.scaling.kind == kind and made.statistics is not None and made.world.normalise is None
    file, base = tmp_path / "e.json", {"method": "shot", "preset": "tiny", "weights": str(out), "roster": {"bert": "target"}}
    for given, words in ({**WORLD, "normalise": "site"}, f"normalise: {kind}; world.normalise is site"), (WORLD, "is none"):
        file.write_text(json.dumps({**base, "world": given}))
        begun = tide("run", "start", file, "--home", there.home)
        same = given.get("normalise") == kind
        assert begun.exit_code == (0 if same else 2) and (same or words in begun.stderr), begun.output


def test_a_run_s_model_of_sites_that_normalise_by_their_own(there: Coordinator, tmp_path: Path, data: dict[str, Path]) -> None:
    """It says so, predicts by the rows that it is given, and is no ONNX file and no state dict."""
    run, out = there.complete(world={**EXPERIMENT["world"], "normalise": "site"}), tmp_path / "model.safetensors"
    assert "normalises by the mean and spread of the rows that it is given" in exported(there, run, out)["note"]
    assert predicted(out, data["bert"], tmp_path / "rows.csv")["rows"] == 40
    for name, words in (("m.onnx", "which an ONNX file cannot"), ("m.pt", "which a state dict has no place for")):
        assert words in " ".join(refused(there, run, tmp_path / name).split())


def test_an_unfinished_site_says_so(there: Coordinator, tmp_path: Path) -> None:
    """As long as a site knows that more exchanges come, its model is written with a note."""
    run = there.complete(method="shot", world=WORLD)
    home = home_of(there, run, "bert", tmp_path / "bert")
    head = FolderVault(home / "runs").head(run)
    assert head is not None
    path = home / "runs" / run / "head.json"
    line = path.read_text().partition("\n")[0]
    path.write_text(with_digest(line.replace(f'"cursor": {head.cursor}', f'"cursor": {head.cursor - 1}')))
    told = tide("site", "export", "--home", home, "--run", run, "model", "--out", tmp_path / "m.safetensors", "--json")
    assert told.exit_code == 0 and json.loads(told.stdout)["note"] == UNFINISHED and UNFINISHED in told.stderr


def test_sites_whose_models_the_coordinator_knows(there: Coordinator, tmp_path: Path) -> None:
    """One of them is named; a source, which has none, and a strange name are refused."""
    run, out = there.complete(method="ifca_pl", world=WORLD), tmp_path / "model.safetensors"
    assert "Name one: --site bert" in refused(there, run, out)
    assert "with ifca_pl targets have models\nWhat to do: Name one of these: bert" in refused(there, run, out, "--site", "anna")
    assert "has no site 'berd'" in (said := refused(there, run, out, "--site", "berd")) and "did you mean bert?" in said
    known = exported(there, run, out, "--site", "bert")
    home, own = home_of(there, run, "bert", tmp_path / "bert"), tmp_path / "own.safetensors"
    assert tide("site", "export", "--home", home, "--run", run, "model", "--out", own).exit_code == 0
    assert (known["site"], load_file(out).keys()) == ("bert", load_file(own).keys())
    assert all(torch.equal(w, load_file(own)[name]) for name, w in load_file(out).items())
    assert "no site has its own" in refused(there, there.complete(), tmp_path / "b.safetensors", "--site", "bert")


def test_methods_without_models(there: Coordinator) -> None:
    """One that declares none says why; one that declares nothing, that it does not."""
    run = there.complete()
    result = cast("RunResult", there.federation.run(run))
    for declared, words in (((NoModel("Means are no network"),), "Means are no network"), ((), "does not declare what models")):
        with pytest.raises(NotFound, match=words):
            Ended(result, registered(replace(fedavg, result=declared))).check(None)


def test_formats(there: Coordinator, tmp_path: Path) -> None:
    """By the suffix or by name; a state dict that torch reads without code; words that fit nothing are refused."""
    run = there.complete()
    exported(there, run, tmp_path / "model.safetensors")
    exported(there, run, tmp_path / "model.pt")
    read = torch.load(tmp_path / "model.pt", weights_only=True)
    assert all(torch.equal(w, read[name]) for name, w in load_file(tmp_path / "model.safetensors").items())
    assert (
        "There is no format 'onix'" in (said := refused(there, run, tmp_path / "a.onnx", "--format", "onix")) and "onnx?" in said
    )
    assert "does not end in .pt or .pth" in refused(there, run, tmp_path / "b.onnx", "--format", "torch")
    assert "--state goes with neither" in refused(there, run, tmp_path / "c.safetensors", "--state", "--site", "bert")


@pytest.mark.nightly(job="services")
def test_onnx_predicts_as_the_model(there: Coordinator, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    run = there.complete(world={"inputs": [1, 28, 28], "classes": 10, "model": "lenet_bn"})
    exported(there, run, tmp_path / "model.onnx")
    exported(there, run, tmp_path / "model.safetensors")
    session, net = runtime.InferenceSession(tmp_path / "model.onnx"), tideline.load(tmp_path / "model.safetensors")
    for n in (1, 2, 7):
        x = torch.rand(n, 1, 28, 28, generator=torch.Generator().manual_seed(n))
        logits, p = session.run(None, {"x": x.numpy()})
        assert np.abs(p - net.predict(x).probabilities.numpy()).max() < 1e-4 and logits.shape == (n, 10)
    assert json.loads(session.get_modelmeta().custom_metadata_map["tideline"])["classes"] == 10


def test_predictions_of_every_row(there: Coordinator, tmp_path: Path, data: dict[str, Path]) -> None:
    """A line a row, in the order of the folder; classes and probabilities; scores in words with their intervals."""
    exported(there, there.complete(), tmp_path / "model.safetensors")
    out = tmp_path / "rows.csv"
    told = tide("predict", "--model", tmp_path / "model.safetensors", "--data", data["bert"], "--out", out)
    assert told.exit_code == 0 and "40 rows, 40 of them with a label" in told.stdout and "95 % interval" in told.stdout
    rows = lines(out)
    assert [row["row"] for row in rows] == [str(i) for i in range(40)] and {row["domain"] for row in rows} == {"usps"}
    for row in rows:
        p = [float(row[f"p({k})"]) for k in range(10)]
        assert abs(sum(p) - 1) < 1e-5 and p[int(row["class"])] == max(p)


def test_predictions_without_labels(there: Coordinator, tmp_path: Path) -> None:
    exported(there, there.complete(), tmp_path / "model.safetensors")
    folder = tmp_path / "rows"
    folder.mkdir()
    np.savez(folder / "new.npz", x=np.zeros((5, 28, 28), np.uint8))
    scores = predicted(tmp_path / "model.safetensors", folder, tmp_path / "rows.csv")
    assert scores == {"file": str(tmp_path / "rows.csv"), "rows": 5, "labelled": 0}


def test_what_cannot_be_predicted(there: Coordinator, tmp_path: Path, data: dict[str, Path]) -> None:
    """Weights that do not say what they are, rows of another shape, no folder, and no such device: nothing is written."""
    run, model = there.complete(), tmp_path / "m.safetensors"
    exported(there, run, model)
    exported(there, run, tmp_path / "state.safetensors", "--state")
    folder = tmp_path / "rows"
    folder.mkdir()
    np.savez(folder / "new.npz", x=np.zeros((5, 8), np.float32))
    for args, words in (
        (("--model", tmp_path / "state.safetensors", "--data", data["bert"]), "does not say of which network"),
        (("--model", tmp_path / "none.safetensors", "--data", data["bert"]), "there is no such file"),
        (("--model", model, "--data", folder), "the world expects images"),
        (("--model", model, "--data", tmp_path / "none"), "There is no data folder"),
        (("--model", model, "--data", data["bert"], "--device", "warp"), "There is no device 'warp' here"),
    ):
        told = tide("predict", *args, "--out", tmp_path / "rows.csv")
        assert told.exit_code == 2 and words in told.stderr and not (tmp_path / "rows.csv").exists(), told.output


def test_a_simulation_writes_its_models(tmp_path: Path) -> None:
    """The run's beside the rest, or each site's; the same bytes each time."""
    roles = {"a": ("source", "mnist"), "b": ("target", "usps")}
    data = {n: {"role": role, "dataset": "digits", "domain": domain, "rows": 40} for n, (role, domain) in roles.items()}
    for method, names in (("fedavg", ["model"]), ("fedavg_shot", ["model", "model-b"]), ("shot", ["model-b"])):
        file = tmp_path / f"{method}.json"
        file.write_text(json.dumps({"method": method, "preset": "tiny", "world": WORLD, "data": data}))
        made = []
        for out in (tmp_path / method, tmp_path / f"{method}-2"):
            assert tide("simulate", file, "--out", out).exit_code == 0
            made.append({path.stem: path.read_bytes() for path in out.glob("model*.safetensors")})
        assert sorted(made[0]) == names
        stated = json.loads((tmp_path / method / "result.json").read_text())
        assert tideline.load(tmp_path / method / f"{names[0]}.safetensors").model.origin.state_digest == stated["state_digest"]


RUN: dict[str, Any] = {"world": WORLD, "selection": "entropy", "scores": "every", "config": {"rounds": 4, "rate": 0.5}}


def shown(there: Coordinator, run: str) -> dict[str, Any]:
    return dict(json_of(tide("run", "show", run, "--home", there.home, "--json")))


def test_the_best_of_a_run_and_its_last(there: Coordinator, tmp_path: Path) -> None:
    """Each with its round, its score and which it is; the last says that there is a best one."""
    run = there.complete(**RUN)
    best = shown(there, run)["selection"]["best"]
    out = tmp_path / "best.safetensors"
    said = exported(there, run, out, "--which", "best")
    assert (said["which"], said["round"], said["selected"]) == ("best", best["round"], {"entropy": best["value"]})
    told = tide("run", "export", run, "--out", tmp_path / "last.safetensors", "--home", there.home)
    assert told.exit_code == 0 and f"the best by entropy is of round {best['round']}: --which best writes it" in told.stderr
    last = tideline.load(tmp_path / "last.safetensors").model.origin
    assert (last.which, last.round, last.selected) == ("final", 4, {})
    same = all(torch.equal(w, load_file(out)[name]) for name, w in load_file(tmp_path / "last.safetensors").items())
    assert best["round"] < 4 and not same
    told = tide("run", "export", run, "--out", out, "--which", "best", "--home", there.home)
    assert f"of the best round, {best['round']}, entropy" in told.stdout


def test_a_last_model_that_is_the_best(there: Coordinator, tmp_path: Path) -> None:
    run = there.complete(**{**RUN, "config": {"rounds": 1, "rate": 0.5}})
    told = tide("run", "export", run, "--out", tmp_path / "last.safetensors", "--home", there.home)
    assert (told.exit_code, told.stderr) == (0, "")
    run = there.complete(method="local", roster={"anna": "source", "bert": "source"}, **{**RUN, "config": {"rounds": 1}})
    home = best_home(there, run, "anna", tmp_path / "anna")
    told = tide("site", "export", "--home", home, "--run", run, "model", "--out", tmp_path / "last.safetensors")
    assert (told.exit_code, told.stderr) == (0, "")


def test_a_simulation_writes_the_same_best(there: Coordinator, tmp_path: Path, data: dict[str, Path]) -> None:
    """The same numbers as a coordinator's run of the same seed, and the same bytes each time."""
    file = tmp_path / "e.json"
    roles = {"anna": "source", "bert": "target"}
    sites = {name: {"role": role, "folder": str(data[name])} for name, role in roles.items()}
    given = {"method": "fedavg", "preset": "tiny", **RUN}
    file.write_text(json.dumps({**given, "data": sites}))
    made = []
    for out in (tmp_path / "one", tmp_path / "two"):
        assert (told := tide("simulate", file, "--out", out)).exit_code == 0, told.output
        made.append((out / "model-best.safetensors").read_bytes())
    run = there.complete(**RUN)
    exported(there, run, tmp_path / "best.safetensors", "--which", "best")
    ours, theirs = load_file(tmp_path / "one" / "model-best.safetensors"), load_file(tmp_path / "best.safetensors")
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    origins = [tideline.load(tmp_path / name).model.origin for name in ("one/model-best.safetensors", "best.safetensors")]
    assert (origins[0].round, origins[0].selected) == (origins[1].round, origins[1].selected)
    assert origins[0].state_digest == origins[1].state_digest
    result = json.loads((tmp_path / "one" / "result.json").read_text())
    assert origins[0].round == result["selection"]["best"]["round"]
    # A file that a run begins from, whose times do not differ: the same bytes but for the run's id.
    assert len(made[0]) == len(made[1])


def test_the_best_of_a_site(there: Coordinator, tmp_path: Path) -> None:
    """Sites that keep their own models keep the best beside the last: the coordinator says where it is."""
    run = there.complete(method="local", roster={"anna": "source", "bert": "source"}, **RUN)
    out = tmp_path / "best.safetensors"
    said = refused(there, run, out, "--site", "anna", "--which", "best")
    assert f"tideline site export --home HOME --run {run} model --which best --out model.safetensors" in said
    best = shown(there, run)["selection"]["best"]
    home = best_home(there, run, "anna", tmp_path / "anna")
    made = json_of(tide("site", "export", "--home", home, "--run", run, "model", "--which", "best", "--out", out, "--json"))
    assert (made["which"], made["round"], made["note"]) == ("best", best["round"], "")
    assert made["metrics"].keys() >= {"accuracy", "validation_entropy"}
    told = tide("site", "export", "--home", home, "--run", run, "model", "--out", tmp_path / "last.safetensors")
    assert told.exit_code == 0 and "that of the best round is kept beside it" in told.stderr
    last = load_file(tmp_path / "last.safetensors")
    assert best["round"] < 4 and not all(torch.equal(w, last[name]) for name, w in load_file(out).items())


def best_home(there: Coordinator, run: Any, site: str, folder: Path) -> Path:
    from tideline_agent.vault import FolderVault

    home, ours = home_of(there, run, site, folder), there.federation.agents[site].vault  # type: ignore[index]
    head = ours.head(run)
    assert head is not None and head.best is not None
    for digest, _ in head.best.memory:
        FolderVault(home / "runs").parts(run).put([bytes(ours.parts(run).view(digest))])
    return home


def test_where_there_is_no_best(there: Coordinator, tmp_path: Path) -> None:
    """A run that selects by nothing, at both ends; another word; and what has no best."""
    run, out = there.complete(), tmp_path / "best.safetensors"
    assert "selects by no score, so none of its rounds is the best" in refused(there, run, out, "--which", "best")
    assert "There is no model 'bestt'" in (said := refused(there, run, out, "--which", "bestt")) and "best?" in said
    assert "neither --site nor --which" in refused(there, run, out, "--state", "--which", "best")
    run = there.complete(method="shot", world=WORLD)
    home = home_of(there, run, "bert", tmp_path / "bert")
    for more, words in (
        (("--out", out), "selects by no score"),
        (("--out", tmp_path / "a.npz"), "--which best is of the site's model as a model's file"),
    ):
        assert words in refusal_of(tide("site", "export", "--home", home, "--run", run, "model", "--which", "best", *more))


def test_a_selection_that_found_nothing(there: Coordinator, tmp_path: Path) -> None:
    """Targets alone are scored, and have no labels for validation: the sentence says so, and the site knows of no best."""
    run = there.complete(method="shot", world=WORLD, selection="accuracy")
    assert "told accuracy of its validation rows" in refused(
        there, run, tmp_path / "b.safetensors", "--site", "bert", "--which", "best"
    )
    home = home_of(there, run, "bert", tmp_path / "bert")
    told = tide("site", "export", "--home", home, "--run", run, "model", "--which", "best", "--out", tmp_path / "b.safetensors")
    assert told.exit_code == 2 and "has not been told which round is the best" in told.stderr


@pytest.mark.parametrize("name", ["best", "best-a"])
def test_a_simulated_site_whose_file_would_be_anothers(tmp_path: Path, name: str) -> None:
    file = tmp_path / "e.json"
    site = {"role": "source", "dataset": "digits", "domain": "mnist", "rows": 40}
    given = {"method": "fedavg", "preset": "tiny", "world": WORLD, "data": {name: site, "a": site}}
    file.write_text(json.dumps({**given, "selection": "accuracy"}))
    told = tide("simulate", file, "--out", tmp_path / "out")
    assert told.exit_code == 2 and f"data.{name}: its model's file would have the name of a best round's" in told.stderr


def test_the_best_state_over_http(there: Coordinator, tmp_path: Path) -> None:
    """Its files are listed by name, and opened for whoever may open the last state; nothing else is."""
    run = there.complete(**RUN)
    best = shown(there, run)["selection"]["best"]
    from tideline.client.http import Client

    with Client(there.url, "the key of the tests") as client:
        last, first = client.get(f"/runs/{run}/files"), client.get(f"/runs/{run}/files?which=best")
        assert best["round"] < 4 and first["root"] != last["root"]
        assert exported(there, run, tmp_path / "best.safetensors", "--which", "best")["state_digest"] == first["root"]
        assert all(sum(map(len, client.download(f"/parts/{d}?run={run}"))) == n for d, n in first["files"])
        with pytest.raises(Exception, match="which"):
            client.get(f"/runs/{run}/files?which=worst")
        with pytest.raises(Exception, match="no best round"):
            client.get(f"/runs/{there.complete()}/files?which=best")
