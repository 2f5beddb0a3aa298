"""One file of each format, written and read by the product's own ways. It needs nothing that the first release lacks.

archive/         a record in safetensors
home/            an agent's home: vault and ledger
audit.jsonl      an exported audit log
model.safetensors
database.sql     a coordinator's database with a run that is over, as SQLite dumps it
schema.sql       the tables of an empty one
migrations.json  a digest of each migration's code, and what its columns are on both databases
wire.txt         the messages and calls of gRPC
read.json        what reading all of it gives
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.types import TypeEngine
from torch import Tensor

from tests.aging import store_of, write_run
from tideline.archive.folder import FolderParts
from tideline.archive.reader import decode
from tideline.archive.writer import encode
from tideline.client.audit import verify_file
from tideline.core.asked.world import World
from tideline.core.errors import FederationError
from tideline.core.record import Weights, record
from tideline.core.run import Digest, OrderId, RunId
from tideline.core.settings import plain
from tideline.engine.audit.archived import content_of
from tideline.engine.audit.log import AuditEvent, Tip, chained, follow
from tideline.engine.ports.site import Head
from tideline.learning.model_file import Model, Origin, packed, read_model
from tideline_agent.home.ledger import FileLedger
from tideline_agent.vault import FolderVault
from tideline_protos.v1 import federation_pb2 as pb
from tideline_server.store import SqlJournal, columns

RUN, AT = RunId("a-run"), 1_700_000_000.0
MEMORY, REPLY = b"what a site remembers", b"what it answered"
MIGRATIONS = Path(columns.__file__).parent / "migrations" / "versions"
DIALECTS = {"sqlite": sqlite.dialect(), "postgresql": postgresql.dialect()}


@record
class Inner:
    """A tensor and a number."""

    x: Tensor
    n: int


@record
class Whole:
    """Fields of several kinds."""

    weights: Weights
    inner: Inner
    many: tuple[Inner, ...]
    table: dict[str, int]
    text: str
    maybe: Tensor | None


def whole() -> Whole:
    """The record that is written."""
    inner, weights = Inner(torch.arange(3.0), 7), {"a": torch.ones(2, 3), "b": torch.arange(9, dtype=torch.int64)}
    return Whole(weights, inner, (inner, inner), {"one": 1}, "words", None)


def write(folder: Path) -> None:
    """All of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for each in (write_archive, write_home, write_audit, write_model, write_database):
        each(folder)
    (folder / "schema.sql").write_text(schema())
    (folder / "migrations.json").write_text(json.dumps(migrations(), indent=1, sort_keys=True) + "\n")
    (folder / "wire.txt").write_text("\n".join(wire()) + "\n")
    (folder / "read.json").write_text(json.dumps(read(folder), indent=1, sort_keys=True) + "\n")


def write_archive(folder: Path) -> None:
    """A message, and the name of its root."""
    message = encode(whole(), FolderParts(folder / "archive", durable=False))
    (folder / "archive" / "root").write_text(message.digest)


def write_home(folder: Path) -> None:
    """A run of which a site has answered one order, and a ledger that says so."""
    home = folder / "home"
    vault = FolderVault(home / "runs")
    files = [(vault.parts(RUN).put([content]), len(content)) for content in (MEMORY, REPLY)]
    head = Head(OrderId(f"{RUN}/0"), 3, (files[0],), (files[1],), {"loss": 0.5}, {"rows": 60})
    vault.commit(RUN, head)
    vault.note(RUN, {"method": "fedavg", "role": "source", "config": {"rounds": 2}, "world": {"inputs": [4], "classes": 2}})
    ledger = FileLedger(home, now=lambda: AT)
    ledger.record("started", version="0", policy="")
    ledger.record("run", run=RUN, method="fedavg")
    ledger.record("reply", run=RUN, bytes=16)
    ledger.record("approved", run="another", owner="ann")


def write_audit(folder: Path) -> None:
    """Entries as they are exported."""
    events = [AuditEvent("log_begun", AT, details={"chain": "c"}), AuditEvent("enrolled", AT + 1, by="ann", client="north")]
    (folder / "audit.jsonl").write_bytes(content_of(chained(Tip(), events)))


def write_model(folder: Path) -> None:
    """A small one."""
    weights = {"classifier.weight": torch.arange(8.0).view(2, 4), "classifier.bias": torch.zeros(2)}
    model = Model(World(inputs=(4,), classes=2, model="linear"), weights, origin=Origin(method="fedavg", run=RUN, tideline="0"))
    (folder / "model.safetensors").write_bytes(packed(model))


def write_database(folder: Path) -> None:
    """A run that was over ten days ago, and the audit log of all that."""
    with tempfile.TemporaryDirectory() as place:
        with contextlib.closing(SqlJournal(Path(place) / "c.db")) as journal:
            write_run(store_of(journal, Path(place) / "parts"), "over", 10.0)
        with contextlib.closing(sqlite3.connect(Path(place) / "c.db")) as raw:
            (folder / "database.sql").write_text("\n".join(raw.iterdump()) + "\n")


def schema() -> str:
    """The tables, indexes and triggers of an empty database."""
    with tempfile.TemporaryDirectory() as place:
        SqlJournal(Path(place) / "c.db").close()
        return tables_of(Path(place) / "c.db")


