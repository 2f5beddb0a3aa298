"""What a secure sum costs: a masked sum of 8 sites beside the plain sum of the same float32 numbers.

    python benchmarks/secure_sums.py
    python benchmarks/secure_sums.py --mb 100
    python benchmarks/secure_sums.py --crowd 100     # few values of many sites, of which a third drops out
    python benchmarks/secure_sums.py --quick --json

All play in one process and one thread, one after the other; keys and shares go through their files. Seconds are those of the
processor, the least of all rounds. A plain sum adds arrays that are there; a masked one begins with the same arrays. The least
number of sites remains, so that all that can cost something does: keys are made of shares, and their pair masks taken off.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from benchmarks.measure import grown
from tideline.secure.fixed_point import finest
from tideline.secure.rounds.coordinator import Delivered, Opened, Summed, delivered, gathered
from tideline.secure.rounds.forms import from_bytes, to_buffers, to_bytes
from tideline.secure.rounds.messages import Advert, Agreement, Agreements, Delivery, Masked, Parcels, Roll, Survivors, Unmasked
from tideline.secure.rounds.notebook import MemoryNotebook
from tideline.secure.rounds.site import Sent, advertise
from tideline.secure.rounds.terms import Identity, Place, Terms

T = TypeVar("T")
CLIP, MB = 4.0, 1_000_000


@dataclass(frozen=True)
class Row:
    """One sum. Seconds are the processor's: of one site, of the coordinator, and of all together."""

    mb: float
    bits: int
    sites: int
    remain: int
    neighbours: int
    plain_s: float
    site_keys_s: float  # for keys and shares
    site_mask_s: float  # to open shares, encode and mask
    site_agree_s: float  # to agree on who remains, and unmask
    add_s: float
    open_s: float
    ratio: float
    site_over: float
    coordinator_over: float
    up_ratio: float
    up_kb: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, help="MB of float32 at each site; 10 and 100 if not given")
    parser.add_argument("--bits", type=int, choices=(32, 64), default=32, help="of a masked number")
    parser.add_argument("--sites", type=int, default=8)
    parser.add_argument("--crowd", type=int, help="so many sites, of 0.1 MB each, in place of the others")
    parser.add_argument("--rounds", type=int, default=3, help="of which the fastest counts")
    parser.add_argument("--quick", action="store_true", help="one small round")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    args = parser.parse_args()
    sites, rounds = (args.crowd or args.sites), 1 if args.quick else args.rounds
    sizes = [0.2] if args.quick else [0.1] if args.crowd else [args.mb] if args.mb else [10.0, 100.0]
    for mb in sizes:
        row = measured(mb, args.bits, sites, rounds)
        sys.stdout.write((json.dumps(asdict(row)) if args.json else said(row)) + "\n")
        sys.stdout.flush()
    return 0


def said(row: Row) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in asdict(row).items())


def measured(mb: float, bits: int, sites: int, rounds: int) -> Row:
    """The fastest of some rounds; memory is that of the first."""
    values = np.random.default_rng(0).normal(size=int(mb * MB / 4)).astype(np.float32)
    played = [Round(terms_of(len(values), bits, sites), values, measure=at == 0).play() for at in range(rounds)]
    least = {name: min(getattr(row, name) for row in played) for name in asdict(played[0]) if name.endswith("_s")}
    whole = sites * (least["site_keys_s"] + least["site_mask_s"] + least["site_agree_s"]) + least["add_s"] + least["open_s"]
    return Row(**{**asdict(played[0]), **least, "ratio": whole / least["plain_s"]})


def terms_of(length: int, bits: int, sites: int) -> Terms:
    names = tuple(f"site-{i:04}" for i in range(sites))
    grid = finest(CLIP, sites, bits)
    place = Place("bench", "train", 1)
    return Terms(place=place, sites=names, length=length, clip=CLIP, bits=bits, exponent=grid.exponent)


def identities(names: Iterable[str]) -> dict[str, Identity]:
    """Sites that know each other's keys."""
    keys = {name: Ed25519PrivateKey.generate() for name in names}
    known = {name: key.public_key() for name, key in keys.items()}

    def verify(site: str, words: bytes, signature: bytes) -> bool:
        try:
            known[site].verify(signature, words)
        except (InvalidSignature, KeyError):
            return False
        return True

    return {name: Identity(name, key.sign, verify) for name, key in keys.items()}


def sent(kind: type[T], message: T) -> tuple[T, int]:
    """A message as it is read at the other end, and its bytes."""
    file = to_bytes(message)
    return from_bytes(kind, file), len(file)


