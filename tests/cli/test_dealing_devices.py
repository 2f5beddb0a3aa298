"""`tideline data deal --rule dirichlet`, and `rule: dirichlet` in the `deal` section: devices of which some have labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.test_dealing import experiment
from tests.cli.world import json_of, refusal_of, tide
from tideline.cli.guard import DONE, REFUSED
from tideline.learning.datasets import digits

DEVICES: dict[str, Any] = {
    "folder": "digits",
    "rule": "dirichlet",
    "clients": 4,
    "labelled": 2,
    "scale": 0.01,
    "alpha": 20,
    "seed": 3,
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A place with a folder of three domains of some hundred digits."""
    for domain in ("mnist", "usps", "optdigits"):
        digits.write_site(tmp_path / "digits", domain, rows=300)
    return tmp_path


def devices(place: Path, *more: object, out: str = "out") -> Any:
    """The command with the other rule."""
    common = ("--rule", "dirichlet", "--clients", 4, "--labelled", 2, "--scale", 0.01, "--alpha", 20, "--seed", 3)
    return tide("data", "deal", place / "digits", "--out", place / out, *common, *more)


@pytest.mark.parametrize("case", ["single", "mixed", "split"])
def test_devices_in_one_process_as_by_agents(place: Path, case: str) -> None:
    """As with the first rule; some rows of the labelled ones come without labels, and the others are targets."""
    take = ["mnist"] if case == "single" else ["mnist", "optdigits"]
    told = json_of(devices(place, "--case", case, *(word for name in take for word in ("--take", name)), "--json"))
    assert {site: each["role"] for site, each in told["sites"].items()} == {
        **{f"client-{i}": "source" for i in (1, 2)},
        **{f"client-{i}": "target" for i in (3, 4)},
    }
    assert {name for each in told["sites"].values() for name in each["domains"]} <= {*take}
    for site, each in told["sites"].items():
        checked = json.loads(tide("data", "check", place / "out" / each["folder"], "--role", each["role"], "--json").stdout)
        assert checked["usable"], site
        assert {d["name"]: d["bare"] for d in checked["domains"]} == {name: n["bare"] for name, n in each["domains"].items()}
        assert (each["role"] == "source") == any(n["bare"] for n in each["domains"].values())
    data = {site: {"role": each["role"], "folder": f"out/{each['folder']}"} for site, each in told["sites"].items()}
    deal = {**DEVICES, "case": case, "take": take}
    ended = [tide("simulate", experiment(place, **sites), "--json") for sites in ({"deal": deal}, {"data": data})]
    assert [each.exit_code for each in ended] == [DONE, DONE], ended[0].output
    one, other = (json.loads(each.stdout) for each in ended)
    assert one["state_digest"] == other["state_digest"]
    assert [c["accuracy"] for c in one["clients"]] == [c["accuracy"] for c in other["clients"]]


def test_methods_that_do_not_ask_see_the_labelled_rows_alone(place: Path) -> None:
    """A run ends in the same bytes where the rows without labels are not there at all."""
    assert devices(place, "--take", "mnist").exit_code == DONE
    data = {f"client-{i}": {"role": "source", "folder": f"out/client-{i}"} for i in (1, 2)}
    digest = json.loads(tide("simulate", experiment(place, data=data), "--json").stdout)["state_digest"]
    for i in (1, 2):
        path = place / "out" / f"client-{i}" / "mnist.npz"
        with np.load(path, allow_pickle=False) as arrays:
            x, y, held = arrays["x"], arrays["y"], np.isin(np.arange(len(arrays["y"])), arrays["test_idx"])
        assert (y < 0).any()
        np.savez_compressed(path, x=x[y >= 0], y=y[y >= 0], test_idx=np.flatnonzero(held[y >= 0]))
    assert json.loads(tide("simulate", experiment(place, data=data), "--json").stdout)["state_digest"] == digest


