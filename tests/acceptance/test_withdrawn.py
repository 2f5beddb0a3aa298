"""What was withdrawn ends wherever it is, holds nothing up, and is told once; and an agent has only so much open."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.acceptance.hostile.false_coordinator import FalseCoordinator
from tests.acceptance.test_stalls import CONTENT, DIGEST, FILES, HALF, ORDER, Mute
from tideline.archive.parts import MemoryParts
from tideline.core.errors import Cancelled
from tideline.core.run import ClientId, RunId
from tideline.engine.model.orders import Hold
from tideline.engine.simulation.adapters import MemoryVault
from tideline.engine.site.agent import Agent
from tideline_agent import main
from tideline_agent.home.held import HeldOrders
from tideline_agent.home.identity import Keys
from tideline_agent.link import Endpoints, GrpcLink
from tideline_agent.link.grpc_link import Away
from tideline_agent.main import AgentLoop, Rotation, order_log
from tideline_agent.metrics import AgentMetrics
from tideline_agent.notes import Entry, Witness
from tideline_agent.pool import TrainerPool
from tideline_protos.v1 import federation_pb2 as pb

PATIENCE = 90.0


def calling(*ports: int, away: Away = lambda error: None) -> GrpcLink:
    return GrpcLink(Endpoints(tuple(f"127.0.0.1:{port}" for port in ports)), "ann", Keys.made(), threading.Event(), away)


def begun(call: Callable[[], None]) -> Future[None]:
    threads = ThreadPoolExecutor(1)
    try:
        return threads.submit(call)
    finally:
        threads.shutdown(wait=False)


class Slow(Mute):
    """It says when it has stopped in the middle."""

    def __init__(self) -> None:
        self.half = threading.Event()
        super().__init__()

    def fetch(self, raw: bytes, context: Any) -> Iterator[bytes]:
        yield CONTENT[:HALF]
        self.half.set()
        self.over.wait()

    def push(self, chunks: Iterator[bytes], context: Any) -> bytes:
        for _ in chunks:
            self.half.set()
        self.over.wait()
        return b""


@pytest.mark.parametrize("way", ["fetch", "push"])
def test_a_transfer_ends_with_its_order(way: str) -> None:
    """At once, in the middle of a part, however slow the line is; another coordinator is not asked in its stead."""
    parts = MemoryParts()
    with closing(Slow()) as slow, closing(Slow()) as other, closing(calling(slow.port, other.port)) as link:
        first, second = (slow, other) if link.hello() and link._lines.now.address.endswith(str(slow.port)) else (other, slow)
        if way == "push":
            parts.put([CONTENT])
            going = begun(lambda: link.push(ORDER, ((DIGEST, len(CONTENT), 0),), parts))
        else:
            going = begun(lambda: link.fetch(ORDER, FILES, parts))
        assert first.half.wait(PATIENCE)
        link.give_up(ORDER.id)
        with pytest.raises(Cancelled):
            going.result(PATIENCE)
        assert not second.half.is_set() and link._lines.now.address.endswith(str(first.port))
        with pytest.raises(Cancelled):  # nor does another begin, as long as somebody works for the order
            link.fetch(ORDER, FILES, MemoryParts())
        link.forget(ORDER.id)


@contextlib.contextmanager
def working(
    home: Path, coordinator: FalseCoordinator, held: HeldOrders | None = None, pool: TrainerPool | None = None
) -> Iterator[list[Entry]]:
    """An agent's loop beside a coordinator, and the notes that it makes of its work."""
    told: list[Entry] = []
    witness = Witness(lambda order, note: told.append((order, note)), home)
    link, vault = calling(coordinator.port), MemoryVault(lambda run: MemoryParts())
    pool = pool or TrainerPool(home, home, "tideline.algorithms:METHODS", "cpu")
    agent = Agent(ClientId("ann"), link, vault, pool, log=order_log(witness, AgentMetrics("test")))
    loop = AgentLoop(agent, link, pool, link.stop, 2, Rotation(link, home), witness, held=held or HeldOrders())
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield told
    finally:
        link.stop.set()
        thread.join()


def order(name: str, run: str = "run", **said: Any) -> pb.Order:
    """An order that an agent understands. Its message is CONTENT."""
    brief = '{"method": "fedavg", "config": {}, "world": {}, "threads": 1, "keeps": false, "contract": [], "role": "source"}'
    made = pb.Order(id=name, run=run, cursor=0, phase="train", step="train", round=1, seconds_left=60.0, brief=brief, after=-1)
    made.files.append(pb.File(digest=DIGEST, size=len(CONTENT)))
    for key, value in said.items():
        setattr(made, key, value)
    return made


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Iterator[FalseCoordinator]:
    """It sends half of a part, and then nothing."""
    monkeypatch.setattr(main, "BEAT_SECONDS", 0.05)
    over = threading.Event()

    def half() -> Iterator[bytes]:
        yield CONTENT[:HALF]
        over.wait()

    class Halves:
        def __iter__(self) -> Iterator[bytes]:
            return half()

    with closing(FalseCoordinator()) as made:
        made.parts = Halves()
        yield made
        over.set()


def beats(coordinator: FalseCoordinator, open_: set[str]) -> None:
    """Wait for a sign of life that tells of just these orders."""
    while set(coordinator.beats.get(timeout=PATIENCE).progress) != open_:
        continue


