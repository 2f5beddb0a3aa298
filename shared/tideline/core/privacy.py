"""What a field would tell about its owner, whom it may reach, and what a site says no to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from tideline.core.errors import ContractRefused
from tideline.core.run import Digest
from tideline.core.settings import Plain, plain


class Exposure(StrEnum):
    """How much a value tells about the data that it came from, from least to most. MASKED: keys, and shares of keys, of masks."""

    MASKED = "masked"
    METRIC = "metric"
    COUNT = "count"
    WEIGHTS = "weights"
    STATISTIC = "statistic"
    SYNTHETIC = "synthetic"
    FEATURES = "features"
    SAMPLES = "samples"


class Audience(StrEnum):
    """Who may come to hold a single client's value. SUM: nobody by itself; the coordinator gets the sum over sites."""

    COORDINATOR = "coordinator"
    PEERS = "peers"
    SUM = "sum"


TO_COORDINATOR = frozenset({Audience.COORDINATOR})
TO_PEERS = frozenset({Audience.PEERS})
TO_SUM = frozenset({Audience.SUM})
TO_BOTH = frozenset({Audience.COORDINATOR, Audience.PEERS})


@dataclass(frozen=True)
class Clause:
    """One thing that leaves a site: which field of which reply, its size, its exposure and its audience.

    wire: in which form its numbers travel, where that is not their own. private: what it is made of in a run that protects rows.
    """

    phase: str
    step: str
    field: str
    dims: str
    exposure: Exposure
    audience: frozenset[Audience]
    doc: str = ""
    wire: str = ""
    private: str = ""

    def sentence(self) -> str:
        """The clause in words, for owners of data."""
        size = f" ({self.dims})" if self.dims else ""
        to = " and ".join("a sum over sites" if a is Audience.SUM else a.value for a in sorted(self.audience))
        note = f": {self.doc}" if self.doc else ""
        form = f", in the form {self.wire}" if self.wire else ""
        made = f", {self.private}" if self.private else ""
        return f"{self.phase}/{self.step} sends {self.field}{size} as {self.exposure.value.upper()} to {to}{form}{made}{note}"


LATER = ("wire", "private")  # what clauses of earlier versions do not have
Contract = tuple[Clause, ...]
Policy = frozenset[tuple[Exposure, Audience]]

DEFAULT_POLICY: Policy = frozenset(
    {(e, a) for e in Exposure if e not in (Exposure.FEATURES, Exposure.SAMPLES) for a in (Audience.COORDINATOR, Audience.SUM)}
    | {(Exposure.WEIGHTS, Audience.PEERS)}
)


def refused(contract: Contract, policy: Policy) -> Contract:
    """The clauses that a site with this policy says no to. A clause that names no audience is never agreed to."""
    return tuple(c for c in contract if not c.audience or any((c.exposure, a) not in policy for a in c.audience))


def to_json(contract: Contract) -> list[dict[str, Plain]]:
    """As plain data. A clause without a wire has no such key: contracts of runs that have none stay as they were."""
    return [{name: value for name, value in plain(each).items() if name not in LATER or value} for each in contract]


def from_json(clauses: Iterable[Mapping[str, Any]]) -> Contract:
    """The inverse of `to_json`. Raises ContractRefused for clauses of another version."""
    try:
        return tuple(
            Clause(
                **{name: c[name] for name in ("phase", "step", "field", "dims")},
                exposure=Exposure(c["exposure"]),
                audience=frozenset(Audience(a) for a in c["audience"]),
                doc=c.get("doc", ""),
                wire=c.get("wire", ""),
                private=c.get("private", ""),
            )
            for c in clauses
        )
    except (KeyError, TypeError, ValueError) as cause:
        what = f"A clause of the contract cannot be understood: {type(cause).__name__}: {cause}"
        raise ContractRefused(what, "Install the same version on both ends") from None


@lru_cache(maxsize=256)  # asked for several times in each order of a run: a seventh of a small run's time
def contract_digest(contract: Contract) -> Digest:
    """SHA-256 of the clauses without their words, sorted and without repeats: equal meaning, equal digest."""
    rows = [{k: v for k, v in clause.items() if k != "doc"} for clause in to_json(contract)]
    texts = sorted({json.dumps(row, sort_keys=True, separators=(",", ":")) for row in rows})
    return Digest(hashlib.sha256("\n".join(texts).encode()).hexdigest())
