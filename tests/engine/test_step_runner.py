"""What a trainer holds of a site's data, and what of them no step sees."""

from __future__ import annotations

import weakref
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.engine.present import present
from tests.engine.toys import start, until
from tests.laws.stage import Stage
from tests.synthetic import NAMES, TRAIN, blobs, experiment, rows, sites
from tideline.algorithms import METHODS
from tideline.algorithms.feddadil.messages import Mine
from tideline.archive.checks import LAX
from tideline.archive.layout import parse
from tideline.archive.parts import MemoryParts
from tideline.archive.reader import decode
from tideline.archive.writer import Message, encode
from tideline.core.algorithm import contract, resolve
from tideline.core.asked.world import World, world_in
from tideline.core.errors import DataRefused, NotFound, StepFailed
from tideline.core.privacy import Exposure
from tideline.core.record import Undeclarable, Weights, field, holds_rows, leaves, record
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, Role, RunId
from tideline.core.settings import plain
from tideline.core.step import Data, View, no_tick
from tideline.engine.compute.forgetting import without_rows
from tideline.engine.compute.kept_data import KeptData, bytes_of
from tideline.engine.compute.step_runner import StepRunner
from tideline.engine.model.brief import Brief
from tideline.engine.model.runs import JOIN
from tideline.engine.ports.ledger import NoLedger
from tideline.engine.ports.site import Job, SiteData
from tideline.engine.simulation.federation import Federation
from tideline.engine.site.owner import Owner
from tideline.engine.site.sizes import field_sizes
from tideline.learning.formats.holdings import Holdings

WORLDS = [World(inputs=(8,), classes=3), World(inputs=(4,), classes=3)]


def test_the_data_of_one_world_are_let_go_before_those_of_the_next_are_read() -> None:
    """So that memory holds one set; the same world's are read once, and again after another's."""
    opened: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def open_site_data(world: World, role: Role) -> Any:
        alive.append(sum(each() is not None for each in opened))
        made = rows(0, world)
        opened.append(weakref.ref(made))
        return made

    step_runner = StepRunner(METHODS, lambda run: MemoryParts(), open_site_data)
    for world in (WORLDS[0], WORLDS[0], WORLDS[1], WORLDS[0]):
        step_runner.opened(world, Role.SOURCE)
    assert alive == [0, 0, 0]


def test_data_that_cannot_be_read_leave_nothing() -> None:
    """And the next world's are read all the same."""

    def open_site_data(world: World, role: Role) -> Any:
        if world == WORLDS[0]:
            raise DataRefused("no")
        return rows(0, world)

    step_runner = StepRunner(METHODS, lambda run: MemoryParts(), open_site_data)
    step_runner.opened(WORLDS[1], Role.SOURCE)
    with pytest.raises(DataRefused):
        step_runner.opened(WORLDS[0], Role.SOURCE)
    assert step_runner.opened(WORLDS[1], Role.SOURCE).site_data.view is not None


class Forgetful:
    """A reader of data that hides no labels."""

    def __init__(self, world: World) -> None:
        self.rows = rows(0, world)

    def view(self, view: View, role: Role) -> Data:
        return self.rows.train if view is View.TRAIN else self.rows.held_out


@pytest.mark.parametrize(("role", "labelled"), [(Role.SOURCE, True), (Role.PEER, True), (Role.TARGET, False)])
def test_a_targets_labels_are_hidden_where_its_reader_forgets_to(role: Role, labelled: bool) -> None:
    """No step of a target sees a training label, whoever wrote the reader: what a site joins with tells what steps see."""
    method = resolve(METHODS, "fedavg")
    config = method.configure({})
    brief = Brief("fedavg", plain(config), WORLDS[0], 1, False, contract(method, config), role)
    parts = MemoryParts()
    step_runner = StepRunner(METHODS, lambda run: parts, lambda world, role: Forgetful(world))
    done = step_runner.run(Job(RunId("run"), ClientId("ann"), JOIN, 1, brief, 0, None, None), no_tick)
    assert done.labelled is labelled


