"""What stands in a site's data is in no sentence, note or event that leaves it; its owner is told all of it."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.world import tide
from tests.synthetic import experiment
from tideline.algorithms import METHODS
from tideline.core.asked.world import world_in
from tideline.core.errors import DataRefused
from tideline.core.run import Role
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.learning.formats.folder import read_folder
from tideline.learning.formats.surveys import OWNERS
from tideline_agent.notes import Entry, Witness

ROWS = "41,1,0\n42,2,1\n43,3,2\n"


def table(text: str, settings: str = "") -> Callable[[Path], None]:

    def write(folder: Path) -> None:
        (folder / "ward.csv").write_text(text)
        (folder / "transforms.toml").write_text(f"[ward]\n{settings}\n")

    return write


def records(**columns: pa.Array) -> Callable[[Path], None]:
    return lambda folder: pq.write_table(pa.table(columns), folder / "ward.parquet")


def arrays(x: np.ndarray, y: np.ndarray | None = None) -> Callable[[Path], None]:
    return lambda folder: np.savez(folder / "ward.npz", x=x, **({} if y is None else {"y": y}))


def misread(folder: Path) -> None:
    """An array whose header says that it is longer than it is, so that its samples are taken for a part of it."""
    stream = io.BytesIO()
    np.save(stream, np.frombuffer(b"Svensson" * 8, np.uint8).reshape(8, 8))
    content = bytearray(stream.getvalue())
    content[8] += 16
    with zipfile.ZipFile(folder / "ward.npz", "w") as archive:
        archive.writestr("x.npy", bytes(content))


NUMBERS = pa.array([1.0, 2.0, 3.0])
TIMES = pa.array([7654321] * 3, pa.int64()).cast(pa.time64("ns"))
# What writes the data, the world's inputs, what is in the data, and the words that are told instead.
CASES = {
    "no line of names": (table(f"Svensson,x,y\nS,1,0\n{ROWS}"), [2], "Svensson", "line 2, column 1: not a finite number"),
    "and a gap": (table(f"Svensson,x,y\n,1,0\n{ROWS}"), [2], "Svensson", "line 2, column 1: the value is missing"),
    "twice the same": (table(f"S,Svensson,Svensson\n{ROWS}"), [3], "Svensson", "columns 2 and 3 have the same name"),
    "nearly the same": (table(f"x,Svensson,y\n{ROWS}", 'drop = ["svensson"]'), [2], "Svensson", "the column 'svensson', which"),
    "words": (records(Svensson=pa.array(["a", "b", "c"]), x=NUMBERS), [2], "Svensson", "column 1 holds no numbers"),
    "a kind": (records(x=pa.array([{"Svensson": 1}] * 3), z=NUMBERS), [2], "Svensson", "column 1 holds no numbers"),
    "a time too fine": (records(x=NUMBERS, y=TIMES), [1], "7654321", "a .parquet file (ArrowInvalid)"),
    "a wrong header": (misread, [8], "Svensson", "an .npz file (ValueError)"),
    "an array with names": (arrays(np.zeros(4, [("Svensson", "f8")])), [1], "Svensson", "x holds void64, not numbers"),
    "a range": (arrays(np.array([[-44.5], [1e39], [0.0]])), [1], "-44.5", "too large for float32"),
    "pixels": (arrays(np.full((4, 8, 8), 765432.0)), [1, 8, 8], "765432", "outside 0 to 1"),
}
CHOSEN = pytest.mark.parametrize(("write", "inputs", "cell", "said"), CASES.values(), ids=list(CASES))


def world_of(inputs: list[int]) -> dict[str, Any]:
    return {"inputs": inputs, "classes": 3, "model": "mlp"}


@CHOSEN
def test_nothing_of_it_leaves(tmp_path: Path, write: Callable[[Path], None], inputs: list[int], cell: str, said: str) -> None:
    """Neither in the failure that is reported, nor in a note, nor in anything that the coordinator keeps of the run."""
    data, told = tmp_path / "data", list[Entry]()
    data.mkdir()
    write(data)
    there = Federation(METHODS, {"anna": SimSite(lambda world, role: read_folder(data, world, role))})
    (agent,) = there.agents.values()
    agent.log = Witness(lambda order, note: told.append((order, note)), tmp_path).saw
    run = there.start(experiment("local", {"anna": "peer"}, world=world_of(inputs), reference=None))
    result = there.run(run)
    (order,) = there.journal.orders(run)
    assert order.failure is not None and order.failure.kind == "DataRefused" and said in order.failure.what
    assert "data_unreadable" in [note.kind for _, note in told]
    left = [json.dumps(result, default=str), repr(order), *map(repr, there.journal.events(run)), *map(repr, told)]
    assert not [each for each in left if cell in each]


@CHOSEN
def test_its_owner_is_told(tmp_path: Path, write: Callable[[Path], None], inputs: list[int], cell: str, said: str) -> None:
    """In what the refusal keeps for him, which is in the agent's own log, and by `tideline data check`."""
    write(tmp_path)
    with pytest.raises(DataRefused) as refusal:
        read_folder(tmp_path, world_in(world_of(inputs)), Role.PEER)
    assert said in refusal.value.what and cell not in str(refusal.value)
    assert cell in " ".join(str(refusal.value.context[key]) for key in OWNERS if key in refusal.value.context)
    (tmp_path / "world.json").write_text(json.dumps(world_of(inputs)))
    done = tide("data", "check", tmp_path, "--world", tmp_path / "world.json", "--role", "peer")
    assert said in done.output and cell in done.output.partition("Refused: ")[2]
