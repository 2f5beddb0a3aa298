"""The grid of `tideline bench`: what it says, what is refused, and which cells follow from it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.world import json_of, make_data, refusal_of, tide
from tideline.algorithms import METHODS
from tideline.bench.checks import check_grid, digest_of, files_of
from tideline.bench.grid import Cell, Grid, GridMethod, cells, read_grid, world_of
from tideline.cli.guard import DONE, REFUSED
from tideline.core.errors import ConfigRefused
from tideline.engine.model.experiment import read_experiment
from tideline.written.files import read_file
from tideline.written.yaml_lines import read_yaml, write_yaml

PROX = {"label": "prox", "method": "fedprox", "preset": "tiny", "config": {"mu": 0.1}}
GRID: dict[str, Any] = {"folder": "data", "world": {"model": "mlp", "inputs": [4], "classes": 3}, "methods": ["fedavg", PROX]}
GRID |= {"domains": [1, 2], "seeds": 2, "base": {"config": {"rounds": 1}, "waiting": {"deadline": 60}}}


def written(place: Path, **changed: Any) -> Path:
    path = place / "grid.yaml"
    given = {key: value for key, value in {**GRID, **changed}.items() if value is not None}
    path.write_text(yaml.safe_dump(given, sort_keys=False))
    return path


def read(place: Path, **changed: Any) -> Grid:
    return read_grid(read_file(written(place, **changed)))


def cells_of(place: Path, **changed: Any) -> list[Cell]:
    """The cells of a grid, as the command lays them out."""
    text = read_file(written(place, **changed))
    grid = read_grid(text)
    with text.located():
        folder = text.folder(grid.folder, "folder").resolve()
    data = digest_of(folder, place / "data.json")
    return list(cells(grid, check_grid(text, grid, folder, METHODS), f"../../data/{data[:12]}"))


def test_the_cells_of_a_grid(place: Path) -> None:
    """Methods x left-out domains x d x seeds, seed by seed; each domain is left out, and there are as many clients as others."""
    found = cells_of(place)
    assert [(c.seed, c.domains, c.leave_out, c.label) for c in found] == [
        (seed, d, domain, label) for seed in (0, 1) for d in (1, 2) for domain in "abc" for label in ("fedavg", "prox")
    ]
    experiment = read_experiment(read_yaml(found[1].text, "cell").value)
    assert (experiment.method, experiment.preset, dict(experiment.config)) == ("fedprox", "tiny", {"rounds": 1, "mu": 0.1})
    assert experiment.deal is not None and experiment.deal.clients == 2 and experiment.deal.leave_out == "a"
    assert experiment.seed == experiment.deal.seed == 0 and experiment.threads == 1 and experiment.waiting.deadline == 60
    assert experiment.world.inputs == (4,)


def test_short_forms(place: Path) -> None:
    """One value for a list of one, a number of seeds, a method by its name."""
    short = read(place, methods=["fedavg"], domains=2, seeds=3, leave_out="a")
    assert (short.methods[0].method, short.methods[0].name) == ("fedavg", "fedavg")
    assert (short.domains, short.seeds, short.leave_out) == ((2,), (0, 1, 2), ("a",))
    assert read(place, seeds=[5, 3]).seeds == (5, 3)


def test_a_grid_that_adapts(place: Path) -> None:
    """Its deals say which share of the target's rows scores; the first row is what gains are measured from."""
    found = cells_of(place, protocol="adapt", domains=1, seeds=1, leave_out=["a"])
    deal = read_experiment(read_yaml(found[0].text, "cell").value).deal
    assert deal is not None and (deal.target_share, deal.shots, deal.leave_out, deal.clients) == (0.2, 0, "a", 2)
    assert [(c.baseline, c.adapts) for c in found] == [(True, True), (False, True)]
    assert found[0].words() == "fedavg, target a, d = 1, seed 0"
    other = cells_of(place, protocol="adapt", domains=1, seeds=1, leave_out=["a"], target_share=0.5, baselines="prox")
    assert "target_share: 0.5" in other[0].text and [c.baseline for c in other] == [False, True]
    assert not {c.key for c in found} & {c.key for c in cells_of(place)}


def test_a_grid_of_before_has_the_cells_of_before(place: Path) -> None:
    """Its keys are those of results that are there; nothing of the new keys is in them."""
    text = cells_of(place)[1].text
    assert not any(word in text for word in ("target_share", "sweep", "protocol"))
    assert cells_of(place, protocol="generalise")[1].text == text


