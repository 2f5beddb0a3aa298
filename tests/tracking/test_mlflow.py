"""A real MLflow: a server that is away, refuses or is none; versions of models; runs that were made twice, or deleted there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.acceptance.wire import Wire
from tests.cli.world import Coordinator, tide
from tests.services import free_port
from tests.tracking.following import WITH_MODEL, KilledError, Pace, follower, one
from tests.tracking.kinds import MlflowKind
from tests.tracking.test_trackers import assert_stands
from tideline.client.http import Client
from tideline.core.errors import FederationError, Refused, Unreachable
from tideline.core.privacy import contract_digest

pytest.importorskip("mlflow")
HOUR = 3600.0


@pytest.fixture
def kind(mlflow_server: str, tmp_path: Path) -> MlflowKind:
    """An experiment of its own."""
    return MlflowKind(mlflow_server, tmp_path.name)


def test_a_model_is_a_version_with_its_lineage(there: Coordinator, client: Client, kind: MlflowKind, tmp_path: Path) -> None:
    """One of the run, none of its reference; and it is what `run export` writes."""
    run = there.complete(method="fedprox", reference={"method": "fedavg"})
    assert not follower(client, kind.tracker(), WITH_MODEL).poll(one(run))
    (version,) = kind.versions()
    result, row = client.run(run), there.federation.run_service.find(run)
    experiment = kind.client.get_experiment_by_name(kind.experiment)
    (at_mlflow,) = kind.client.search_runs([experiment.experiment_id], f"tags.`tideline.run` = '{run}'")
    assert version.run_id == at_mlflow.info.run_id
    assert version.tags["tideline.state_digest"] == result["state_digest"]
    assert version.tags["tideline.contract"] == row.spec.contract == contract_digest(row.contract)
    assert version.tags["tideline.sites"] == "anna (32 rows), bert (? rows)" and "tideline.epsilon" not in version.tags
    out = tmp_path / "exported.safetensors"
    assert tide("run", "export", run, "--home", there.home, "--out", out).exit_code == 0
    fetched = Path(kind.client.download_artifacts(version.run_id, "model/model.safetensors", str(tmp_path)))
    assert fetched.read_bytes() == out.read_bytes()


@pytest.mark.parametrize("write", ["create_registered_model", "create_model_version", "set_terminated"])
def test_killed_at_the_end(there: Coordinator, client: Client, kind: MlflowKind, write: str) -> None:
    """Between the files, the registered model, its version and the last mark: still one version."""
    run = there.complete()
    for _ in range(2):
        with kind.dying(1) as tracker:
            tracker._client.writes = (write,)  # type: ignore[attr-defined]
            with pytest.raises(KilledError):
                follower(client, tracker, WITH_MODEL).poll(one(run))
    assert not follower(client, kind.tracker(), WITH_MODEL).poll(one(run))
    assert len(kind.versions()) == 1
    assert_stands(client, run, kind.read(), kind.done)


def test_away_for_an_hour(there: Coordinator, client: Client, kind: MlflowKind) -> None:
    """The run goes on and completes; what its follower says, it says once; and then nothing is missing."""
    run, port, wires, said = there.start(), free_port(), list[Wire](), list[str]()
    there.federation.run(run)
    behind = int(kind.address.rpartition(":")[2])

    def back(at: float) -> None:
        if at > HOUR + 1000 and not wires:
            wires.append(Wire(behind, ("127.0.0.1", port)))

    pace = Pace(back)
    tracker = MlflowKind(f"http://127.0.0.1:{port}", kind.experiment).tracker()
    try:
        follower(client, tracker, pace=pace, said=said).follow(one(run), forever=False)
    finally:
        for wire in wires:
            wire.close()
    assert pace.at > HOUR and client.run(run)["status"] == "completed"
    assert len(said) == 1 and f"127.0.0.1:{port} does not answer" in said[0] and "nothing is lost" in said[0]
    assert_stands(client, run, kind.read(), kind.done)


def test_a_line_that_breaks_amid_writes(there: Coordinator, client: Client, kind: MlflowKind) -> None:
    """Cut after each few bytes more: what arrived and was not answered is not written again."""
    run = there.complete()
    wire = Wire(int(kind.address.rpartition(":")[2]))
    cuts = iter(range(500, 12_000, 1500))

    def cut(at: float) -> None:
        if (after := next(cuts, None)) is not None:
            wire.cut(after)

    try:
        wire.cut(400)
        tracker = MlflowKind(f"http://127.0.0.1:{wire.port}", kind.experiment).tracker()
        follower(client, tracker, pace=Pace(cut)).follow(one(run), forever=False)
    finally:
        wire.close()
    assert_stands(client, run, kind.read(), kind.done)


@contextmanager
def answers(code: int, body: bytes) -> Iterator[str]:
    """Yield the address of a server that answers everything in one way."""

    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with suppress(OSError):  # whoever asked may be gone
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = reply  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


HOSTILE = b"<script>alert(1)</script>\x1b[31m\xe2\x80\xae" + b"x" * 5000


@pytest.mark.parametrize(
    ("code", "body", "kind_of_error", "words"),
    [
        (500, HOSTILE, Unreachable, "does not answer as it should"),
        (503, b"", Unreachable, "does not answer as it should"),
        (429, b"", Unreachable, "does not answer as it should"),
        (200, b"<html>a router's page</html>", Unreachable, "does not answer as it should"),
        (401, b"who?", Refused, r"refuses \(401\)"),
        (403, b'{"error_code": "PERMISSION_DENIED", "message": "no"}', Refused, r"refuses \(403\): PERMISSION_DENIED: no"),
        (404, b"not here", Refused, "refuses"),
    ],
)
def test_what_else_a_server_answers(
    there: Coordinator, client: Client, code: int, body: bytes, kind_of_error: type[FederationError], words: str
) -> None:
    """Words that say what and what to do; what may pass is tried again, a refusal is not."""
    run = there.complete()
    with answers(code, body) as address, pytest.raises(kind_of_error, match=words) as raised:
        follower(client, MlflowKind(address, "x").tracker(), alone=True).poll(one(run))
    assert raised.value.todo and all(c.isprintable() for c in raised.value.what) and len(raised.value.what) < 500
    assert isinstance(raised.value, Refused) == (kind_of_error is Refused)


def test_an_answer_that_never_ends(there: Coordinator, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    run = there.complete()
    with answers(200, b"{" * 3_000_000) as address, pytest.raises(Unreachable) as raised:
        follower(client, MlflowKind(address, "x").tracker()).poll(one(run))
    assert len(raised.value.what) < 500


def test_what_is_refused_of_one_run_holds_up_no_other(there: Coordinator, client: Client, kind: MlflowKind) -> None:
    kind.client.create_experiment(kind.experiment)
    first, second, said, pace = there.complete(name="first"), there.complete(name="second"), list[str](), Pace()
    tracker = kind.tracker()
    made, refuse = tracker.page, [True]

    def page(card: object) -> object:
        if refuse[0] and card.name == "first":  # type: ignore[attr-defined]
            raise Refused("no more of it", "Make room")
        return made(card)

    tracker.page = page
    following = follower(client, tracker, pace=pace, said=said)
    assert following.poll(lambda line: True)
    assert set(kind.read()) == {second} and said == [f"Run {first} is put aside for 10 minutes: no more of it. Make room"]
    following.poll(lambda line: True)
    assert len(said) == 1
    refuse[0] = False
    pace.at += 601
    assert not following.poll(lambda line: True) and set(kind.read()) == {first, second}


def test_a_run_that_was_made_twice_is_one(there: Coordinator, client: Client, kind: MlflowKind) -> None:
    run = there.complete()
    at = kind.client.create_experiment(kind.experiment)
    for _ in range(2):
        kind.client.create_run(at, tags={"tideline.run": run})
    assert not follower(client, kind.tracker()).poll(one(run))
    assert_stands(client, run, kind.read(), kind.done)


def test_a_run_that_a_person_deleted_there_stays_so(there: Coordinator, client: Client, kind: MlflowKind) -> None:
    run = there.complete()
    follower(client, kind.tracker()).poll(one(run))
    (found,) = kind.client.search_runs([kind.client.get_experiment_by_name(kind.experiment).experiment_id])
    kind.client.delete_run(found.info.run_id)
    assert not follower(client, kind.tracker()).poll(one(run)) and kind.read() == {}


def test_a_deleted_run_is_closed(there: Coordinator, client: Client, kind: MlflowKind) -> None:
    """One that was deleted before all of it was written says so, and does not run on for ever."""
    run = there.start()
    following = follower(client, kind.tracker())
    assert following.poll(one(run))
    client.post(f"/runs/{run}/cancel")
    client.delete(f"/runs/{run}")
    assert not following.poll(one(run))
    found = kind.read()[run]
    assert found.status == "KILLED" and found.tags["tideline.status"] == "deleted"


def test_a_password_in_the_address_is_in_no_words(there: Coordinator, client: Client) -> None:
    run, port = there.complete(), free_port()
    with pytest.raises(Unreachable) as raised:
        follower(client, MlflowKind(f"http://me:secret@127.0.0.1:{port}", "x").tracker()).poll(one(run))
    assert "secret" not in raised.value.what and f"http://127.0.0.1:{port}" in raised.value.what


def test_the_command(there: Coordinator, kind: MlflowKind) -> None:
    run, named = there.complete(), there.complete(track=["mlflow", "tensorboard"])
    where = ("--to", "mlflow", "--uri", kind.address, "--experiment", kind.experiment, "--home", there.home)
    done = tide("run", "track", run, *where)
    assert (done.exit_code, done.stdout) == (0, f"Run {run} stands in mlflow\n"), done.stderr
    assert tide("run", "track", "--all", "--no-follow", *where).exit_code == 0
    assert set(kind.read()) == {run, named}
    away = tide("run", "track", run, "--to", "mlflow", "--uri", f"http://127.0.0.1:{free_port()}", "--home", there.home)
    assert away.exit_code == 3 and "does not answer as it should" in away.stderr
