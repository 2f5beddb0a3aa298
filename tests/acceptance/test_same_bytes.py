"""Law 5: a deployment and a simulation with the same seed ask, answer and end alike, byte for byte."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save

from tests.acceptance.conftest import SITES, WORLD, joined, write_blobs
from tests.acceptance.harness import Net, net
from tests.laws.case import NETWORKS, ON_IMAGES, WIRES
from tests.laws.trace import answered, asked
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.averaging.messages import State
from tideline.archive.digests import digest_of
from tideline.archive.reader import decode
from tideline.core.algorithm import Methods
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.core.privacy import DEFAULT_POLICY, Audience, Exposure
from tideline.core.settings import parse
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.experiments.initial_weights import packed
from tideline.learning.formats.folder import read_folder
from tideline.written.files import read_file

AT_NIGHT = pytest.mark.nightly(job="journeys")

pytestmark = pytest.mark.processes
# What some methods ask of owners beyond the default policy.
POLICY = DEFAULT_POLICY | {
    (Exposure.STATISTIC, Audience.PEERS),
    (Exposure.METRIC, Audience.PEERS),
    (Exposure.SAMPLES, Audience.COORDINATOR),
}
# Beside fedavg, shot in the run of fedavg_shot, the clusters of fedwca, fdann and ladd
ALIKE = {"fedprox", "fedgma", "local", "source_model", "shot", "fedprox_pl", "fedamp_pl", "ifca_pl", "fdan", "ladd_pl"}
PICTURED = {"pablo": "source", "paula": "source", "piet": "target"}
MORE = {"d": "source", "e": "source", "f": "target", "g": "target"}
VOLATILE = {"run", "reference", "seconds", "phases", "plan_length", "cursor", "clients", "project", "spent"}
MOVED = ("bytes_up", "bytes_down")
# A small file may go twice on a busy machine, and is counted as often as it went: so much more in all, or so many bytes.
SENT_AGAIN, SMALL = 0.05, 4096


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory, federation: Net) -> Iterator[tuple[Net, dict[str, Path]]]:
    """Sites that have pictures, for methods that work on nothing else; and the folders."""
    home = tmp_path_factory.mktemp("pictures")
    data = {name: write_pictures(home / name, seed) for seed, name in enumerate(PICTURED)}
    with joined(federation, data, PICTURED):
        yield federation, data


def write_pictures(folder: Path, seed: int) -> Path:
    """Pictures of 8 x 8 pixels in three classes, brighter from site to site."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    y = np.arange(60) % 3
    x = rng.integers(0, 80, (60, 8, 8)) + 40 * seed
    x[np.arange(60), 2 * y] += 80
    np.savez(folder / "pictures.npz", x=x.astype(np.uint8), y=y)
    return folder


def experiment(method: str, **more: Any) -> dict[str, Any]:
    """A small run of a method on the three sites."""
    world = {**WORLD, "model": NETWORKS.get(method, WORLD["model"])}
    return {"method": method, "preset": "tiny", "world": world, "roster": SITES, "seed": 5, "reference": {}, **more}


def simulated(data: dict[str, Path], given: dict[str, Any], methods: Methods = METHODS) -> tuple[Federation, str, dict[str, Any]]:
    """The same experiment in this process."""
    made = Federation(methods, {n: SimSite(lambda w, r, n=n: read_folder(data[n], w, r), POLICY) for n in data})
    run = made.start(given)
    return made, run, made.run(run)


def each(names: Iterable[str]) -> list[Any]:
    """Return methods as parameters. Two are quick: a model that all share, and one that is sealed."""
    marks = dict.fromkeys(ALIKE, (AT_NIGHT,)) | dict.fromkeys(("fedavg", "stlf"), (pytest.mark.quick,))
    return [pytest.param(name, marks=marks.get(name, ())) for name in names]


def some(names: Iterable[str]) -> list[Any]:
    """The same, of which a model that all share and one that is sealed are played each time."""
    return [name if name in ("fedavg", "stlf") else pytest.param(name, marks=AT_NIGHT) for name in names]


@pytest.mark.parametrize("method", each(name for name, _ in METHODS if name not in ON_IMAGES))
def test_a_network_gives_the_bytes_of_a_simulation(federation: Net, data: dict[str, Path], method: str) -> None:
    """Orders, replies, seeds, final state and what people read of them are equal in one process and over gRPC."""
    same_bytes(federation, data, experiment(method))


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("method", some(name for name, _ in METHODS if name not in ON_IMAGES))
def test_so_it_does_where_weights_are_packed(federation: Net, data: dict[str, Path], method: str, wire: str) -> None:
    """What rounding leaves out lies in the sites' folders, and in memory: the next messages are the same."""
    same_bytes(federation, data, experiment(method, wire=WIRES[wire]))


