"""An agent's vault on disk: for each run a folder with its parts and a head, replaced by one rename.

RUN/head.json   order, cursor, memory, reply: what was last done and must not be done twice
RUN/run.json    what the run is: method, settings, world, role
RUN/parts/      files of the order at hand, of memory and of the reply

Both JSON files have a second line, the digest of the first: what was changed since it was written is not believed. The head,
without which nobody can make use of the rest, has both lines twice: one copy is enough.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from tideline.archive.digests import digest_of
from tideline.archive.folder import FolderParts, room, sync
from tideline.archive.layout import handle_in, handle_node
from tideline.core.errors import Malformed, MemoryLost, NotFound
from tideline.core.run import ClientId, Digest, OrderId, RunId
from tideline.core.settings import Plain, plain
from tideline.engine.model.access.spending import Spent
from tideline.engine.model.orders import Envelope, Files
from tideline.engine.ports.site import Best, Head
from tideline.engine.site.agent import collect

MAX_RUN_BYTES = 255  # of a run's name, which is a folder's
KEPT_RUNS = 64  # runs whose folders stay open to us; an agent serves a few at once, and thousands in its life


class RunBrief(TypedDict):
    """What a run is, as its orders say and `run.json` keeps: of its keys, those that are read again."""

    method: str
    role: str
    config: dict[str, Plain]
    world: dict[str, Plain]
    scoring: NotRequired[dict[str, Plain]]
    base: NotRequired[str]
    intent: NotRequired[dict[str, Plain]]
    secure_sums: NotRequired[dict[str, Plain]]


class FolderVault:
    """The port Vault. Memory survives a power cut (fsync); files that can be fetched or computed again need not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._parts: dict[RunId, FolderParts] = {}

    def path(self, run: RunId) -> Path:
        """A run's folder. Raises Malformed for a name that leads elsewhere: the coordinator chose it."""
        leads_elsewhere = not run or run.startswith(".") or Path(run).name != run
        if leads_elsewhere or not run.isprintable() or len(run.encode()) > MAX_RUN_BYTES:
            raise Malformed(f"{run[:80]!r} cannot name a run", "The coordinator is not to be trusted")
        return self.folder / run

    def parts(self, run: RunId) -> FolderParts:
        parts = self._parts.get(run)
        if parts is None or not parts.folder.exists():  # the site's owner may have had the run forgotten
            parts = FolderParts(self.path(run) / "parts", durable=False)
            self._parts = dict([*self._parts.items(), (run, parts)][-KEPT_RUNS:])
        return parts

    def head(self, run: RunId) -> Head | None:
        try:
            raw = read_checked(self.path(run) / "head.json")
        except FileNotFoundError:
            return None
        except ValueError:
            what = (
                f"The vault's record of run {run} is damaged: runs/{run}/head.json in the agent's home is not as it was written"
            )
            raise MemoryLost(what, "Restore the agent's home directory, or begin the run again") from None
        files = {
            k: tuple((Digest(d), int(n)) for d, n in raw.get(k) or ())
            for k in ("memory", "reply", "asked", "own", "outputs", "unsent", "sum_state")
        }
        return Head(
            order=OrderId(raw["order"]),
            cursor=raw["cursor"],
            memory=files["memory"],
            reply=files["reply"],
            metrics=raw["metrics"],
            facts=raw["facts"],
            asked=None if raw.get("asked") is None else files["asked"],
            sealed=tuple(map(envelope_in, raw.get("sealed", ()))),
            peers=None if raw.get("peers") is None else tuple(map(ClientId, raw["peers"])),
            own=files["own"],
            best=None if raw.get("best") is None else best_in(raw["best"]),
            outputs=files["outputs"],
            rowless=raw.get("rowless", False),
            unsent=files["unsent"],
            spent=None if raw.get("spent") is None else Spent(**raw["spent"]),
            sum_state=files["sum_state"],
        )

    def commit(self, run: RunId, head: Head) -> None:
        path = self.path(run) / "head.json"
        temporary = path.with_suffix(".tmp")
        with room(temporary):
            self.sync_memory(run, head)
        sealed = [{**plain(each), "handle": handle_node(each.handle)} for each in head.sealed]
        with room(temporary), temporary.open("w") as file:
            file.write(2 * with_digest(json.dumps({**plain(head), "sealed": sealed})))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync(path.parent)

    def sync_memory(self, run: RunId, head: Head) -> None:
        """fsync the files of what stays, and those of values that it sealed, which the last head did not have."""
        before = self.head(run)
        safe = {digest for digest, _ in (*before.stays, *before.own)} if before else set()
        parts = self.parts(run)
        for digest, _ in dict.fromkeys((*head.memory, *head.outputs, *head.unsent, *head.own, *head.sum_state)):
            if digest not in safe:
                sync(parts.path(digest))
                sync(parts.path(digest).parent)

    def collect(self, run: RunId, files: Files) -> None:
        parts, head = self.parts(run), self.head(run)
        parts.sweep()
        collect(parts, head, files)
        if head is not None and head.rowless:
            parts.sweep()  # no spare file has rows either

    def note(self, run: RunId, brief: Mapping[str, Plain]) -> None:
        path, text = self.path(run) / "run.json", with_digest(json.dumps(dict(brief)))
        if path.exists() and path.read_bytes() == text.encode():
            return
        temporary = path.with_suffix(".tmp")
        with room(temporary):
            temporary.write_text(text)
        temporary.replace(path)

    def brief(self, run: RunId) -> RunBrief:
        """What a run is. Raises NotFound for one that this site has not taken part in."""
        try:
            return cast(RunBrief, read_checked(self.path(run) / "run.json"))
        except FileNotFoundError:
            raise NotFound(f"This site remembers no run {run}", "See `tideline site list`") from None
        except ValueError:
            what = f"What this site remembers of run {run} is damaged: runs/{run}/run.json in the agent's home"
            raise NotFound(what, "Restore that file; an open run's next order writes it again") from None

    def runs(self) -> tuple[RunId, ...]:
        return tuple(RunId(f.parent.name) for f in sorted(self.folder.glob("*/head.json")))


def with_digest(text: str) -> str:
    """A line of JSON, and its digest."""
    return f"{text}\n{digest_of([text.encode()])}\n"


def read_checked(path: Path) -> Any:
    """What a file of JSON and its digest says, once or twice. Raises FileNotFoundError, and ValueError where no copy is whole."""
    content = path.read_bytes()
    half = len(content) // 2
    for copy in (content, content[:half], content[half:]):
        text, _, digest = copy.removesuffix(b"\n").rpartition(b"\n")
        if copy == b"%b\n%b\n" % (text, digest) and digest_of([text]).encode() == digest:
            return json.loads(text)
    raise ValueError(f"{path.name} is not as it was written")


def best_in(raw: Mapping[str, Any]) -> Best:
    return Best(raw["cursor"], tuple((Digest(d), int(n)) for d, n in raw["memory"]), raw["metrics"])


def envelope_in(raw: Mapping[str, Any]) -> Envelope:
    return Envelope(**{"signatures": {}, **raw, "handle": handle_in(raw["handle"])})
