"""Commands that maintain a coordinator: its audit log and its parts."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import typer

from tideline.cli.guard import UNSOUND, group_of, output, print_json
from tideline.cli.options import Connect, Json, remote
from tideline.client.answers import RestoredLine
from tideline.client.output import clean, counted, day, size
from tideline.core.errors import ConfigRefused

if TYPE_CHECKING:
    from tideline.engine.audit.log import Entry

audit = group_of("Read the audit log, and check that nobody has changed it.")
parts = group_of("Clean up the coordinator's parts, and check that none is damaged.")
LONGEST = 60  # characters of an entry's details


@audit.command("verify")
@remote
def verify(
    connect: Connect,
    file: Annotated[
        Path | None, typer.Option(help="Verify this export, or the files in this folder, instead of a coordinator.")
    ] = None,
    archive: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder with the entries that left the database: verify them first.")
    ] = None,
    tip: Annotated[str, typer.Option(metavar="HASH", help="With --file: the hash that its last entry must have.")] = "",
    forget: Annotated[bool, typer.Option("--forget", help="Start over: the database was restored, or is a new one.")] = False,
    as_json: Json = False,
) -> None:
    """Compute every hash of the log again. This machine remembers the last valid entry, and reports if one is gone or changed."""
    from tideline.client import audit as log
    from tideline.client.warnings import show_warnings

    check_tip(tip, file)
    if file is not None:
        chain = log.verify_file(file, tip, archive)
    else:
        with connect() as client:
            show_warnings(client)
            chain = log.verify(client, forget, archive)
    last, known = chain.tip, chain.before
    if file is not None:
        text = f"The file is valid up to entry {last.seq}, with hash {last.hash}"
        text += "" if tip else ". It cannot show whether more entries followed: --tip HASH says where it has to end"
    else:
        text = f"The log is valid: {last.seq} entries, the last with hash {last.hash}"
        text += f"\nThe {known.seq} entries that you verified on {day(known.at)} have not changed" if known else ""
    if chain.base.seq:
        text += f"\nEntries 1 to {chain.base.seq} were archived and are not verified: --archive DIR verifies them too"
    before = {"entries": known.seq, "at": known.at} if known else None
    found = {"entries": last.seq, "hash": last.hash, "from": chain.base.seq + 1, "before": before}
    output(found, as_json, text)


@audit.command("list")
@remote
def list_entries(
    connect: Connect,
    run: Annotated[str, typer.Option(help="Only entries of this run.")] = "",
    client: Annotated[str, typer.Option(help="Only entries of this client.")] = "",
    kind: Annotated[str, typer.Option(help="Only entries of this kind, such as enrolled or reply_accepted.")] = "",
    since: Annotated[str, typer.Option(help="Only entries since then: 90m, 2h, 7d ago, or 2030-01-31.")] = "",
    as_json: Json = False,
) -> None:
    """List the entries, oldest first."""
    from tideline.client.audit import entries

    with connect() as there:
        rows = list(entries(there, {"run": run, "client": client, "kind": kind, "since": read_since(since)}))
    if as_json:
        print_json([asdict(entry) for entry in rows])
    elif rows:
        from tideline.cli.tables import show, table

        show(table("", ["entry", "when", "kind", "run", "client", "by", "what"], map(cells, rows), right=[0]))
    else:
        typer.echo("No such entry")


@audit.command("export")
@remote
def export(
    connect: Connect,
    out: Annotated[Path, typer.Option(help="The file to write, one entry a line.")],
    as_json: Json = False,
) -> None:
    """Write the log to a file that only you can read. `tideline audit verify --file` checks it anywhere."""
    from tideline.client import audit as log

    with connect() as client:
        ends = log.export(client, out)
    tip, first = ends.tip, ends.base.seq + 1
    text = f"Wrote {tip.seq - first + 1} entries to {clean(str(out))}, the last with hash {tip.hash}"
    text += f". Those before entry {first} are in the archive" if first > 1 else ""
    output({"file": str(out), "entries": tip.seq, "hash": tip.hash, "from": first}, as_json, text)


def check_tip(tip: str, file: Path | None) -> None:
    """Raises ConfigRefused for a malformed hash, or one without a file."""
    if tip and file is None:
        raise ConfigRefused("--tip says where a file has to end", "Name the file with --file", path="--tip")
    if tip and not re.fullmatch("[0-9a-f]{64}", tip):
        todo = "Give all 64 digits of the hash that `tideline audit export` or `audit verify` printed"
        raise ConfigRefused(f"--tip is {tip[:80]!r}", todo, path="--tip")


def cells(entry: Entry) -> list[str]:
    details = ", ".join(f"{name} {value}" for name, value in entry.details.items() if value not in ("", None, [], {}))
    what = details if len(details) <= LONGEST else details[: LONGEST - 1] + "…"
    return [str(entry.seq), day(entry.at), entry.kind, entry.run, entry.client, entry.by, what]


def read_since(text: str) -> float | None:
    """The moment, in seconds since the epoch. Raises ConfigRefused."""
    from tideline.cli.serving import read_seconds

    if not text:
        return None
    with contextlib.suppress(ValueError, OverflowError):
        return datetime.fromisoformat(text).timestamp()
    try:
        return time.time() - read_seconds(text)
    except ConfigRefused:
        todo = "Write a number and a unit, such as 90m, 2h or 7d, or a day such as 2030-01-31"
        raise ConfigRefused(f"--since is {text!r}", todo, path="--since") from None


@remote
def restored(
    connect: Connect,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="You have seen it: end the warnings, and let agents in again.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what a database from a backup had forgotten and is in force again: revocations, new keys, used tokens."""
    with connect() as client:
        row: RestoredLine = client.get("/restored")
        if confirm:
            row = client.post("/restored/confirm")
    output(row, as_json, "\n".join(restored_lines(row, confirm)))