def test_labelled_devices_may_be_peers(place: Path) -> None:
    told = json.loads(devices(place, "--take", "mnist", "--role", "peer", "--json").stdout)
    assert [each["role"] for each in told["sites"].values()] == ["peer", "peer", "target", "target"] and told["role"] == "peer"
    ended = tide(
        "simulate",
        experiment(place, deal={**DEVICES, "take": ["mnist"], "role": "peer"}),
        "--json",
        "--set",
        "config.roles=[peer]",
    )
    assert ended.exit_code == DONE, ended.output


def test_what_was_dealt_to_devices_is_told(place: Path) -> None:
    ended = devices(place, "--take", "usps")
    assert ended.exit_code == DONE and "no label" in ended.stdout
    assert "roster: {client-1: source, client-2: source, client-3: target, client-4: target}" in ended.stdout
    told = json.loads((place / "out" / "deal.json").read_text())
    assert (told["rule"], told["take"], told["case"], told["classes"]) == ("dirichlet", ["usps"], "single", None)
    checked = tide("data", "check", place / "out" / "client-1")
    bare = told["sites"]["client-1"]["domains"]["usps"]["bare"]
    assert f"usps, rows without a label: {bare} for training, which only methods that can use them see" in checked.output


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "--take: the case single needs one domain; the deal takes mnist, optdigits, usps"),
        (["--take", "mnsit"], "--take: There is no domain mnsit to take"),
        (["--take", "mnist", "--case", "slit"], "--case: case is slit"),
        (["--take", "mnist", "--scale", 1], "rows of class"),
        (["--take", "mnist", "--labelled", 5], "--labelled: labelled is 5"),
        (["--take", "mnist", "--role", "target"], "--role: role is target"),
        (["--take", "mnist", "--role", "pear"], "did you mean peer?"),
        (["--take", "mnist", "--domains", 2], "--domains: domains has no meaning for the rule dirichlet"),
        (["--take", "mnist", "--leave-out", "usps"], "--leave-out: leave_out has no meaning for the rule dirichlet"),
        (["--rule", "dirichlt"], "--rule is 'dirichlt'; it should be one of leave-out, dirichlet"),
        (["--rule", "leave-out"], "has no meaning for the rule leave-out"),
    ],
)
def test_what_devices_cannot_be_dealt_is_refused(place: Path, given: list[object], words: str) -> None:
    ended = devices(place, *given)
    assert ended.exit_code == REFUSED and words in " ".join(ended.stderr.split()) and "What to do: " in ended.stderr, ended.stderr
    assert not (place / "out").exists()


@pytest.mark.parametrize(
    ("deal", "words"),
    [
        ("{folder: digits, rule: dirichlet, take: [mnist]}", "deal: mnist has"),
        ("{folder: digits, rule: dirichlet, take: [mnist], leave_out: usps}", "leave_out has no meaning for the rule dirichlet"),
        ("{folder: digits, rule: dirichle}", "did you mean dirichlet?"),
        ("{folder: digits, leave_out: usps, clients: 2, domains: 1, scale: 0.1}", "scale has no meaning for the rule leave-out"),
        ("{folder: digits, rule: dirichlet, case: all}", "deal.case is 'all'; it should be one of single, mixed, split"),
        ("{folder: digits, rule: dirichlet, role: target, take: [mnist]}", "deal: role is target"),
    ],
)
def test_a_wrong_deal_to_devices_is_told_with_its_line(place: Path, deal: str, words: str) -> None:
    path = place / "e.yaml"
    path.write_text(f"method: fedavg\npreset: tiny\ndeal: {deal}\n")
    ended = tide("simulate", path)
    assert ended.exit_code == REFUSED and ended.stderr.startswith(f"Error: {path}:3: ") and words in ended.stderr, ended.stderr


def test_rows_without_labels_cannot_be_dealt(place: Path) -> None:
    """The deal hides labels itself; of domains that are not taken nothing is asked."""
    with np.load(place / "digits" / "usps.npz", allow_pickle=False) as arrays:
        x, y = arrays["x"], arrays["y"].astype(int)
    y[7] = -1
    np.savez(place / "digits" / "usps.npz", x=x, y=y)
    assert "usps.npz: 1 of 300 rows have no label, the first of them row 7" in refusal_of(devices(place, "--take", "usps"))
    assert devices(place, "--take", "mnist").exit_code == DONE