@pytest.mark.parametrize("method", each(sorted(ON_IMAGES)))
def test_so_it_does_on_pictures(pictures: tuple[Net, dict[str, Path]], method: str) -> None:
    same_bytes(*pictures, experiment(method, roster=PICTURED, world={"inputs": [1, 8, 8], "classes": 3, "model": "lenet_bn"}))


def without_traffic(result: dict[str, Any]) -> list[dict[str, Any]]:
    """What is told of each site, but for how many bytes went over the network, and how long steps took."""
    return [{k: v for k, v in client.items() if k not in (*MOVED, "spent")} for client in result["clients"]]


def same_bytes(federation: Net, data: dict[str, Path], given: dict[str, Any]) -> None:
    """A run over the network, and the same in this process."""
    run = federation.run(given)
    there = federation.ended(run)
    local, here_run, here = simulated(data, given)
    with federation.journal() as journal:
        assert asked(journal, run) == asked(local.journal, here_run)
        assert answered(journal, run) == answered(local.journal, here_run)
    assert there["status"] == here["status"] == "completed", there["cause"]
    assert without_traffic(there) == without_traffic(here)
    for one, other in zip(there["clients"], here["clients"], strict=True):
        assert one["bytes_down"] == other["bytes_down"]
        assert other["bytes_up"] <= one["bytes_up"] <= (1 + SENT_AGAIN) * other["bytes_up"] + SMALL
    assert {k: v for k, v in there.items() if k not in VOLATILE} == {k: v for k, v in here.items() if k not in VOLATILE}
    assert there["state_digest"] and there["clients"][2]["source_only"] is not None


def test_a_robust_fold_gives_the_same_bytes_and_names_the_same_sites(federation: Net, data: dict[str, Path]) -> None:
    """Over the network, with marks from the database, as in one process: one of two is always beyond the lower median."""
    given = experiment("fedavg", config={"robust": "clip"})
    there, here = federation.ended(federation.run(given)), simulated(data, given)[2]
    marks = [[phase["marks"] for phase in told["phases"]] for told in (there, here)]
    assert marks[0] == marks[1] and [len(each["clipped"]) for each in marks[0] if each] == [1, 1]
    assert there["state_digest"] == here["state_digest"] and there["notes"] == here["notes"] != []


@pytest.fixture(scope="module")
def crowd(
    tmp_path_factory: pytest.TempPathFactory, federation: Net, data: dict[str, Path]
) -> Iterator[tuple[Net, dict[str, Path]]]:
    """Four sites more; and the folders of all seven."""
    home = tmp_path_factory.mktemp("crowd")
    more = {name: write_blobs(home / name, seed) for seed, name in enumerate(MORE, len(SITES))}
    with joined(federation, more, MORE):
        yield federation, data | more


@pytest.mark.parametrize(
    ("method", "sample"),
    [("fedavg", {"sites": 2, "by": "weights", "weights": dict(zip("abcdefg", range(1, 8), strict=True))}), ("fedamp_pl", 0.5)],
    ids=["fedavg", "fedamp_pl"],
)
def test_a_sampled_run_gives_the_same_bytes(crowd: tuple[Net, dict[str, Path]], method: str, sample: Any) -> None:
    """The coordinator's worker draws the cohorts that a simulation draws; the last scoring asks all."""
    federation, data = crowd
    given = experiment(method, roster=SITES | MORE, sample=sample, config={"rounds": 3})
    same_bytes(federation, data, given)
    told = simulated(data, given)[2]
    rounds = [phase["asked"] for phase in told["phases"] if phase["name"] in ("train", "adapt", "score")]
    assert set(rounds[:-1]) == {2} and rounds[-1] == sum(client["accuracy"] is not None for client in told["clients"]) > 2
    assert len({tuple(phase["clients"]) for phase in told["phases"]}) > 3