def test_a_withdrawn_order_lets_go(tmp_path: Path, coordinator: FalseCoordinator) -> None:
    """It is told once, though each sign of life is answered with it again, and the run's next order is served."""
    with capture_logs() as said, working(tmp_path, coordinator) as told:
        coordinator.orders.put(order("first"))
        beats(coordinator, {"first"})
        coordinator.gone = ["first"]
        beats(coordinator, {"first"})
        coordinator.orders.put(order("second", brief="{}"))
        report = coordinator.reported(order("second"))
        assert report is not None and report.failure.kind == "Malformed"
    assert [o for o, note in told if note.kind == "order_withdrawn"] == ["first"]
    assert [line["run"] for line in said if line["event"] == "order_withdrawn"] == ["run"]


def test_trainers_of_a_run_that_is_over_end(tmp_path: Path, coordinator: FalseCoordinator) -> None:
    """A site that has nothing to do for a run hears at a sign of life that it has ended, and that of others it has not."""
    pool = TrainerPool(tmp_path, tmp_path, "none:NONE", "cpu", idle=0.0)
    pool._command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with working(tmp_path, coordinator, pool=pool):
        trainers = [pool._take(RunId(name)) for name in ("ended", "open", "working")]
        for trainer in trainers:
            trainer.child.start()
        pids = [trainer.child.pid for trainer in trainers]
        for trainer in trainers[:2]:
            trainer.run = None
        while list(coordinator.beats.get(timeout=PATIENCE).quiet) != ["ended", "open"]:
            continue
        coordinator.over = ["ended", "working"]
        while list(coordinator.beats.get(timeout=PATIENCE).quiet) != ["open"]:
            continue
        while trainers[0] in pool._trainers or trainers[0].child.pid is not None:
            coordinator.beats.get(timeout=PATIENCE)
        assert pool._trainers == trainers[1:]
        assert [trainer.child.pid for trainer in trainers[1:]] == pids[1:], "a step that came meanwhile is not ended"
        trainers[2].run = None
    pool.close()


def test_a_newer_order_takes_the_place_of_one_that_is_still_coming(tmp_path: Path, coordinator: FalseCoordinator) -> None:
    """Though nothing was withdrawn: a run asks for one thing at a time."""
    with working(tmp_path, coordinator):
        coordinator.orders.put(order("first"))
        beats(coordinator, {"first"})
        coordinator.orders.put(order("second", brief="{}"))
        assert coordinator.reported(order("second")) is not None


def test_only_so_many_orders_are_open(tmp_path: Path, coordinator: FalseCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is more is passed over, which is logged once; told again when there is room, it is served."""
    monkeypatch.setattr(main, "MOST_OPEN", 3)
    with capture_logs() as said, working(tmp_path, coordinator):
        for i in range(9):
            coordinator.orders.put(order(f"o{i}", f"run-{i}"))
        beats(coordinator, {"o0", "o1", "o2"})
        coordinator.orders.put(order("o0", "run-0"))
        beats(coordinator, {"o0", "o1", "o2"})
        coordinator.gone = ["o0", "o1", "o2"]
        beats(coordinator, set())
        coordinator.gone = []
        coordinator.orders.put(order("o7", "run-7"))
        beats(coordinator, {"o7"})
    assert [line["open"] for line in said if line["event"] == "orders_put_off"] == [3]


def with_a_part(large: pb.Order) -> None:
    large.files.append(pb.File(digest="b3-" + "0" * 64, size=1))


def with_a_value(large: pb.Order) -> None:
    cipher = pb.File(digest="b3-" + "1" * 64, size=49)
    large.sealed.append(pb.Sealed(digest="b3-" + "0" * 64, size=1, holder="bert", phase="train", round=1, cipher=cipher))


@pytest.mark.parametrize(("fill", "most"), [(with_a_part, 1), (with_a_value, 3)])
def test_only_so_many_parts_are_named(
    tmp_path: Path, coordinator: FalseCoordinator, monkeypatch: pytest.MonkeyPatch, fill: Callable[[pb.Order], None], most: int
) -> None:
    """By all open orders together; one alone may name more. A sealed value has a file, and another one once it is opened."""
    monkeypatch.setattr(main, "MOST_NAMED", most)
    with working(tmp_path, coordinator):
        large = order("large", "run-1")
        fill(large)
        coordinator.orders.put(large)
        coordinator.orders.put(order("small", "run-2"))
        coordinator.orders.put(order("large", "run-1"))
        beats(coordinator, {"large"})
        coordinator.gone = ["large"]
        beats(coordinator, set())
        coordinator.orders.put(order("small", "run-2"))
        beats(coordinator, {"small"})


def test_an_order_is_held_to_the_quotas_when_its_turn_comes(tmp_path: Path, coordinator: FalseCoordinator) -> None:
    """Of orders that come at once, all are let through before any is counted: what an earlier one spent is seen by the later."""
    answers = iter([None])
    late = HeldOrders(lambda order: next(answers, Hold.QUOTA))
    with working(tmp_path, coordinator, late):
        coordinator.orders.put(order("first"))
        seen = (coordinator.beats.get(timeout=PATIENCE) for _ in range(40))
        assert next((dict(beat.held) for beat in seen if beat.held), {}) == {"first": "quota"}
