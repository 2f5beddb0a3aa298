"""A site's ledger: what runs its agent let work, what left, and what the owner said. A line is an entry, chained by hashes.

ledger.jsonl   entries, each flushed to the disk before what it tells of goes on
ledger.known   what the entries up to a place come to, so that a start does not read years of them
ledger.head    where it ended when it was last written, so that a cut shows
ledger.reported    an entry that was reported to the coordinator, where the ledger does not have it
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from tideline.archive.folder import room
from tideline.core.errors import BudgetExceeded, ChainBroken, Refused, StorageFull
from tideline.core.run import Digest, RunId
from tideline.core.settings import Plain
from tideline.engine.audit.log import START, AuditEvent, Entry, Tip, chained, follow
from tideline.engine.epsilon.budget import RELEASED, Budgets, Decide, budgets_in, plain_budgets
from tideline.engine.model.accounts import ShownLedger
from tideline.engine.ports.ledger import Spent
from tideline.engine.site.standing import Answer, StandingDecision, answer_in
from tideline_agent.home.ledger_head import KNOWN, REPORTED, Cut, read, remember, remembered
from tideline_agent.home.marks import check

FILE = "ledger.jsonl"
APPROVED, DECLINED, RUN, REPLY, ORDER = "approved", "declined", "run", "reply", "order"
STANDING, STANDING_ENDED, PAUSED, RESUMED = "standing", "standing_ended", "paused", "resumed"
ACCEPTED = "cut_accepted"
REPORTED_WORDS = "as it was reported to the coordinator"
DAY_SECONDS = 86400.0
BEHIND = "This site's ledger lacks entries that the coordinator was told of: it may have spent more than it knows"
BEHIND_TODO = (
    "Ask the site's owner to restore the newest home; or to go on without these entries and say what was spent: "
    "tideline site ledger accept, then tideline site spent"
)
TODO = (
    "Keep a copy of the file as it is, and ask who has had access to the agent's home. To begin another, move it away: "
    "tideline site ledger accept --home DIR"
)


@dataclass
class Known:
    """What entries come to, up to a place in the file.

    words: the owner's, by run. covers: the intents that an approved run may have; any, where the approval names none. intents:
    that were approved, and not declined since. begun: runs. lately: what was spent when, of the last two days. standing: the
    owner's decisions that hold for more than one run, by the entry's number. paused: since when nothing begins; 0: it does.
    budgets: what private runs were charged.
    """

    offset: int = 0
    tip: Tip = field(default_factory=Tip)
    words: dict[str, bool] = field(default_factory=dict)
    covers: dict[str, list[str]] = field(default_factory=dict)
    intents: dict[str, bool] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    lately: list[tuple[float, str, int]] = field(default_factory=list)
    standing: dict[str, StandingDecision] = field(default_factory=dict)
    paused: float = 0.0
    budgets: Budgets = field(default_factory=Budgets)

    def take(self, entry: Entry) -> None:
        """One more entry."""
        self.take_budget(entry)
        if entry.kind in (APPROVED, DECLINED):
            said = entry.kind == APPROVED
            self.words[entry.run] = said
            self.take_covers(entry)
            if intent := entry.details.get("intent"):
                self.intents[str(intent)] = said
        elif entry.kind == STANDING:
            self.standing[str(entry.seq)] = standing_in(entry)
        elif entry.kind == STANDING_ENDED:
            self.standing.pop(str(entry.details.get("decision")), None)
        elif entry.kind in (PAUSED, RESUMED):
            self.paused = entry.at if entry.kind == PAUSED else 0.0
        elif entry.kind in (RUN, REPLY):
            begins = entry.kind == RUN and entry.run not in self.begun
            self.begun.add(entry.run)
            if begins or entry.kind == REPLY:
                self.lately.append((entry.at, entry.kind, int(entry.details.get("bytes", 0))))
        if self.lately and self.lately[0][0] < entry.at - 2 * DAY_SECONDS:
            self.lately = [each for each in self.lately if each[0] >= entry.at - 2 * DAY_SECONDS]

    def take_covers(self, entry: Entry) -> None:
        self.covers.pop(entry.run, None)
        if "covers" in entry.details:
            covers = entry.details["covers"]
            self.covers[entry.run] = list(map(str, covers)) if isinstance(covers, list) else []

    def take_budget(self, entry: Entry) -> None:
        """What an entry says of budgets. One that cannot be read may have said that something was spent."""
        try:
            self.budgets.take(entry.kind, entry.run, entry.details)
        except (KeyError, TypeError, ValueError):
            self.budgets.lose()
        if entry.kind == ACCEPTED:
            self.budgets.lose()


class FileLedger:
    """The port Ledger over a file in the agent's home. The owner's commands write to it, too. now: seconds since 1970.

    accepted: whether the owner goes on with a ledger that was cut. Else it raises ChainBroken, and stays as it is. Raises
    IdentityRefused for a home that a newer version has written.
    """

    def __init__(self, home: Path, now: Callable[[], float] = time.time, accepted: bool = False) -> None:
        check(home)
        self.path, self._resume, self._now = home / FILE, home / KNOWN, now
        self._lock = threading.Lock()
        self.cut: Cut | None = None
        self._before, self._accepted = remembered(home), accepted
        self._known = resumed(self.path, self._resume)
        with self._lock, self._open() as file:
            self._fits(self._known.tip)
            self._catch_up(file)
            self._ends()
            self._before = Tip()
            os.fsync(file.fileno())  # what the summary tells of
            self._write_known()

    def record(self, kind: str, **facts: Plain) -> None:
        """Append an entry and flush it; an order, which lets nothing out, with the next. Raises StorageFull, ChainBroken."""
        run = str(facts.pop("run", ""))
        with self._lock, self._open() as file:
            self._catch_up(file)
            self._append(file, AuditEvent(kind, self._now(), run=run, details=facts))

    def tip(self) -> Tip:
        return self._known.tip

    def word(self, run: RunId, intent: Digest) -> bool | None:
        known = self._seen()
        said = known.words.get(run)
        return None if said and intent not in known.covers.get(run, (intent,)) else said

    def approved_before(self, run: RunId) -> bool:
        """Whether the owner approved a run, whatever it asked for then."""
        return self._seen().words.get(run, False)

    def approved(self, intent: Digest) -> bool:
        return self._seen().intents.get(intent, False)

    def stands(self, method: str, intent: Digest) -> bool | None:
        said = answer_in(self._seen().standing.values(), method, intent)
        return None if said is None else said is Answer.ALWAYS

    def standing(self) -> tuple[StandingDecision, ...]:
        """The owner's decisions that hold now, the oldest first."""
        return tuple(self._seen().standing.values())

    def paused(self) -> bool:
        return self._seen().paused > 0

    def paused_since(self) -> float:
        """Seconds since 1970; 0: it is not paused."""
        return self._seen().paused

    def began(self, run: RunId) -> bool:
        return run in self._seen().begun

    def spent(self, since: float) -> Spent:
        lately = [each for each in self._seen().lately if each[0] >= since]
        replies = [nbytes for _, kind, nbytes in lately if kind == REPLY]
        return Spent(sum(kind == RUN for _, kind, _ in lately), len(replies), sum(replies))

    def account(self, run: RunId, decide: Decide) -> None:
        """Write the entries that follow from what stands here on private runs. Raises BudgetExceeded, StorageFull."""
        with self._lock, self._open() as file:
            self._catch_up(file)
            if lacking(self.path.parent) is not None:
                raise BudgetExceeded(BEHIND, BEHIND_TODO)
            for kind, facts in decide(self._known.budgets):
                self._append(file, AuditEvent(kind, self._now(), run=run, details=facts))

    def charges(self) -> int:
        return self._seen().budgets.charges

    def uncharged(self) -> int:
        """How many runs began here and were charged to no budget."""
        known = self._seen()
        return len(known.begun - known.budgets.accounts.keys())

    def open_accounts(self) -> tuple[RunId, ...]:
        self._seen()
        with self._lock:
            return self._known.budgets.open_accounts()

    def release(self, run: RunId) -> None:
        if run in self.open_accounts():
            self.record(RELEASED, run=run)

    def budgets(self) -> Budgets:
        """What private runs were charged: a copy."""
        self._seen()
        with self._lock:
            return deepcopy(self._known.budgets)

    def _seen(self) -> Known:
        """All that stands in the file now: a command may have written the owner's word meanwhile."""
        with self._lock:
            try:
                size = self.path.stat().st_size
            except OSError as error:
                raise away(self.path, error) from error
            if size != self._known.offset:
                with self._open() as file:
                    self._catch_up(file)
            return self._known

    @contextlib.contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        """The file, locked against other processes. Raises StorageFull where there is no room, or no file that can be written."""
        try:
            with self.path.open("a+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield file
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise away(self.path, error) from error
            what = f"No room for an entry in {self.path}, and nothing leaves this site without one"
            raise StorageFull(what, "Free disk space at the site") from error

    def _catch_up(self, file: IO[bytes]) -> None:
        """Take in what others have written. What a crash left of a line is no entry, and is cut off."""
        size = file.seek(0, os.SEEK_END)
        if size < self._known.offset:
            raise ChainBroken(f"{self.path} is shorter than it was", TODO)
        file.seek(self._known.offset)
        for line in file:
            if not line.endswith(b"\n"):
                self._ends()  # before anything is written
                file.truncate(self._known.offset)
                self._append(file, AuditEvent("cut_off", self._now(), details={"bytes": len(line)}))
                return
            self._take(entry_in(self.path, line, self._known.tip), len(line))

    def _fits(self, tip: Tip) -> None:
        """Note where the ledger is another than the home remembers."""
        if 0 < tip.seq == self._before.seq and tip.hash != self._before.hash:
            self.cut = Cut(self.path, tip, self._before)

    def _ends(self) -> None:
        """Raises ChainBroken where the ledger is cut, unless the owner goes on with it."""
        if self._known.tip.seq < self._before.seq:
            self.cut = Cut(self.path, self._known.tip, self._before)
        if self.cut is not None and not self._accepted:
            raise self.cut.error()

    def _append(self, file: IO[bytes], event: AuditEvent) -> None:
        entry = chained(self._known.tip, [event])[0]
        line = json.dumps(asdict(entry), separators=(",", ":")).encode() + b"\n"
        file.seek(0, os.SEEK_END)
        try:
            file.write(line)
            file.flush()
            if flushed := event.kind != ORDER:
                os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):  # what is left of the line is cut off by whoever writes next
                file.truncate(self._known.offset)
            raise
        self._take(entry, len(line))
        if flushed:
            with contextlib.suppress(OSError):  # an older head fits as well
                remember(self.path.parent, self._known.tip)

    def _take(self, entry: Entry, size: int) -> None:
        self._known.take(entry)
        self._fits(Tip(entry.seq, entry.hash))
        self._known.tip, self._known.offset = Tip(entry.seq, entry.hash), self._known.offset + size

    def _write_known(self) -> None:
        temporary = self._resume.with_suffix(".tmp")
        with room(temporary):
            more = {"begun": sorted(self._known.begun), "budgets": plain_budgets(self._known.budgets)}
            temporary.write_text(json.dumps(asdict(replace(self._known, budgets=Budgets())) | more))
        temporary.replace(self._resume)