def tables_of(file: Path) -> str:
    """All that makes the tables of an SQLite file, by name."""
    with contextlib.closing(sqlite3.connect(file)) as raw:
        rows = raw.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name").fetchall()
    return "".join(f"{statement};\n" for (statement,) in rows)


def migrations() -> dict[str, dict[str, str]]:
    """Each revision's code without its words, and the types of its columns: what a database that exists has been through."""
    code = {path.stem.partition("_")[0].removeprefix("r"): digest_of_code(path) for path in sorted(MIGRATIONS.glob("r*.py"))}
    made = {name: getattr(columns, name)("c") for name in ("text", "whole", "large", "flag", "seconds", "plain")}
    return {"code": code, "columns": {f"{name} {kind}": typed(made[name].type, kind) for name in made for kind in DIALECTS}}


def digest_of_code(path: Path) -> str:
    """Of a module without its docstrings, which may be mended."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def typed(kind: TypeEngine[Any], dialect: str) -> str:
    """A type as a database has it."""
    return str(kind.compile(dialect=DIALECTS[dialect]))


def wire() -> list[str]:
    """A line for each field, with its number, and for each call."""
    lines = []
    for name, message in sorted(pb.DESCRIPTOR.message_types_by_name.items()):
        for field in message.fields:
            repeated = "repeated " if field.is_repeated else ""
            kind = field.message_type.full_name if field.message_type else str(field.type)
            lines.append(f"{name}.{field.name} = {field.number}: {repeated}{kind}")
    for name, service in sorted(pb.DESCRIPTOR.services_by_name.items()):
        lines += [f"{name}.{each.name}({each.input_type.full_name}) -> {each.output_type.full_name}" for each in service.methods]
    return lines


def read(folder: Path) -> dict[str, Any]:
    """What each file says, or the words with which it is refused. Raises for whatever else happens."""
    ways: dict[str, Callable[[Path], object]] = {
        "archive": read_archive,
        "vault": read_vault,
        "ledger": read_ledger,
        "audit": read_audit,
        "model": read_saved_model,
        "database": read_database,
    }
    return {name: words_of(way, folder) for name, way in ways.items()}


def words_of(way: Callable[[Path], object], folder: Path) -> object:
    """What a file says, or why it is refused."""
    try:
        return way(folder)
    except FederationError as error:
        return {"refused": type(error).__name__, "what": error.what, "todo": error.todo}


def read_archive(folder: Path) -> object:
    """The record's numbers."""
    found = decode(Whole, Digest((folder / "archive" / "root").read_text()), FolderParts(folder / "archive", durable=False))
    sums = {name: float(w.double().sum()) for name, w in found.weights.items()}
    return [sums, found.inner.x.tolist(), found.inner.n, len(found.many), dict(found.table), found.text, found.maybe is None]


def read_vault(folder: Path) -> object:
    """The head, the run, and the bytes that the head names."""
    with a_copy(folder / "home") as home:
        vault = FolderVault(home / "runs")
        head = vault.head(RUN)
        assert head is not None
        held = [bytes(vault.parts(RUN).view(digest)).decode() for digest, _ in (*head.memory, *head.reply)]
        shown = {name: plain(head)[name] for name in ("order", "cursor", "memory", "reply", "metrics", "facts")}  # type: ignore[call-overload, index]
        return [shown, dict(vault.brief(RUN)), held]


def read_ledger(folder: Path) -> object:
    """Its end, and what it knows of the owner's words."""
    with a_copy(folder / "home") as home:
        ledger = FileLedger(home, now=lambda: AT)
        asks = (Digest("i"),) if "intent" in signature(ledger.word).parameters else ()  # 0.2.0 knows a run by its id alone
        return [asdict(ledger.tip()), ledger.began(RUN), ledger.word(RunId("another"), *asks), asdict(ledger.spent(0.0))]


def read_audit(folder: Path) -> object:
    """Its end."""
    return asdict(verify_file(folder / "audit.jsonl", "").tip)


def read_saved_model(folder: Path) -> object:
    """Its world, origin and weights."""
    found = read_model(folder / "model.safetensors")
    weights = {name: w.tolist() for name, w in sorted(found.weights.items())}
    return [found.world.model, list(found.world.inputs), found.origin.method, found.origin.run, weights]


def read_database(folder: Path) -> object:
    """Its runs, and the end of its audit log, which is whole. A database that is older is brought up to date for that."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "c.db"
        with contextlib.closing(sqlite3.connect(file)) as raw:
            raw.executescript((folder / "database.sql").read_text())
        with contextlib.closing(SqlJournal(file)) as journal:
            runs = {run: journal.run(run) for run in journal.run_ids()}
            assert follow(Tip(), journal.audit(0, 1000)) == journal.audit_tip()
            states = {name: [row.status.value, row.method, row.spec.seed] for name, row in runs.items() if row}
            return [states, asdict(journal.audit_tip())]


@contextlib.contextmanager
def a_copy(home: Path) -> Iterator[Path]:
    """A home to open, which writes into it."""
    with tempfile.TemporaryDirectory() as place:
        yield Path(shutil.copytree(home, Path(place) / "home"))