def test_words_of_a_method_that_its_owner_added_stay_at_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its module may name what lies there."""
    (tmp_path / "my_broken_methods.py").write_text("raise OSError('/home/patient 13')")
    monkeypatch.syspath_prepend(tmp_path)
    methods = (*METHODS, ("mine", "my_broken_methods:MINE"))
    job = Job(RunId("run"), ClientId("ann"), JOIN, 1, Brief("mine", {}, WORLDS[0], 1, False, (), Role.SOURCE), 0, None, None)
    with pytest.raises(StepFailed, match="cannot be loaded: OSError") as failed:
        StepRunner(methods, lambda run: MemoryParts(), lambda world, role: rows(0, world)).run(job, no_tick)
    assert "patient" not in str(failed.value)
    missing = replace(job, brief=replace(job.brief, method="other"))
    with pytest.raises(NotFound, match="There is no method 'other'"):
        StepRunner(methods, lambda run: MemoryParts(), lambda world, role: rows(0, world)).run(missing, no_tick)


# A site's data are read once for runs that see them in several ways, and let go where they are large.
WORLD = world_in({"inputs": [4], "classes": 2, "model": "linear", "normalise": "none"})


def holdings(n: int = 20) -> Holdings:
    side = Data(MemoryRows(torch.rand(n, 4) + torch.arange(n)[:, None]), torch.arange(n) % 2, torch.zeros(n).long(), ("a",))
    return Holdings(side, side)


def test_one_reading_serves_every_scale() -> None:
    """Of one role; what is normalised differently is made once each, and again the same."""
    asked = list[Role]()

    def open_site_data(world: World, role: Role) -> SiteData:
        asked.append(role)
        return holdings()

    runner = StepRunner(METHODS, lambda run: MemoryParts(), open_site_data)
    own = replace(WORLD, normalise=world_in({**vars_of(), "normalise": "site"}).normalise)
    first = [runner.opened(world, role) for world in (WORLD, own) for role in (Role.SOURCE, Role.TARGET)]
    again = [runner.opened(world, role) for world in (WORLD, own) for role in (Role.SOURCE, Role.TARGET)]
    assert all(one is other for one, other in zip(first, again, strict=True))
    assert asked == [Role.SOURCE, Role.TARGET]
    raw, site = (each.site_data.view(View.TRAIN, Role.SOURCE).x.all() for each in (first[0], first[2]))
    assert float(raw.mean()) > 5 and float(site.mean()) == pytest.approx(0, abs=0.1)


def vars_of() -> dict[str, object]:
    return {"inputs": [4], "classes": 2, "model": "linear"}


def test_what_does_not_fit_goes_before_the_next_is_made() -> None:
    """The oldest first; one that is larger than all room goes alone, once another is asked for."""
    kept = KeptData[str, int](float, room=10)
    made = list[str]()

    def of(name: str, size: int) -> None:
        kept.of(name, lambda: made.append(name) or size)  # type: ignore[func-returns-value]

    sizes = {"d": 1, "e": 1, "huge": 99}
    for name in ("a", "b", "a", "c", "d", "a", "b", "huge", "a", "e", "huge"):
        of(name, sizes.get(name, 4))
    assert made == ["a", "b", "c", "d", "b", "huge", "e", "huge"]


def test_data_of_unknown_size_are_held_alone() -> None:
    class Odd:
        def view(self, view: View, role: Role) -> Data:
            return holdings().train

    assert bytes_of(Odd()) == float("inf") and bytes_of(holdings(10)) == 2 * 10 * 4 * 4


# Rows that a site remembers while a run lasts are gone from its disk once it has answered the last exchange.
ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
# Without an encoder: what the site remembers are its rows as they are.
ROWS_AS_THEY_ARE = {"inputs": [8], "classes": 3, "model": "linear", "normalise": "none"}
GIVEN = experiment("feddadil", ROSTER) | {"world": ROWS_AS_THEY_ARE, "config": {"encoder_rounds": 0}}


def memories(on: Federation, run: RunId, name: str) -> list[Mine]:
    """What a site remembers, and remembered at the run's best scoring."""
    vault = on.agents[ClientId(name)].vault
    head = present(vault.head(run))
    roots = [files[0][0] for files in (head.memory, head.best.memory if head.best else ()) if files]
    return [decode(Mine, root, vault.parts(run), LAX) for root in roots]


def holds(on: Federation, run: RunId, name: str, row: bytes) -> bool:
    """Whether any file of the run at a site has a row's bytes."""
    parts = on.agents[ClientId(name)].vault.parts(run)
    return any(row in bytes(parts.view(digest)) for digest in parts.digests())


def test_while_a_run_lasts_a_site_remembers_its_rows() -> None:
    """So that each exchange has the same ones."""
    with closing(Federation(METHODS, sites())) as on:
        run = on.start(GIVEN)
        seen, held, row = list[int](), list[bool](), next(blobs(TRAIN, 0, 0).x.parts())[0].numpy().tobytes()

        def look(orders: Any) -> Any:
            if on.agents[ClientId("anna")].vault.head(run) is not None:
                seen.append(len(memories(on, run, "anna")[0].z))
                held.append(holds(on, run, "anna", row))
            return orders

        on.run(run, order_of=look)
    assert max(seen) > 0 and any(held)


