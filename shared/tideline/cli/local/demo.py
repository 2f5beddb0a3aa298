"""The demo: a coordinator and its agents as child processes, real digits of several styles, a table and a report.

It loads no torch, unless you name a network: the children compute.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from tideline.bench.processes import start, stop_all, terminable, unbroken
from tideline.cli.guard import REFUSED, code_of_run, print_json
from tideline.cli.local.demo_world import CLASSES, SHAPE, shape_for
from tideline.cli.options import LEAST, MOST, REGISTRY
from tideline.core.algorithm import casting, load_methods, resolve
from tideline.core.errors import ConfigRefused, FederationError, Unreachable

if TYPE_CHECKING:
    from tideline.client.answers import RunResult
    from tideline.client.http import Client
    from tideline.core.settings import Plain

# The last domain is the last site's. USPS comes from other scanners and other writers than the three before it.
DOMAINS = ("mnist", "coloured", "optdigits", "usps")
START_SECONDS = 60.0
POLL_SECONDS = 0.25


@dataclass(frozen=True)
class Code:
    """Methods and networks beside the built-in ones, and the network to train; None: the method's own for demonstrations."""

    methods: str = REGISTRY
    networks: tuple[str, ...] = ()
    network: str | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """The same for each child."""
        return "--methods", self.methods, *(word for place in self.networks for word in ("--networks", place))


@dataclass(frozen=True)
class DemoOptions:
    """What to show. rounds: None: as in the method's preset; policy: a file that says what may leave every site."""

    method: str
    agents: int
    rounds: int | None = None
    seed: int = 0
    policy: Path | None = None
    code: Code = Code()


class MethodFacts(TypedDict):
    """What the demo asks of a method (GET /algorithms/{name})."""

    cast: list[str]
    network: str
    presets: dict[str, dict[str, Plain]]


@dataclass(frozen=True)
class DemoSite:
    name: str
    domain: str
    role: str
    folder: Path
    samples: int


