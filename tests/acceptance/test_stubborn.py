"""Things that happen once in a thousand days, made to happen: two writers, late closings, lines that end without a word."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from tideline.archive.digests import digest_of
from tideline.archive.folder import LEFT_SECONDS, FolderParts
from tideline.core.errors import Cancelled, Malformed, Stale
from tideline.core.run import OrderId, RunId
from tideline.engine.model.orders import Failure, Reply
from tideline.engine.process.pipe import Child
from tideline_agent.home.identity import Keys
from tideline_agent.link import Endpoints, GrpcLink
from tideline_agent.link.wire import reply_out
from tideline_agent.pool import SILENT, Trainer, TrainerPool
from tideline_agent.trainer import Follower, files_of
from tideline_agent.vault import FolderVault
from tideline_protos.v1 import federation_pb2 as pb
from tideline_server.keys import admin_key
from tideline_server.rpc import SERVICE

BYTES = bytes(range(256)) * 40
NAME = digest_of([BYTES])
SECONDS = 60.0


def test_a_sender_that_begins_again_ends_what_it_had_under_way(tmp_path: Path) -> None:
    """A chunk that an earlier, cut call still holds must not land in the middle of what a later one sends."""
    parts = FolderParts(tmp_path)
    first = parts.upload(NAME, len(BYTES), "-run-ann")
    first.write(BYTES[:1000])
    second = parts.upload(NAME, len(BYTES), "-run-ann")
    with pytest.raises(Stale):
        first.write(BYTES[1000:2000])
    first.close()
    second.write(BYTES[1000:])
    assert second.commit() == NAME
    assert bytes(parts.view(NAME)) == BYTES


def test_an_upload_is_not_closed_under_a_write(tmp_path: Path) -> None:
    """The descriptor of a closed file may be another file's a moment later: who closes waits for the write to end."""
    content = bytes(256 << 20)
    parts = FolderParts(tmp_path)
    upload = parts.upload(NAME, len(content))
    thread = threading.Thread(target=upload.write, args=(content,))
    thread.start()
    while not parts.arrived(NAME):
        pass
    upload.close()
    assert parts.arrived(NAME) == len(content)
    thread.join()


def test_what_vanished_clients_left_is_forgotten_after_a_day(tmp_path: Path) -> None:
    """An upload that nobody went on with for a day makes room; a fresh one waits."""
    parts = FolderParts(tmp_path)
    for sender in ("-run-ann", "-run-bob"):
        upload = parts.upload(NAME, len(BYTES), sender)
        upload.write(BYTES[:10])
        upload.close()
    old = tmp_path / "tmp" / f"{NAME}-run-ann"
    os.utime(old, (0, old.stat().st_mtime - LEFT_SECONDS - 1))
    parts.sweep()
    assert [parts.arrived(NAME, sender) for sender in ("-run-ann", "-run-bob")] == [0, 10]


def test_a_closed_process_is_not_started_again() -> None:
    """A call that waited for its turn while the owner closed must not leave a process that nobody knows of."""
    child = Child([sys.executable, "-c", "import time; time.sleep(120)"])
    child.start()
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(child.call, "step", {}) for _ in range(2)]
        child.close()
        for call in calls:
            with pytest.raises(Cancelled):
                call.result(SECONDS)
    assert child.pid is None


def test_a_pool_that_closes_sends_away_who_waits(tmp_path: Path) -> None:
    """An order that waits for a trainer when the agent stops starts none."""
    pool = TrainerPool(tmp_path, tmp_path, "none:NONE", "cpu")
    pool._take(RunId("one"))
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(pool._take, RunId("two"))
        pool.close()
        with pytest.raises(Cancelled):
            waiting.result(SECONDS)


def test_a_trainer_lives_as_long_as_its_run(tmp_path: Path) -> None:
    """However long it is idle in between; one of no open run ends. A run gets the trainer that has its data open."""
    pool = TrainerPool(tmp_path, tmp_path, "none:NONE", "cpu", idle=-1.0)
    trainers = [pool._take(RunId(name)) for name in ("one",)]
    pool._trainers.append(other := Trainer(["true"], {}))
    trainers[0].run = None
    pool.sweep()
    assert pool._trainers == trainers, "the other has worked for nobody"
    pool._trainers.insert(0, other)
    assert pool._take(RunId("two")) is other, "who serves no open run is asked first"
    assert pool._take(RunId("one")) is trainers[0]
    trainers[0].run = other.run = None
    pool.cancel(RunId("one"))
    pool.sweep()
    assert pool._trainers == [other]
    pool._heard(RunId("two"), ends=True)
    pool.sweep()
    assert not pool._trainers


