"""Simulations, methods, contracts and own networks: what needs no coordinator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.torch import load_file

from tests.cli.world import assert_refuses, json_of, output_of, refusal_of, tide, tide_process
from tideline.algorithms import METHODS
from tideline.core.algorithm import resolve
from tideline.core.run import Role
from tideline.engine.simulation.federation import SimSite, simulate
from tideline.learning.datasets import digits
from tideline.learning.formats.folder import read_folder
from tideline.nets import registry

SITE: dict[str, Any] = {"dataset": "digits", "rows": 60}
SITES = {"a": {"role": "source", "domain": "mnist", **SITE}, "b": {"role": "target", "domain": "usps", **SITE}}
WORLD = {"model": "mlp", "inputs": [1, 16, 16]}
BASE: dict[str, Any] = {"method": "fedavg", "preset": "tiny", "world": WORLD, "seed": 5, "data": SITES}


def write(tmp_path: Path, **changed: Any) -> Path:
    path = tmp_path / "e.yaml"
    path.write_text(yaml.safe_dump({**BASE, **changed}, sort_keys=False))
    return path


def test_a_simulation_tells_the_notes(tmp_path: Path) -> None:
    """What the method does otherwise than it was asked stands below the table."""
    world = {"model": "linear", "inputs": [1, 16, 16]}
    ended = output_of(tide("simulate", write(tmp_path, method="fada", config={"rounds": 1, "source_rounds": 0}, world=world)))
    assert "linear has nothing below its classifier: the features are the rows, and are not aligned" in ended


def test_a_simulation_is_the_engines(tmp_path: Path) -> None:
    """The command's JSON has the keys, and its state the digest, that the engine gives for the same sites."""
    told = json_of(tide("simulate", write(tmp_path), "--json", "--out", tmp_path / "out"))
    sites = {}
    for name, domain in (("a", "mnist"), ("b", "usps")):
        digits.write_site(tmp_path / name, domain, rows=60)
        sites[name] = SimSite(lambda world, role, name=name: read_folder(tmp_path / name, world, role))
    given = {**BASE, "roster": {"a": "source", "b": "target"}}
    expected = simulate(METHODS, given, sites)
    assert told.keys() == expected.keys()
    assert told["state_digest"] == expected["state_digest"]
    assert [c["domain"] for c in told["clients"]] == ["mnist", "usps"]
    assert [(c["samples"], c["accuracy"]) for c in told["clients"]] == [
        (c["samples"], c["accuracy"]) for c in expected["clients"]
    ]
    assert json.loads((tmp_path / "out" / "result.json").read_text()) == told
    assert "model/classifier.weight" in load_file(tmp_path / "out" / "state.safetensors")


