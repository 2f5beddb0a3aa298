"""The demonstration: a coordinator and its agents as child processes, real digits of several styles, a table and a report.

Loads no torch: the numbers are crunched by the children.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tideline.cli.guard import REFUSED
from tideline.cli.options import LEAST, MOST, REGISTRY
from tideline.core.algorithm import casting
from tideline.core.errors import ConfigRefused, FederationError, Unreachable
from tideline.core.registry import load_methods, resolve

# The last domain is the last site's. USPS comes from other scanners and other writers than the three before it.
DOMAINS = ("mnist", "coloured", "optdigits", "usps")
SHAPE = (3, 28, 28)
START_SECONDS = 60.0
STOP_SECONDS = 8.0
POLL_SECONDS = 0.25


@dataclass(frozen=True)
class Asked:
    """What a demonstration is to show. `rounds`: None as the method's preset says; `policy`: a file, what every site lets out."""

    method: str
    agents: int
    rounds: int | None = None
    seed: int = 0
    policy: Path | None = None


@dataclass(frozen=True)
class DemoSite:
    """One site of the demonstration."""

    name: str
    domain: str
    role: str
    folder: Path
    samples: int


@dataclass
class Children:
    """Child processes with their logs; all of them end with this block, Ctrl-C included."""

    home: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, *args: str) -> None:
        """Start `tideline ARGS` with its output in a log file."""
        with (self.home / f"{name}.log").open("wb") as log:
            command = [sys.executable, "-m", "tideline", *args]
            env = {name: value for name, value in os.environ.items() if not name.startswith("TIDELINE_")}  # no one's own database
            with unbroken():
                self.running[name] = subprocess.Popen(
                    command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, env=env
                )

    def check(self) -> None:
        """Raise what a child that ended by itself said last."""
        for name, process in self.running.items():
            if process.poll() is not None:
                last = (self.home / f"{name}.log").read_text(errors="replace").strip().splitlines()[-12:]
                raise FederationError(f"The process {name} ended with code {process.returncode}:\n" + "\n".join(last))

    def stop(self) -> None:
        """Ask, wait, then end."""
        for process in self.running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        until = time.monotonic() + STOP_SECONDS
        for process in self.running.values():
            try:
                process.wait(max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def run_demo(asked: Asked, out: Path | None, as_json: bool) -> int:
    """Run the demonstration; 0 if its run completed. Raises FederationError."""
    from tideline.experiments.true_domains import fill_in
    from tideline.report.page import make_room, write_all

    began, where = time.monotonic(), out or Path("demo-out")
    refuse_early(asked)
    make_room(where)
    say = quiet if as_json else console
    with terminable(), folder() as temporary, federation(temporary, say) as (children, client):
        say(f"coordinator ready at {client.base_url}")
        description = client.get(f"/algorithms/{asked.method}")
        sites = write_sites(temporary, casting(description["cast"], asked.agents))
        start_agents(children, client, sites, temporary, asked.policy)
        say(f"{len(sites)} agents started: " + ", ".join(f"{s.name} ({s.domain}, {s.role})" for s in sites))
        run = client.post("/runs", experiment(asked, description, sites))["run"]
        watch(children, client, run, as_json)
        result = client.get(f"/runs/{run}?history=true")
        pictures = draw_pictures(temporary, run, sites, where / "figures")
    for line in result["clients"]:
        site = next(s for s in sites if s.name == line["name"])
        line.update(samples=site.samples)
    fill_in(result, {site.name: site.domain for site in sites})
    result["demo_seconds"] = time.monotonic() - began
    write_all(result, where, pictures)
    show(result, where, as_json)
    return 0 if result["status"] == "completed" else 1


def refuse_early(asked: Asked) -> None:
    """What can be refused before a process is started. Raises ConfigRefused, NotFound."""
    from tideline_agent.settings import read_policy

    if not LEAST <= asked.agents <= MOST:
        what = f"--agents is {asked.agents}; it should be between {LEAST} and {MOST}"
        raise ConfigRefused(what, "Correct the number", path="agents")
    known = load_methods(REGISTRY)
    if asked.method not in dict(known):
        resolve(known, asked.method)  # refuses; a method that is known is not loaded here
    read_policy(asked.policy)


@contextlib.contextmanager
def unbroken() -> Iterator[None]:
    """An interruption in here is heard at its end: no child that nobody knows of, no cleaning that stops half-way."""
    heard: list[int] = []
    before = {n: signal.signal(n, lambda number, _: heard.append(number)) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if heard:
        raise KeyboardInterrupt


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM is taken as a Ctrl-C: the children end with the demonstration."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder."""
    made = tempfile.TemporaryDirectory(prefix="tideline-demo-", ignore_cleanup_errors=True)
    try:
        yield Path(made.name)
    finally:
        with unbroken():
            made.cleanup()


@contextlib.contextmanager
def federation(home: Path, say: Callable[[str], None]) -> Iterator[tuple[Children, Any]]:
    """A coordinator on free loopback ports, and a client of its people's door."""
    from tideline.client.http import Client

    children = Children(home)
    try:
        say("starting a coordinator")
        own = home / "coordinator"
        children.start("coordinator", "coordinator", "--home", str(own), "--grpc-port", "0", "--http-port", "0")
        wait_for(children, own / "coordinator.json")
        with Client.of_home(own) as client:
            yield children, client
    finally:
        with unbroken():  # a second Ctrl-C while the children stop must not leave them behind
            children.stop()


def wait_for(children: Children, path: Path) -> None:
    """Until a file that a child writes is there."""
    until = time.monotonic() + START_SECONDS
    while not path.exists():
        children.check()
        if time.monotonic() > until:
            raise Unreachable(f"The coordinator did not start within {START_SECONDS:.0f} s", "Try again on a quieter machine")
        time.sleep(0.05)


def write_sites(home: Path, roles: Sequence[str]) -> list[DemoSite]:
    """A data folder for each site: a domain each, or a random part of one where there are more sites than domains."""
    from tideline.learning.datasets import digits
    from tideline.learning.partition.deals import by_domain

    domains = by_domain(DOMAINS, len(roles))
    sites = []
    for i, (domain, role) in enumerate(zip(domains, roles, strict=True)):
        part, parts = domains[:i].count(domain), domains.count(domain)
        folder = home / f"data-{i + 1}"
        written = digits.write_site(folder, domain, part, parts)
        sites.append(DemoSite(f"site-{i + 1}", domain, role, folder, written["samples"]))
    return sites


def start_agents(children: Children, client: Any, sites: list[DemoSite], home: Path, policy: Path | None) -> None:
    """Invite each site and start its agent."""
    address = json.loads((home / "coordinator" / "coordinator.json").read_text())["grpc"]
    for site in sites:
        token = client.post("/invites", {"name": site.name, "ttl_seconds": 600})["token"]
        children.start(
            site.name,
            *("agent", "--coordinator", address, "--token", token, "--name", site.name, "--role", site.role),
            *("--data", str(site.folder), "--home", str(home / f"home-{site.name}"), "--device", "cpu"),
            *(("--policy", str(policy)) if policy else ()),
        )


def experiment(asked: Asked, description: Mapping[str, Any], sites: list[DemoSite]) -> dict[str, Any]:
    """The demonstration's experiment: the method's own demo preset, with FedAvg over the labelled sites beside it."""
    return {
        "name": f"demo of {asked.method}",
        "method": asked.method,
        "preset": "demo" if "demo" in description["presets"] else None,
        "config": {} if asked.rounds is None else {"rounds": asked.rounds},
        "world": {"model": description["network"], "inputs": list(SHAPE), "classes": 10},
        "roster": {site.name: site.role for site in sites},
        "seed": asked.seed,
        "waiting": {"deadline": 600},
        "reference": {"method": "fedavg"},
    }


def draw_pictures(home: Path, run: str, sites: list[DemoSite], folder: Path) -> dict[str, Path]:
    """What the owner of each target may see at that site, where the method keeps a picture: caption -> file.

    By the owner's own command, in a process of its own: it loads torch, and reads what is on that site's disk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for site in (s for s in sites if s.role == "target"):
        file = folder / f"points-{site.name}.png"
        command = ("site", "picture", "--home", str(home / f"home-{site.name}"), "--run", run, "--out", str(file))
        done = subprocess.run([sys.executable, "-m", "tideline", *command], capture_output=True, check=False)
        if done.returncode not in (0, REFUSED):  # refused: the method keeps no picture
            console(f"no picture of {site.name}: {done.stderr.decode(errors='replace').strip()}")
        elif done.returncode == 0:
            drawn[f"{site.name} ({site.domain}): its own points, and the points that stand for them"] = file
    return drawn


def watch(children: Children, client: Any, run: str, as_json: bool) -> dict[str, Any]:
    """Show the run until it and its reference have ended; the result."""
    from tideline.client.progress import Watcher

    with Watcher(quiet=as_json) as watcher:
        while True:
            result: dict[str, Any] = client.get(f"/runs/{run}")
            watcher.show(result)
            if ended(result):
                return result
            children.check()
            time.sleep(POLL_SECONDS)


def ended(result: Mapping[str, Any]) -> bool:
    """Whether a run and its reference will not move by themselves any more."""
    return not {result["status"], result["reference_status"]} & {"waiting", "running"}


def show(result: dict[str, Any], where: Path, as_json: bool) -> None:
    """The table, or the JSON."""
    from tideline.cli.guard import clean, say_json
    from tideline.cli.tables import groups_table, result_table, scores_table
    from tideline.cli.tables import show as show_table

    if as_json:
        say_json(result)
        return
    show_table(result_table(result))
    for more in filter(None, (scores_table(result), groups_table(result))):
        sys.stdout.write("\n")
        show_table(more)
    cause = f"{result['status']}: {clean(result['cause'])}\n" if result["cause"] else ""
    files = f"result  {where / 'result.json'}\nreport  {where / 'report.html'}\n"
    sys.stdout.write(f"\n{cause}{files}{result['demo_seconds']:.0f} s in all\n")


def console(line: str) -> None:
    """A line for a person."""
    sys.stderr.write(f"==> {line}\n")


def quiet(line: str) -> None:
    """Nobody reads along."""
