"""What an agent may report of its work to its coordinator, beside replies: fixed kinds, in sentences that are written here.

A note is a kind, numbers, and names of a closed form. Nothing in it comes from data, files or the words of an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tideline.core.errors import Malformed
from tideline.core.settings import EMPTY, Plain

LARGEST = 1e15
ERROR = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")  # the name of an error's class
DEVICE = re.compile(r"[a-z]{1,16}(:[0-9]{1,3})?")
WHY = {"error": ERROR}
COARSE_SCALE = "coarse_scale"
SPENT_CLIPPED = "spent_clipped"
OTHERWISE = ("batch_halved", "not_compiled", COARSE_SCALE)  # what a step did otherwise than it was asked


class Level(StrEnum):
    """How much a note matters, from least to most."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Kind:
    """A kind of note. sentence: with the numbers' and words' names in braces; words: the form of each."""

    level: Level
    sentence: str
    numbers: tuple[str, ...] = ()
    words: Mapping[str, re.Pattern[str]] = field(default_factory=lambda: EMPTY)
    when: str = ""


KINDS: Mapping[str, Kind] = {
    "order_started": Kind(Level.INFO, "began to work", when="a step begins"),
    "trained": Kind(Level.INFO, "finished the step in {seconds:.1f} s", ("seconds",), when="a step is done"),
    "order_withdrawn": Kind(Level.INFO, "gave the step up, which nobody waits for any more", when="an order was withdrawn"),
    "upload_cut": Kind(
        Level.WARNING, "was cut while it sent its reply, and goes on where that ended", when="a transfer of a reply was cut"
    ),
    "slow_step": Kind(
        Level.WARNING,
        "has worked for {seconds:.0f} s, more than half of what the round may take, and is {percent:.0f} % done",
        ("seconds", "percent"),
        when="a step has used half of the time that was left when it was ordered",
    ),
    "trainer_died": Kind(
        Level.WARNING,
        "lost the process that trains, mostly for want of memory; tries left: {tries_left:.0f}",
        ("tries_left",),
        when="the process that runs steps ended in the middle of one",
    ),
    "batch_halved": Kind(
        Level.WARNING,
        "had no room for a mini-batch, and trained on its halves; batch norm saw each half alone",
        when="the memory of the device was too small for a mini-batch, and enough for half of it",
    ),
    "not_compiled": Kind(
        Level.WARNING,
        "could not compile its network, and runs it as it is",
        when="`computing: {compile: true}`, and torch.compile failed",
    ),
    COARSE_SCALE: Kind(
        Level.WARNING,
        "sent a tensor in int8 of which one number is so large that next to nothing is left of the others",
        when="`wire: int8`, and a number of a tensor, or of its row, is some hundred times as large as the others",
    ),
    "disk_low": Kind(
        Level.WARNING,
        "has {megabytes:.0f} MB left on the disk of its home",
        ("megabytes",),
        when="less than 1 GB is free when a step begins",
    ),
    "rows_not_cached": Kind(
        Level.WARNING,
        "decodes {rows:.0f} rows at each use, as it has no room to write them down",
        ("rows",),
        when="a large image set finds no room for its cache of decoded rows when a run begins",
    ),
    "clock_off": Kind(
        Level.WARNING,
        "has a clock that is {seconds:.0f} s {way} the coordinator's",
        ("seconds",),
        {"way": re.compile(r"ahead of|behind")},
        when="the clocks differed by more than a minute when the agent connected",
    ),
    "certificate_ends": Kind(
        Level.WARNING,
        "has a certificate of its own that is good for another {hours:.0f} hours",
        ("hours",),
        when="the agent's own certificate ends within 14 days",
    ),
    "step_failed": Kind(Level.ERROR, "failed after {seconds:.1f} s: {error}", ("seconds",), WHY, when="a step failed"),
    "declined": Kind(Level.ERROR, "was not allowed to by its owner: {error}", (), WHY, when="role or policy forbid an order"),
    "data_unreadable": Kind(
        Level.ERROR, "cannot use its data: {error}", (), WHY, when="the site's data cannot be used for the run"
    ),
    "device_missing": Kind(
        Level.ERROR, "has no {device}, which its owner asked for", (), {"device": DEVICE}, when="`--device` is not there"
    ),
    SPENT_CLIPPED: Kind(
        Level.WARNING,
        "says that its step took longer than its order was open: {gpu_seconds:.0f} GPU seconds and {cpu_seconds:.0f} CPU seconds"
        " are counted",
        ("gpu_seconds", "cpu_seconds"),
        when="a reply tells more computing time than there can have been; the coordinator notes it",
    ),
    "left_out": Kind(
        Level.INFO, "sent too many notes: {count:.0f} were left out", ("count",), when="notes came faster than the limit"
    ),
}


@dataclass(frozen=True)
class Note:
    """Something that happened at a site. Raises Malformed where it is not as its kind declares."""

    kind: str
    numbers: Mapping[str, float] = field(default_factory=lambda: EMPTY)
    words: Mapping[str, str] = field(default_factory=lambda: EMPTY)

    def __post_init__(self) -> None:
        kind = KINDS.get(self.kind)
        if kind is None:
            raise Malformed(f"There is no note of the kind {self.kind[:80]!r}", "Install the same version on both ends")
        if set(self.numbers) != set(kind.numbers) or set(self.words) != set(kind.words):
            raise Malformed(f"The note {self.kind} has other fields than its kind declares")
        for name, value in self.numbers.items():
            if not (math.isfinite(value) and 0 <= value <= LARGEST):
                raise Malformed(f"The note {self.kind} gives no such number as {name}")
        for name, word in self.words.items():
            if not kind.words[name].fullmatch(word):
                raise Malformed(f"The note {self.kind} gives no name as {name}")

    @property
    def data(self) -> dict[str, Plain]:
        """What an event tells of it."""
        words: dict[str, Plain] = {"note": self.kind, "level": self.level.value, "what": self.sentence}
        return words | {"numbers": dict(self.numbers), "words": dict(self.words)}

    @property
    def level(self) -> Level:
        return KINDS[self.kind].level

    @property
    def sentence(self) -> str:
        """The note in words, as what its site did."""
        return KINDS[self.kind].sentence.format(**self.numbers, **self.words)
