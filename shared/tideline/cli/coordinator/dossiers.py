"""Commands about dossiers: get one, verify one, show the key that signs them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tideline.cli.coordinator.runs import quoted
from tideline.cli.guard import group_of, output
from tideline.cli.options import Connect, Json, RunId, remote
from tideline.client.output import clean, counted, day, size
from tideline.core.settings import Plain

if TYPE_CHECKING:
    from tideline.dossier.verifying import Dossier

app = group_of("Verify signed dossiers of runs, and show the key that signs them.")
SignerGiven = Annotated[
    str,
    typer.Option(
        "--signer", metavar="FINGERPRINT", help="The key that must have signed it, as the coordinator's admin told you."
    ),
]


@remote
def dossier(
    connect: Connect,
    run: RunId,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write: .zip.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    signer: SignerGiven = "",
    as_json: Json = False,
) -> None:
    """Save a run's dossier: one signed file for whoever is responsible for the protection of its data."""
    from tideline.client import dossiers
    from tideline.dossier.signing import read_fingerprint
    from tideline.dossier.verifying import verify

    found: list[Dossier] = []
    wanted = read_fingerprint(signer) if signer else ""
    with connect() as client:
        nbytes = dossiers.save(client, quoted(run), out, force, lambda path: found.append(verify(path, wanted)))
    (made,) = found
    lines = (
        f"Wrote {clean(str(out))}, {size(nbytes)}: {about(made)}",
        f"Signed by {made.signer}. Give this fingerprint to who verifies it, by another way than the file",
    )
    output({"file": str(out), "bytes": nbytes, **as_data(made)}, as_json, "\n".join(lines))


@app.command("verify")
def verify_dossier(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The dossier, as `tideline run dossier` wrote it.")],
    signer: SignerGiven = "",
    log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also hold it to this export of the audit log, or to the files in this folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check every byte of a dossier, its signature, and the audit log's hashes in it. Needs no coordinator and no network."""
    from tideline.dossier.signing import read_fingerprint
    from tideline.dossier.verifying import verify

    found = verify(file, read_fingerprint(signer) if signer else "")
    held, lines = None, lines_of(found)
    if log is not None:
        held = in_log(found, log)
        lines.append(f"{clean(str(log))} is whole, and has {held} of the {len(found.places)} hashes that the dossier names")
    output({**as_data(found), "in_log": held}, as_json, "\n".join(lines))


def in_log(found: Dossier, log: Path) -> int:
    """How many of the entries that a dossier names a log has. Raises ChainBroken for a log that is not whole, DossierBroken."""
    from tideline.client.audit import places_in, verify_file
    from tideline.dossier.verifying import hold_to

    verify_file(log)
    return hold_to(found, places_in(log), str(log))


@app.command("signer")
@remote
def show_signer(connect: Connect, as_json: Json = False) -> None:
    """Show the key that signs the coordinator's dossiers: its fingerprint is what others verify them by."""
    from tideline.client.dossiers import SignerLine

    with connect() as client:
        row: SignerLine = client.get("/signer")
    since = "It has signed nothing yet"
    if row["introduced"] is not None:
        since = f"The audit log tells of it in entry {row['entry']}, from {day(row['introduced'])}"
    output(row, as_json, clean(row["fingerprint"]) + f"\n{since}\n" + "\n".join(map(clean, row["pem"].split("\n"))).strip())


def lines_of(found: Dossier) -> list[str]:
    """What was verified, for people."""
    head = found.heads["head"]
    if found.trusted:
        signed = f"Signed by {found.signer}, the key that you named"
    else:
        signed = (
            f"Only its consistency was checked, with the key that is in it: {found.signer}. Anybody can make a file like this."
            " Say --signer FINGERPRINT, as the coordinator's admin told you by another way"
        )
    lines = [f"The dossier is valid: {about(found)}", signed]
    entries, replies = counted(found.entries, "entry", "entries"), counted(found.replies, "reply", "replies")
    lines.append(f"{entries} of the audit log, whose hashes fit, and {replies}")
    if not found.heads["whole"]:
        lines.append("The run's first entries are in the log's archive, and not in the dossier")
    if head:
        lines.append(f"The log ended with entry {head['seq']} then, with hash {clean(str(head['hash']))}")
    return lines


def about(found: Dossier) -> str:
    """Which run, how far, as of when."""
    run = found.run
    state = clean(str(run["status"])) + ("" if run["finished"] else ", which has not ended")
    return f"run {clean(str(run['run']))} ({clean(str(run['name']))}), {state}; as of {clean(str(run['as_of']['utc']))}"


def as_data(found: Dossier) -> dict[str, Plain]:
    run = found.run
    return {
        "run": run["run"],
        "name": run["name"],
        "status": run["status"],
        "finished": run["finished"],
        "as_of": run["as_of"],
        "signer": found.signer,
        "trusted": found.trusted,
        "entries": found.entries,
        "replies": found.replies,
        "whole": found.heads["whole"],
        "head": found.heads["head"],
    }
