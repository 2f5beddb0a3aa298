"""Dossiers over HTTP: who gets one, what the log is told of the key, and what is refused."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import pytest
from api_world import EXPERIMENT, OWN, Coordinator, locked, refused
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tideline.core.errors import Refused, StorageFull, TooMany
from tideline.core.run import RunId
from tideline.dossier import container, making
from tideline.dossier.signing import Signer
from tideline.dossier.verifying import read
from tideline.engine.audit.log import About
from tideline_server.dossiers.making import AT_ONCE, WAITING, Dossiers, pieces


@pytest.fixture
def there(tmp_path: Path) -> Coordinator:
    """A coordinator that asks for keys and signs."""
    made = locked()
    signer = Signer(Ed25519PrivateKey.generate())
    made.wear(dossiers=Dossiers(made.federation.journal, signer, made.federation.clock, tmp_path, 0.0))
    return made


def dossiers_at(there: Coordinator) -> Dossiers:
    assert there.services.dossiers is not None
    return there.services.dossiers


def started(there: Coordinator) -> str:
    run: str = there.post("/runs", EXPERIMENT, headers=OWN).json()["run"]
    return run


def test_a_viewer_gets_it(there: Coordinator) -> None:
    """As a file of that name; the log tells of the key once, by whose call, before it signs."""
    viewer, run = there.add_key("vera", "viewer"), started(there)
    there.play(run)
    before = there.get("/signer", headers=viewer).json()
    assert before["introduced"] is before["entry"] is None
    answer = there.get(f"/runs/{run}/dossier", headers=viewer)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
    assert answer.headers["content-disposition"] == f'attachment; filename="dossier-{run}.zip"'
    assert answer.headers["content-length"] == str(len(answer.content))
    found = read(io.BytesIO(answer.content), before["fingerprint"])
    assert found.run["run"] == run and found.trusted
    (entry,) = there.federation.journal.audit(about=About(kind="signer_introduced"))
    assert (entry.by, entry.details["fingerprint"]) == ("vera", found.signer)
    assert there.get("/signer", headers=viewer).json()["entry"] == entry.seq
    assert there.get(f"/runs/{run}/dossier", headers=OWN).content == answer.content, "for whomever, and however often"
    assert len(there.federation.journal.audit(about=About(kind="signer_introduced"))) == 1


def test_strangers_and_runs_that_are_not_theirs(there: Coordinator) -> None:
    """Without a key; with a key of another project, as for a run that is not there. Nothing is written."""
    run = started(there)
    there.add_project("retina")
    foreign = there.add_key("fay", "viewer", "retina")
    assert there.get(f"/runs/{run}/dossier").status_code == there.get("/signer").status_code == 401
    told = [refused(there.get(f"/runs/{name}/dossier", headers=foreign), 404, "NotFound")["detail"] for name in (run, "0" * 12)]
    assert told[0].replace(run, "") == told[1].replace("0" * 12, "")
    refused(there.get("/runs/..%2f..%2fx/dossier", headers=OWN), 404, "NotFound")
    assert there.federation.journal.audit(about=About(kind="signer_introduced")) == ()


def test_a_deleted_run_has_none(there: Coordinator) -> None:
    """410, as elsewhere."""
    run = started(there)
    there.play(run)
    assert there.send("DELETE", f"/runs/{run}", headers=OWN).status_code == 200
    refused(there.get(f"/runs/{run}/dossier", headers=OWN), 410, "Deleted")


def test_where_nothing_is_signed() -> None:
    """A coordinator without a key says so."""
    plain = Coordinator()
    run = plain.start()
    assert "signs no dossiers" in refused(plain.get(f"/runs/{run}/dossier"), 404, "NotFound")["detail"]
    refused(plain.get("/signer"), 404, "NotFound")


def test_another_key_is_told_of_anew(there: Coordinator, tmp_path: Path) -> None:
    """After a rotation: both entries stand there, and older dossiers stay good by the older key."""
    run = started(there)
    first = dossiers_at(there)
    old, _ = first.make(RunId(run), "alice")
    second = Dossiers(first.journal, Signer(Ed25519PrivateKey.generate()), first.clock, tmp_path)
    new, _ = second.make(RunId(run), "alice")
    with old, new:
        assert read(old, first.signer.fingerprint).signer != read(new, second.signer.fingerprint).signer
    entries = first.journal.audit(about=About(kind="signer_introduced"))
    assert [each.details["fingerprint"] for each in entries] == [first.signer.fingerprint, second.signer.fingerprint]


def test_a_few_at_a_time(there: Coordinator) -> None:
    """Who comes while others are made is put off, and a failure gives its place back."""
    run, dossiers = started(there), dossiers_at(there)
    for _ in range(AT_ONCE):
        assert dossiers._places.acquire(blocking=False)
    answer = there.get(f"/runs/{run}/dossier", headers=OWN)
    refused(answer, 429, "TooMany")
    assert answer.headers["retry-after"]
    for _ in range(AT_ONCE):
        dossiers._places.release()
    for _ in range(AT_ONCE + 1):
        with pytest.raises(Exception, match="no run"):
            dossiers.make(RunId("0" * 12), "alice")
    assert there.get(f"/runs/{run}/dossier", headers=OWN).status_code == 200
    for _ in range(AT_ONCE + WAITING):
        dossiers._queue.acquire(blocking=False)
    dossiers.patience = 3600.0  # nobody waits behind those who wait
    refused(there.get(f"/runs/{run}/dossier", headers=OWN), 429, "TooMany")
    with pytest.raises(TooMany):
        holder = Dossiers(dossiers.journal, dossiers.signer, dossiers.clock, dossiers.folder, 0.0, threading.BoundedSemaphore(1))
        holder._places.acquire()
        holder.make(RunId(run), "alice")


def test_no_room_and_too_long(there: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """507 where the home has no room for a file; 409 for more bytes than a dossier may have. Nothing stays in the home."""
    run, dossiers = started(there), dossiers_at(there)
    gone = Dossiers(dossiers.journal, dossiers.signer, dossiers.clock, tmp_path / "gone")
    with pytest.raises(StorageFull, match="cannot be written"):
        gone.make(RunId(run), "alice")
    monkeypatch.setattr(making, "Writer", lambda file: container.Writer(file, most=1000))
    assert "more than" in refused(there.get(f"/runs/{run}/dossier", headers=OWN), 409, "Refused")["detail"]
    with pytest.raises(Refused):
        dossiers.make(RunId(run), "alice")
    assert list(tmp_path.iterdir()) == []


def test_pieces_close_their_file() -> None:
    """At the end, and when whoever reads goes away."""
    for most in (1, 99):
        file = io.BytesIO(bytes(3_000_000))
        found = pieces(file)
        for _, _ in zip(range(most), found, strict=False):
            pass
        found.close()  # type: ignore[attr-defined]
        assert file.closed