@dataclass
class Children:
    """Child processes with their logs in a folder."""

    home: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, *args: str) -> None:
        """Start `tideline ARGS` with its output in a log file."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("TIDELINE_")}  # not your own database
        with unbroken():
            self.running[name] = start(args, self.home / f"{name}.log", env)

    def check(self) -> None:
        """Raises FederationError with the last lines of a child that ended by itself."""
        for name, process in self.running.items():
            if process.poll() is not None:
                last = (self.home / f"{name}.log").read_text(errors="replace").strip().splitlines()[-12:]
                raise FederationError(f"The process {name} ended with code {process.returncode}:\n" + "\n".join(last))


def run_demo(options: DemoOptions, out: Path | None, as_json: bool) -> int:
    """Run the demo; the exit code, 0 if its run completed. Raises FederationError."""
    from tideline.experiments.simulation import fill_in
    from tideline.report.page import make_room, write_all

    began, where = time.monotonic(), out or Path("demo-out")
    shape = check(options)
    make_room(where)
    say: Callable[[str], None] = (lambda line: None) if as_json else console
    with terminable(), folder() as temporary, federation(temporary, say, options.code) as (children, client):
        say(f"coordinator ready at {client.base_url}")
        facts: MethodFacts = client.get(f"/algorithms/{options.method}")
        sites = write_sites(temporary, casting(facts["cast"], options.agents))
        start_agents(children, client, sites, temporary, options)
        say(f"{len(sites)} agents started: " + ", ".join(f"{s.name} ({s.domain}, {s.role})" for s in sites))
        run = client.post("/runs", experiment(options, facts, sites, shape))["run"]
        watch(children, client, run, as_json)
        result = client.run(f"{run}?history=true")
        pictures = draw_pictures(temporary, run, sites, where / "figures")
    samples = {site.name: site.samples for site in sites}
    for line in result["clients"]:
        line["samples"] = samples[line["name"]]
    fill_in(result, {site.name: site.domain for site in sites})
    result["demo_seconds"] = time.monotonic() - began
    write_all(result, where, pictures)
    print_json(result) if as_json else show_tables(result, where)
    return code_of_run(result)


def check(options: DemoOptions) -> tuple[int, ...]:
    """Check the options before a process is started; the shape of the images. Raises ConfigRefused, NotFound."""
    from tideline_agent.settings import read_policy

    if not LEAST <= options.agents <= MOST:
        what = f"--agents is {options.agents}; it should be between {LEAST} and {MOST}"
        raise ConfigRefused(what, "Correct the number", path="agents")
    known = load_methods(options.code.methods)
    if options.method not in dict(known):
        resolve(known, options.method)  # refuses; a method that is known is not loaded here
    read_policy(options.policy)
    return shape_for(options.code.network, options.code.networks) if options.code.network else SHAPE


CODE = Code()


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    made = tempfile.TemporaryDirectory(prefix="tideline-demo-", ignore_cleanup_errors=True)
    try:
        yield Path(made.name)
    finally:
        with unbroken():
            made.cleanup()


@contextlib.contextmanager
def federation(home: Path, say: Callable[[str], None], code: Code = CODE) -> Iterator[tuple[Children, Client]]:
    """A coordinator on free loopback ports, and a client of its HTTP API."""
    from tideline.client.http import Client, Endpoint

    children = Children(home)
    try:
        say("starting a coordinator")
        own = home / "coordinator"
        children.start("coordinator", "coordinator", "--home", str(own), "--grpc-port", "0", "--http-port", "0", *code.options)
        wait_for(children, own / "coordinator.json")
        with Client.of(Endpoint(home=own)) as client:
            yield children, client
    finally:
        with unbroken():  # a second Ctrl-C while the children stop must not leave them behind
            stop_all(children.running.values())


def wait_for(children: Children, path: Path) -> None:
    """Wait for a file that a child writes. Raises Unreachable."""
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

    domains, sites = by_domain(DOMAINS, len(roles)), []
    for i, (domain, role) in enumerate(zip(domains, roles, strict=True)):
        folder = home / f"data-{i + 1}"
        written = digits.write_site(folder, domain, domains[:i].count(domain), domains.count(domain))
        sites.append(DemoSite(name=f"site-{i + 1}", domain=domain, role=role, folder=folder, samples=written["samples"]))
    return sites


def start_agents(children: Children, client: Client, sites: list[DemoSite], home: Path, options: DemoOptions) -> None:
    address = json.loads((home / "coordinator" / "coordinator.json").read_text())["grpc"]
    for site in sites:
        token = client.post("/invites", {"name": site.name, "ttl_seconds": 600})["token"]
        children.start(
            site.name,
            *("agent", "--coordinator", address, "--token", token, "--name", site.name, "--role", site.role),
            *("--data", str(site.folder), "--home", str(home / f"home-{site.name}"), "--device", "cpu"),
            *(("--policy", str(options.policy)) if options.policy else ()),
            *options.code.options,
        )


def experiment(options: DemoOptions, facts: MethodFacts, sites: list[DemoSite], shape: tuple[int, ...]) -> dict[str, Plain]:
    """The demo's experiment: the method's own demo preset, with FedAvg over the labelled sites to compare with."""
    return {
        "name": f"demo of {options.method}",
        "method": options.method,
        "preset": "demo" if "demo" in facts["presets"] else None,
        "config": {} if options.rounds is None else {"rounds": options.rounds},
        "world": {"model": options.code.network or facts["network"], "inputs": list(shape), "classes": CLASSES},
        "roster": {site.name: site.role for site in sites},
        "seed": options.seed,
        "waiting": {"deadline": 600},
        "reference": {"method": "fedavg"},
    }


def draw_pictures(home: Path, run: str, sites: list[DemoSite], folder: Path) -> dict[str, Path]:
    """What the owner of each target may see at that site, if the method stores a picture: caption -> file.

    The owner's own command draws it in a process of its own: it loads torch, and reads that site's disk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for site in (s for s in sites if s.role == "target"):
        file = folder / f"points-{site.name}.png"
        command = ("site", "picture", "--home", str(home / f"home-{site.name}"), "--run", run, "--out", str(file))
        done = subprocess.run([sys.executable, "-m", "tideline", *command], capture_output=True, check=False)
        if done.returncode == 0:
            drawn[f"{site.name} ({site.domain}): its own points, and the points that stand for them"] = file
        elif done.returncode != REFUSED:  # refused: the method stores no picture
            console(f"no picture of {site.name}: {done.stderr.decode(errors='replace').strip()}")
    return drawn


def watch(children: Children, client: Client, run: str, as_json: bool) -> None:
    """Show the run until it and its reference have ended."""
    from tideline.client.watching import Watcher

    with Watcher(quiet=as_json) as watcher:
        while True:
            result = client.run(run)
            watcher.show(result)
            if ended(result):
                return
            children.check()
            time.sleep(POLL_SECONDS)


def ended(result: RunResult) -> bool:
    """Whether a run and its reference will not move by themselves any more."""
    return not {result["status"], result["reference_status"]} & {"waiting", "running"}


def show_tables(result: RunResult, where: Path) -> None:
    from tideline.cli.tables import groups_table, result_table, scores_table, show
    from tideline.client.output import clean

    show(result_table(result))
    for more in filter(None, (scores_table(result), groups_table(result))):
        sys.stdout.write("\n")
        show(more)
    cause = f"{result['status']}: {clean(result['cause'])}\n" if result["cause"] else ""
    files = f"result  {where / 'result.json'}\nreport  {where / 'report.html'}\n"
    sys.stdout.write(f"\n{cause}{files}{result['demo_seconds']:.0f} s in all\n")


def console(line: str) -> None:
    sys.stderr.write(f"==> {line}\n")
