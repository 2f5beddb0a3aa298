"""`tideline run dossier` and `tideline dossier`: saved whole or not at all, verified here, and told in words."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.cli.world import Coordinator, assert_tells, json_of, output_of, tide
from tideline.dossier.signing import Signer
from tideline.engine.audit.log import AuditEvent, Tip, chained, line_of
from tideline_server.api import create_app
from tideline_server.dossiers.making import Dossiers

SMALL = {"world": {"inputs": [1, 8, 8], "classes": 10, "model": "linear"}}


@pytest.fixture
def signing(tmp_path: Path, data: dict[str, Path]) -> Iterator[Coordinator]:
    """A coordinator that has a key for dossiers, behind its port."""
    made = Coordinator(tmp_path / "home", data)
    services = made.app.state.services
    signer = Signer(Ed25519PrivateKey.generate())
    made.app = create_app(replace(services, dossiers=Dossiers(services.journal, signer, services.clock, tmp_path)))
    with made.open() as opened:
        yield opened


def saved(there: Coordinator, run: str, out: Path, *more: str) -> Any:
    return tide("run", "dossier", run, "--out", str(out), "--home", there.home, *more)


def fingerprint(there: Coordinator) -> str:
    shown = tide("dossier", "signer", "--json", "--home", there.home)
    found: str = json.loads(shown.stdout)["fingerprint"]
    return found


def test_it_is_saved_and_verified(signing: Coordinator, tmp_path: Path) -> None:
    run, out, signer = signing.complete(**SMALL), tmp_path / "d.zip", fingerprint(signing)
    assert "It has signed nothing yet" in tide("dossier", "signer", "--home", signing.home).stdout
    assert_tells(saved(signing, run, out), signer, f"run {run}")
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir() if "d.zip" in each.name] == ["d.zip"]
    words = tide("dossier", "verify", str(out), "--signer", signer.upper()).stdout
    assert "The dossier is valid" in words and f"Signed by {signer}, the key that you named" in words
    words = tide("dossier", "verify", str(out)).stdout
    assert "Only its consistency was checked" in words and "Anybody can make a file like this" in words
    found = json_of(tide("dossier", "verify", str(out), "--signer", signer, "--json"))
    assert (found["run"], found["trusted"], found["finished"], found["whole"]) == (run, True, True, True)
    shown = tide("dossier", "signer", "--home", signing.home).stdout
    assert signer in shown and "The audit log tells of it in entry" in shown and "BEGIN PUBLIC KEY" in shown


def test_nothing_is_replaced_without_a_word(signing: Coordinator, tmp_path: Path) -> None:
    """A file that is there stays; with --force it is replaced as a whole. A link is not followed."""
    run, out = signing.complete(**SMALL), tmp_path / "d.zip"
    out.write_bytes(b"mine")
    told = saved(signing, run, out, "--json")
    assert told.exit_code == 2 and json.loads(told.stdout)["path"] == "--out" and out.read_bytes() == b"mine"
    assert "--force" in told.stderr
    assert saved(signing, run, out, "--force").exit_code == 0 and out.read_bytes()[:2] == b"PK"
    precious, link = tmp_path / "precious", tmp_path / "link.zip"
    precious.write_bytes(b"mine")
    link.symlink_to(precious)
    assert saved(signing, run, link).exit_code == 2
    assert saved(signing, run, link, "--force").exit_code == 0 and precious.read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["d.txt", "none/d.zip", "folder.zip"])
def test_places_that_are_none(signing: Coordinator, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.zip").mkdir()
    told = saved(signing, "x", tmp_path / name, "--force")
    assert told.exit_code == 2 and ("--out" in told.stderr or "There is no folder" in told.stderr)


def test_what_comes_damaged_is_not_saved(signing: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that changes a byte, a line that is cut, another key than the one that was named: no file, no remains."""
    run, out = signing.complete(**SMALL), tmp_path / "d.zip"
    told = saved(signing, run, out, "--signer", "0" * 64, "--json")
    assert told.exit_code == 6 and json.loads(told.stdout)["kind"] == "DossierBroken"
    from tideline.client.http import Client

    real = Client.download

    def changed(self: Client, path: str, *more: Any) -> Iterator[bytes]:
        for piece in real(self, path, *more):
            yield piece[:200] + b"?" + piece[201:]

    monkeypatch.setattr(Client, "download", changed)
    told = saved(signing, run, out)
    assert told.exit_code == 6 and "audit.jsonl is not as it was signed" in told.stderr
    assert saved(signing, "0" * 12, out).exit_code == 2
    assert not [each for each in tmp_path.iterdir() if "d.zip" in each.name]


