"""The demo: a coordinator and its agents as child processes, real digits of several styles, a table and a report.

It loads no torch, unless you name a network: the children compute.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from tideline.bench.processes import terminable
from tideline.cli.guard import REFUSED, code_of_run, print_json
from tideline.cli.local import demo_private as private
from tideline.cli.local import demo_rehearsed as rehearsed
from tideline.cli.local.demo_processes import Children, Code, console, federation, folder, tide, waited, watch
from tideline.cli.local.demo_world import CLASSES, SHAPE, shape_for
from tideline.cli.options import LEAST, MOST
from tideline.core.algorithm import Unlike, casting, load_methods, resolve
from tideline.core.errors import ConfigRefused

if TYPE_CHECKING:
    from tideline.client.answers import RunResult
    from tideline.client.http import Client
    from tideline.core.settings import Plain

# The last domain is the last site's. USPS comes from other scanners and other writers than the three before it.
DOMAINS = ("mnist", "coloured", "optdigits", "usps")
MODEL = "model.safetensors"
WIDTH = 100  # of a sentence's lines


@dataclass(frozen=True)
class DemoOptions:
    """What to show. method: None: a rehearsal of some; rounds: None: as in the method's preset, or the rehearsal's.

    policy: a file that says what may leave every site. private: the method's run protects rows, beside one that does not.
    """

    method: str | None
    agents: int
    rounds: int | None = None
    seed: int = 0
    policy: Path | None = None
    private: bool = False
    code: Code = Code()


class MethodFacts(TypedDict):
    """What the demo asks of a method (GET /algorithms/{name})."""

    cast: list[str]
    unlike: str
    extra_rounds: int
    network: str
    presets: dict[str, dict[str, Plain]]


@dataclass(frozen=True)
class DemoSite:
    name: str
    domain: str
    role: str
    folder: Path
    samples: int
    held_out: int


def run_demo(options: DemoOptions, out: Path | None, as_json: bool) -> int:
    """Run the demo; the exit code, 0 if its run completed. Raises FederationError."""
    from tideline.experiments.simulation import fill_in
    from tideline.report.page import make_room, write_all

    began, where = time.monotonic(), out or Path("demo-out")
    shape = check(options)
    make_room(where)
    say: Callable[[str], None] = (lambda line: None) if as_json else console
    with terminable(), folder() as temporary, federation(temporary, say, options.code) as (children, client):
        say(f"coordinator ready; watch it in a browser: {link(client, temporary)}")
        facts: MethodFacts = client.get(f"/algorithms/{options.method or rehearsed.METHOD}")
        roles = casting(facts["cast"], options.agents)
        turn = options.method is not None and facts["unlike"] == Unlike.TURNED
        sites = write_turned(temporary, roles) if turn else write_sites(temporary, roles, rehearsing=options.method is None)
        start_agents(
            children,
            client,
            sites,
            temporary,
            private.policy_in(temporary, options.policy) if options.private else options.policy,
            options.code,
        )
        say(f"{len(sites)} agents started: " + ", ".join(f"{s.name} ({s.domain}, {s.role})" for s in sites))
        posted = experiment(options, facts, sites, shape)
        run = client.post("/runs", posted)["run"]
        other = beside(options, posted)
        plain = None if other is None else client.post("/runs", other)["run"]
        watch(children, client, run, as_json)
        result = client.run(f"{run}?history=true")
        pictures = draw_pictures(temporary, run, sites, where / "figures")
        done = Ended(client=client, home=temporary, result=result, sites=sites, where=where, code=options.code)
        if plain is None:
            more = method_words(done)
        else:
            more = (private_words if options.private else rehearsed_words)(done, waited(children, client, plain))
    samples = {site.name: site.samples for site in sites}
    for line in result["clients"]:
        line["samples"] = samples[line["name"]]
    fill_in(result, {site.name: site.domain for site in sites})
    result["demo_seconds"] = time.monotonic() - began
    write_all(result, where, pictures)
    print_json(result) if as_json else show_all(result, where, more)
    return code_of_run(result)


@dataclass(frozen=True)
class Ended:
    """A demonstration's run that has ended, while its processes are there."""

    client: Client
    home: Path
    result: RunResult
    sites: Sequence[DemoSite]
    where: Path
    code: Code


@dataclass(frozen=True)
class More:
    """What is shown below the tables of every result."""

    found: rehearsed.Found | None
    lines: tuple[str, ...]
    command: str = ""


