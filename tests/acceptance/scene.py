"""A federation whose sites wait in the middle of a round, and what people read from a fault on until the run goes on."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.acceptance import gated
from tests.acceptance.conftest import SITES, WORLD, write_blobs
from tests.acceptance.harness import COORDINATOR, Net
from tests.acceptance.wire import Wire
from tests.services import Postgres
from tideline.core.errors import FederationError
from tideline.core.run import RunId
from tideline.engine.model.orders import Order, OrderRow, OrderStatus
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.learning.formats.folder import read_folder

REGISTRY = "tests.acceptance.gated:METHODS"
OPEN_ROUND = 1  # the cursor of round 2, in which the gate is
RESTART_SECONDS = 2.0  # until a supervisor starts again what has died


class Scene(Net):
    """Real processes, the gated method with three rounds, one fault in the second."""

    def __init__(self, home: Path, lease: float) -> None:
        super().__init__(home, REGISTRY)
        self.lease, self.gate = lease, home / "gate"
        self.gate.mkdir()
        self.data = {name: write_blobs(home / "data" / name, seed) for seed, name in enumerate(SITES)}
        self.sites, self.waiting, self.door = dict(SITES), dict[str, Any](), COORDINATOR
        self.postgres: Postgres | None = None
        self.wires: dict[str, Wire] = {}  # of agents whose lines can be cut
        self.texts: list[str] = []  # what was read since the fault until the round closed
        self.run_id, self.at, self.lengths = "", 0.0, dict[str, int]()

    def begin(self) -> None:
        """A coordinator, the agents, and a run whose sites all wait at the gate."""
        self.coordinator()
        self.send_agents()

    def begin_with_replicas(self, *names: str) -> None:
        """The same with several coordinators on one Postgres and one folder of parts."""
        self.postgres = Postgres(self.home)
        self.database, self.parts = self.postgres.url, str(self.home / "parts")
        for name in names:
            self.coordinator("--lease", str(self.lease), name=name)
        self.send_agents()

    def send_agents(self) -> None:
        """The agents, and a run whose sites all wait at the gate."""
        for name, role in self.sites.items():
            with self.detour(name):
                self.agent(name, self.data[name], role)
        self.run_id = self.run(self.experiment({"gate": str(self.gate)}))
        self.until(lambda: all(self.begun(name) for name in self.sites), "the sites to wait at the gate")

    @contextmanager
    def detour(self, name: str) -> Iterator[None]:
        """An agent that is started meanwhile calls by way of its wire, if it has one."""
        if name in self.wires:
            self.detours[self.grpc] = self.wires[name].port
        yield
        self.detours.clear()

    def experiment(self, config: dict[str, Any]) -> dict[str, Any]:
        """Three rounds, with the rules of waiting that the scene has."""
        given = {"method": "gated", "config": {"rounds": 3, **config}, "world": WORLD, "roster": self.sites, "seed": 9}
        return given | {"waiting": self.waiting}

    def begun(self, name: str) -> list[int]:
        """The trainers that have begun round 2 at a site."""
        path = self.gate / f"begun-{name}"
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def mark(self) -> None:
        """The fault comes now: the clock runs, and logs are read from here."""
        self.at, self.lengths = time.monotonic(), {name: len(self.log(name)) for name in self.running}

    def open_gate(self) -> None:
        """Let every step end that still can."""
        (self.gate / "go").touch()

    def power_off(self) -> None:
        """kill -9 of everything with its children, as when the host goes down."""
        for process in self.running.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self.running.values():
            process.wait()

    def freeze(self, name: str) -> None:
        """SIGSTOP of one process, and only that one."""
        self.running[name].send_signal(signal.SIGSTOP)

    def scheduler_loop(self, *names: str) -> str:
        """The coordinator that holds the run's lease."""
        with self.journal() as journal:
            [lease] = journal.leases(RunId(self.run_id))
        return next(n for n in names if lease.holder.startswith(f"{socket.gethostname()}:{self.home_of(n).resolve()}#"))

    def look(self) -> dict[str, Any]:
        """The run as a person reads it now; nothing while nobody answers."""
        try:
            found = dict(self.client(self.door).get(f"/runs/{self.run_id}"))
            text = f"{found['status']}: {found['waits_for'] or found['cause'] or '(nothing)'}"
        except FederationError as error:
            found, text = {}, f"{error.what}. {error.todo}"
        same = self.texts and unhurried(text) == unhurried(self.texts[-1])
        if not same and found.get("cursor", OPEN_ROUND) == OPEN_ROUND:
            self.texts.append(text)
        return found

    def rest(self, seconds: float = RESTART_SECONDS) -> None:
        until = time.monotonic() + seconds
        self.until(lambda: [self.look()] and time.monotonic() >= until, "a moment")

    def goes_on(self) -> float:
        """Look on until the round is closed; seconds since the fault."""
        self.until(lambda: self.look().get("cursor", OPEN_ROUND) > OPEN_ROUND, "the run to go on")
        return time.monotonic() - self.at

    def reads(self, words: str) -> None:
        """Look on until a person reads certain words."""
        self.until(lambda: bool(self.look()) and words in self.texts[-1], f"somebody to read {words!r}")

    def over(self) -> dict[str, Any]:
        """The run's end, from whoever answers."""
        found: dict[str, Any] = {}
        client = self.client(self.door)

        def ended() -> bool:
            found.update(client.get(f"/runs/{self.run_id}"))
            return found["status"] not in ("waiting", "running")

        self.until(ended, "the run to end")
        return found

    def orders(self) -> tuple[OrderRow, ...]:
        with self.journal() as journal:
            return journal.orders(RunId(self.run_id))

    def twice(self) -> list[str]:
        """Steps that were counted more than once: a site and an exchange with more than one accepted reply."""
        times = Counter((o.client, o.cursor) for o in self.orders() if o.status is OrderStatus.ANSWERED)
        return [f"{client} in exchange {cursor}" for (client, cursor), n in times.items() if n > 1]

    def folded(self) -> list[list[str]]:
        with self.journal() as journal:
            return [sorted(closed.folded) for closed in journal.rounds(RunId(self.run_id)) if closed.cursor >= 0]

    def warnings(self) -> list[str]:
        """The first warning of each kind in the logs since the fault."""
        first: dict[str, str] = {}
        for name, length in self.lengths.items():
            for line in self.log(name)[length:].splitlines():
                if "[warning" in line or "[error" in line:
                    said = line.partition("]")[2].strip()
                    first.setdefault(said.split()[0], f"{name}: {' '.join(said.split())}")
        return list(first.values())

    def undisturbed(self, silent: str = "") -> str:
        """The digest of the same run in one process, in peace; `silent`: a site that answers nothing from round 2 on."""
        sites = {n: SimSite(lambda w, r, n=n: read_folder(self.data[n], w, r)) for n in self.sites}
        there = Federation(gated.METHODS, sites)

        def answered(orders: list[Order]) -> list[Order]:
            return [o for o in orders if o.cursor < OPEN_ROUND or there.journal.order(o.id).client != silent]

        result = there.run(there.start(self.experiment({})), order_of=answered)
        assert result["status"] == "completed", result["cause"]
        return str(result["state_digest"])

    def stop(self) -> None:
        for process in self.running.values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
        super().stop()
        for wire in self.wires.values():
            wire.close()
        if self.postgres is not None:
            self.postgres.kill()


def unhurried(text: str) -> str:
    """A text without how long is left: else it is another one every second."""
    return text.partition("; gives up")[0]


@contextmanager
def scene(home: Path, lease: float) -> Iterator[Scene]:
    """A federation that ends with the block."""
    made = Scene(home, lease)
    try:
        yield made
    finally:
        made.stop()
