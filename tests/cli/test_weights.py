"""A run from a person's own file: `run start` checks it, brings it there once and starts; `simulate` needs no coordinator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save, save_file
from torch import Tensor

from tests.cli.world import Coordinator, assert_refuses, json_of, refusal_of, tide
from tideline import nets
from tideline.algorithms.averaging.messages import State
from tideline.archive.digests import digest_of
from tideline.archive.reader import decode, tensors_in
from tideline.core.asked.world import World
from tideline.core.settings import parse
from tideline.experiments.initial_weights import packed
from tideline.learning.backbones import start
from tideline.written.files import read_file

WORLD: dict[str, Any] = {"inputs": [1, 16, 16], "classes": 10, "model": "mlp"}
PHOTOS: dict[str, Any] = {"inputs": [3, 32, 32], "classes": 10, "model": "resnet18"}
ROSTER = {"anna": "source", "bert": "target"}
SITE: dict[str, Any] = {"dataset": "digits", "rows": 40}


def weights(world: Mapping[str, Any] = WORLD, seed: int = 2) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return nets.weights_of(nets.build(parse(World, world)))


def same(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(a[n].dtype == b[n].dtype and torch.equal(a[n], b[n]) for n in a)


def write(folder: Path, **changed: Any) -> Path:
    """An experiment file whose `weights` stand in its fourth line."""
    folder.mkdir(exist_ok=True)
    path = folder / "e.yaml"
    given = {"method": "fedavg", "preset": "tiny", "seed": 4, "weights": "net.pth", "config": {"rounds": 0}, "world": WORLD}
    given |= {key: value for key, value in ({"roster": ROSTER} | changed).items() if value}
    path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in given.items()))
    return path


def started(there: Coordinator, file: Path, *more: str) -> dict[str, Any]:
    """A run that `run start` starts, played to its end; its result."""
    run = json_of(tide("run", "start", file, "--home", there.home, "--json", *more))["run"]
    there.federation.run(run)
    return dict(json_of(tide("run", "show", run, "--home", there.home, "--json")))


def backbone() -> dict[str, Tensor]:
    from torchvision.models import resnet18

    torch.manual_seed(8)
    return dict(resnet18(weights=None).state_dict())


@pytest.mark.parametrize("name", ["net.pth", "net.safetensors"])
def test_a_run_begins_from_a_file_beside_the_experiment(there: Coordinator, tmp_path: Path, name: str) -> None:
    """A state dict as torch saves it, or safetensors: the final state of no rounds is the file's; people read of it."""
    file = write(tmp_path / "study", weights=name)
    saved = tmp_path / "study" / name
    save_file(weights(), saved) if saved.suffix == ".safetensors" else torch.save(weights(), saved)
    result = started(there, file)
    assert result["status"] == "completed", result["cause"]
    assert same(decode(State, result["state_digest"], there.federation.parts).model, weights())
    assert result["weights"] in set(there.federation.parts.digests())
    shown = tide("run", "show", result["run"], "--home", there.home).stdout
    assert f"from weights {result['weights'][:12]}" in " ".join(shown.split())


def test_equal_weights_are_brought_once(there: Coordinator, tmp_path: Path) -> None:
    """However they were saved, the file that is brought is the same, and is not sent again while it is there."""
    file = write(tmp_path / "study")
    torch.save(weights(), tmp_path / "study" / "net.pth")
    first = started(there, file)
    turned = dict(reversed(weights().items()))
    save_file({name: w.double() for name, w in turned.items()}, tmp_path / "other.safetensors")
    room = there.federation.part_store
    room.upload_initial_weights = lambda digest, size: pytest.fail("it was sent again")  # type: ignore[method-assign]
    second = started(there, file, "--set", f"weights={tmp_path / 'other.safetensors'}")
    assert (second["weights"], second["state_digest"]) == (first["weights"], first["state_digest"])


