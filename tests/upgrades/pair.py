"""A federation of which each process runs the last release or this tree, and changes over while runs go on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text

from tests.acceptance.harness import COORDINATOR, Net, end
from tests.forking import Started
from tests.upgrades.trees import Released, check, environment, this_tree
from tideline_server.store.database.address import read_address

OLD, NEW = "the last release", "this tree"
# Real digits of three styles. The third site's labels only score.
SITES = {"a": ("source", "mnist", "1/30"), "b": ("source", "usps", "1/30"), "c": ("target", "optdigits", "1/20")}
OPEN = ("waiting", "running")
OVERTAKEN = ("run_taken_over", "run_held_up", "run_overtaken")  # what a coordinator logs where a run waited for a lease or longer


def experiment(method: str, rounds: int, seed: int = 1) -> dict[str, Any]:
    """A run over all sites."""
    config: dict[str, Any] = {"rounds": rounds} | ({"rate": 0.03} if method == "fedavg" else {})
    given = {"method": method, "config": config, "world": {"model": "lenet", "inputs": [1, 28, 28], "classes": 10}}
    given |= {"roster": {name: role for name, (role, *_) in SITES.items()}, "seed": seed, "reference": None}
    return given | ({} if method == "fedavg" else {"preset": "tiny"})


class Pair(Net):
    """Processes of two versions. All begin with the last release's code, for which warnings are no errors."""

    def __init__(self, home: Path, old: Released, database: str | None = None) -> None:
        super().__init__(home, database=database, parts=None if database is None else str(home / "parts"))
        self.old, self.of_old = old, set[str]()
        self.new, self.newest = this_tree(home / "new", old)
        for tree in (old.tree, self.new):
            check(tree)
        for name, (_, domain, part) in SITES.items():
            self.tideline(NEW, "data", "sample", str(home / "data" / name), "--domain", domain, "--part", part)

    def start(self, process: str, *args: str) -> None:
        self._commands[process] = list(args)
        command = [sys.executable, "-m", "tideline", *args]
        with (self.home / f"{process}.log").open("ab") as log:
            self.running[process] = Started(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, env=self.code(process)
            )

    def tree(self, code: str) -> Path:
        """Where the code of either version is."""
        return self.old.tree if code == OLD else self.new

    def code(self, process: str) -> dict[str, str]:
        """The environment of a process, which has its code first on its path."""
        return self.environment() | {"PYTHONPATH": environment(self.tree(OLD if process in self.of_old else NEW))["PYTHONPATH"]}

    def tideline(self, code: str, *words: str, ok: bool = True) -> str:
        """What a command of either version prints, errors included."""
        path = environment(self.tree(code))["PYTHONPATH"]
        done = subprocess.run(
            [sys.executable, "-m", "tideline", *words],
            env=self.environment() | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode == 0) is ok, done.stdout + done.stderr
        return done.stdout + done.stderr

    def begin(self, *coordinators: str, more: Sequence[str] = ()) -> None:
        """Start everything as it was before the upgrade. more: options of the coordinators."""
        self.of_old = {*coordinators, *SITES}
        for name in coordinators:
            self.ports_of(name)
        for name in coordinators:
            self.coordinator(*more, name=name)
        first = self.client(coordinators[0])
        for name, (role, *_) in SITES.items():
            token = first.post("/invites", {"name": name, "ttl_seconds": 600})["token"]
            self.start(name, *self.agent_command(name, self.home / "data" / name, role, token))
        for name in SITES:
            self.until(lambda name=name: self.enrolled(name) == 1, f"{name} to enrol")  # type: ignore[misc]

    def enrolled(self, agent: str) -> int:
        """How often an agent has come in."""
        return self.log(agent).count("enrolled ")

    def halt(self, *processes: str) -> None:
        """Ask processes to end, as a supervisor does."""
        end([self.running[name] for name in processes])

    def change(self, process: str, code: str) -> None:
        """End a process and start it again with the same command and home, and the other code."""
        self.halt(process)
        self.of_old = self.of_old | {process} if code == OLD else self.of_old - {process}
        before = self.enrolled(process) if process in SITES else 0
        self.again(process)
        if process in SITES:
            self.until(lambda: self.enrolled(process) > before, f"{process} to enrol with {code}")
        else:
            self.ready(process)

    def run_by(self, name: str, given: dict[str, Any]) -> str:
        """Start an experiment at one of several coordinators."""
        return str(self.client(name).post("/runs", given)["run"])

    def rounds(self, run: str, by: str = COORDINATOR) -> int:
        """How many rounds of a run are closed. Raises AssertionError for one that has stalled or failed."""
        found = self.client(by).get(f"/runs/{run}")
        assert found["status"] in (*OPEN, "completed"), found["cause"]
        return len(found["phases"])

    def goes_on(self, *runs: str, by: str = COORDINATOR) -> None:
        """Wait until each of these closes a round more, or ends."""
        for run in runs:
            before = self.rounds(run, by)
            self.until(lambda r=run, b=before: self.rounds(r, by) > b or not self.open(r, by), f"{run} to go on")  # type: ignore[misc]

    def open(self, run: str, by: str = COORDINATOR) -> bool:
        """Whether a run is not over."""
        return self.client(by).get(f"/runs/{run}")["status"] in OPEN

    def undisturbed(self, code: str, given: dict[str, Any]) -> str:
        """The state digest of the same experiment in one process of either version."""
        folder = self.home / f"simulated-{len(list(self.home.glob('simulated-*')))}"
        folder.mkdir()
        data = {name: {"role": role, "folder": str(self.home / "data" / name)} for name, (role, *_) in SITES.items()}
        (folder / "e.json").write_text(json.dumps({**{k: v for k, v in given.items() if k != "roster"}, "data": data}))
        self.tideline(code, "simulate", str(folder / "e.json"), "--out", str(folder / "out"))
        return str(json.loads((folder / "out" / "result.json").read_text())["state_digest"])

    def events(self, run: str) -> list[str]:
        """The kinds of a run's events. They are read past the journal, which would bring the database up to date."""
        engine = create_engine(read_address(self.database or self.folder / "coordinator.db"))
        with engine.connect() as connection:
            found = connection.scalars(text("SELECT kind FROM events WHERE run = :run ORDER BY seq"), {"run": run})
            kinds = [str(kind) for kind in found]
        engine.dispose()
        return kinds

    def waited(self, *coordinators: str) -> list[str]:
        """What coordinators logged of runs that waited for a lease."""
        return [word for name in coordinators for word in OVERTAKEN if word in self.log(name)]


@contextmanager
def pair(home: Path, old: Released, database: str | None = None) -> Iterator[Pair]:
    """A federation that ends with the block."""
    made = Pair(home, old, database)
    try:
        yield made
    finally:
        made.stop()