def test_a_sweep_is_a_row_for_each_combination(place: Path) -> None:
    """Labels say the values, which lie over the settings of all methods."""
    swept = {"label": "prox", "method": "fedprox", "config": {"rate": 0.1}, "sweep": {"mu": [0.1, 1], "rounds": [1, 2]}}
    found = cells_of(place, methods=["fedavg", swept], domains=1, seeds=1, leave_out=["a"])
    rows = [(c.label, c.sweep) for c in found]
    labels = ["prox mu=0.1 rounds=1", "prox mu=0.1 rounds=2", "prox mu=1 rounds=1", "prox mu=1 rounds=2"]
    assert rows == [("fedavg", ""), *((label, "prox") for label in labels)]
    configs = [dict(read_experiment(read_yaml(c.text, "cell").value).config) for c in found[1:]]
    assert configs == [{"rounds": r, "rate": 0.1, "mu": mu} for mu in (0.1, 1) for r in (1, 2)]
    assert found[4].key.startswith("prox-mu-1-rounds-2-a-d1-s0-")
    alone = {"label": labels[0], "method": "fedprox", "config": {"rate": 0.1, "mu": 0.1, "rounds": 1}}
    (one,) = cells_of(place, methods=[alone], domains=1, seeds=1, leave_out=["a"])
    assert read_yaml(one.text, "cell").value == read_yaml(found[1].text, "cell").value, "a sweep is rows, and nothing else"


def test_a_method_may_have_a_word_of_the_world_for_itself(place: Path) -> None:
    grid = read(place)
    assert world_of(grid, grid.methods[0]) == grid.world
    own = world_of(grid, GridMethod(method="fedavg", world={"class_names": ["x", "y", "z"]}))
    assert own == replace(grid.world, class_names=("x", "y", "z"))
    with pytest.raises(ConfigRefused, match="2 names for 3 classes"):
        world_of(grid, GridMethod(method="fedavg", world={"class_names": ["x", "y"]}))


def test_a_key_is_of_one_experiment_and_of_its_data(place: Path) -> None:
    """Whatever changes in the experiment or the data changes the key; nothing else does."""
    keys = {c.key for c in cells_of(place)}
    assert keys == {c.key for c in cells_of(place)} and len(keys) == 24
    assert all(c.digest == hashlib.sha256(c.text.encode()).hexdigest() and c.key.endswith(c.digest[:12]) for c in cells_of(place))
    more = {c.key for c in cells_of(place, seeds=3)}
    assert keys < more
    for changed in ({"share": 0.2}, {"shots": 1}, {"clients": 3}, {"base": {"config": {"rounds": 2}}}, {"base": None}):
        assert not keys & {c.key for c in cells_of(place, **changed)}, changed
    prox = {"label": "prox", "method": "fedprox", "preset": "tiny", "config": {"mu": 0.2}}
    assert len(keys & {c.key for c in cells_of(place, methods=["fedavg", prox])}) == 12
    with np.load(place / "data" / "b.npz", allow_pickle=False) as arrays:
        np.savez(place / "data" / "b.npz", x=arrays["x"], y=arrays["y"][::-1])
    assert not keys & {c.key for c in cells_of(place)}


def test_a_key_does_not_know_where_the_data_lie(place: Path) -> None:
    keys = [c.key for c in cells_of(place)]
    (place / "data").rename(place / "elsewhere")
    assert [c.key for c in cells_of(place, folder=str(place / "elsewhere"))] == keys


def test_a_digest_of_data_is_kept(place: Path) -> None:
    """A file whose size and time are as they were is not read again; what cannot be read of the cache is found anew."""
    cache = place / "cache.json"
    digest = digest_of(place / "data", cache)
    known = json.loads(cache.read_text())
    assert {Path(name).name for name in known} == {"a.npz", "b.npz", "c.npz"}
    name = next(iter(known))
    cache.write_text(json.dumps({**known, name: {**known[name], "sha256": "0" * 64}}))
    assert digest_of(place / "data", cache) != digest, "it believes its cache"
    for spoilt in ("", "[]", "{", '{"a": 3}', '{"a": {"size": 1}}'):
        cache.write_text(spoilt)
        assert digest_of(place / "data", cache, write_cache=False) == digest and cache.read_text() == spoilt
    (place / "data" / "notes.txt").write_text("nobody reads this")
    assert digest_of(place / "data", cache) == digest
    (place / "data" / "transforms.toml").write_text("[a]\nmean = [1]\n")
    assert digest_of(place / "data", cache) != digest and "transforms.toml" in files_of(place / "data")