def test_set_names_a_file_seen_from_here(there: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not from the experiment's folder; a digest of a file that is there does as well."""
    file = write(tmp_path / "study", weights="nowhere.pth")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    torch.save(weights(), "mine.pth")
    result = started(there, file, "--set", "weights=mine.pth")
    assert started(there, file, "--set", f"weights={result['weights']}")["state_digest"] == result["state_digest"]
    assert started(there, file, "--set", "weights=", "--set", "config.rounds=1")["weights"] is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"features.1.weight": None, "more": torch.ones(1)}, "features.1.weight is missing"),
        ({"classifier.bias": torch.ones(7)}, "classifier.bias is 7; this world has 10 classes: 10"),
        ({"classifier.bias": torch.full((10,), torch.inf)}, "holds a NaN or an infinity"),
        ({str(i): torch.ones(1) for i in range(4)}, "; and 1 more"),
    ],
    ids=["missing", "classes", "infinity", "many"],
)
def test_weights_that_do_not_fit_are_refused_with_their_line(
    there: Coordinator, tmp_path: Path, change: Mapping[str, Tensor | None], said: str
) -> None:
    file = write(tmp_path / "study")
    torch.save({n: w for n, w in {**weights(), **change}.items() if w is not None}, tmp_path / "study" / "net.pth")
    assert_refuses(tide("run", "start", file, "--home", there.home), f"{file}:4: ", said)
    assert list(there.federation.parts.digests()) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "there is no such file"), (b"cos\nsystem\n", "cannot be read as a state dict"), (b"", "cannot be read")],
)
def test_a_file_that_cannot_be_read_is_refused_with_its_line(
    there: Coordinator, tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = write(tmp_path / "study")
    if content is not None:
        (tmp_path / "study" / "net.pth").write_bytes(content)
    refused = tide("run", "start", file, "--home", there.home, "--json")
    told = json.loads(refused.stdout)
    assert refused.exit_code == 2 and told["kind"] == "ConfigRefused" and told["path"] == "weights"
    assert (told["context"]["file"], told["context"]["line"]) == (str(file), 4)
    assert said in told["detail"] and "net.pth" in told["detail"] and told["todo"]


def test_a_refusal_of_the_coordinator_has_the_line_too(there: Coordinator, tmp_path: Path) -> None:
    file = write(tmp_path / "study", method="local", config={"rounds": 1})
    torch.save(weights(), tmp_path / "study" / "net.pth")
    for more, said in (
        ((), "local takes no initial weights"),
        (("--set", f"weights={'b3-' + 'ab' * 32}"), "There are no weights b3-abab"),
    ):
        refused = tide("run", "start", file, "--home", there.home, *more)
        place = f"{file}:4: " if not more else "--set weights="
        assert refused.exit_code == 2 and place in refused.stderr and said in refused.stderr, refused.stderr


def test_a_file_beyond_the_coordinators_limit_is_not_sent(there: Coordinator, tmp_path: Path) -> None:
    file = write(tmp_path / "study")
    torch.save(weights(), tmp_path / "study" / "net.pth")
    there.app.state.settings = type(there.app.state.settings)(max_weights_bytes=100)
    refused = tide("run", "start", file, "--home", there.home)
    assert refused.exit_code == 2 and f"{file}:4: " in refused.stderr and "accepts 100 at most" in refused.stderr, refused.stderr
    assert "--weights-limit" in refused.stderr and list(there.federation.parts.digests()) == []


@pytest.mark.nightly(job="services")
def test_a_backbone_is_put_under_what_the_seed_draws(there: Coordinator, tmp_path: Path) -> None:
    """A note says that bottleneck and classifier are to be trained; the bytes are those of the seed."""
    file = write(tmp_path / "study", world=PHOTOS)
    torch.save(backbone(), tmp_path / "study" / "net.pth")
    told = tide("run", "start", file, "--home", there.home, "--json")
    assert told.exit_code == 0, told.output
    assert "Note: " in told.stderr and "not loaded: fc.weight (1000 x 512)" in " ".join(told.stderr.split())
    row = there.federation.run_service.find(json.loads(told.stdout)["run"])
    held = tensors_in(there.federation.parts.view(row.spec.initial_weights))
    assert same(held, start(parse(World, PHOTOS), backbone(), 4).weights)


def test_a_backbone_that_nobody_could_train_on_is_refused(there: Coordinator, tmp_path: Path) -> None:
    file = write(tmp_path / "study", world=PHOTOS, roster={"anna": "target", "bert": "target"})
    torch.save(backbone(), tmp_path / "study" / "net.pth")
    assert_refuses(tide("run", "start", file, "--home", there.home), f"{file}:7: ", "no site in the roster has labels")


def test_a_simulation_begins_from_a_file(there: Coordinator, tmp_path: Path, data: dict[str, Path]) -> None:
    sites = {name: {"role": role, "folder": str(data[name])} for name, role in ROSTER.items()}
    torch.save(weights(), tmp_path / "net.pth")
    here = json_of(tide("simulate", write(tmp_path, config={"rounds": 1}, data=sites), "--json"))
    there_too = started(there, write(tmp_path, config={"rounds": 1}))
    assert here["weights"] == there_too["weights"] is not None
    assert here["state_digest"] == there_too["state_digest"] is not None


def test_a_simulation_refuses_with_the_line(tmp_path: Path) -> None:
    """A digest, of which it has no file; a file that does not fit; a backbone for targets alone."""
    data = {"a": {"role": "source", "domain": "mnist", **SITE}}
    torch.save({**weights(), "more": torch.ones(1)}, tmp_path / "net.pth")
    for more, said in (
        ((), ":4: The weights do not fit mlp: more is not in the network"),
        (("--set", f"weights={'b3-' + 'ab' * 32}"), "none that were uploaded"),
    ):
        assert said in refusal_of(tide("simulate", write(tmp_path, roster={}, data=data), *more))
    torch.save(backbone(), tmp_path / "net.pth")
    refused = tide("simulate", write(tmp_path, roster={}, world=PHOTOS, data={"a": {**data["a"], "role": "target"}}))
    assert refused.exit_code == 2 and "no site in the roster has labels" in refused.stderr and "e.yaml:7: " in refused.stderr


def test_packed_weights_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    save_file(dict(reversed(weights().items())), tmp_path / "net.safetensors")
    torch.save({"model": weights()}, tmp_path / "net.pth")
    text = read_file(write(tmp_path))
    one, two = (packed(text, tmp_path / name) for name in ("net.pth", "net.safetensors"))
    assert digest_of(one) == digest_of(two)
    (tmp_path / "packed.safetensors").write_bytes(b"".join(one))
    assert same(tensors_in(memoryview(bytearray(b"".join(one)))), weights())
    from safetensors.torch import load_file

    assert same(load_file(tmp_path / "packed.safetensors"), weights()) and save(weights()) != b"".join(one)