def away(path: Path, error: OSError) -> StorageFull:
    """What an agent says whose ledger was taken away, or lies on a disk that has become read-only."""
    what = f"The ledger {path} cannot be written: {error.strerror}, and nothing leaves this site without an entry"
    return StorageFull(what, "Bring the file back, and let the agent's user write it")


def resumed(path: Path, resume: Path) -> Known:
    """What was known at the last start, if the entry that it ended with still stands there; else nothing is known yet."""
    try:
        raw = json.loads(resume.read_text())
        known = Known(
            **{
                **raw,
                "tip": Tip(**raw["tip"]),
                "covers": raw["covers"],  # an older version's summary says nothing of it, though entries may
                "begun": set(raw["begun"]),
                "lately": list(map(tuple, raw["lately"])),
                "standing": {number: decision_in(each) for number, each in raw.get("standing", {}).items()},
                "budgets": budgets_in(raw["budgets"]),  # of a summary without them the entries may tell of some
            }
        )
        return known if known.offset == 0 or last_before(path, known.offset).hash == known.tip.hash else Known()
    except (OSError, ValueError, TypeError, KeyError, IndexError):
        return Known()


def standing_in(entry: Entry) -> StandingDecision:
    """The decision of an entry; of an answer that this version does not know, the one that lets nothing run."""
    texts = {name: str(entry.details.get(name, "")) for name in ("method", "intent", "by", "owner", "words")}
    answer = Answer.ALWAYS if entry.details.get("answer") == Answer.ALWAYS else Answer.NEVER
    return StandingDecision(number=entry.seq, at=entry.at, answer=answer, **texts)