def restored_lines(row: RestoredLine, confirm: bool) -> Iterator[str]:
    if not row["waiting"]:
        yield "No restore of the database waits to be confirmed"
        return
    yield clean(row["warning"])
    for what, names in (
        ("agents revoked", row["clients"]),
        ("API keys revoked", row["keys"]),
        ("agents rekeyed", row["rotated"]),
    ):
        if names:
            yield f"{what}: {clean(', '.join(names))}"
    if row["lost"]:
        yield "Revoke again whom you know to be revoked: tideline clients revoke NAME, tideline keys revoke NAME"
    if confirm:
        yield "Confirmed"


@parts.command("gc")
@remote
def collect(connect: Connect, as_json: Json = False) -> None:
    """Delete the parts that no run needs, and those that a killed process left. Open runs keep theirs."""
    with connect() as client:
        swept = client.post("/parts/sweep")
    text = f"Deleted {counted(swept['dropped'], 'part')}, {size(swept['freed'])}; {swept['kept']} remain, {size(swept['bytes'])}."
    if swept["found"]:
        text += f"\n{swept['found']} were in no record; such parts are deleted an hour after they were written."
    output(swept, as_json, text)


@parts.command("verify")
@remote
def verify_parts(
    connect: Connect,
    repair: Annotated[
        bool, typer.Option("--repair", help="Make again what runs need, delete what none does, and say what is lost.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Read every part, and put aside those that are damaged. Runs go on meanwhile."""
    seen: dict[str, Any] = {"checked": 0, "bytes": 0, "damaged": [], "aside": [], "mended": [], "cleared": [], "lost": []}
    with connect() as client:
        after = ""
        while True:
            found = client.post(f"/parts/verify?{urlencode({'after': after, 'repair': str(repair).lower()})}")
            seen = {
                name: found[name] if name in ("aside", "mended", "cleared", "lost") else seen[name] + found[name] for name in seen
            }
            if not (after := found["after"]):
                break
    output(seen, as_json, words_of(seen))
    if seen["aside"]:
        raise typer.Exit(UNSOUND)


def words_of(seen: Mapping[str, Any]) -> str:
    """What a look at all parts found."""
    lines = [f"Read {counted(seen['checked'], 'part')}, {size(seen['bytes'])}: {len(seen['damaged']) or 'none'} damaged."]
    lines += [f"{digest} was made again." for digest in seen["mended"]]
    lines += [f"{digest} was damaged, and no run needs it: what lay of it was deleted." for digest in seen["cleared"]]
    lines += [f"{digest} is damaged, and was put aside." for digest in seen["aside"]]
    return "\n".join([*lines, *seen["lost"]])
