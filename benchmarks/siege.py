"""Whether a coordinator bears crowds at its doors.

    python benchmarks/siege.py [--quick] [--only "gzip bombs"] [--seconds 5] [--limit rss_mb=300] [--json]

Each attack of tests/acceptance/hostile/siege is made against a real coordinator of its own machine, over 127.0.0.1, and lasts
some seconds. Beside it an honest agent beats, and somebody asks for /health. Ends with 1 if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import grpc
import psutil

from benchmarks.limits import check_keys, emit, limit, table
from benchmarks.measure import spread
from tests.acceptance.harness import Net, net
from tests.acceptance.hostile.behind_tls import channel, start_with_tls
from tests.acceptance.hostile.liar import Liar
from tests.acceptance.hostile.siege import ATTACKS, Outcome, Target
from tests.acceptance.raw import Raw
from tideline.core.errors import FederationError

ROOT = Path(__file__).resolve().parent.parent
BEAT_SECONDS, HEALTH_SECONDS = 0.05, 0.2
Figures = dict[str, float]


@dataclass(frozen=True)
class Row:
    """One siege. By attack: memory of the coordinator at its peak (resident, MiB), its descriptors, beats and looks at /health
    (ms), tries, refusals, and lines that were cut. rss_mb: of the coordinator without TLS at its peak; tls_rss_mb: of the one
    with it; 0 where none was attacked. load: of the machine, as it began and ended.
    """

    rss_mb: float
    tls_rss_mb: float
    beat_p99_ms: float
    log_mb: float
    parts_mb: float
    failed: int
    load: tuple[float, float]
    by: dict[str, Figures]


class Watch:
    """Looks at a process again and again: its peaks."""

    def __init__(self, pid: int) -> None:
        self._process, self._over = psutil.Process(pid), threading.Event()
        self.rss, self.files = 0, 0
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while True:
            self.rss, self.files = max(self.rss, self._process.memory_info().rss), max(self.files, self._process.num_fds())
            if self._over.wait(0.05):
                return


def main() -> int:
    """Lay siege once; 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=tuple(ATTACKS), help="this attack alone; repeatable")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each lasts, once all is open")
    parser.add_argument("--limit", type=limit, action="append", default=[], metavar="KEY=NUMBER", help="exit 1 above it")
    parser.add_argument("--quick", action="store_true", help="the sizes of the tests, and no waiting")
    parser.add_argument("--json", action="store_true", help="a JSON line")
    parser.add_argument("--honest", nargs=4, metavar=("ADDRESS", "TOKEN", "LOG", "AUTHORITY"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.honest:
        return honest(*args.honest)
    check_keys(Row, args.limit)
    row = besieged(args)
    code = emit(row, lines(row), args.limit, args.json)
    return code or int(row.failed > 0)


def honest(address: str, token: str, log: str, authority: str) -> int:
    """An agent that beats, and notes the seconds of each beat, until it is stopped."""
    with channel(address, Path(authority) if authority else None) as line, Path(log).open("a", buffering=1) as file:
        agent = Raw(line, "honest")
        agent.enrol(token)
        while True:
            began, at, fine = time.perf_counter(), time.time(), True
            try:
                agent.beat()
            except grpc.RpcError as error:
                fine = False
                print(error.code(), error.details(), file=sys.stderr)
            file.write(json.dumps([at, time.perf_counter() - began, fine]) + "\n")
            time.sleep(BEAT_SECONDS)


def besieged(args: Any) -> Row:
    """The coordinators, without TLS and with it where one is attacked, and one attack after the other."""
    chosen, began = args.only or list(ATTACKS), os.getloadavg()[0]
    sieges = [siege(args, tls, names) for tls in (False, True) if (names := [n for n in chosen if ATTACKS[n].tls is tls])]
    by = {name: figures for each in sieges for name, figures in each.by.items()}
    return Row(
        rss_mb=max((each.rss_mb for each in sieges if not each.tls), default=0.0),
        tls_rss_mb=max((each.rss_mb for each in sieges if each.tls), default=0.0),
        beat_p99_ms=max(each["beat_p99_ms"] for each in by.values()),
        log_mb=round(sum(each.log_mb for each in sieges), 2),
        parts_mb=round(sum(each.parts_mb for each in sieges), 2),
        failed=int(sum(each["failed"] for each in by.values())),
        load=(round(began, 1), round(os.getloadavg()[0], 1)),
        by=by,
    )


@dataclass(frozen=True)
class Siege:
    """What one coordinator bore, by attack, and MB of its log and its parts at the end."""

    tls: bool
    by: dict[str, Figures]
    log_mb: float
    parts_mb: float

    @property
    def rss_mb(self) -> float:
        return max(each["rss_mb"] for each in self.by.values())


def siege(args: Any, tls: bool, names: list[str]) -> Siege:
    """One coordinator, the honest agent, and attacks one after the other."""
    by: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="tideline-siege-") as folder, net(Path(folder)) as federation:
        authority = start_with_tls(federation) if tls else None
        if authority is None:
            federation.coordinator()
        with channel(federation.address, authority) as line, beside(federation, authority) as log:
            liar = Liar(line).begin(federation)
            key = (federation.folder / "admin.key").read_text().strip()
            target = Target(federation.grpc, federation.http, key, liar, 0.0 if args.quick else args.seconds)
            by[f"(nothing{', TLS' if tls else ''})"] = during(federation, log, "", target, 0)
            for name in names:
                attack = ATTACKS[name]
                by[name] = during(federation, log, name, target, attack.small if args.quick else attack.full)
                print(f"{name}: {by[name]}", file=sys.stderr)
        kept = sum(size_of(each) for each in (federation.folder / "parts").rglob("*"))
        return Siege(tls, by, round(size_of(federation.home / "coordinator.log") / 1e6, 2), round(kept / 1e6, 2))


def size_of(path: Path) -> int:
    """Bytes of a file; none of what has gone meanwhile."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:
        return 0


@contextmanager
def beside(federation: Net, authority: Path | None) -> Iterator[Path]:
    """An honest agent in a process of its own; the file of its beats."""
    token = federation.client().post("/invites", {"name": "honest", "ttl_seconds": 600})["token"]
    log = federation.home / "beats.jsonl"
    log.touch()
    command = [sys.executable, __file__, "--honest", federation.address, token, str(log), str(authority or "")]
    with (federation.home / "honest.log").open("wb") as out, subprocess.Popen(command, stderr=out, cwd=ROOT) as process:
        try:
            federation.until(lambda: log.stat().st_size > 0, "the honest agent to beat")
            yield log
        finally:
            process.kill()


def during(federation: Net, log: Path, name: str, target: Target, size: int) -> Figures:
    """One attack, and what was seen meanwhile."""
    began, looks, over = time.time(), list[float](), threading.Event()

    def look() -> None:
        while not over.wait(HEALTH_SECONDS):
            at = time.perf_counter()
            with suppress(FederationError):
                federation.client().get("/health")
                looks.append(time.perf_counter() - at)

    thread = threading.Thread(target=look)
    with Watch(federation.running["coordinator"].pid) as watch:
        thread.start()
        try:
            outcome = ATTACKS[name].make(target, size) if name else Outcome()
            time.sleep(0.0 if name else max(target.resting, 2.0))
        finally:
            over.set()
            thread.join()
    beats = [each for each in map(json.loads, log.read_text().splitlines()) if each[0] >= began]
    beat, health = spread(each[1] for each in beats), spread(looks)
    return {
        "rss_mb": round(watch.rss / (1 << 20), 1),
        "files": float(watch.files),
        "beat_p50_ms": beat["p50"],
        "beat_p99_ms": beat["p99"],
        "health_p99_ms": health["p99"],
        "failed": float(sum(not each[2] for each in beats)),
        "tried": float(outcome.tried),
        "refused": float(outcome.refused),
        "closed": float(outcome.closed),
        "seconds": round(time.time() - began, 1),
    }


def lines(row: Row) -> list[str]:
    """A row for people."""
    columns = (
        "rss_mb",
        "files",
        "beat_p50_ms",
        "beat_p99_ms",
        "health_p99_ms",
        "failed",
        "tried",
        "refused",
        "closed",
        "seconds",
    )
    return [
        f"{sum(name in ATTACKS for name in row.by)} attacks: at most {row.rss_mb:g} MiB, with TLS {row.tls_rss_mb:g}, "
        f"beats p99 {row.beat_p99_ms:g} ms, {row.failed} beats failed; "
        f"log {row.log_mb:g} MB, parts {row.parts_mb:g} MB; load {row.load[0]:g} to {row.load[1]:g}",
        *table(("", *columns), [(name, *(each[c] for c in columns)) for name, each in row.by.items()]),
    ]


if __name__ == "__main__":
    sys.exit(main())
