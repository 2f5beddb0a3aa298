"""Commands about who may use a coordinator: its agents, API keys, and the logins saved on this machine."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from tideline.cli.guard import group_of, output, print_json
from tideline.cli.options import Authority, Connect, Json, Project, remote
from tideline.client.answers import ClientLine, KeyLine, SessionLine, Whoami
from tideline.client.output import clean, day, warn
from tideline.core.errors import ConfigRefused, FederationError
from tideline.engine.model.access.projects import ALL, DEFAULT, SEVERAL

if TYPE_CHECKING:
    from tideline.client.logins import Login

clients = group_of("See which agents are enrolled, approve them, revoke them, or ask them for new keys.")
keys = group_of("Make API keys for users, and revoke them.")
sessions = group_of("See which browsers are signed in, and end their sessions.")
BEHIND = (
    "have not told this coordinator, in the last 90 seconds, that they have taken up the addresses and authorities that are "
    "announced: they call another coordinator, are away or too old, or their owners pin addresses"
)
ROLES = "What the key allows: viewer (look), operator (run experiments, let agents in) or admin (everything)."
ClientName = Annotated[str, typer.Argument(metavar="NAME", help="The client's name, see `tideline clients list`.")]
KeyName = Annotated[str, typer.Argument(metavar="NAME", help="The key's name, see `tideline keys list`.")]
LoginUrl = Annotated[str, typer.Option("--url", envvar="TIDELINE_URL", help="The coordinator's HTTP address.")]


@clients.command("list")
@remote
def list_clients(connect: Connect, as_json: Json = False) -> None:
    """List the enrolled agents: standing, key fingerprint, roles, labels, and when each was last seen."""
    from tideline.client.warnings import show_warnings

    with connect() as client:
        rows: list[ClientLine] = client.get("/clients")
        show_warnings(client)
    if as_json:
        print_json(rows)
    elif rows:
        from tideline.cli.tables import show, table

        columns = ["name", "standing", "fingerprint", "roles", "labels", "projects", "version", "last heard"]
        show(table("", columns, map(client_cells, rows)))
        for row in rows:
            if row["standing"] == "revoked":
                typer.echo(f"{row['name']}: revoked on {utc(row['revoked'])}{': ' if row['reason'] else ''}{row['reason']}")
            if row["standing"] == "doubled":
                typer.echo(clean(doubled(row)))
            if row["ledger_now"] is not None:
                typer.echo(clean(ledger_differs(row)))
        behind = [row["name"] for row in rows if row["standing"] == "approved" and row.get("follows") is False]
        if behind:
            typer.echo(clean(f"{', '.join(behind)} {BEHIND}"))
    else:
        typer.echo("No agent is enrolled. Invite one: tideline invite --name NAME")


@clients.command("approve")
@remote
def approve(
    connect: Connect,
    name: ClientName,
    session: Annotated[str, typer.Option(help="Of a doubled agent: the session that goes on, as its log names it.")] = "",
    as_json: Json = False,
) -> None:
    """Let an agent work that was invited with --hold, or one session of a doubled one. First compare with what its log says."""
    change_client(connect, f"{quote(name, safe='')}/approve", {"session": session} if session else None, as_json, "approved")


@clients.command("revoke")
@remote
def revoke_client(
    connect: Connect,
    name: ClientName,
    reason: Annotated[str, typer.Option(help="Sent to the agent, and shown in the results of its runs.")] = "",
    as_json: Json = False,
) -> None:
    """Lock an agent out. Its open work fails, and its runs continue with their quorum or stall."""
    change_client(connect, f"{quote(name, safe='')}/revoke", {"reason": reason}, as_json, "revoked")


@clients.command("assign")
@remote
def assign(
    connect: Connect,
    name: ClientName,
    projects: Annotated[list[str], typer.Argument(metavar="PROJECT...", help="All projects that it is to serve.")],
    as_json: Json = False,
) -> None:
    """Say which projects an agent serves. Runs of others ask it for nothing from then on; those that it joined go on."""
    with connect() as client:
        row: ClientLine = client.post(f"/clients/{quote(name, safe='')}/projects", {"projects": projects})
    output(row, as_json, f"{row['name']} serves {', '.join(row['projects'])}")


@clients.command("rotate")
@remote
def rotate(connect: Connect, name: ClientName, as_json: Json = False) -> None:
    """Ask an agent for new keys. It makes them when it next contacts the coordinator."""
    change_client(connect, f"{quote(name, safe='')}/rotate", None, as_json, "asked for new keys")


def change_client(connect: Connect, path: str, body: dict[str, str] | None, as_json: bool, verb: str) -> None:
    with connect() as client:
        row: ClientLine = client.post(f"/clients/{path}", body)
    output(row, as_json, f"{row['name']} is {verb}, fingerprint {row['fingerprint']}")


def client_cells(row: ClientLine) -> list[str]:
    labels = ",".join(f"{key}={value}" for key, value in sorted(row["labels"].items()))
    standing = row["standing"] + (", new keys awaited" if row["rotate"] else "")
    cells = [row["name"], standing, row["fingerprint"], ", ".join(row["roles"]), labels]
    return [*cells, ", ".join(row["projects"]), row["version"], utc(row["seen"])]


def doubled(row: ClientLine) -> str:
    """Which sessions there are of a doubled agent, and how one goes on."""
    sessions = [each for each in row["doubles"] if each]
    command = f"tideline clients approve {row['name']} --session SESSION"
    return (
        f"{row['name']}: two agents showed its keys, or one whose home is older than it was: sessions {', '.join(sessions)}. "
        f"Stop the copy; the log of the right agent names its session, then: {command}"
    )


def ledger_differs(row: ClientLine) -> str:
    """What is wrong with an agent's ledger, and who ends it."""
    now, reported = row["ledger_now"] or 0, row["ledger_entries"] or 0
    what = f"has {now} entries, and had {reported}" if now < reported else f"has another entry {reported} than it had"
    return (
        f"{row['name']}: its ledger {what}, with the hash {row['ledger_hash']}. Ask the site's owner, who brings it back, or "
        "goes on without what is gone: tideline site ledger accept"
    )


