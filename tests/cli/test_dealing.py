"""`tideline data deal`, and the `deal` section of experiments: the same sites, in folders or in one process, by both rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.cli.world import assert_refuses, json_of, output_of, refusal_of, tide
from tideline.cli.guard import DONE, ENDED_BADLY, REFUSED
from tideline.learning.datasets import digits

WORLD = {"model": "mlp", "inputs": [3, 8, 8]}
DEAL: dict[str, Any] = {"folder": "digits", "leave_out": "usps", "clients": 3, "domains": 2, "seed": 4}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A place with a folder of three domains of few digits."""
    for domain in ("mnist", "usps", "optdigits"):
        digits.write_site(tmp_path / "digits", domain, rows=60)
    return tmp_path


def experiment(place: Path, **sites: Any) -> Path:
    path = place / "e.yaml"
    path.write_text(yaml.safe_dump({"method": "fedavg", "preset": "tiny", "world": WORLD, "seed": 2, **sites}, sort_keys=False))
    return path


def dealt(place: Path, *more: object) -> Any:
    return tide("data", "deal", place / "digits", "--out", place / "out", "--clients", 3, "--domains", 2, *more)


def options(given: dict[str, Any]) -> list[object]:
    return [word for key, value in given.items() for word in (f"--{key.replace('_', '-')}", value)]


@pytest.mark.parametrize("more", [{"shots": 0}, {"shots": 2}, {"target_share": 0.3}], ids=str)
def test_in_one_process_as_by_agents(place: Path, more: dict[str, Any]) -> None:
    """Folders that the command wrote, read as agents read them, end in the state that the section ends in."""
    told = json_of(dealt(place, "--leave-out", "usps", "--seed", 4, *options(more), "--json"))
    data = {site: {"role": each["role"], "folder": f"out/{each['folder']}"} for site, each in told["sites"].items()}
    assert list(data) == ["client-1", "client-2", "client-3", "unseen"] and data["unseen"]["folder"] == "out/unseen-usps"
    ended = [tide("simulate", experiment(place, **sites), "--json") for sites in ({"deal": {**DEAL, **more}}, {"data": data})]
    assert [each.exit_code for each in ended] == [DONE, DONE]
    one, other = (json.loads(each.stdout) for each in ended)
    assert one["state_digest"] == other["state_digest"]
    for mine, theirs in zip(one["clients"], other["clients"], strict=True):
        assert {key: mine[key] for key in ("name", "domain", "role", "samples", "accuracy")} == {
            key: theirs[key] for key in ("name", "domain", "role", "samples", "accuracy")
        }
    assert one["clients"][3]["domain"] == "usps" and "accuracy" in one["clients"][3]["metrics"]


def test_what_was_dealt_is_told(place: Path) -> None:
    """In words, as data and in a file; the folders can be used, and the unseen one is scored by its whole domain."""
    ended = output_of(dealt(place, "--leave-out", "usps", "--share", 0.25))
    assert "roster: {client-1: source, client-2: source, client-3: source, unseen: target}" in ended
    told = json.loads((place / "out" / "deal.json").read_text())
    assert told["from"] == str(place / "digits") and told["share"] == 0.25 and told["domains"] == 2
    assert told["sites"]["unseen"]["domains"] == {"usps": {"training": 1, "bare": 0, "held_out": 60}}
    for site, each in told["sites"].items():
        folder = place / "out" / each["folder"]
        checked = json_of(tide("data", "check", folder, "--role", each["role"], "--json"))
        assert checked["usable"], site
        counts = {d["name"]: (d["samples"], d["held_out"]) for d in checked["domains"]}
        assert counts == {name: (n["training"] + n["held_out"], n["held_out"]) for name, n in each["domains"].items()}
    assert not list((place / "out").glob(".*"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--leave-out", "uspz"], "--leave-out: There is no domain uspz to leave out"),
        (["--leave-out", "usps", "--domains", 3], "--domains: domains is 3; a client can have 1 to 2"),
        (["--leave-out", "usps", "--clients", 90], "--clients: The domain mnist has 60 rows, which cannot be dealt in 90 parts"),
        (["--leave-out", "usps", "--share", 1], "--share: share is 1"),
        (["--leave-out", "usps", "--shots", 20], "--shots: 3 clients with 20 shots each take 60 of the 60 rows of usps"),
    ],
)
def test_what_cannot_be_dealt_is_refused(place: Path, given: list[object], words: str) -> None:
    assert_refuses(dealt(place, *given), words, "What to do: ")
    assert not (place / "out").exists()