def decision_in(raw: dict[str, Any]) -> StandingDecision:
    return StandingDecision(**{**raw, "answer": Answer(raw["answer"])})


def last_before(path: Path, offset: int) -> Entry:
    """The entry that ends at an offset. Raises ValueError, IndexError where none does."""
    with path.open("rb") as file:
        begin = max(0, offset - (1 << 16))
        file.seek(begin)
        lines = file.read(offset - begin).splitlines(keepends=True)
    return Entry(**json.loads(lines[-1]))


def entry_in(path: Path, line: bytes, tip: Tip) -> Entry:
    """An entry that follows a tip. Raises ChainBroken with its number."""
    try:
        entry = Entry(**json.loads(line))
    except (ValueError, TypeError):
        raise ChainBroken(f"{path}: entry {tip.seq + 1} cannot be read", TODO, entry=tip.seq + 1) from None
    try:
        follow(tip, [entry])
    except ChainBroken as error:
        raise ChainBroken(f"{path}: {error.what}", TODO, **error.context) from None
    return entry


def accept(home: Path, owner: str) -> Cut:
    """Go on with a ledger that was cut: its first entry from now on says so, by whom, and what is lost.

    Raises Refused where nothing is missing, ChainBroken where what is left is not as it was written.
    """
    ledger = FileLedger(home, accepted=True)
    cut = ledger.cut or lacking(home)
    if cut is None:
        raise Refused(f"Nothing is missing from {ledger.path}", "Start the agent")
    ledger.record(ACCEPTED, owner=owner, entries=cut.before.seq, hash=cut.before.hash)
    return cut


