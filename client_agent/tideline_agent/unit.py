"""A systemd unit that runs an agent which has enrolled: hardened, and without any secret in it."""

from __future__ import annotations

import dataclasses
import getpass
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tideline.core.errors import ConfigRefused
from tideline.learning.sites.named import place_in
from tideline_agent.settings import AgentSettings

KNOWN = ("coordinator", "ca", "rotate")  # what the home knows once the agent has enrolled, or is done once
VARIABLES = "agent.env"  # in the home: variables for the agent, such as HTTPS_PROXY with a password
REFUSED = 2  # the exit code of an agent that would be refused again
UNIT = """\
# Written by `tideline join --service`. The agent's keys and the coordinator's address lie in its home.
[Unit]
Description=Tideline agent {name}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart={command}
EnvironmentFile=-{home}/{variables}
User={user}
Restart=always
RestartSec=5
RestartPreventExitStatus={refused}
KillMode=mixed
TimeoutStopSec=30
UMask=0077

ReadWritePaths={writable}
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
RestrictSUIDSGID=yes
RestrictRealtime=yes
RestrictNamespaces=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
LockPersonality=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
SystemCallArchitectures=native
{devices}
[Install]
WantedBy=multi-user.target
"""
NO_GPU = "PrivateDevices=yes\n"


def unit_of(settings: AgentSettings) -> str:
    """The unit. Raises ConfigRefused for a proxy with a password, which any user of the machine could read there."""
    if "@" in urlsplit(settings.proxy).netloc:
        what = "--proxy holds a password, and any user of this machine can read a unit"
        todo = (
            f"Write HTTPS_PROXY=... into {settings.folder / VARIABLES} (mode 600), which the service reads, and set it here too"
        )
        raise ConfigRefused(what, todo, path="proxy")
    return UNIT.format(
        name=settings.name,
        command=" ".join(quoted(each) for each in command_of(settings)),
        home=escaped(str(settings.folder.absolute())),
        writable=one_word(escaped(str(settings.folder.absolute()))),
        variables=VARIABLES,
        user=getpass.getuser(),
        refused=REFUSED,
        devices=NO_GPU if settings.device == "cpu" else "",
    )


def command_of(settings: AgentSettings) -> Iterator[str]:
    """The agent's command, every path from the root on."""
    yield from (sys.executable, "-m", "tideline", "agent", "--name", settings.name)
    for role in settings.roles:
        yield from ("--role", role.value)
    yield from ("--home", str(settings.folder.absolute()))
    for field in dataclasses.fields(AgentSettings):
        value = getattr(settings, field.name)
        named = field.metadata.get("doc") and field.name not in (*KNOWN, "name", "home")
        if named and value != field.default:
            yield from option(f"--{field.name.replace('_', '-')}", value)
    if not settings.notes:
        yield "--no-notes"


def option(name: str, value: Any) -> Iterator[str]:
    """An option with its value, as it is typed."""
    if value is True:
        yield name
    elif isinstance(value, tuple):
        for each in value:
            yield from option(name, each)
    elif value not in (None, False, ""):
        yield from (name, written(value))


def written(value: Any) -> str:
    if isinstance(value, Path):
        return str(value) if place_in(value) is not None else str(value.expanduser().absolute())
    return str(value.value) if isinstance(value, Enum) else str(value)


def quoted(word: str) -> str:
    """A word of a command as systemd reads it."""
    return one_word(escaped(word).replace("$", "$$"))


def one_word(plain: str) -> str:
    """As one word where words are split at spaces."""
    return plain if plain and not set(plain) & set(" \t\"';\\") else '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def escaped(text: str) -> str:
    """Without what systemd would put something else in the place of. Raises ConfigRefused for what no unit can hold."""
    if not text.isprintable():
        raise ConfigRefused(f"A unit cannot hold {text!r}", "Use paths and names that can be printed")
    return text.replace("%", "%%")