def test_a_simulation_for_people(tmp_path: Path) -> None:
    """Rounds are told on stderr, the table on stdout, and the code is 0."""
    ended = tide_process("simulate", write(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert "fedavg, completed" in ended.stdout and "mnist" in ended.stdout
    assert ended.stderr.splitlines()[0] == "sites gathered: 2 replies"
    assert ended.stderr.splitlines()[-1] == "completed"


def test_sites_in_folders_beside_the_file(tmp_path: Path) -> None:
    """A relative folder is looked for beside the experiment's file, wherever the command runs."""
    digits.write_site(tmp_path / "clinic", "optdigits", rows=40)
    data = {**BASE["data"], "c": {"role": "peer", "folder": "clinic"}}
    ended = output_of(tide("simulate", write(tmp_path, data=data), "--json", "--set", "config.rounds=1"))
    assert [(c["domain"], c["role"]) for c in json.loads(ended)["clients"]][2] == ("optdigits", "peer")


PEERS_SEE = '[allow]\nstatistic = ["peers"]\n'


def test_every_site_goes_by_the_policy(tmp_path: Path) -> None:
    """A method that needs the owners' word stalls without it, and completes with it."""
    (tmp_path / "policy.toml").write_text(PEERS_SEE)
    data = {"c": {**BASE["data"]["b"], "domain": "coloured"}, **BASE["data"]}
    file = write(tmp_path, method="fedpcl_pl", data=data, world={"model": "lenet", "inputs": [3, 28, 28]})
    declined = tide("simulate", file, "--json")
    assert declined.exit_code == 1 and "statistic" in json.loads(declined.stdout)["cause"].lower()
    assert json.loads(output_of(tide("simulate", file, "--json", "--policy", tmp_path / "policy.toml")))["status"] == "completed"


def test_a_policy_that_cannot_be_read(tmp_path: Path) -> None:
    """It is refused before a site is asked."""
    asked, policy = ("simulate", write(tmp_path), "--policy", tmp_path / "policy.toml"), tmp_path / "policy.toml"
    assert_refuses(tide(*asked), "does not exist", "What to do")
    for text, words in (("allow = [", "is not TOML"), ('[allow]\nstatistics = ["peers"]', "allow.statistics is no exposure")):
        policy.write_text(text)
        assert_refuses(tide(*asked), words, "What to do")


def test_a_run_that_stalls_ends_with_1(tmp_path: Path) -> None:
    """A site whose data do not fit the world refuses to join; the run stalls and the cause is printed."""
    path = write(tmp_path, world={"model": "mlp", "inputs": [7]})
    ended = tide("simulate", path)
    assert ended.exit_code == 1
    assert "stalled" in ended.stdout and "0 of 2 sites answered" in ended.stdout


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["data={}"], "data: {SITE"),
        (["data.a.rows=1"], "data.a.rows is 1"),
        (["data.a.domain=minst"], "did you mean mnist?"),
        (["data.a.part=3"], "There is no part 3 of 1"),
        (["data.a.dataset=letters"], "Use one of: digits"),
        (["data.a.dataset="], "needs either folder or dataset"),
        (["data.a.folder=x"], "needs either folder or dataset"),
        (["data.a={role: source, folder: nowhere}"], "there is no folder"),
        (["data.a={role: source, folder: both, domain: fra}"], "did you mean far?"),
        (["data.a={role: source, folder: both, domain: far, rows: 20}"], "rows is for shipped sets"),
        (["data.a={role: source, folder: both, part: 1, parts: 2}"], "part is for shipped sets"),
        (["data.a.role=target"], "No member can teach"),
        (["roster={a: source}"], "roster differs"),
        (["select=[{labels: {a: b}, role: peer}]"], "select has no meaning"),
        (["method=fedavk"], "did you mean fedavg?"),
        (["config.rounds=many"], "it should be a whole number"),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_its_place(tmp_path: Path, settings: list[str], words: str) -> None:
    """Mistakes in the sites, and whatever else is wrong, are told with the place that they are at."""
    two_domains(tmp_path / "both")
    path = write(tmp_path)
    ended = refusal_of(tide("simulate", path, *(word for each in settings for word in ("--set", each))))
    assert ended.startswith((f"Error: {path}:", f"Error: --set {settings[0]}: "))
    assert words in ended


def two_domains(folder: Path) -> None:
    folder.mkdir()
    for name, n, shift in (("near", 60, 0.0), ("far", 90, 9.0)):
        y = np.arange(n) % 3
        np.savez(folder / f"{name}.npz", x=(np.eye(3)[y] + shift).astype(np.float32), y=y)


def test_a_site_that_holds_one_domain_of_a_folder(tmp_path: Path) -> None:
    two_domains(tmp_path / "both")
    sites = {"a": {"folder": "both", "domain": "near", "role": "source"}, "b": {"folder": "both", "role": "source"}}
    given = {"method": "fedavg", "preset": "tiny", "world": {"model": "linear", "inputs": [3], "classes": 3}, "data": sites}
    (tmp_path / "e.yaml").write_text(yaml.safe_dump(given))
    ended = output_of(tide("simulate", tmp_path / "e.yaml", "--json"))
    found = {c["name"]: (c["domain"], c["metrics"]["samples"]) for c in json.loads(ended)["clients"]}
    assert found == {"a": ("near", 48), "b": ("far, near", 120)}


def test_a_wrong_site_is_told_with_its_line(tmp_path: Path) -> None:
    """A mistake of a site that is written in the file has the line of that site's key."""
    path = tmp_path / "e.yaml"
    path.write_text("method: fedavg\ndata:\n  a:\n    role: source\n    dataset: digits\n    domain: minst\n")
    assert tide("simulate", path).stderr.startswith(f"Error: {path}:6: data.a: There is no digits domain minst")
    path.write_text("method: fedavg\ndata:\n  a: {role: target, dataset: digits, domain: mnist, rows: 9}\n")
    assert tide("simulate", path).stderr.startswith(f"Error: {path}:2: No member can teach")


def test_methods_and_contracts(subtests: pytest.Subtests) -> None:
    """Every registered method is listed and has its contract in words and as a table, and as data."""
    listed, words_of_all = json_of(tide("methods", "--json")), tide("methods").stdout
    assert [m["name"] for m in listed] == [name for name, _ in METHODS] and all(name in words_of_all for name, _ in METHODS)
    for name, _ in METHODS:
        with subtests.test(name):
            facts, words = json_of(tide("contract", name, "--json")), tide("contract", name).stdout
            assert facts["summary"] == resolve(METHODS, name).summary
            assert all(f"- {sentence}" in words for sentence in (*facts["sentences"], *facts["claims"]))
            assert all(setting["name"] in words for setting in facts["settings"])


def test_a_presets_settings_stand_beside_the_defaults() -> None:
    """What a preset sets has a column of its own, and in JSON a key of its own; the other keys stay."""
    plain, tiny = (json_of(tide("contract", "fedavg", *more, "--json")) for more in ([], ["--preset", "tiny"]))
    assert tiny["preset"] == {"name": "tiny", "settings": plain["presets"]["tiny"]}
    assert tiny["settings"] == plain["settings"] and tiny.keys() - plain.keys() == {"preset"}

    def rows(*more: str) -> dict[str, list[str]]:
        lines = tide("contract", "fedavg", *more).stdout.split("Settings")[1].splitlines()
        return {line.split()[0]: line.split()[1:] for line in lines if line.strip()}

    assert rows()["setting"] == ["default", "allowed", "meaning"]
    found = rows("--preset", "tiny")
    assert found["setting"] == ["default", "preset", "allowed", "meaning"]
    for name, value in plain["presets"]["tiny"].items():
        assert found[name][:2] == [rows()[name][0], str(value)]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["fedavk"], "did you mean fedavg?"),
        (["fedavg", "--preset", "huge"], "Use one of: demo, tiny"),
        (["fedavg", "--methods", "nowhere:METHODS"], "No module named 'nowhere'"),
        (["hfedf", "--secure-sums"], "hfedf needs the replies of single sites"),
    ],
)
def test_contracts_that_are_not(args: list[str], words: str) -> None:
    assert words in refusal_of(tide("contract", *args))


