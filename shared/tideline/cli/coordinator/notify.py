"""Commands about targets of notices: who hears of runs and of the coordinator without asking."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from tideline.cli.guard import group_of, output, print_json
from tideline.cli.options import Connect, Json, remote
from tideline.client.answers import TargetAdded, TargetLine, TargetTested
from tideline.client.output import clean, day
from tideline.core.errors import Unreachable
from tideline.core.settings import read_scalar
from tideline.engine.model.notices import Form, Kind

app = group_of("Have people notified by webhooks and e-mail when runs stall, fail or complete, and of what needs them.")
TargetName = Annotated[str, typer.Argument(metavar="NAME", help="The target's name, see `tideline notify list`.")]
WORDS = ", ".join(kind.value for kind in Kind if kind is not Kind.TEST)


@app.command("add")
@remote
def add(
    connect: Connect,
    address: Annotated[str, typer.Argument(metavar="URL", help="https://HOST/PATH of a webhook, or mailto:NAME@HOST.")],
    on: Annotated[str, typer.Option("--on", metavar="KIND,...", help=f"What is sent, some of: {WORDS}.")],
    form: Annotated[str | None, typer.Option(metavar="FORM", help="json, slack or teams. [default: json]")] = None,
    name: Annotated[str, typer.Option(help="Its name. [default: its host, or who gets the mail]")] = "",
    as_json: Json = False,
) -> None:
    """Add a target of the project's notices, or without a project of all. The secret that signs them is shown once."""
    kinds = [read_scalar(Kind, word.strip(), "--on").value for word in on.split(",") if word.strip()]
    body: dict[str, object] = {"url": address, "on": kinds, "name": name}
    if form is not None:
        body["form"] = read_scalar(Form, form, "--form").value
    with connect() as client:
        row: TargetAdded = client.post("/notify", body)
    whose = f"the project {row['project']}" if row["project"] else "all projects"
    text = f"{row['name']} gets notices of {whose}: {', '.join(row['on'])}. Try it: tideline notify test {row['name']}"
    secret = f"\nTheir signatures are made with this secret, which is not shown again: {row['secret']}" if row["secret"] else ""
    output(row, as_json, text + secret)


@app.command("list")
@remote
def list_targets(connect: Connect, as_json: Json = False) -> None:
    """List the targets that you see, and how the last try of each went."""
    with connect() as client:
        rows: list[TargetLine] = client.get("/notify")
    if as_json:
        print_json(rows)
        return
    from tideline.cli.tables import show, table

    show(table("", ["name", "project", "to", "form", "on", "last sent", "state"], map(cells, rows)))


@app.command("remove")
@remote
def remove(connect: Connect, name: TargetName, as_json: Json = False) -> None:
    """Remove a target. What waits for it is not sent."""
    with connect() as client:
        row: TargetLine = client.delete(f"/notify/{quote(name, safe='')}")
    output(row, as_json, f"{row['name']} gets no more notices")


@app.command("test")
@remote
def test(connect: Connect, name: TargetName, as_json: Json = False) -> None:
    """Send a notice that says it is a test, and show how that went. Ends with 3 if it was not taken."""
    with connect() as client:
        row: TargetTested = client.post(f"/notify/{quote(name, safe='')}/test")
    if not row["taken"]:
        todo = "Check the address and its receiver; notices are tried again for a day, a test is not"
        raise Unreachable(f"{name} did not take the test: {row['words']}", todo)
    output(row, as_json, f"{name} took it: {clean(row['words'])}")


def cells(row: TargetLine) -> list[str]:
    sent = day(row["last_sent"]) if row["last_sent"] else "-"
    state = f"gone since {day(row['ended'])}" if row["ended"] else clean(row["reason"]) or "good"
    more = f"; {row['left_out']} left out" if row["left_out"] else ""
    return [row["name"], row["project"] or "all", clean(row["to"]), row["form"], ", ".join(row["on"]), sent, state + more]