def test_folders_that_are_there_stay(place: Path) -> None:
    """A second deal to the same place is refused, also where one folder of the first is left."""
    assert dealt(place, "--leave-out", "usps").exit_code == DONE
    before = {f: f.read_bytes() for f in (place / "out").rglob("*") if f.is_file()}
    assert "client-1 is there already" in refusal_of(dealt(place, "--leave-out", "usps"))
    assert {f: f.read_bytes() for f in (place / "out").rglob("*") if f.is_file()} == before


@pytest.mark.parametrize(("folder", "words"), [("nowhere", "There is no data folder"), (".", "holds no .npz")])
def test_a_folder_without_domains_is_refused(place: Path, folder: str, words: str) -> None:
    ended = tide(*("data", "deal", place / folder, "--out", place / "out", "--leave-out", "usps", "--clients", 2, "--domains", 1))
    assert ended.exit_code == REFUSED and words in ended.stderr


def test_a_place_that_cannot_be_written(place: Path) -> None:
    (place / "out").write_text("a file")
    assert "Cannot write to" in refusal_of(dealt(place, "--leave-out", "usps"))


def test_a_wrong_deal_is_told_with_its_line(place: Path, subtests: pytest.Subtests) -> None:
    path = place / "e.yaml"
    for deal, words in (
        ("{folder: digits, leave_out: uspz, clients: 3, domains: 1}", "deal: There is no domain uspz to leave out"),
        ("{folder: digits, leave_out: usps, clients: 3, domains: 3}", "deal: domains is 3; a client can have 1 to 2"),
        ("{folder: digits, leave_out: usps, clients: 1, domains: 2}", "deal.clients is 1; it should be at least 2"),
        ("{folder: nowhere, leave_out: usps, clients: 2, domains: 1}", "deal.folder: there is no folder"),
        ("{folder: digits, clients: 2, domains: 1}", "deal: the rule leave-out needs leave_out, which is missing"),
        ("{folder: digits, leave_out: usps, clients: 2, domain: 1}", "did you mean domains?"),
        ("{folder: digits, leave_out: usps, clients: 2, domains: 1, share: 1}", "deal.share is 1.0; it should be at most 0.999"),
        ("3", "deal is 3"),
        ("{folder: digits, rule: dirichlet, take: [mnist]}", "deal: mnist has"),
        ("{folder: digits, rule: dirichlet, take: [mnist], leave_out: usps}", "leave_out has no meaning for the rule dirichlet"),
        ("{folder: digits, rule: dirichle}", "did you mean dirichlet?"),
        ("{folder: digits, leave_out: usps, clients: 2, domains: 1, scale: 0.1}", "scale has no meaning for the rule leave-out"),
        ("{folder: digits, rule: dirichlet, case: all}", "deal.case is 'all'; it should be one of single, mixed, split"),
        ("{folder: digits, rule: dirichlet, role: target, take: [mnist]}", "deal: role is target"),
    ):
        with subtests.test(deal):
            path.write_text(f"method: fedavg\npreset: tiny\ndeal: {deal}\n")
            refused = refusal_of(tide("simulate", path))
            assert refused.startswith(f"Error: {path}:3: ") and words in refused


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"data": {"a": {"role": "source", "folder": "digits"}}}, "data and deal both say which sites there are"),
        ({"roster": {"client-1": "source"}}, "roster differs from the sites and roles of deal"),
        ({"select": [{"labels": {}, "role": "source"}]}, "select has no meaning in a simulation"),
    ],
)
def test_a_deal_says_alone_which_sites_there_are(place: Path, more: dict[str, Any], words: str) -> None:
    assert words in refusal_of(tide("simulate", experiment(place, deal=DEAL, **more)))