def test_the_contract_of_a_run_with_secure_sums() -> None:
    """What is summed goes to a sum, what is around it is masked, and what is still seen of each site is said; all as in a run."""
    facts = json_of(tide("contract", "fdan", "--secure-sums", "--json"))
    of = {(clause["phase"], clause["field"]): clause for clause in facts["contract"]}
    assert of["train", "values"]["audience"] == ["sum"] and "more than two thirds" in of["train", "values"]["wire"]
    assert of["train keys", "file"]["exposure"] == "masked" and of["share", "m"]["audience"] == ["coordinator", "peers"]
    words = tide("contract", "fdan", "--secure-sums").stdout
    assert "- secure_sums: of share the coordinator sees each site's m" in words and ", with secure sums" in words
    assert "secure_sums" not in tide("contract", "fdan").stdout
    noised = json_of(tide("contract", "fedavg", "--secure-sums", "--epsilon", "--set", "privacy.noise=2", "--json"))
    assert {clause["field"] for clause in noised["contract"] if clause["phase"] == "train"} == {"values", "order"}
    assert all(clause["private"] for clause in noised["contract"]) and noised["costs"]["of"]


def test_roles_are_those_of_the_data(tmp_path: Path) -> None:
    """A roster that says the same as data is allowed, so that one file serves for both."""
    ended = tide("simulate", write(tmp_path, roster={"b": "target", "a": "source"}), "--json", "--set", "config.rounds=0")
    assert ended.exit_code == 0
    assert [Role(c["role"]) for c in json.loads(ended.stdout)["clients"]] == [Role.SOURCE, Role.TARGET]