def method_words(done: Ended) -> More:
    """What the method bought, and what it took."""
    from tideline.cli.local.demo_gains import at_labelled_sites, bought, taken

    result, rows = done.result, {site.name: site.held_out for site in done.sites}
    beside = done.client.run(result["reference"]) if result["reference"] else None
    return More(None, tuple(filter(None, (taken(result, beside), at_labelled_sites(result, rows), bought(result, rows)))))


def beside(options: DemoOptions, posted: Mapping[str, Plain]) -> dict[str, Plain] | None:
    """The experiment of the run that is made beside, if there is one."""
    if options.private:
        return private.beside(posted)
    return None if options.method else rehearsed.beside(posted, options.rounds)


def private_words(done: Ended, plain: str) -> More:
    """What privacy promises, and what it cost. plain: the run without it."""
    return More(None, tuple(private.lines_of(done.result, done.client.run(plain), done.home)))


def rehearsed_words(done: Ended, plain: str) -> More:
    """What was expected and found, and the model that was chosen. plain: the run beside the rehearsal."""
    found = rehearsed.found_in(done.client, done.result, plain)
    if found is None:
        return More(None, ())
    site = next(each for each in done.sites if each.name == found.at["name"])
    return More(found, tuple(rehearsed.lines_of(found)), kept(done, found, site))


def kept(done: Ended, found: rehearsed.Found, site: DemoSite) -> str:
    """Keep the model that counts most, the site's own if it has one, and the site's data; the command that uses both."""
    if found.chosen is None:
        return ""
    model, run = done.where / MODEL, found.chosen.run["run"]
    home, to = done.home / f"home-{site.name}", ("--out", str(model), *done.code.options)
    wrote = tide("site", "export", "--home", str(home), "--run", run, "model", *to)
    if wrote.returncode:
        wrote = tide("run", "export", run, "--home", str(done.home / "coordinator"), *to)
    if wrote.returncode:
        console(f"no model is kept: {wrote.stderr.decode(errors='replace').strip()}")
        return ""
    data = done.where / site.name
    shutil.copytree(site.folder, data, dirs_exist_ok=True)
    words = ("tideline", "predict", "--model", str(model), "--data", str(data), *done.code.added, "--held-out")
    return shlex.join((*words, "--out", str(done.where / "predictions.csv")))


def link(client: Client, home: Path) -> str:
    """The dashboard's address, with the key of this demonstration's coordinator, which is good for as long as that runs."""
    return f"{client.base_url}/#key={(home / 'coordinator' / 'admin.key').read_text().strip()}"


def check(options: DemoOptions) -> tuple[int, ...]:
    """Check the options before a process is started; the shape of the images. Raises ConfigRefused, NotFound."""
    from tideline_agent.policy_file import read_policy

    if not LEAST <= options.agents <= MOST:
        what = f"--agents is {options.agents}; it should be between {LEAST} and {MOST}"
        raise ConfigRefused(what, "Correct the number", path="agents")
    known, method = load_methods(options.code.methods), options.method or rehearsed.METHOD
    if method not in dict(known):
        resolve(known, method)  # refuses; a method that is known is not loaded here
    read_policy(options.policy)
    if options.code.network:
        return shape_for(options.code.network, options.code.networks)
    return SHAPE if options.method else rehearsed.SHAPE


def write_sites(home: Path, roles: Sequence[str], rehearsing: bool) -> list[DemoSite]:
    """A data folder for each site: a domain each, or a random part of one where there are more sites than domains."""
    from tideline.learning.datasets import digits
    from tideline.learning.partition.deals import by_domain

    domains, sites = by_domain(rehearsed.DOMAINS if rehearsing else DOMAINS, len(roles)), []
    for i, (domain, role) in enumerate(zip(domains, roles, strict=True)):
        folder, rows = home / f"data-{i + 1}", rehearsed.rows_of(role) if rehearsing else None
        written = digits.write_site(folder, domain, domains[:i].count(domain), domains.count(domain), rows)
        sites.append(DemoSite(name=f"site-{i + 1}", domain=domain, role=role, folder=folder, **written))
    return sites