def utc(seconds: float) -> str:
    """A moment to the minute, in UTC: the same for everybody who compares notes."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


@keys.command("add")
@remote
def add(
    connect: Connect,
    name: Annotated[str, typer.Option(help="The user's name in lists and events.")],
    role: Annotated[str, typer.Option(help=ROLES)],
    ttl: Annotated[str | None, typer.Option(help="How long the key is valid: 30m, 1h, 90d. [default: until revoked]")] = None,
    as_json: Json = False,
) -> None:
    """Make an API key. It is shown only once; the coordinator stores a hash of it."""
    from tideline.cli.serving import read_seconds

    body = {"name": name, "role": role, "ttl_seconds": None if ttl is None else read_seconds(ttl)}
    with connect() as client:
        body |= {"project": ALL} if client.project == ALL else {}
        made = client.post("/keys", body)
    until = f", until {day(made['expires'])}" if made["expires"] else ""
    where = "" if made["project"] == DEFAULT or made["role"] == "admin" else f" in {made['project'] or 'all projects'}"
    whose = f"{clean(made['name'])}, {made['role']}{where}"
    key = f"Key of {whose}{until}; it is not shown again:\n\n  {made['key']}\n"
    output(made, as_json, f"{key}\nIts user saves it with:\n\n  tideline login --url {client.base_url}")


@keys.command("list")
@remote
def list_keys(connect: Connect, as_json: Json = False) -> None:
    """List the API keys, oldest first: names, roles, when each was last used, and whether it is valid."""
    with connect() as client:
        rows: list[KeyLine] = client.get("/keys")
    if as_json:
        print_json(rows)
        return
    from tideline.cli.tables import show, table

    show(table("", ["name", "role", "project", "made", "by", "last used", "state"], map(key_cells, rows)))


@keys.command("revoke")
@remote
def revoke_key(connect: Connect, name: KeyName, as_json: Json = False) -> None:
    """Revoke an API key. It stops working, at replicas within five seconds, and its name is free again."""
    with connect() as client:
        row: KeyLine = client.delete(f"/keys/{quote(name, safe='')}")
    output(row, as_json, f"The key of {clean(row['name'])} is revoked")


def key_cells(row: KeyLine) -> list[str]:
    state = f"revoked {day(row['revoked'])}" if row["revoked"] else f"until {day(row['expires'])}" if row["expires"] else "valid"
    used = day(row["last_used"]) if row["last_used"] else "-"
    return [row["name"], row["role"], row["project"] or ALL, day(row["created"]), row["created_by"] or "-", used, state]


@sessions.command("list")
@remote
def list_sessions(connect: Connect, as_json: Json = False) -> None:
    """List the sessions of users who signed in with a browser, oldest first, also those that ended within the last week."""
    with connect() as client:
        rows: list[SessionLine] = client.get("/sessions")
    if as_json:
        print_json(rows)
        return
    from tideline.cli.tables import show, table

    show(table("", ["id", "user", "began", "last used", "state"], map(session_cells, rows)))


@sessions.command("revoke")
@remote
def revoke_session(
    connect: Connect,
    session: Annotated[str, typer.Argument(metavar="ID", help="The session's id, see `tideline sessions list`.")],
    as_json: Json = False,
) -> None:
    """End a session, at once and at every replica. Who had it may sign in again: see the provider, or revoke the key."""
    with connect() as client:
        row: SessionLine = client.delete(f"/sessions/{quote(session, safe='')}")
    output(row, as_json, f"The session of {clean(row['name'])} has ended")


def session_cells(row: SessionLine) -> list[str]:
    state = f"ended {utc(row['ended'])}" if row["ended"] else f"until {utc(row['expires'])}"
    return [row["id"], clean(row["name"]), utc(row["created"]), utc(row["last_used"]) if row["last_used"] else "-", state]


def login(
    url: LoginUrl,
    ca: Authority = None,
    project: Project = None,
    key_stdin: Annotated[bool, typer.Option("--key-stdin", help="Read the key from stdin instead of the terminal.")] = False,
    oidc: Annotated[
        bool, typer.Option("--oidc", help="Sign in with the coordinator's provider, in a browser on any device.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Save your API key for a coordinator, so that later commands need none. You type it without echo; it is tried first.

    With --oidc you sign in with a browser instead, and what is saved is renewed by itself.
    """
    from dataclasses import replace

    from tideline.client.http import Client, Endpoint, host_of, is_loopback
    from tideline.client.logins import Login, address, file_of_logins, save

    at = address(url)
    if at.startswith("http://") and not is_loopback(host_of(at)):
        warn(f"Note: without TLS, others can read the key for {at} on its way")
    authority = None if ca is None else ca.expanduser().absolute()
    login = signed_in(at, authority) if oidc else Login(read_key(key_stdin), ca=str(authority or ""))
    with Client.of(Endpoint(url=at, api_key=login.key, ca=authority, project=project or "")) as client:
        who = client.get("/whoami")
    save(at, replace(login, name=who["name"], role=who["role"], project=project or ""))
    public = {"name": who["name"], "role": who["role"], "ca": login.ca, "project": project or "", "issuer": login.issuer}
    words = f"Logged in to {at} as {clean(who['name'])}, {roles_of(who)}. The key is saved in {file_of_logins()}"
    output({"url": at, "file": str(file_of_logins()), **public}, as_json, words)