def test_a_part_of_the_sites(tmp_path: Path) -> None:
    """What sites remember lies on disk between the rounds in which they are asked, and the bytes are those of any other run."""
    roles = {"a": "source"} | dict.fromkeys("bcde", "target")
    sites = {name: {"role": role, "domain": "mnist", "dataset": "digits", "rows": 30} for name, role in roles.items()}
    path = write(tmp_path, method="fedprox_pl", data=sites, sample=2, config={"rounds": 3})
    ended = [tide("simulate", path, "--json", *more) for more in ((), ("--out", tmp_path / "out"))]
    assert [each.exit_code for each in ended] == [0, 0], ended[0].stderr
    one, other = (json.loads(each.stdout) for each in ended)
    assert one["state_digest"] == other["state_digest"]
    assert [phase["replies"] for phase in one["phases"] if phase["name"] == "adapt"] == [2, 2, 2]


CODE = """
import math
from torch import nn

built = nn.Linear(4, 2)
taken = {"lenet": lambda world: nn.Linear(4, 2)}
nothing = {}

def tiny(world, width: int = 4):
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(world.inputs), width), nn.ReLU(), nn.Linear(width, world.classes))
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a network, from which commands are started."""
    (tmp_path / "tiny_networks.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def experiment(folder: Path, **options: Any) -> Path:
    return write(folder, world={**BASE["world"], "model": {"name": "tiny", "options": options}})


@pytest.mark.nightly(job="services")
def test_every_pool_ends_in_the_same_bytes(here: Path) -> None:
    file, told = experiment(here, width=6), []
    for pool in ("inline", "processes"):
        ended = tide_process(
            "simulate", file, "--networks", "tiny_networks:tiny", "--pool", pool, "--json", "--out", here / pool, limit=120
        )
        assert ended.returncode == 0, ended.stderr
        told.append(json.loads(ended.stdout))
    assert (here / "inline/state.safetensors").read_bytes() == (here / "processes/state.safetensors").read_bytes()
    assert told[0]["world"]["model"] == {"name": "tiny", "options": {"width": 6}}


@pytest.mark.parametrize(
    ("options", "more", "said"),
    [
        ({"width": "6"}, ("tiny_networks:tiny",), "e.yaml:7: world.model.options.width is '6'; it should be a whole number"),
        ({"widht": 6}, ("tiny_networks:tiny",), "tiny has no option 'widht'"),
        ({}, (), "there is no such network here"),
        ({}, ("tiny_netwroks:tiny",), "No module named 'tiny_netwroks'"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(here: Path, options: dict[str, Any], more: tuple[str, ...], said: str) -> None:
    ended = tide("simulate", experiment(here, **options), *(word for place in more for word in ("--networks", place)))
    registry.use([])
    assert ended.exit_code == 2
    assert said in ended.stderr


@pytest.mark.processes
@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("tiny_netwroks:tiny", "--networks: tiny_netwroks:tiny: No module named 'tiny_netwroks'"),
        ("tiny_networks", "Write it as MODULE:NAME"),
        ("tiny_networks:taken", "adds 'lenet', and there is such a network"),
    ],
)
def test_an_agent_says_at_its_start_what_is_wrong(here: Path, place: str, said: str) -> None:
    """Before it enrols: it ends as refused."""
    where = ("--coordinator", "127.0.0.1:1", "--role", "source", "--home", here / "home", "--data", here)
    ended = tide_process("agent", *where, "--networks", place, limit=120)
    words = " ".join((ended.stdout + ended.stderr).split())
    assert ended.returncode == 2 and said in words, words


def test_what_is_no_network(here: Path) -> None:
    built = "'built' is a module that is built already, not a function that builds one"
    odd = {"tinny": "--networks: tiny_networks:tinny: module 'tiny_networks' has no attribute 'tinny'", "built": built}
    for name, said in {**odd, "math": "'math' is a module, not a function", "nothing": "is an empty mapping"}.items():
        refused = refusal_of(tide("simulate", experiment(here), "--networks", f"tiny_networks:{name}"))
        registry.use([])
        assert said in " ".join(refused.split())