def test_the_roster_of_a_deal_may_be_told_too(place: Path) -> None:
    roster = {**{f"client-{i}": "source" for i in (1, 2, 3)}, "unseen": "target"}
    output_of(tide("simulate", experiment(place, deal=DEAL, roster=roster), "--json", "--set", "config.rounds=0"))


def test_what_a_method_says_of_the_roster_is_said_of_the_deal(place: Path) -> None:
    """A network that does not exist; a roster that a method cannot use."""
    path = experiment(place, deal=DEAL)
    ended = tide("simulate", path, "--set", "config.roles=[peer]")
    assert ended.exit_code == REFUSED and ended.stderr.startswith(f"Error: {path}:"), ended.stderr
    line = int(ended.stderr.removeprefix(f"Error: {path}:").partition(":")[0])
    assert path.read_text().splitlines()[line - 1] == "deal:" and "No member can teach" in ended.stderr


def test_data_that_do_not_fit_the_world_stall_the_run(place: Path) -> None:
    ended = tide("simulate", experiment(place, deal=DEAL), "--json", "--set", "world={model: mlp, inputs: [3]}")
    assert ended.exit_code == ENDED_BADLY
    told = json.loads(ended.stdout)
    assert told["status"] == "stalled" and "0 of 4 sites answered" in told["cause"]
    assert {f["kind"] for client in told["clients"] for f in client["failures"]} == {"DataRefused"}


def test_a_domain_without_labels_is_refused(place: Path) -> None:
    np.savez(place / "digits" / "usps.npz", x=np.zeros((9, 8, 8), np.uint8))
    assert "usps.npz: there are no labels" in refusal_of(tide("simulate", experiment(place, deal=DEAL)))


RULE = {"clients": 4, "labelled": 2, "scale": 0.01, "alpha": 20, "seed": 3}
DEVICES: dict[str, Any] = {"folder": "digits", "rule": "dirichlet", **RULE}


@pytest.fixture
def crowd(tmp_path: Path) -> Path:
    """A place with a folder of three domains of some hundred digits."""
    for domain in ("mnist", "usps", "optdigits"):
        digits.write_site(tmp_path / "digits", domain, rows=300)
    return tmp_path


def devices(crowd: Path, *more: object, out: str = "out") -> Any:
    return tide("data", "deal", crowd / "digits", "--out", crowd / out, "--rule", "dirichlet", *options(RULE), *more)


@pytest.mark.parametrize("case", ["single", "mixed", "split"])
def test_devices_in_one_process_as_by_agents(crowd: Path, case: str) -> None:
    """As with the first rule; some rows of the labelled ones come without labels, and the others are targets."""
    take = ["mnist"] if case == "single" else ["mnist", "optdigits"]
    told = json_of(devices(crowd, "--case", case, *(word for name in take for word in ("--take", name)), "--json"))
    assert {site: each["role"] for site, each in told["sites"].items()} == {
        **{f"client-{i}": "source" for i in (1, 2)},
        **{f"client-{i}": "target" for i in (3, 4)},
    }
    assert {name for each in told["sites"].values() for name in each["domains"]} <= {*take}
    for site, each in told["sites"].items():
        checked = json_of(tide("data", "check", crowd / "out" / each["folder"], "--role", each["role"], "--json"))
        assert checked["usable"], site
        assert {d["name"]: d["bare"] for d in checked["domains"]} == {name: n["bare"] for name, n in each["domains"].items()}
        assert (each["role"] == "source") == any(n["bare"] for n in each["domains"].values())
    data = {site: {"role": each["role"], "folder": f"out/{each['folder']}"} for site, each in told["sites"].items()}
    deal = {**DEVICES, "case": case, "take": take}
    ended = [tide("simulate", experiment(crowd, **sites), "--json") for sites in ({"deal": deal}, {"data": data})]
    assert [each.exit_code for each in ended] == [DONE, DONE], ended[0].output
    one, other = (json.loads(each.stdout) for each in ended)
    assert one["state_digest"] == other["state_digest"]
    assert [c["accuracy"] for c in one["clients"]] == [c["accuracy"] for c in other["clients"]]


