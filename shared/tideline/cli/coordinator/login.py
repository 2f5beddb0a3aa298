"""The commands that keep a key for later commands, and forget it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tideline.cli.guard import clean, say_json
from tideline.cli.options import Authority, Json

URL = typer.Option("--url", envvar="TIDELINE_URL", help="The coordinator's HTTP address.")


def login(
    url: Annotated[str, URL],
    ca: Authority = None,
    key_stdin: Annotated[bool, typer.Option("--key-stdin", help="Take the key from stdin instead of the terminal.")] = False,
    as_json: Json = False,
) -> None:
    """Keep a key for a coordinator, so that later commands need none. It is asked for without echo, and tried."""
    from tideline.cli.options import Door
    from tideline.client.http import Client, host_of, is_loopback
    from tideline.client.logins import Login, address, as_told, keep, place

    at = address(url)
    if at.startswith("http://") and not is_loopback(host_of(at)):
        typer.echo(f"Note: without TLS the key for {clean(at)} can be read on the way", err=True)
    authority = None if ca is None else ca.expanduser().absolute()
    key = read_key(key_stdin)
    with Client.of(Door(url=at, api_key=key, ca=authority)) as there:
        who = there.get("/whoami")
    made = Login(key, who["name"], who["role"], str(authority or ""))
    keep(at, made)
    if as_json:
        say_json({"url": at, "file": str(place())} | as_told(made))
    else:
        typer.echo(f"Logged in to {at} as {clean(made.name)}, {made.role}. The key lies in {place()}")


def logout(url: Annotated[str, URL], as_json: Json = False) -> None:
    """Forget the key that is kept for a coordinator. The key itself goes on to be good: `tideline keys revoke` ends it."""
    from tideline.client.logins import address, drop, place

    drop(address(url))
    if as_json:
        say_json({"url": address(url), "file": str(place())})
    else:
        typer.echo(f"No key is kept for {address(url)} any more")


def read_key(from_stdin: bool) -> str:
    """The key that a person types or a program sends. Raises ConfigRefused."""
    from tideline.core.errors import ConfigRefused

    if from_stdin:
        key = sys.stdin.readline(4096).strip()
    elif sys.stdin.isatty():
        key = str(typer.prompt("Key", hide_input=True, err=True)).strip()
    else:
        raise ConfigRefused("There is no terminal to ask for the key on", "Send it on stdin, with --key-stdin")
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigRefused("What was given is no key", "Give the key as it was printed, in one line", path="key")
    return key