def write_turned(home: Path, roles: Sequence[str]) -> list[DemoSite]:
    """A data folder for each site, all of one domain, which half of the sites see upside down."""
    from tideline.learning.datasets import turned

    folders = [home / f"data-{i + 1}" for i in range(len(roles))]
    written = turned.write_sites(folders, DOMAINS[0], roles)
    return [
        DemoSite(name=f"site-{i + 1}", domain=DOMAINS[0] + " turned" * half_turn, role=role, folder=folder, **rows)
        for i, (folder, role, half_turn, rows) in enumerate(zip(folders, roles, turned.turned(roles), written, strict=True))
    ]


def start_agents(children: Children, client: Client, sites: list[DemoSite], home: Path, policy: Path | None, code: Code) -> None:
    address = json.loads((home / "coordinator" / "coordinator.json").read_text())["grpc"]
    for site in sites:
        token = client.post("/invites", {"name": site.name, "ttl_seconds": 600})["token"]
        children.start(
            site.name,
            *("agent", "--coordinator", address, "--token", token, "--name", site.name, "--role", site.role),
            *("--data", str(site.folder), "--home", str(home / f"home-{site.name}"), "--device", "auto"),
            *(("--policy", str(policy)) if policy else ()),
            *code.options,
        )


def experiment(options: DemoOptions, facts: MethodFacts, sites: list[DemoSite], shape: tuple[int, ...]) -> dict[str, Plain]:
    """The demo's experiment: a rehearsal, or the method's own demo preset with FedAvg over the labelled sites to compare with."""
    network = rehearsed.NETWORK if options.method is None else facts["network"]
    made: dict[str, Plain] = {
        "name": f"demo of {options.method}" if options.method else "demo: which adaptation, and what to expect of it",
        **(one_method(options, facts) if options.method else rehearsed.rehearsing(options.rounds)),
        "world": {"model": options.code.network or network, "inputs": list(shape), "classes": CLASSES},
        "roster": {site.name: site.role for site in sites},
        "seed": options.seed,
        "waiting": {"deadline": 600},
    }
    return private.protected(made, options.rounds) if options.private else made


def one_method(options: DemoOptions, facts: MethodFacts) -> dict[str, Plain]:
    """The experiment's keys. What sites train beside the method's rounds, averaging has in rounds more."""
    preset = facts["presets"].get("demo")
    rounds = preset.get("rounds") if preset and options.rounds is None else options.rounds
    extra = facts["extra_rounds"]
    beside: dict[str, Plain] = {"rounds": rounds + extra} if extra and isinstance(rounds, int) else {}
    return {
        "method": options.method,
        "preset": None if preset is None else "demo",
        "config": {} if options.rounds is None else {"rounds": options.rounds},
        "reference": {"method": "fedavg", "config": beside},
    }


def draw_pictures(home: Path, run: str, sites: list[DemoSite], folder: Path) -> dict[str, Path]:
    """What the owner of each target may see at that site, if the method stores a picture: caption -> file.

    The owner's own command draws it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for site in (s for s in sites if s.role == "target"):
        file = folder / f"points-{site.name}.png"
        done = tide("site", "picture", "--home", str(home / f"home-{site.name}"), "--run", run, "--out", str(file))
        if done.returncode == 0:
            drawn[f"{site.name} ({site.domain}): its own points, and the points that stand for them"] = file
        elif done.returncode != REFUSED:  # refused: the method stores no picture
            console(f"no picture of {site.name}: {done.stderr.decode(errors='replace').strip()}")
    return drawn


def show_all(result: RunResult, where: Path, more: More) -> None:
    from tideline.cli.tables import groups_table, result_table, scores_table, show
    from tideline.cli.verdicts import verdict_table
    from tideline.client.output import clean

    show(result_table(result))
    scores = None if more.found else scores_table(result)  # of a rehearsal the same two as above
    below = (scores, groups_table(result), verdict_table(result), *(rehearsed.tables_of(more.found) if more.found else ()))
    for each in filter(None, below):
        sys.stdout.write("\n")
        show(each)
    cause = f"{result['status']}: {clean(result['cause'])}\n" if result["cause"] else ""
    files = f"result  {where / 'result.json'}\nreport  {where / 'report.html'}\n"
    model = f"model   {where / MODEL}; to use it:\n  {more.command}\n" if more.command else ""
    sys.stdout.write(f"\n{cause}{files}{model}{result['demo_seconds']:.0f} s in all\n")
    for line in more.lines:
        sys.stdout.write(f"\n{textwrap.fill(clean(line), WIDTH)}\n")
