"""Makes a dossier from a coordinator's journal: the same state of the run and the same head of the log give the same bytes."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import IO, cast

from tideline.client.answers import RunResult
from tideline.core.errors import ChainBroken, NotFound, Refused
from tideline.core.run import ClientId, RunId
from tideline.core.settings import Plain
from tideline.dossier import contents, egress, excerpt
from tideline.dossier.archived import Archived, Files, archived_part, find
from tideline.dossier.container import Writer
from tideline.dossier.layout import (
    AUDIT,
    CONTRACT,
    EGRESS,
    FIRST_LINE,
    HEADS,
    KEY,
    METRICS,
    PAGE,
    POLICIES,
    PRIVACY,
    REPLIES,
    RUN,
    SIGNATURE,
    SUMS,
    Part,
)
from tideline.dossier.page import MOST_ROWS, page
from tideline.dossier.signing import Signer
from tideline.dossier.words import json_bytes, json_line, plain
from tideline.engine.audit.entries import APPROVAL_AWAITED
from tideline.engine.audit.log import Entry, Tip
from tideline.engine.coordinator.result import result_of
from tideline.engine.model.runs import RunRow
from tideline.engine.ports.journal import Journal

TRIES = 5  # at a run that moves on while it is read


class Moved(Exception):
    """The run went on while it was read."""


@dataclass
class Reading:
    """What was seen while rows were written: each site's totals, the first rows, and what the log said of orders and sites.

    whole: whether the excerpt has the run's beginning, which may be in the log's archive by now. archive: what is read of that.
    """

    sites: dict[ClientId, egress.SiteOut] = field(default_factory=dict)
    rows: list[egress.ReplyLine] = field(default_factory=list)
    sealed: dict[str, list[Plain]] = field(default_factory=dict)
    awaited: dict[ClientId, float] = field(default_factory=dict)
    first: excerpt.Linked | None = None
    last: excerpt.Linked | None = None
    entries: int = 0
    whole: bool = False
    archive: Archived = Archived(Tip())

    def saw_row(self, row: egress.ReplyLine) -> None:
        self.sites.setdefault(row["site"], egress.SiteOut()).add(row)
        if len(self.rows) < MOST_ROWS:
            self.rows.append(row)

    def saw_entry(self, found: excerpt.Linked) -> None:
        self.first, self.last, self.entries = self.first or found, found, self.entries + 1
        entry = found.entry
        self.whole = self.whole or entry.kind == "run_started"
        if entry.kind == "reply_accepted" and "sealed" in entry.details:
            self.sealed[str(entry.details["order"])] = list(entry.details["sealed"])
        if entry.kind == APPROVAL_AWAITED:
            self.awaited.setdefault(ClientId(entry.client), entry.at)


@dataclass(frozen=True)
class Maker:
    """Makes dossiers. version: of the software that makes them. files: the audit log's archive, if it is known where that is."""

    journal: Journal
    signer: Signer
    version: str
    files: Files | None = None

    def make(self, run: RunId, out: IO[bytes], at: float | None = None) -> int:
        """Write a run's dossier into an empty file that can seek; its size. at: the time that it names, if not the head's.

        Raises Refused for a run that moves on faster than it can be read, and for one that is too long; ChainBroken where the log
        or its archive is not as it was written; Unreachable for an archive that cannot be read.
        """
        for _ in range(TRIES):
            base = self.journal.audit_base()
            try:
                return self._try(run, out, at)
            except Moved:
                pass  # what was written is thrown away below, and the run read again
            except ChainBroken:
                if self.journal.audit_base() == base:  # else entries went into the archive meanwhile
                    raise
            out.seek(0)
            out.truncate()
        raise Refused(f"Run {run} went on each time that it was read", "Ask again later, or when it has ended")

    def _try(self, run_id: RunId, out: IO[bytes], at: float | None) -> int:
        journal = self.journal
        tip, run = journal.audit_tip(), journal.run(run_id)
        if run is None:
            raise NotFound(f"There is no run {run_id!r} any more", "See the list of runs")
        head = next(iter(journal.audit(tip.seq - 1, 1)), None) if tip.seq else None
        moment = at if at is not None else 0.0 if head is None else head.at
        base = journal.audit_base()
        writer, seen = Writer(out), Reading(archive=find(self.files, run.created, base))
        with writer.member(AUDIT) as write:
            for found in chain(seen.archive.entries(self.files, run.id), self._entries(run, tip)):
                seen.saw_entry(found)
                write(json_line(found.row))
        with writer.member(REPLIES) as write:
            for row in egress.rows(journal, run, seen.sealed):
                seen.saw_row(row)
                write(json_line(row))
        parts = {name: plain(part) for name, part in self._parts(run, head, moment, seen).items()}
        for name, part in parts.items():
            writer.add(name, json_bytes(part))
        writer.add(PAGE, page(parts, seen.rows).encode())
        self._check_still(run, tip, base)
        self._sign(writer)
        return writer.finish()

    def _entries(self, run: RunRow, tip: Tip) -> Iterator[excerpt.Linked]:
        """The log's entries about the run, with the one that tells of the key in its place."""
        key = excerpt.introduced(self.journal, self.signer.fingerprint)
        beside = [key] if key is not None and key.seq <= tip.seq else []
        about = excerpt.entries_about(self.journal, run.id, tip.seq)
        return excerpt.linked(self.journal, heapq.merge(about, beside, key=lambda entry: entry.seq))

    def _parts(self, run: RunRow, head: Entry | None, at: float, seen: Reading) -> Mapping[str, Part]:
        journal = self.journal
        result = cast("RunResult", result_of(journal, run.id, at, admins=False))
        return {
            RUN: contents.run_part(run, result, head, at, self.version),
            CONTRACT: contents.contract_part(run),
            POLICIES: contents.policies_part(journal, run, seen.awaited),
            EGRESS: {"replies": sum(of.replies for out in seen.sites.values() for of in out.phases.values())}
            | {"sites": egress.totals(run, seen.sites)},
            METRICS: contents.metrics_part(run, result),
            PRIVACY: contents.privacy_part(run, result, seen.sites),
            HEADS: {"entries": seen.entries, "whole": seen.whole}
            | excerpt.heads(journal, head, seen.first, seen.last)
            | {"archived": archived_part(seen.archive)},
        }

    def _check_still(self, run: RunRow, tip: Tip, base: Tip) -> None:
        """Raises Moved if anything was done in the run since the tip was read, or entries went into the archive."""
        _, found = self.journal.mentions(tip.seq)
        if self.journal.audit_base() != base or any(each.run == run.id for each in found):
            raise Moved

    def _sign(self, writer: Writer) -> None:
        writer.add(KEY, self.signer.pem)
        sums = FIRST_LINE + "".join(f"{each.digest}  {each.name}\n" for each in writer.members)
        writer.add(SUMS, sums.encode("ascii"))
        writer.add(SIGNATURE, self.signer.sign(sums.encode("ascii")))