def test_silence_after_an_opening_is_no_sign_of_a_hung_step(tmp_path: Path) -> None:
    """While rows are written their trainer ticks; the step that follows need not."""
    trainer, shares = Trainer(["true"], {}), list[float]()
    heard = trainer.heard(shares.append)
    heard(0.5)
    assert trainer.ticked is not None
    follower = Follower()
    follower.tick = heard
    follower(0.7)
    assert trainer.ticked is not None
    follower(1.0)
    assert trainer.ticked is None and shares == [0.5, 0.7, SILENT]


class Curt:
    """A coordinator that ends the first streams without a word, then offers an order."""

    def __init__(self) -> None:
        self.asked = 0

    def orders(self, request: Any, context: Any) -> Iterator[pb.OrderOrTick]:
        self.asked += 1
        if self.asked > 2:
            yield pb.OrderOrTick(order=pb.Order(id="o", run="r", brief="{}"))


def test_a_stream_that_ends_without_a_word_is_opened_again() -> None:
    """A coordinator that is closing ends fresh streams at once: its agents come back, and do not end."""
    curt = Curt()
    handler = grpc.unary_stream_rpc_method_handler(curt.orders, pb.OrdersRequest.FromString, pb.OrderOrTick.SerializeToString)
    server = grpc.server(ThreadPoolExecutor(2))
    hello = grpc.unary_unary_rpc_method_handler(lambda request, context: pb.HelloReply(protocol=2).SerializeToString())
    calls = {"Orders": handler, "Hello": hello}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, calls),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    link = GrpcLink(Endpoints((f"127.0.0.1:{port}",)), "ann", Keys.made(), threading.Event())
    try:
        assert next(link.orders()).id == "o"
        assert curt.asked == 3
    finally:
        link.close()
        server.stop(None).wait()


def test_a_reason_that_is_no_utf8_can_be_sent() -> None:
    """A file's name may hold any bytes, and an error tells it: the wire takes it with the odd ones replaced."""
    sent = reply_out(Reply(OrderId("o"), failure=Failure("DataRefused", "no \udcff.npz" + "x" * 100_000)))
    assert sent.failure.what.startswith("no ?.npz") and len(sent.failure.what) <= 10_000


@pytest.mark.parametrize("run", ["", ".", "..", "../elsewhere", "/etc", ".hidden"])
def test_a_run_names_no_folder_elsewhere(tmp_path: Path, run: str) -> None:
    """The coordinator chooses a run's name; it leads nowhere out of the vault."""
    with pytest.raises(Malformed):
        FolderVault(tmp_path).parts(RunId(run))


def test_a_key_that_a_full_disk_left_empty_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "admin.key").touch()
    key = admin_key(tmp_path)
    assert len(key) > 30 and admin_key(tmp_path) == key


def test_data_that_changed_is_read_again(tmp_path: Path) -> None:
    """A trainer lives for many runs; what its owner mends between two is seen by the second."""
    before = files_of(tmp_path)
    (tmp_path / "a.npz").write_bytes(b"1")
    after = files_of(tmp_path)
    assert before != after == files_of(tmp_path)


@pytest.mark.parametrize("place", ["ward/0.png", "ward/cat/0.png"])
def test_images_that_changed_are_read_again(tmp_path: Path, place: str) -> None:
    """A file that is mended deep in a folder is seen too; a link that leads nowhere does not hide the rest."""
    (tmp_path / "ward" / "cat").mkdir(parents=True)
    (tmp_path / "a.png").symlink_to("nowhere")
    before = files_of(tmp_path)
    (tmp_path / place).write_bytes(b"1")
    after = files_of(tmp_path)
    assert before != after == files_of(tmp_path)
    (tmp_path / place).write_bytes(b"12")
    assert files_of(tmp_path) != after
