"""The policy that a home's agent obeys: `policy.json`, written at each start, for the owner's commands.

The agent reads its policy file once. What the owner has changed since holds from the next start on, so the text that is in force
is kept, not only its place.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tideline.core.errors import ConfigRefused
from tideline_agent.home.identity import write
from tideline_agent.policy_file import SitePolicy, policy_digest, policy_in, policy_text

FILE = "policy.json"


@dataclass(frozen=True)
class Judge:
    """A policy, and in words whose it is: the line with which an owner is told by what was judged."""

    policy: SitePolicy
    words: str


def obey(home: Path, path: Path | None, text: str) -> SitePolicy:
    """The policy of a file's text, and a note of it in the home. Raises ConfigRefused."""
    policy = policy_in(path, text)
    home.mkdir(parents=True, exist_ok=True)
    facts = {"path": None if path is None else str(path.resolve()), "digest": policy_digest(policy), "text": text}
    write(home / FILE, json.dumps(facts).encode())
    return policy


def in_force(home: Path) -> Judge:
    """The policy that the home's agent obeys, as it was when it started. Raises ConfigRefused for a note that is damaged."""
    try:
        raw = json.loads((home / FILE).read_text(encoding="utf-8"))
        path, text, digest = None if raw["path"] is None else Path(raw["path"]), str(raw["text"]), str(raw["digest"])
    except FileNotFoundError:
        return Judge(SitePolicy(), "the built-in policy, for no agent has noted in this home which one it obeys")
    except (OSError, ValueError, KeyError, TypeError):
        todo = "Start the agent again, which writes it anew, or name the policy: --policy FILE"
        raise ConfigRefused(f"{home / FILE} cannot be read", todo, path="policy") from None
    policy = policy_in(path, text)
    if policy_digest(policy) != digest:
        todo = "Start the agent again with this version, or name the policy: --policy FILE"
        raise ConfigRefused(f"{home / FILE} was written by an agent that reads policies in another way", todo, path="policy")
    if path is None:
        return Judge(policy, "the built-in policy, which the agent obeys")
    return Judge(policy, f"the policy {path}, which the agent obeys{since(path, text)}")


def since(path: Path, text: str) -> str:
    """What has become of a policy file since its agent started, in words; nothing where it is as it was."""
    try:
        changed = policy_text(path) != text
    except ConfigRefused:
        return " as it was when it started; the file is gone, or cannot be read"
    return " as it was when it started; the file has changed since, which holds from the next start on" if changed else ""
