"""The models of a run's best round: exported at the coordinator and at a site, written by a simulation, in the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import tideline
from tests.cli.test_models import WORLD, exported, home_of, refused
from tests.cli.world import Coordinator, json_of, refusal_of, tide

RUN: dict[str, Any] = {"world": WORLD, "selection": "entropy", "scores": "every", "config": {"rounds": 4, "rate": 0.5}}


def shown(there: Coordinator, run: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(tide("run", "show", run, "--home", there.home, "--json").stdout)
    return result


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


def test_each_says_of_which_state_it_is(there: Coordinator, tmp_path: Path) -> None:
    from tideline.client.http import Client

    run = there.complete(**RUN)
    with Client(there.url, "the key of the tests") as client:
        roots = {which: client.get(f"/runs/{run}/files?which={which}")["root"] for which in ("final", "best")}
    found = {which: exported(there, run, tmp_path / "m.safetensors", "--which", which)["state_digest"] for which in roots}
    assert found == roots and len(set(roots.values())) == 2


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
    """A home with the best model's files, too."""
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
        assert all(sum(map(len, client.download(f"/parts/{d}?run={run}"))) == n for d, n in first["files"])
        with pytest.raises(Exception, match="which"):
            client.get(f"/runs/{run}/files?which=worst")
        with pytest.raises(Exception, match="no best round"):
            client.get(f"/runs/{there.complete()}/files?which=best")
