"""The command that deals one folder of domains to the folders of sites. It sends nothing."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from tideline.cli.guard import print_json
from tideline.cli.options import Json, Options, grouped, settings_options
from tideline.client.output import clean
from tideline.core.errors import ConfigRefused, Refused
from tideline.core.settings import plain
from tideline.engine.model.experiment import DealData

if TYPE_CHECKING:
    from tideline.learning.partition.deals import Hands
    from tideline.learning.partition.dealt_folder import Rule, Sites

RECORD = "deal.json"


class Counts(TypedDict):
    """Rows of a domain at a site."""

    training: int
    bare: int
    held_out: int


class DealtSite(TypedDict):
    """A site's folder, role and rows by domain."""

    folder: str
    role: str
    domains: dict[str, Counts]


@grouped([each for each in settings_options(DealData) if each.name not in ("folder", "rule")], dict)
def deal(
    options: Options,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A data folder with all domains, each row labelled.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to make the sites' folders.")],
    rule: Annotated[str, typer.Option(help="leave-out: no client has one domain. dirichlet: some have no labels.")] = "leave-out",
    as_json: Json = False,
) -> None:
    """Deal the domains of one folder to the folders of sites, by one of two rules. Nothing is sent."""
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items() if value is not None}
    facts, dealt = write_deal(folder, out, rule, given)
    if as_json:
        print_json(facts)
    else:
        show_deal(dealt, out)


def rule_of(name: str, given: Options) -> Rule:
    from tideline.core.run import Role
    from tideline.core.settings import nearest, read
    from tideline.learning.partition.dealt_folder import RULES, rule_in

    if name not in RULES:
        what = f"--rule is {name!r}; it should be one of {', '.join(RULES)}"
        raise ConfigRefused(what, f"Use one of them{nearest(name, list(RULES))}", path="rule")
    more = {"role": read(Role, given["role"], "--role")} if "role" in given else {}
    return rule_in(name, {**given, **more})


@contextmanager
def by_option() -> Iterator[None]:
    """Refusals of a setting name the option that it comes from."""
    try:
        yield
    except ConfigRefused as error:
        path = str(error.context.get("path", ""))
        option = "" if path.startswith("--") or path == "rule" else f"--{path.replace('_', '-')}: "
        raise ConfigRefused(f"{option}{error.what}", error.todo, path=path) from None


def write_deal(folder: Path, out: Path, name: str, given: Options) -> tuple[dict[str, object], dict[str, DealtSite]]:
    """Make the folders, all or none; the content of deal.json, and its sites. Raises ConfigRefused, DataRefused, Refused."""
    from tideline.learning.partition.dealt_folder import sites_of

    with by_option():
        rule = rule_of(name, given)
        sites = sites_of(folder, rule)
    dealt = dealt_sites(rule, sites)
    facts: dict[str, object] = {"from": str(folder), "rule": name, **plain(rule), "sites": dealt}
    folders = {dealt[site]["folder"]: rows for site, rows in sites.hands.items()}
    taken = [name for name in (*folders, RECORD) if (out / name).exists()]
    if taken:
        raise Refused(f"{out / taken[0]} is there already", "Give another --out, or delete the earlier deal there")
    try:
        fill(folder, out, folders, facts)
    except OSError as cause:
        raise Refused(f"Cannot write to {out}: {cause.strerror}", "Give another --out, or make room") from None
    return facts, dealt


def fill(folder: Path, out: Path, folders: Mapping[str, Hands], facts: dict[str, object]) -> None:
    """Write beside the place, then move into it. Raises DataRefused, OSError."""
    from tideline.learning.partition import deal_folders

    out.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".dealing-", dir=out))
    try:
        deal_folders.write_sites(folder, {beside / name: hands for name, hands in folders.items()})
        (beside / RECORD).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        for name in (*folders, RECORD):
            (beside / name).rename(out / name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def dealt_sites(rule: Rule, sites: Sites) -> dict[str, DealtSite]:
    return {
        site: {
            "folder": folder_of(site, rule),
            "role": sites.roles[site].value,
            "domains": {
                domain: {"training": len(hand.train), "bare": len(hand.bare), "held_out": len(hand.held)}
                for domain, hand in own.items()
            },
        }
        for site, own in sites.hands.items()
    }


def folder_of(site: str, rule: Rule) -> str:
    """The name of a site's folder; that of the unseen site has the domain in it."""
    from tideline.learning.partition.deals import UNSEEN, Deal

    return f"{site}-{rule.leave_out}" if site == UNSEEN and isinstance(rule, Deal) else site


def show_deal(dealt: Mapping[str, DealtSite], out: Path) -> None:
    from tideline.cli.tables import show, table

    rows = [
        (site, each["role"], each["folder"], domain, *map(str, (n["training"], n["bare"], n["held_out"])))
        for site, each in dealt.items()
        for domain, n in each["domains"].items()
    ]
    columns = ("site", "role", "folder", "domain", "training", "no label", "held out")
    show(table("", columns, rows, right=(4, 5, 6)))
    roster = ", ".join(f"{site}: {each['role']}" for site, each in dealt.items())
    where = f"Serve each folder in {clean(str(out))} with an agent of the site's name."
    typer.echo(f"\n{where} The experiment's roster: {{{roster}}}")