def swept(**values: Any) -> dict[str, Any]:
    return {"method": "fedprox", "sweep": values}


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"folder": None}, "", "folder is missing"),
    ({"folder": "nowhere"}, "folder: nowhere", "there is no folder"),
    ({"methods": None}, "", "methods is missing"),
    ({"methods": []}, "methods: []", "methods is empty"),
    ({"methods": "fedavg"}, "methods: fedavg", "should be a list"),
    ({"methods": [3]}, "- 3", "methods[0] is 3"),
    ({"methods": ["fedavk"]}, "- fedavk", "There is no method 'fedavk'"),
    ({"methods": ["fedavg", "fedavg"]}, "- fedavg", "there are two rows of the label fedavg"),
    ({"methods": [{"label": "x"}]}, "- label: x", "methods[0].method is missing"),
    ({"methods": [{"label": "/" * 3, "method": "fedavg"}]}, "- label: ///", "cannot name a row and a folder"),
    ({"methods": [{"label": "x" * 61, "method": "fedavg"}]}, "- label: xxx", "Write up to 60 letters"),
    ({"methods": [{"method": "fedavg", "rate": 1}]}, "rate: 1", "methods[0].rate is not a known setting"),
    ({"methods": [{"method": "fedavg", "preset": "huge"}]}, "preset: huge", "has no preset 'huge'"),
    ({"methods": [{"method": "fedavg", "config": {"mu": 1}}]}, "mu: 1", "config.mu is not a known setting"),
    ({"methods": [{"method": "fedavg", "config": {"rate": -1}}]}, "rate: -1", "config.rate is -1"),
    ({"methods": [{"method": "fedavg", "config": {"roles": ["peer"]}}]}, "- method: fedavg", "No member can teach"),
    ({"methods": [swept(mu=[])]}, "mu: []", "methods[0].sweep.mu is empty"),
    ({"methods": [swept(mu=3)]}, "mu: 3", "methods[0].sweep.mu is 3; it should be a list"),
    ({"methods": [swept(mu=[0.1, 0.1])]}, "- 0.1", "methods[0].sweep.mu has 0.1 twice"),
    ({"methods": [swept(mu=[0.1, None])]}, "- null", "methods[0].sweep.mu[1] is a value that no label can say"),
    ({"methods": [swept(roles=[["source"]])]}, "- - source", "methods[0].sweep.roles[0] is a value that no label can say"),
    ({"methods": [swept(muu=[0.1])]}, "- 0.1", "config.muu is not a known setting"),
    ({"methods": [swept(mu=[0.1, -1])]}, "- -1", "config.mu is -1"),
    ({"methods": [swept(rate=list(range(11)), mu=list(range(10)), epochs=list(range(10)))]}, "sweep:", "has 1100 combinations"),
    ({"methods": [{**swept(mu=[0.1]), "config": {"mu": 1}}]}, "mu:", "methods[0] has mu in config and in sweep"),
    ({"methods": [{"method": "fedavg", "world": {"classes": 3}}]}, "classes: 3", "classes cannot be set for one method"),
    ({"methods": [{"method": "fedavg", "world": {"normalise": "backwards"}}]}, "normalise: backwards", "world.normalise"),
    ({"protocol": "adopt"}, "protocol: adopt", "did you mean adapt?"),
    ({"target_share": 0.2}, "target_share: 0.2", "target_share has no meaning"),
    ({"baselines": ["prox"]}, "baselines:", "baselines has no meaning"),
    ({"protocol": "adapt", "baselines": ["fedavg", "proxy"]}, "- proxy", "there is no row proxy"),
    ({"protocol": "adapt", "baselines": ["prox", "prox"]}, "- prox", "baselines has prox twice"),
    ({"protocol": "adapt", "target_share": 1}, "target_share: 1", "it should be at most 0.999"),
    ({"protocol": "adapt", "shots": 1}, "shots: 1", "shots would give clients their labels"),
    ({"domains": []}, "domains: []", "domains is empty"),
    ({"domains": [1, 3]}, "- 3", "With a left out: domains is 3; a client can have 1 to 2"),
    ({"domains": [0]}, "- 0", "it should be at least 1"),
    ({"domains": [1, 1]}, "- 1", "domains has 1 twice"),
    ({"domains": "many"}, "domains:", "it should be a whole number"),
    ({"leave_out": ["a", "z"]}, "- z", "There is no domain z to leave out"),
    ({"leave_out": ["a", "a"]}, "- a", "leave_out has a twice"),
    ({"clients": 1}, "clients: 1", "it should be at least 2"),
    ({"clients": 99}, "clients: 99", "rows, which cannot be dealt in"),
    ({"seeds": 0}, "seeds: 0", "seeds is 0"),
    ({"seeds": []}, "seeds: []", "seeds is empty"),
    ({"seeds": [1, 1]}, "- 1", "seeds has 1 twice"),
    ({"seeds": [-1]}, "- -1", "it should be at least 0"),
    ({"seeds": True}, "seeds: true", "should be a list"),
    ({"share": 1}, "share: 1", "it should be at most 0.999"),
    ({"shots": 15}, "shots: 15", "With a left out: 2 clients with 15 shots each take 30 of the 30 rows"),
    ({"world": {"model": "mpl"}}, "model: mpl", "mpl"),
    ({"world": {"inputs": [0]}}, "- 0", "world.inputs[0] is 0"),
    ({"world": {"trains": "head"}}, "trains: head", "begin from no weights that could be frozen"),
    ({"base": {"seed": 3}}, "seed: 3", "base.seed cannot be set for all cells"),
    ({"base": {"weights": "w.pt"}}, "weights: w.pt", "base.weights cannot be set for all cells"),
    ({"base": {"config": 3}}, "config: 3", "base.config should be a mapping"),
    ({"base": {"config": {"roundz": 3}}}, "roundz: 3", "config.roundz is not a known setting"),
    ({"base": {"waiting": {"deadline": 0}}}, "deadline: 0", "waiting.deadline is 0"),
    ({"base": {"threads": 0}}, "threads: 0", "threads is 0"),
    ({"base": {"sample": 0}}, "sample: 0", "sample is 0"),
    ({"base": {"sample": 99}}, "sample: 99", "and the roster has"),
    ({"jobs": 3}, "jobs: 3", "jobs is not a known setting"),
]