def test_a_changed_file_is_named(signing: Coordinator, tmp_path: Path) -> None:
    run, out = signing.complete(**SMALL), tmp_path / "d.zip"
    assert saved(signing, run, out).exit_code == 0
    content = out.read_bytes()
    out.write_bytes(content.replace(b'"finished": true', b'"finished":false'))
    told = tide("dossier", "verify", str(out), "--json")
    assert told.exit_code == 6 and "run.json is not as it was signed" in told.stderr and "What to do: Get" in told.stderr
    assert json.loads(told.stdout)["context"]["member"] == "run.json"
    out.write_bytes(os.urandom(1000))
    assert tide("dossier", "verify", str(out)).exit_code == 6
    assert tide("dossier", "verify", str(tmp_path / "none.zip")).exit_code == 2
    assert tide("dossier", "verify", str(out), "--signer", "zz").exit_code == 2


def test_a_run_that_has_not_ended(signing: Coordinator, tmp_path: Path) -> None:
    run = signing.federation.start({"method": "fedavg", "preset": "tiny", "roster": {"anna": "source"}, **SMALL})
    assert "waiting, which has not ended" in saved(signing, run, tmp_path / "d.zip").stdout
    assert "which has not ended" in tide("dossier", "verify", str(tmp_path / "d.zip")).stdout


def test_a_coordinator_that_signs_nothing(there: Coordinator, tmp_path: Path) -> None:
    run = there.complete(**SMALL)
    assert saved(there, run, tmp_path / "d.zip").exit_code == 2
    assert tide("dossier", "signer", "--home", there.home).exit_code == 2


def test_it_is_held_to_the_log(signing: Coordinator, tmp_path: Path) -> None:
    """An export of it, before and after more was done; not that of another coordinator, nor one that was changed."""
    run, out, log = signing.complete(**SMALL), tmp_path / "d.zip", tmp_path / "log.jsonl"
    assert saved(signing, run, out).exit_code == 0
    assert tide("keys", "add", "--name", "alice", "--role", "viewer", "--home", signing.home).exit_code == 0
    assert tide("audit", "export", "--out", str(log), "--home", signing.home).exit_code == 0
    assert "is whole, and has" in output_of(tide("dossier", "verify", str(out), "--log", str(log)))
    found = json_of(tide("dossier", "verify", str(out), "--log", str(log), "--json"))
    assert found["in_log"] >= found["entries"]
    lines = log.read_text().splitlines(keepends=True)
    foreign = chained(Tip(), [AuditEvent("log_begun", 1.0), *(AuditEvent("approved", float(at)) for at in range(len(lines)))])
    log.write_text("".join(line_of(entry) + "\n" for entry in foreign))
    told = tide("dossier", "verify", str(out), "--log", str(log))
    assert told.exit_code == 6 and "The dossier has the hash" in told.stderr
    log.write_text("".join(line_of(entry) + "\n" for entry in foreign[:0]))
    assert tide("dossier", "verify", str(out), "--log", str(log)).exit_code == 4
    log.write_text("".join([*lines[:3], lines[3].replace('"by":"', '"by":"x'), *lines[4:]]))
    assert tide("dossier", "verify", str(out), "--log", str(log)).exit_code == 6
    assert tide("dossier", "verify", str(out), "--log", str(tmp_path / "none")).exit_code in (2, 4)
