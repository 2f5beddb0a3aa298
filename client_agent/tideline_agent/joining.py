"""Enrols an agent and ends: what is known afterwards lies in its home."""

from __future__ import annotations

import contextlib
import threading

from tideline.engine.process.private import for_the_owner_alone
from tideline_agent.discovery import find, introduced, note
from tideline_agent.home import identity
from tideline_agent.home.identity import only_one
from tideline_agent.home.seen import SeenFile
from tideline_agent.link import GrpcLink
from tideline_agent.main import away, enrol, patiently
from tideline_agent.policy_file import read_policy
from tideline_agent.settings import AgentSettings, check


def enrolled(settings: AgentSettings) -> str:
    """The agent's standing at the coordinator: approved, pending or doubled. Raises as an agent's start does."""
    check(settings)
    read_policy(settings.policy)
    for_the_owner_alone()
    stop = threading.Event()
    with only_one(settings.folder):
        keys = identity.keys(settings.folder)
        endpoints = introduced(find(settings), lambda fetch: patiently(fetch, settings.wait, stop))
        link = GrpcLink(
            endpoints=endpoints,
            name=settings.name,
            keys=keys,
            stop=stop,
            away=away,
            seen=SeenFile(settings.folder),
            session=str(identity.new_session(settings.folder)),
            bulk=False,
        )
        with contextlib.closing(link):
            standing = str(enrol(link, settings, keys).standing)
        note(settings, endpoints)
    return standing