@pytest.mark.parametrize("selection", ["none", "accuracy"])
def test_afterwards_they_are_gone(selection: str) -> None:
    """From the memory, from that of the best scoring, and from every file of the run there. The model stays."""
    with closing(Federation(METHODS, sites())) as on:
        run = on.start(GIVEN | {"selection": selection})
        assert on.run(run)["status"] == "completed"
        for name, role in ROSTER.items():
            kept = memories(on, run, name)
            assert len(kept) == (2 if selection == "accuracy" else 1)
            assert all(len(mine.z) == 0 and len(mine.y) == 0 for mine in kept), name
            rows = next(blobs(TRAIN, NAMES.index(name), 0).x.parts())
            assert not any(holds(on, run, name, row.numpy().tobytes()) for row in rows[:3]), name
            assert (kept[0].chosen != "") == (role == "target")


# A memory without the rows that it declares; all else in it stays.


@record
class Inner:
    """Rows within."""

    rows: Tensor = field("n d", Exposure.SAMPLES, doc="rows")
    count: int = field(doc="how many")


@record
class Keeping:
    """Rows in every place that may hold some."""

    model: Weights = field(doc="stays")
    rows: Tensor = field("n d", Exposure.SAMPLES, doc="goes")
    named: dict[str, Tensor] = field("", Exposure.SAMPLES, doc="goes")
    kept: dict[str, Tensor] = field(doc="stays")
    inner: Inner = field(doc="its rows go")
    by_name: dict[str, Inner] = field(doc="and so do theirs")
    several: tuple[Inner, ...] = field(doc="and theirs")
    maybe: Inner | None = field(doc="and its")


@record
class Counted:
    """A number that is no row."""

    rows: int = field("", Exposure.SAMPLES, doc="cannot be empty")


def inner() -> Inner:
    """Three rows."""
    return Inner(torch.ones(3, 2), 3)


def test_rows_go_and_all_else_stays() -> None:
    """At any depth."""
    one = torch.ones(3, 2)
    left = without_rows(Keeping({"w": one}, one, {"a": one}, {"a": one}, inner(), {"a": inner()}, (inner(),), inner()))
    assert left.rows.shape == (0, 2) and left.named == {} and left.model["w"] is one and left.kept["a"] is one
    assert left.maybe is not None
    for each in (left.inner, left.by_name["a"], left.several[0], left.maybe):
        assert each.rows.shape == (0, 2) and each.count == 3


def test_what_cannot_be_empty_is_refused() -> None:
    """By name."""
    with pytest.raises(Undeclarable, match="rows is declared as rows, and cannot be empty"):
        without_rows(Counted(3))


@pytest.mark.parametrize("name", [name for name, _ in METHODS])
def test_a_methods_memory_says_whether_it_holds_rows(name: str) -> None:
    """FedDaDiL's alone holds some: it works on the same features from the first exchange to the last."""
    assert holds_rows(resolve(METHODS, name).memory) == (name == "feddadil")


# How a reply's bytes divide among its declared fields, and in which file each lies.
BERT = ClientId(NAMES[1])
MIB = 1 << 20


@record
class Nested:
    mean: torch.Tensor = field("d", Exposure.STATISTIC, doc="a mean")
    count: int = field(exposure=Exposure.COUNT, doc="rows")


@record
class Outer:
    """A model of which one tensor is a part of its own, a record, numbers, and a tensor by class."""

    model: Weights = field(exposure=Exposure.WEIGHTS, doc="a model")
    inner: Nested = field(doc="inner")
    loss: float = field(exposure=Exposure.METRIC, doc="a loss")


def sizes_of(message: Message, parts: MemoryParts) -> dict[str, tuple[int, str]]:
    names = [leaf.path for leaf in leaves(Outer)]
    return {str(n): (int(size), str(d)) for n, size, d in field_sizes(parse(parts.view(message.digest)), names, ())}  # type: ignore[arg-type]


def test_tensors_parts_and_numbers() -> None:
    """A part counts as its file, with its digest; what lies in the root has none of its own; a model in both has the root's."""
    parts = MemoryParts()
    alone = Outer({"large": torch.zeros(MIB)}, Nested(torch.zeros(7), 12345), 0.5)
    message = encode(alone, parts)
    ((part, whole),) = message.files[1:]
    assert sizes_of(message, parts) == {"model": (whole, part), "inner.mean": (28, ""), "inner.count": (5, ""), "loss": (3, "")}
    both = encode(Outer({"large": torch.zeros(MIB), "small": torch.zeros(10)}, Nested(torch.zeros(7), 1), 0.5), parts)
    assert sizes_of(both, parts)["model"] == (whole + 40, "")


class Kept(NoLedger):
    """A ledger that remembers its entries."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, dict[str, object]]] = []

    def record(self, kind: str, **facts: object) -> None:
        self.entries.append((kind, facts))


def test_an_entry_of_the_ledger_has_them(on: Stage) -> None:
    """Of every reply of a real step, each field of its contract that is no metric; a join brings nothing."""
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
