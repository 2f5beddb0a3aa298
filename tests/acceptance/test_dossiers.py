"""Dossiers over the network, with real processes: made by the coordinator, verified without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import SITES, WORLD, joined
from tests.acceptance.harness import COORDINATOR, Net, net
from tideline.client.http import Client, Endpoint
from tideline.core.errors import NotFound
from tideline.engine.model.orders import OrderStatus
from tideline_agent.home.disclosing.policy_and_data import data_digest

pytestmark = pytest.mark.processes
ASKED: dict[str, Any] = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": SITES, "seed": 5}
PRIVACY = {"rows": 40, "noise": 2.0, "delta": 1e-3, "rate": 0.25}
NO_NETWORK = "127.0.0.1:9"  # where nobody listens


def typed(*words: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command as a person types it; without a home there is no coordinator to be found."""
    environment = {**os.environ, "XDG_CONFIG_HOME": "/nonexistent", "TIDELINE_URL": f"http://{NO_NETWORK}"}
    if home is not None:
        del environment["TIDELINE_URL"]
        words = (*words, "--home", str(home))
    command = [sys.executable, "-m", "tideline", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def signer_of(made: Net) -> str:
    found: str = made.client().get("/signer")["fingerprint"]
    return found


def test_from_a_run_to_a_file_that_an_officer_checks(federation: Net, tmp_path: Path) -> None:
    """A viewer saves it; it is verified without a coordinator, and has each reply that the journal has; a change is found."""
    run, out = federation.run(ASKED | {"privacy": PRIVACY}), tmp_path / "dossier.zip"
    ended = federation.completed(run)
    made = typed("run", "dossier", run, "--out", str(out), home=federation.folder)
    assert made.returncode == 0, made.stderr
    verified = typed("dossier", "verify", str(out), "--signer", signer_of(federation), "--json")
    assert verified.returncode == 0, verified.stderr
    found = json.loads(verified.stdout)
    with federation.journal() as journal:
        answered = [o for o in journal.orders(run) if o.status is OrderStatus.ANSWERED]  # type: ignore[arg-type]
        (head,) = journal.audit(found["head"]["seq"] - 1, 1)
    assert (found["run"], found["finished"], found["trusted"], found["replies"]) == (run, True, True, len(answered))
    assert head.hash == found["head"]["hash"], "the log is the one that the dossier is of"
    content = out.read_bytes()
    assert json.dumps(ended["privacy"]["epsilon"]).encode() in content and ended["state_digest"].encode() in content
    at = content.index(b'"outcome":"accepted"')
    out.write_bytes(content[:at] + b'"outcome":"ignored!"' + content[at + 20 :])
    refused = typed("dossier", "verify", str(out))
    assert refused.returncode == 6 and "replies.jsonl is not as it was signed" in refused.stderr


def test_a_key_of_another_project_finds_no_run(federation: Net, tmp_path: Path) -> None:
    run, client = federation.run(ASKED), federation.client()
    if "retina" not in [each["name"] for each in client.get("/projects")]:
        client.post("/projects", {"name": "retina"})
    keys = {
        name: client.post("/keys", {"name": f"d-{name}", "role": "viewer", "project": name})["key"]
        for name in ("retina", "default")
    }
    url = f"http://127.0.0.1:{federation.http}"
    with Client.of(Endpoint(url=url, api_key=keys["default"])) as viewer:
        assert b"".join(viewer.download(f"/runs/{run}/dossier"))[:2] == b"PK"
    with Client.of(Endpoint(url=url, api_key=keys["retina"])) as foreign, pytest.raises(NotFound, match="There is no run"):
        b"".join(foreign.download(f"/runs/{run}/dossier"))
    federation.ended(run)


def test_what_owners_let_be_told(tmp_path: Path, data: dict[str, Path]) -> None:
    """One site tells its policy and a digest of its data, with its answer to the join; the others nothing."""
    with net(tmp_path) as made:
        made.coordinator()
        discloses = made.policy("[disclose]\npolicy = true\ndata = true\n[runs]\nusers = ['admin']\napprove = 'never'\n")
        for name, role in SITES.items():
            made.agent(name, data[name], role, *(discloses if name == "a" else ()))
        run = made.run(ASKED)
        made.completed(run)
        out = tmp_path / "dossier.zip"
        out.write_bytes(b"".join(made.client().download(f"/runs/{run}/dossier")))
        with zipfile.ZipFile(out) as archive:
            sites = {each["site"]: each["disclosed"] for each in json.loads(archive.read("policies.json"))["sites"]}
        assert sites["b"] is None and sites["c"] is None
        assert 'approve = "never"' in sites["a"]["policy"] and "admin" not in sites["a"]["policy"]
        assert sites["a"]["data"] == data_digest(data["a"], tmp_path)
        said = [json.loads(line) for line in (made.home / "home-a" / "ledger.jsonl").read_text().splitlines()]
        assert [each["details"]["disclosed"] for each in said if "disclosed" in each["details"]] == [["policy", "digest", "data"]]
        started = next(each for each in said if each["kind"] == "started")
        assert started["details"]["policy"] == sites["a"]["digest"], "the ledger has the same digest"
        assert typed("dossier", "verify", str(out)).returncode == 0


@pytest.mark.nightly(job="journeys")
def test_a_kill_changes_neither_the_key_nor_a_byte(tmp_path: Path, data: dict[str, Path]) -> None:
    """Of the same state; another key, by an option, gives another signature, which the old fingerprint tells apart."""
    with net(tmp_path) as made:
        made.coordinator()
        with joined(made, data, SITES):
            run = made.run(ASKED)
            made.ended(run)
        before, first = signer_of(made), b"".join(made.client().download(f"/runs/{run}/dossier"))
        assert oct((made.folder / "signing.key").stat().st_mode)[-3:] == "600"
        made.restart(COORDINATOR)
        assert signer_of(made) == before
        assert b"".join(made.client().download(f"/runs/{run}/dossier")) == first
        shared = tmp_path / "shared.pem"
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(shared)], check=True, capture_output=True)
        made.kill(COORDINATOR)
        made.coordinator("--signing-key", str(shared))
        out = tmp_path / "d.zip"
        out.write_bytes(b"".join(made.client().download(f"/runs/{run}/dossier")))
        assert typed("dossier", "verify", str(out), "--signer", signer_of(made)).returncode == 0
        refused = typed("dossier", "verify", str(out), "--signer", before)
        assert refused.returncode == 6 and "and not by" in refused.stderr
        (tmp_path / "old.zip").write_bytes(first)
        assert typed("dossier", "verify", str(tmp_path / "old.zip"), "--signer", before).returncode == 0


def test_a_coordinator_does_not_start_with_what_is_no_key(tmp_path: Path) -> None:
    (tmp_path / "k").write_text("hello")
    command = [
        *(sys.executable, "-m", "tideline", "coordinator", "--home", str(tmp_path / "home"), "--signing-key"),
        str(tmp_path / "k"),
    ]
    ended = subprocess.run(
        [*command, "--grpc-port", "0", "--http-port", "0"], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2 and "is no private Ed25519 key" in ended.stderr and "openssl genpkey" in ended.stderr