@pytest.mark.parametrize(("changed", "line", "words"), BAD, ids=lambda value: str(value)[:40])
def test_a_wrong_grid_is_told_with_its_line(place: Path, changed: dict[str, Any], line: str, words: str) -> None:
    path = written(place, **changed)
    ended = tide("bench", path, "--out", place / "out")
    assert ended.exit_code == REFUSED and words in ended.stderr, ended.stderr
    assert "What to do: " in ended.stderr and not (place / "out").exists()
    if line:
        number = int(ended.stderr.removeprefix(f"Error: {path}:").partition(":")[0])
        assert path.read_text().splitlines()[number - 1].strip().startswith(line), ended.stderr


def test_a_grid_of_one_domain(tmp_path: Path) -> None:
    make_data(tmp_path / "data", "a")
    with pytest.raises(ConfigRefused, match="there is no source domain"):
        cells_of(tmp_path, domains=[1])


def test_results_do_not_lie_among_the_data(place: Path) -> None:
    assert "is in the data folder" in refusal_of(tide("bench", written(place), "--out", place / "data" / "out"))
    assert not (place / "data" / "out").exists()


def test_options_that_ask_for_two_things(place: Path) -> None:
    ended = tide("bench", written(place), "--out", place / "out", "--dry-run", "--table")
    assert ended.exit_code == REFUSED and "--dry-run and --table exclude each other" in ended.stderr


def test_a_dry_run_writes_nothing(place: Path) -> None:
    ended = tide("bench", written(place), "--out", place / "out", "--dry-run")
    assert ended.exit_code == DONE and "24 cells, 0 done, 24 to run" in ended.stdout
    assert "prox, c left out, d = 2, seed 1" in ended.stdout
    told = json_of(tide("bench", written(place), "--out", place / "out", "--dry-run", "--json"))
    assert told["to_run"] == 24 and {each["status"] for each in told["cells"]} == {"waiting"}
    assert not (place / "out").exists()


plain = st.one_of(
    *(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)),
    *(st.text(max_size=12), st.sampled_from(["no", "1e-3", "12:30", "~", "0x1f", "1_000", "=", "- a", "2020-01-01", "<<", "1."])),
)
keys = st.text(max_size=6)
nested: Any = st.deferred(lambda: plain | st.lists(nested, max_size=2) | st.dictionaries(keys, nested, max_size=2))


@given(st.dictionaries(st.text(min_size=1, max_size=8), nested, min_size=1, max_size=4))
@settings(deadline=None)
def test_an_experiment_is_read_as_it_was_written(value: dict[str, Any]) -> None:
    """Texts that look like numbers are texts, and numbers keep every digit."""
    assert read_yaml(write_yaml(value), "cell").value == value