@pytest.mark.nightly(job="journeys")
def test_clusters_over_the_network(tmp_path: Path) -> None:
    """Five processes at sites, two true domains: the same clusters and bytes as in one process, and no agent was told a group."""
    names, groups = ("a", "b", "c", "d", "e"), {"b": "near", "c": "near", "d": "far", "e": "far"}
    roster = {"a": "source", **dict.fromkeys(groups, "target")}
    where = {name: write_blobs(tmp_path / "data" / name, 3 * i) for i, name in enumerate(names)}
    config = {"rounds": 4, "refresh_every": 2, "clustering": "given", "given": groups}
    given = experiment("fedwca", roster=roster, config=config, reference=None)
    (tmp_path / "net").mkdir()
    with net(tmp_path / "net") as made:
        made.coordinator()
        for name, role in roster.items():
            made.agent(name, where[name], role)
        there = made.ended(made.run(given))
        logs = "".join(made.log(name) for name in names)
    local = Federation(METHODS, {n: SimSite(lambda w, r, n=n: read_folder(where[n], w, r)) for n in names})
    here = local.run(local.start(given))
    assert there["state_digest"] == here["state_digest"] is not None, there["cause"]
    assert there["groups"] == here["groups"] and there["groups"]["last"] == {"cluster 1": ["b", "c"], "cluster 2": ["d", "e"]}
    kept = [file for file in (tmp_path / "net").glob("home-[b-e]/**/*") if file.is_file()]
    assert kept and "near" not in logs
    assert not [file for file in kept if b'"near"' in file.read_bytes()]


def test_two_runs_at_once_do_not_touch_each_other(federation: Net, data: dict[str, Path]) -> None:
    """Runs with other seeds on the same agents, started together, end as each does alone."""
    runs = {seed: federation.run(experiment("fedavg", seed=seed)) for seed in (11, 12, 13)}
    ends = {seed: federation.ended(run)["state_digest"] for seed, run in runs.items()}
    assert ends == {seed: simulated(data, experiment("fedavg", seed=seed))[2]["state_digest"] for seed in runs}
    assert len(set(ends.values())) == 3


def test_weights_of_a_persons_give_the_same_bytes(federation: Net, data: dict[str, Path], tmp_path: Path) -> None:
    """`tideline run start` brings a file to a coordinator of its own process, whose worker reads it: the digests, of the file,
    of every order and of the end, are those of a simulation; without rounds the end is the file."""
    saved = nets.weights_of(nets.build(parse(World, WORLD)))
    (tmp_path / "net.safetensors").write_bytes(save(saved))
    more: dict[str, Any] = {}
    for rounds in (0, 2):
        given = experiment("fedavg", weights="net.safetensors", config={"rounds": rounds})
        (tmp_path / "e.json").write_text(json.dumps(given))
        told = tideline("run", "start", str(tmp_path / "e.json"), "--home", str(federation.folder), "--json")
        there = federation.ended(json.loads(told)["run"])
        made = Federation(METHODS, {n: SimSite(lambda w, r, n=n: read_folder(data[n], w, r), POLICY) for n in SITES})
        digest = made.bring(packed(read_file(tmp_path / "e.json"), tmp_path / "net.safetensors"))
        run = made.start(given | {"weights": digest})
        here = made.run(run)
        assert there["status"] == here["status"] == "completed", there["cause"]
        assert there["weights"] == here["weights"] == digest
        assert there["state_digest"] == here["state_digest"]
        with federation.journal() as journal:
            assert asked(journal, there["run"]) == asked(made.journal, run)
        more[str(rounds)] = decode(State, here["state_digest"], made.parts).model
    assert all(torch.equal(more["0"][name], w) for name, w in saved.items())
    assert not all(torch.equal(more["2"][name], w) for name, w in saved.items())


def test_weights_that_do_not_fit_are_refused_by_a_coordinators_own_worker(federation: Net) -> None:
    """What a person uploads by hand is read in the worker's process before the run is written: there is none."""
    before = federation.client().get("/runs")
    content = save({"classifier.weight": torch.ones(2, 2)})
    digest = digest_of([content])
    federation.client().upload_weights(digest, len(content), lambda: iter([content]))
    for weights, said in ((digest, "and 1 more"), ("b3-" + "0" * 64, "There are no weights")):
        with pytest.raises(ConfigRefused, match=said) as refusal:
            federation.run(experiment("fedavg", weights=weights))
        assert refusal.value.context["path"] == "weights"
    assert federation.client().get("/runs") == before


def tideline(*args: str) -> str:
    """A command in a process of its own; what it prints."""
    done = subprocess.run([sys.executable, "-m", "tideline", *args], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
