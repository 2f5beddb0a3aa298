"""The command that deals one folder of domains to the folders of sites. Nothing is sent."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tideline.cli.guard import clean, say_json
from tideline.cli.options import Json
from tideline.core.errors import ConfigRefused, Refused

if TYPE_CHECKING:
    from tideline.learning.deals import Deal, Hands

RECORD = "deal.json"
OPTIONS = {"leave_out": "--leave-out", "clients": "--clients", "domains": "--domains", "share": "--share", "shots": "--shots"}


def deal(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A data folder with all domains, each labelled.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the sites' folders are made.")],
    leave_out: Annotated[str, typer.Option(metavar="DOMAIN", help="The domain that no client has, and all are scored by.")],
    clients: Annotated[int, typer.Option(min=2, help="How many clients, N.")],
    domains: Annotated[int, typer.Option(min=1, help="Source domains of each client, d.")],
    seed: Annotated[int, typer.Option(min=0, max=2**62, help="Same seed, same rows.")] = 0,
    share: Annotated[float, typer.Option(help="Of each client's rows that are held out, between 0 and 1.")] = 0.1,
    shots: Annotated[int, typer.Option(min=0, help="Rows of the left-out domain that join each client's training rows.")] = 0,
    as_json: Json = False,
) -> None:
    """Deal the domains of one folder to the folders of N clients and of an unseen site. Nothing is sent."""
    from tideline.learning.deals import Deal

    told = write_deal(folder, out, Deal(leave_out, clients, domains, seed, share, shots))
    if as_json:
        say_json(told)
    else:
        tell(told, out)


def write_deal(folder: Path, out: Path, rule: Deal) -> dict[str, Any]:
    """Make the folders, all of them or none; what `deal.json` says. Raises ConfigRefused, DataRefused, Refused."""
    from tideline.learning import dealing, deals

    sizes = dealing.sizes_of(folder)
    try:
        hands = deals.deal(sizes, rule)
    except ConfigRefused as error:
        path = str(error.context.get("path", ""))
        raise ConfigRefused(f"{OPTIONS.get(path, path)}: {error.what}", error.todo, path=path) from None
    told = record(folder, rule, hands)
    folders = {told["sites"][site]["folder"]: rows for site, rows in hands.items()}
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
    from tideline.learning import dealing

    out.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".dealing-", dir=out))
    try:
        dealing.write_sites(folder, {beside / name: hands for name, hands in folders.items()})
        (beside / RECORD).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
        for name in (*folders, RECORD):
            (beside / name).rename(out / name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def record(folder: Path, rule: Deal, hands: Mapping[str, Hands]) -> dict[str, Any]:
    """What was dealt: the rule, and each site's folder, role and numbers of rows."""
    from dataclasses import asdict

    from tideline.learning.deals import UNSEEN
    from tideline.learning.dealt import role_of

    sites = {
        site: {
            "folder": f"{site}-{rule.leave_out}" if site == UNSEEN else site,
            "role": role_of(site).value,
            "domains": {domain: {"training": len(hand.train), "held_out": len(hand.held)} for domain, hand in own.items()},
        }
        for site, own in hands.items()
    }
    return {"from": str(folder), **asdict(rule), "sites": sites}


def tell(told: dict[str, Any], out: Path) -> None:
    """The deal for people."""
    from tideline.cli.tables import show, table

    rows = [
        (site, each["role"], each["folder"], domain, str(n["training"]), str(n["held_out"]))
        for site, each in told["sites"].items()
        for domain, n in each["domains"].items()
    ]
    show(table("", ("site", "role", "folder", "domain", "training", "held out"), rows, right=(4, 5)))
    roster = ", ".join(f"{site}: {each['role']}" for site, each in told["sites"].items())
    typer.echo(f"\nServe each folder in {clean(str(out))} by an agent of the site's name. The experiment's roster: {{{roster}}}")