def lacking(home: Path) -> Cut | None:
    """What the ledger lacks of what was reported to its coordinator, as the agent found when it connected; None if nothing."""
    reported = read(home / REPORTED)
    found = read_shown(home, reported) if reported.seq else None
    return None if found is None or fits(found, reported) else Cut(home / FILE, found.last, reported, REPORTED_WORDS)


def read_shown(home: Path, reported: Tip) -> ShownLedger:
    """The ledger as it is shown to a coordinator: its end, its entry of a number, if its owner goes on without `reported`."""
    last, mine, accepted = Tip(), Tip(reported.seq, ""), False
    for each in entries(home):
        last = Tip(each.seq, each.hash)
        mine = last if each.seq == reported.seq else mine
        named = each.details.get("entries"), each.details.get("hash")
        accepted = accepted or (each.kind == ACCEPTED and named == (reported.seq, reported.hash))
    return ShownLedger(last, mine if reported.seq else Tip(), accepted)


def fits(shown: ShownLedger, reported: Tip) -> bool:
    return not reported.seq or shown.reported.hash == reported.hash or shown.accepted


def show(home: Path, reported: Tip) -> ShownLedger:
    """The ledger as it is shown to a coordinator, beside what was reported to that. The home notes where it does not fit."""
    shown = read_shown(home, reported)
    if fits(shown, reported):
        (home / REPORTED).unlink(missing_ok=True)
    else:
        remember(home, reported, REPORTED)
    return shown


def check_whole(home: Path, last: Tip, before: Tip, seen: str) -> None:
    """Hold the end of a home's ledger to what the home remembers. seen: the hash of the entry that stands where it ended before.

    Raises ChainBroken.
    """
    if last.seq < before.seq or (before.seq and seen != before.hash):
        raise Cut(home / FILE, last, before).error()
    if cut := lacking(home):
        raise cut.error()


def entries(home: Path) -> Iterator[Entry]:
    """All entries, each held to the one before. Raises ChainBroken at the first that does not follow, and IdentityRefused."""
    check(home)
    tip, path = Tip(0, START), home / FILE
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return  # what a crash left, or what is being written
            entry = entry_in(path, line, tip)
            tip = Tip(entry.seq, entry.hash)
            yield entry
