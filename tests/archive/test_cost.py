"""What reading may cost: no copies of tensors, no time that grows faster than the file."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.archive import values
from tests.archive.values import head
from tideline.archive import errors, layout
from tideline.archive.digests import digest_of, shard_of

MAPPED = """
import sys
from pathlib import Path
import torch
from torch import Tensor
from tideline.archive.reader import decode
from tideline.archive.writer import encode
from tideline.archive.folder import FolderParts
from tideline.core.record import record

@record
class Model:
    w: Tensor

def anonymous():
    rows = dict(line.split(":") for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return int(rows["Anonymous"].split()[0]) / 1024

parts = FolderParts(Path(sys.argv[1]), durable=False)
small, large = (encode(Model(torch.ones(n)), parts) for n in (1, 16 << 20))
decode(Model, small.digest, parts).w.sum()
before = anonymous()
model = decode(Model, large.digest, parts)
right = bool((model.w[:: 1 << 20] == 1).all())
read = anonymous()
model.w[: 10 << 20] = 7
print(large.files[1][0], model.w.nbytes >> 20, right, read - before, anonymous() - read)
"""


def python(code: str, *args: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True).stdout


@pytest.mark.nightly(job="services")
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's account of a process's memory")
def test_decoding_copies_nothing_and_writing_reaches_no_file(tmp_path: Path) -> None:
    """A part of 64 MB is decoded and checked in under 10 MB of memory of its own; what is written costs its own size."""
    part, size, right, read, written = python(MAPPED, str(tmp_path)).split()
    assert (size, right) == ("64", "True") and float(read) < 10 and 35 < float(written) < 60
    assert digest_of([(tmp_path / shard_of(part) / part).read_bytes()]) == part


def lines(work: Callable[[], Any]) -> int:
    """How many lines of Python it runs: the same on any machine, whatever else that does."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def reading(n: int) -> tuple[int, int]:
    """What it costs to read a header of n tensors, and to name its parts."""
    record = json.dumps({"w": {f"layer.{i}.weight": None for i in range(n)}})
    made, _ = layout.build({f"w/layer.{i}.weight": ("F32", (2, 3)) for i in range(n)}, {layout.RECORD: record})
    data = memoryview(made + bytes(24 * n))
    return lines(lambda: layout.parse(data)), lines(lambda: layout.Header({}, {layout.RECORD: record}, 0).parts)


def test_a_header_costs_no_more_than_its_length() -> None:
    """Ten times the tensors cost ten times as much: every rule is one pass."""
    few, many = reading(1_000), reading(10_000)
    assert all(small > 0 and large < 11 * small for small, large in zip(few, many, strict=True)), (few, many)


def twice(n: int) -> bytes:
    """A header whose last key is its last but one."""
    keys = ",".join(f'"t{min(i, n - 2)}":0' for i in range(n))
    return values.file(b"{" + keys.encode() + b"}")


HOSTILE: dict[str, tuple[type[Exception], Callable[[], bytes]]] = {
    "a key twice among many": (errors.DuplicateKey, lambda: twice(200_000)),
    "many texts that never end": (errors.HeaderNotJson, lambda: values.file(b'{"' + b'\\"' * 2_000_000)),
    "many backslashes": (errors.HeaderNotJson, lambda: values.file(b'{"' + b"\\" * 4_000_001)),
    "deep": (errors.HeaderTooDeep, lambda: values.file(b"[" * 1_900_000)),
    "wide": (errors.BadEntry, lambda: values.file(head(x=[[]] * 300_000))),
    "a long name": (errors.BadName, lambda: values.file(head(**{"a/" * 1_000_000 + "b": 0}))),
    "a long shape": (
        errors.BadShape,
        lambda: values.file(head(x={"dtype": "U8", "shape": [1] * 1_000_000, "data_offsets": [0, 1]})),
    ),
    "large numbers": (
        errors.BadShape,
        lambda: values.file(head(**{f"t{i}": {"dtype": "U8", "shape": [10**4000], "data_offsets": [0, 1]} for i in range(300)})),
    ),
}


@pytest.mark.parametrize(("kind", "make"), HOSTILE.values(), ids=HOSTILE)
def test_no_header_costs_more_than_its_length(kind: type[Exception], make: Callable[[], bytes]) -> None:
    """A few megabytes of spite are refused within seconds, where a quadratic path would take hours."""
    data = memoryview(make())
    start = time.process_time()
    with pytest.raises(kind):
        layout.parse(data)
    assert time.process_time() - start < 60
