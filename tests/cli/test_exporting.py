"""One file from a root and its parts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tideline.archive.errors import Malformed, PartMismatch
from tideline.archive.parts import MemoryParts
from tideline.archive.writer import encode
from tideline.client.export import OpenPart, export
from tideline.core.record import Weights, field, record
from tideline.core.run import Digest


@record
class Inner:
    """What a state may hold."""

    rate: float = field(doc="a number")
    large: torch.Tensor = field("...", doc="a tensor")


@record
class State:
    """Every sort of value that a state may have."""

    model: Weights = field(doc="weights")
    clouds: tuple[Inner, ...] = field(doc="records in a row")
    maybe: torch.Tensor | None = field("...", doc="or none")
    by_site: dict[str, int] = field(doc="numbers")


def state() -> State:
    """A state with tensors in its root and tensors in parts, of several types, one of them empty and one twice."""
    big = torch.arange(300_000, dtype=torch.float32).reshape(300, 1000)
    weights = {
        "conv.weight": big,
        "same": big,
        "half": torch.ones(3, dtype=torch.bfloat16),
        "flag": torch.tensor([True, False]),
        "none": torch.zeros(0, 4),
        "count": torch.tensor(7),
    }
    return State(weights, (Inner(0.5, big * 2), Inner(1.5, torch.ones(2))), None, {"a": 1})


def opener(parts: MemoryParts, instead: dict[Digest, bytes]) -> OpenPart:
    """Parts as they are, or something in their place."""

    @contextlib.contextmanager
    def opened(digest: Digest, size: int) -> Iterator[memoryview]:
        yield memoryview(instead[digest]) if digest in instead else parts.view(digest)

    return opened


def test_the_file_equals_the_state(tmp_path: Path) -> None:
    """Every tensor is found by its path with equal bytes; the other values are kept in the file's own words."""
    parts, out = MemoryParts(), tmp_path / "a.safetensors"
    message = encode(state(), parts)
    assert len(message.files) == 3
    made = export(opener(parts, {}), message.digest, message.files[0][1], out)
    read = load_file(out)
    expected = {f"model/{name}": tensor for name, tensor in state().model.items()}
    expected |= {f"clouds/{i}/large": inner.large for i, inner in enumerate(state().clouds)}
    assert read.keys() == expected.keys()
    for name, tensor in expected.items():
        assert read[name].dtype == tensor.dtype and torch.equal(read[name], tensor), name
    assert made["values"] == {"clouds/0/rate": 0.5, "clouds/1/rate": 1.5, "maybe": None, "by_site/a": 1}


def test_a_part_that_is_another_tensor_is_refused(tmp_path: Path) -> None:
    """A part of another shape, a root without a record, and no archive at all leave no file."""
    parts, out = MemoryParts(), tmp_path / "a.safetensors"
    message = encode(state(), parts)
    (first, _), (second, _) = message.files[1:]
    other = encode(State({"w": torch.ones(600, 600)}, (), None, {}), parts).files[1][0]
    swapped = opener(parts, {first: bytes(parts.view(other))})
    with pytest.raises(PartMismatch):
        export(swapped, message.digest, 0, out)
    for root in (second, parts.put([b"12345678"])):
        with pytest.raises(Malformed):
            export(opener(parts, {}), root, 0, out)
    assert list(tmp_path.iterdir()) == []