def test_methods_that_do_not_ask_see_the_labelled_rows_alone(crowd: Path) -> None:
    """A run ends in the same bytes where the rows without labels are not there at all."""
    assert devices(crowd, "--take", "mnist").exit_code == DONE
    data = {f"client-{i}": {"role": "source", "folder": f"out/client-{i}"} for i in (1, 2)}
    digest = json_of(tide("simulate", experiment(crowd, data=data), "--json"))["state_digest"]
    for i in (1, 2):
        path = crowd / "out" / f"client-{i}" / "mnist.npz"
        with np.load(path, allow_pickle=False) as arrays:
            x, y, held = arrays["x"], arrays["y"], np.isin(np.arange(len(arrays["y"])), arrays["test_idx"])
        assert (y < 0).any()
        np.savez_compressed(path, x=x[y >= 0], y=y[y >= 0], test_idx=np.flatnonzero(held[y >= 0]))
    assert json_of(tide("simulate", experiment(crowd, data=data), "--json"))["state_digest"] == digest


def test_labelled_devices_may_be_peers(crowd: Path) -> None:
    told = json_of(devices(crowd, "--take", "mnist", "--role", "peer", "--json"))
    assert [each["role"] for each in told["sites"].values()] == ["peer", "peer", "target", "target"] and told["role"] == "peer"
    file = experiment(crowd, deal={**DEVICES, "take": ["mnist"], "role": "peer"})
    output_of(tide("simulate", file, "--json", "--set", "config.roles=[peer]"))


def test_what_was_dealt_to_devices_is_told(crowd: Path) -> None:
    ended = devices(crowd, "--take", "usps")
    assert ended.exit_code == DONE and "no label" in ended.stdout
    assert "roster: {client-1: source, client-2: source, client-3: target, client-4: target}" in ended.stdout
    told = json.loads((crowd / "out" / "deal.json").read_text())
    assert (told["rule"], told["take"], told["case"], told["classes"]) == ("dirichlet", ["usps"], "single", None)
    checked = tide("data", "check", crowd / "out" / "client-1")
    bare = told["sites"]["client-1"]["domains"]["usps"]["bare"]
    assert f"usps, rows without a label: {bare} for training, which only methods that can use them see" in checked.output


def test_what_devices_cannot_be_dealt_is_refused(crowd: Path, subtests: pytest.Subtests) -> None:
    no_meaning = "has no meaning for the rule"
    for given, words in (
        ("", "--take: the case single needs one domain; the deal takes mnist, optdigits, usps"),
        ("--take mnsit", "--take: There is no domain mnsit to take"),
        ("--take mnist --case slit", "--case: case is slit"),
        ("--take mnist --scale 1", "rows of class"),
        ("--take mnist --labelled 5", "--labelled: labelled is 5"),
        ("--take mnist --role target", "--role: role is target"),
        ("--take mnist --role pear", "did you mean peer?"),
        ("--take mnist --domains 2", f"--domains: domains {no_meaning} dirichlet"),
        ("--take mnist --leave-out usps", f"--leave-out: leave_out {no_meaning} dirichlet"),
        ("--rule dirichlt", "--rule is 'dirichlt'; it should be one of leave-out, dirichlet"),
        ("--rule leave-out", f"{no_meaning} leave-out"),
    ):
        with subtests.test(given):
            refused = refusal_of(devices(crowd, *given.split()))
            assert words in " ".join(refused.split()) and "What to do: " in refused and not (crowd / "out").exists()


def test_rows_without_labels_cannot_be_dealt(crowd: Path) -> None:
    """The deal hides labels itself; of domains that are not taken nothing is asked."""
    with np.load(crowd / "digits" / "usps.npz", allow_pickle=False) as arrays:
        x, y = arrays["x"], arrays["y"].astype(int)
    y[7] = -1
    np.savez(crowd / "digits" / "usps.npz", x=x, y=y)
    assert "usps.npz: 1 of 300 rows have no label, the first of them row 7" in refusal_of(devices(crowd, "--take", "usps"))
    assert devices(crowd, "--take", "mnist").exit_code == DONE
