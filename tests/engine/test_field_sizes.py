"""How a reply's bytes divide among its declared fields, and in which file each lies."""

from __future__ import annotations

import torch

from tests.engine.toys import stage, start, until
from tests.synthetic import NAMES
from tideline.archive.layout import parse
from tideline.archive.parts import MemoryParts
from tideline.archive.writer import Message, encode
from tideline.core.privacy import Exposure
from tideline.core.record import Weights, field, leaves, record
from tideline.core.run import ClientId
from tideline.engine.ports.ledger import NoLedger
from tideline.engine.site.owner import Owner
from tideline.engine.site.sizes import field_sizes

BERT = ClientId(NAMES[1])
MIB = 1 << 20


@record
class Inner:
    mean: torch.Tensor = field("d", Exposure.STATISTIC, doc="a mean")
    count: int = field(exposure=Exposure.COUNT, doc="rows")


@record
class Outer:
    """A model of which one tensor is a part of its own, a record, numbers, and a tensor by class."""

    model: Weights = field(exposure=Exposure.WEIGHTS, doc="a model")
    inner: Inner = field(doc="inner")
    loss: float = field(exposure=Exposure.METRIC, doc="a loss")


def sizes_of(message: Message, parts: MemoryParts) -> dict[str, tuple[int, str]]:
    names = [leaf.path for leaf in leaves(Outer)]
    return {str(n): (int(size), str(d)) for n, size, d in field_sizes(parse(parts.view(message.digest)), names, ())}  # type: ignore[arg-type]


def test_tensors_parts_and_numbers() -> None:
    """A part counts as its file, with its digest; what lies in the root has none of its own; a model in both has the root's."""
    parts = MemoryParts()
    alone = Outer({"large": torch.zeros(MIB)}, Inner(torch.zeros(7), 12345), 0.5)
    message = encode(alone, parts)
    ((part, whole),) = message.files[1:]
    assert sizes_of(message, parts) == {
        "model": (whole, part),
        "inner.mean": (28, ""),
        "inner.count": (5, ""),
        "loss": (3, ""),
    }
    both = encode(Outer({"large": torch.zeros(MIB), "small": torch.zeros(10)}, Inner(torch.zeros(7), 1), 0.5), parts)
    assert sizes_of(both, parts)["model"] == (whole + 40, "")


class Kept(NoLedger):
    """A ledger that remembers its entries."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, dict[str, object]]] = []

    def record(self, kind: str, **facts: object) -> None:
        self.entries.append((kind, facts))


def test_an_entry_of_the_ledger_has_them() -> None:
    """Of every reply of a real step, each field of its contract that is no metric; a join brings nothing."""
    on = stage()
    ledger = Kept()
    run = start(on)
    on.agents[BERT].owner = Owner(ledger=ledger)
    until(on, run, 0)
    order = on.agent_service.orders(BERT)[0]
    on.handle(order)
    facts = [facts for kind, facts in ledger.entries if kind == "reply"][-1]
    fields = [each[0] for each in facts["fields"] if not each[0].startswith("metrics.")]  # type: ignore[attr-defined]
    sizes = {name: size for name, size, _ in facts["sizes"]}  # type: ignore[attr-defined]
    assert set(sizes) == set(fields) and sizes["v"] == 16
    assert 0 < sum(sizes.values()) < facts["bytes"]  # type: ignore[operator]
    joins = [facts for kind, facts in ledger.entries if kind == "reply" and not facts["files"]]
    assert all(facts["sizes"] == [] for facts in joins)