class Round:
    """One round, whose parts are timed. measure: also memory, for which time is taken that does not count."""

    def __init__(self, terms: Terms, values: NDArray[np.float32], measure: bool) -> None:
        self.terms, self.values, self.measure = terms, values, measure
        self.seconds: dict[str, float] = {}
        self.over: dict[str, float] = {}
        self.up = 0

    def play(self) -> Row:
        terms, n = self.terms, len(self.terms.sites)
        self.timed("plain", self.plain)
        dealt, delivery = self.timed("keys", self.share)
        pairs = dealt.pairs
        remaining = terms.sites[: terms.enough]
        came = self.timed("mask", lambda: self.memory("site", partial(self.mask, delivery, remaining)))
        self.up += len(to_buffers(came[0][1])[0]) * len(remaining) + sum(each.values.nbytes for _, each in came)
        summed = self.timed("add", lambda: dealt.summed(each for _, each in came))
        answers = self.timed("agree", lambda: self.answers([state for state, _ in came], summed))
        opened = self.timed("open", lambda: self.memory("coordinator", lambda: self.opened(summed, answers)))
        self.check(opened, len(remaining))
        mb = self.values.nbytes / MB
        return Row(
            mb=mb,
            bits=terms.bits,
            sites=n,
            remain=len(remaining),
            neighbours=pairs.design.neighbours,
            plain_s=self.seconds["plain"],
            site_keys_s=self.seconds["keys"] / n,
            site_mask_s=self.seconds["mask"] / len(remaining),
            site_agree_s=self.seconds["agree"] / len(remaining),
            add_s=self.seconds["add"],
            open_s=self.seconds["open"],
            ratio=0.0,
            site_over=self.over.get("site", 0.0) / len(remaining) / mb,
            coordinator_over=self.over.get("coordinator", 0.0) / mb,
            up_ratio=self.up / (self.values.nbytes * len(remaining)),
            up_kb=(self.up - sum(each.values.nbytes for _, each in came)) / n / 1000,
        )

    def timed(self, name: str, work: Callable[[], T]) -> T:
        began = time.process_time()
        made = work()
        self.seconds[name] = time.process_time() - began
        return made

    def memory(self, name: str, work: Callable[[], T]) -> T:
        """The growth of memory, in the round that measures it."""
        if not self.measure:
            return work()
        over, made = grown(work)
        self.over[name] = max(over, 0.0)
        kept: T = made
        return kept

    def plain(self) -> NDArray[np.float32]:
        """As many sums of float32 as sites remain."""
        total = np.zeros_like(self.values)
        for _ in range(self.terms.enough):
            total += self.values
        return total

    def share(self) -> tuple[Delivered, dict[str, tuple[object, Delivery]]]:
        """Keys and shares of all sites, up to what each is delivered."""
        who = identities((*self.terms.sites, "coordinator"))
        self.who, self.notes = who, {name: MemoryNotebook() for name in self.terms.sites}
        begun = {name: advertise(self.terms, who[name], self.notes[name]) for name in self.terms.sites}
        roll = gathered(self.terms, (self.uploaded(Advert, advert) for _, advert in begun.values()), who["coordinator"])
        shared = {name: state.share(sent(Roll, roll)[0], who[name]) for name, (state, _) in begun.items()}
        parcels = {name: self.uploaded(Parcels, Parcels(made)).parcels for name, (_, made) in shared.items()}
        dealt = delivered(roll, parcels, "b3", who["coordinator"])
        return dealt, {name: (state, sent(Delivery, dealt.to(name))[0]) for name, (state, _) in shared.items()}

    def uploaded(self, kind: type[T], message: T) -> T:
        read, size = sent(kind, message)
        self.up += size
        return read

    def mask(self, delivery: dict[str, tuple[object, Delivery]], remaining: Iterable[str]) -> list[tuple[Sent, Masked]]:
        made = []
        for name in remaining:
            state, parcels = delivery[name]
            encoded = self.terms.grid.encode(self.values)
            made.append(state.mask(parcels, encoded.values, self.who[name], self.notes[name]))  # type: ignore[attr-defined]
        return made

    def answers(self, states: list[Sent], summed: Summed) -> list[Unmasked]:
        """Sites agree on who remains, and give their shares."""
        heard = sent(Survivors, summed.survivors)[0]
        agreed = [state.agree(heard, self.who[state.me], self.notes[state.me]) for state in states]
        signed = summed.agreed((self.uploaded(Agreement, each) for _, each in agreed), self.who["coordinator"])
        shown = sent(Agreements, signed)[0]
        return [self.uploaded(Unmasked, state.unmask(shown, self.who[state.me])) for state, _ in agreed]

    def opened(self, summed: Summed, answers: list[Unmasked]) -> NDArray[np.floating]:
        opened: Opened = summed.opened(answers)
        return self.terms.grid.decode(opened.total, np.float32)

    def check(self, total: NDArray[np.floating], sites: int) -> None:
        """Half a step for each site, and a rounding of float32."""
        wrong = np.abs(total - sites * np.clip(self.values, -CLIP, CLIP)).max()
        assert wrong <= sites * 2.0 ** -(self.terms.exponent + 1) + sites * CLIP * 2.0**-22, wrong


if __name__ == "__main__":
    sys.exit(main())
