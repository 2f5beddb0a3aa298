"""The command that deals one folder of domains to the folders of sites. Nothing is sent."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tideline.cli.guard import clean, say_json
from tideline.cli.options import Json
from tideline.core.errors import ConfigRefused, Refused

if TYPE_CHECKING:
    from tideline.learning.partition.deals import Hands
    from tideline.learning.partition.dealt_folder import Rule, Sites

RECORD = "deal.json"


def deal(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A data folder with all domains, each row labelled.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the sites' folders are made.")],
    rule: Annotated[str, typer.Option(help="leave-out: a domain is nobody's. dirichlet: some have no labels.")] = "leave-out",
    clients: Annotated[int | None, typer.Option(min=2, help="How many clients, N. [dirichlet: 10]")] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**62, help="Same seed, same rows. [default: 0]")] = None,
    share: Annotated[float | None, typer.Option(help="Of a client's rows that are held out. [default: 0.1]")] = None,
    leave_out: Annotated[str | None, typer.Option(metavar="DOMAIN", help="The domain that no client has.")] = None,
    domains: Annotated[int | None, typer.Option(min=1, help="leave-out: source domains of each client, d.")] = None,
    shots: Annotated[int | None, typer.Option(min=0, help="leave-out: rows of that domain at each client. [default: 0]")] = None,
    labelled: Annotated[int | None, typer.Option(min=1, help="dirichlet: clients that have labels. [default: 5]")] = None,
    case: Annotated[str | None, typer.Option(help="dirichlet: single, mixed or split. [default: single]")] = None,
    take: Annotated[list[str] | None, typer.Option(metavar="DOMAIN", help="dirichlet: a domain to deal. [default: all]")] = None,
    classes: Annotated[int | None, typer.Option(min=2, help="dirichlet: classes of each client. [default: 4, or all]")] = None,
    alpha: Annotated[float | None, typer.Option(help="dirichlet: concentration of the mixes. [default: 5]")] = None,
    scale: Annotated[float | None, typer.Option(help="dirichlet: of all numbers of rows. [default: 1]")] = None,
    role: Annotated[str | None, typer.Option(help="dirichlet: of labelled clients: source or peer. [default: source]")] = None,
    as_json: Json = False,
) -> None:
    """Deal the domains of one folder to the folders of sites, by one of two rules. Nothing is sent."""
    given: dict[str, Any] = {"clients": clients, "seed": seed, "share": share}
    given |= {"leave_out": leave_out, "domains": domains, "shots": shots}
    given |= {"labelled": labelled, "case": case, "take": tuple(take) if take else None, "classes": classes}
    given |= {"alpha": alpha, "scale": scale, "role": role}
    told = write_deal(folder, out, rule, {key: value for key, value in given.items() if value is not None})
    if as_json:
        say_json(told)
    else:
        tell(told, out)


def rule_of(name: str, given: Mapping[str, Any]) -> Rule:
    """The rule that the options name. Raises ConfigRefused."""
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


def write_deal(folder: Path, out: Path, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Make the folders, all of them or none; what `deal.json` says. Raises ConfigRefused, DataRefused, Refused."""
    from tideline.learning.partition.dealt_folder import sites_of

    with by_option():
        rule = rule_of(name, given)
        sites = sites_of(folder, rule)
    told = {"from": str(folder), "rule": name, **record(rule, sites)}
    folders = {told["sites"][site]["folder"]: rows for site, rows in sites.hands.items()}
    taken = [name for name in (*folders, RECORD) if (out / name).exists()]
    if taken:
        raise Refused(f"{out / taken[0]} is there already", "Give another --out, or remove what was dealt there before")
    try:
        fill(folder, out, folders, told)
    except OSError as cause:
        raise Refused(f"Cannot write to {out}: {cause.strerror}", "Give another --out, or make room") from None
    return told


def fill(folder: Path, out: Path, folders: Mapping[str, Hands], told: dict[str, Any]) -> None:
    """Write beside the place, then move into it. Raises DataRefused, OSError."""
    from tideline.learning.partition import deal_folders

    out.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".dealing-", dir=out))
    try:
        deal_folders.write_sites(folder, {beside / name: hands for name, hands in folders.items()})
        (beside / RECORD).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
        for name in (*folders, RECORD):
            (beside / name).rename(out / name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def record(rule: Rule, sites: Sites) -> dict[str, Any]:
    """What was dealt: the rule, and each site's folder, role and numbers of rows."""
    from tideline.core.settings import plain

    told = {
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
    return {**plain(rule), "sites": told}


def folder_of(site: str, rule: Rule) -> str:
    """The name of a site's folder; that of the unseen site tells the domain."""
    from tideline.learning.partition.deals import UNSEEN, Deal

    return f"{site}-{rule.leave_out}" if site == UNSEEN and isinstance(rule, Deal) else site


def tell(told: dict[str, Any], out: Path) -> None:
    """The deal for people."""
    from tideline.cli.tables import show, table

    rows = [
        (site, each["role"], each["folder"], domain, *(str(n[key]) for key in ("training", "bare", "held_out")))
        for site, each in told["sites"].items()
        for domain, n in each["domains"].items()
    ]
    columns = ("site", "role", "folder", "domain", "training", "no label", "held out")
    show(table("", columns, rows, right=(4, 5, 6)))
    roster = ", ".join(f"{site}: {each['role']}" for site, each in told["sites"].items())
    typer.echo(f"\nServe each folder in {clean(str(out))} by an agent of the site's name. The experiment's roster: {{{roster}}}")