def roles_of(who: Whoami) -> str:
    """A caller's role and project; of a user of several, each."""
    if who["project"] == SEVERAL:
        each = ", ".join(f"{grant['role']} in {grant['project']}" for grant in who["grants"])
        return f"{each}: name the project of a command with --project"
    return who["role"] + (f" in the project {who['project']}" if who["project"] else "")


def signed_in(at: str, authority: Path | None) -> Login:
    """A login by the coordinator's provider. Raises IdentityRefused, Refused, Unreachable."""
    from tideline.client.http import Client
    from tideline.client.sign_in import Device, Way, log_in

    with Client(at, None, source="--url or TIDELINE_URL", ca=authority) as client:
        way = Way.of(client.get("/sign-in"), at)

    def show(device: Device) -> None:
        warn(f"Sign in with {way.issuer}: open this address in a browser, on this device or another, and type the code")
        warn(f"  {device.page}   code {device.user_code}")
        if device.whole_page:
            warn(f"or open the address with the code in it: {device.whole_page}")

    return log_in(way, authority, show)


def logout(url: LoginUrl, as_json: Json = False) -> None:
    """Delete your saved API key for a coordinator. The key itself stays valid: `tideline keys revoke` ends it.

    A sign-in with --oidc is ended at its provider, too.
    """
    from tideline.client.logins import address, drop, file_of_logins, logins
    from tideline.client.sign_in import revoke

    login = logins().get(address(url))
    drop(address(url))
    if login is not None and login.issuer:
        try:
            if not revoke(login):
                warn(f"Note: {login.issuer} has no address that ends a sign-in; it ends by itself")
        except FederationError as error:
            warn(f"Note: the sign-in was not ended at its provider: {error}")
    output({"url": address(url), "file": str(file_of_logins())}, as_json, f"No key is saved for {address(url)} any more")


def read_key(from_stdin: bool) -> str:
    """The key, from the terminal or from stdin. Raises ConfigRefused."""
    if from_stdin:
        key = sys.stdin.readline(4096).strip()
    elif sys.stdin.isatty():
        key = str(typer.prompt("Key", hide_input=True, err=True)).strip()
    else:
        raise ConfigRefused("There is no terminal to ask for the key on", "Send it on stdin, with --key-stdin")
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigRefused("This is not a key", "Give the key as it was printed, in one line", path="key")
    return key
