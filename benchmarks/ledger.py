"""What it costs to look at a long ledger of a site: its first reading, a page, searches, an export, and the memory of it.

python benchmarks/ledger.py [--entries 50000,100000] [--limit page_ms=300] [--json] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.measure import anonymous_mb
from tideline.engine.audit.log import START, AuditEvent, Tip, chained
from tideline_agent.home.ledger import FILE
from tideline_agent.page.content import egress_of
from tideline_agent.page.egress import Egress, Search
from tideline_agent.page.sent import as_csv

ORDERS_A_RUN = 40
FIELDS = [["model", "weights", "coordinator"], ["rows", "count", "coordinator"], ["metrics.loss", "metric", "coordinator"]]


@dataclass(frozen=True)
class Row:
    """entries of the ledger, of which half are replies; mb: of its file; times in ms; rss_mb: what looking at it adds."""

    entries: int
    mb: float
    read_ms: float
    page_ms: float
    last_page_ms: float
    word_ms: float
    digest_ms: float
    export_ms: float
    rss_mb: float


def write(home: Path, entries: int) -> None:
    """A ledger of so many entries: orders and their replies, as an agent writes them."""
    tip, drawn, order = Tip(0, START), random.Random(1), 0
    with (home / FILE).open("wb") as file:
        while tip.seq < entries:
            run, name, at = f"{order // ORDERS_A_RUN:012x}", f"{order:032x}", 1.7e9 + 30 * order
            digests = [f"b3-{drawn.getrandbits(256):064x}" for _ in range(3)]
            facts = {
                "order": name,
                "step": "train/fit",
                "round": order % ORDERS_A_RUN,
                "files": [[each, 4000] for each in digests],
            }
            sizes = [["model", 3900, digests[1]], ["rows", 2, ""]]
            done = [AuditEvent("order", at, run=run, details=facts)]
            done.append(AuditEvent("reply", at + 5, run=run, details={**facts, "bytes": 12000, "fields": FIELDS, "sizes": sizes}))
            for entry in chained(tip, done):
                file.write(json.dumps(asdict(entry), separators=(",", ":")).encode() + b"\n")
                tip = Tip(entry.seq, entry.hash)
            order += 1


def took(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began)


def measured(entries: int) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write(home, entries)
        before, egress = anonymous_mb(os.getpid()), Egress(home)
        read = took(egress.chain)
        last = max(entries // 2 - 200, 0)
        digest = next(iter(egress.found(Search()).read(entries // 4, 1))).digests[0]
        return Row(
            entries=entries,
            mb=(home / FILE).stat().st_size / 1e6,
            read_ms=read,
            page_ms=took(lambda: egress_of(egress, Search(), 0)),
            last_page_ms=took(lambda: egress_of(egress, Search(), last)),
            word_ms=took(lambda: egress_of(egress, Search(text="weights train/fit"), 0)),
            digest_ms=took(lambda: egress_of(egress, Search(text=digest), 0)),
            export_ms=took(lambda: sum(map(len, as_csv(egress.found(Search()).read())))),
            rss_mb=anonymous_mb(os.getpid()) - before,
        )


def main() -> int:
    """A row for each size. 1 where a figure is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", default="50000,100000")
    parser.add_argument("--limit", action="append", default=[], metavar="KEY=NUMBER")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows = [measured(int(each)) for each in ("2000" if asked.quick else asked.entries).split(",")]
    for row in rows:
        print(json.dumps(asdict(row)) if asked.json else "  ".join(f"{k} {v:.0f}" for k, v in asdict(row).items()))
    limits = [each.partition("=") for each in asked.limit]
    return int(any(getattr(row, name) > float(most) for row in rows for name, _, most in limits))


if __name__ == "__main__":
    sys.exit(main())
