"""Bits flip in files of either side, before and between uses: no result changes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.budgets import examples
from tests.engine import toys
from tests.engine.flipping import Flipping
from tests.engine.present import present
from tests.synthetic import NAMES, experiment, sites
from tideline.core.errors import PartLost
from tideline.core.run import ClientId, RunId
from tideline.engine.model.orders import Failure, Reply
from tideline.engine.model.runs import Status
from tideline.engine.simulation.federation import Federation

drifted = replace(
    toys.toy,
    plan=lambda config: tuple(
        replace(phase, fold=lambda state, replies, turn, fold=phase.fold: moved(fold(state, replies, turn)))
        for phase in toys.toy.plan(config)
    ),
)
SMALL_PARTS = 64  # bytes from which a tensor is a part of its own here: roots, and parts that are mapped
METHODS = ("toy", "fedavg")  # with a memory at sites, and without
Disturb = Callable[[], object]
AT_NIGHT = pytest.mark.nightly(job="services")


@pytest.fixture(autouse=True, scope="module")
def parts_of_their_own() -> Iterator[None]:
    """Tensors are parts of their own, as those of real models are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tideline.archive.writer.PART_BYTES", SMALL_PARTS)
        patch.setattr("tideline.archive.folder.SMALL_BYTES", SMALL_PARTS)
        yield


def moved(state: toys.Sum) -> toys.Sum:
    """As another processor might add up."""
    return replace(state, v=state.v + 1e-6)


def asked(method: str, **more: Any) -> dict[str, Any]:
    """An experiment of three rounds."""
    return experiment(method, toys.ROSTER, config={"rounds": 3}, **more)


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, dict[str, Any]]:
    """What runs come to where no bit flips."""
    federation = Federation(toys.METHODS, sites(NAMES[:3]))
    return {method: federation.run(federation.start(asked(method))) for method in METHODS}


def begun(folder: Path, method: str, **more: Any) -> tuple[Flipping, RunId]:
    """A federation on a disk, and a run in it."""
    there = Flipping.over(folder, toys.METHODS, sites(NAMES[:3]))
    return there, there.federation.start(asked(method, **more))


@pytest.fixture
def toy(tmp_path: Path) -> tuple[Flipping, RunId]:
    """A federation on a disk, and a run of a method whose sites remember."""
    return begun(tmp_path, "toy")


def same(result: dict[str, Any], expected: dict[str, Any]) -> None:
    """Both runs came to the same."""
    assert result["status"] == "completed", result["cause"]
    for key in ("state_digest", "scores", "phases"):
        assert comparable(result[key]) == comparable(expected[key]), key


def comparable(value: Any) -> Any:
    """Without what tells of time, of bytes that passed, and of tries."""
    left_out = {"opened", "closed", "seconds", "bytes_down", "bytes_up", "attempts", "at"}
    if isinstance(value, dict):
        return {name: comparable(each) for name, each in value.items() if name not in left_out}
    return [comparable(each) for each in value] if isinstance(value, (list, tuple)) else value


@AT_NIGHT
@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from(METHODS), st.sampled_from([1, 3]), st.integers(0, 2**32), st.integers(1, 4))
def test_any_bit_at_any_time(
    tmp_path_factory: pytest.TempPathFactory, undisturbed: dict[str, Any], method: str, every: int, seed: int, many: int
) -> None:
    """Any file, any bit, whatever happens between: the same result, or a stall with its true cause, and then the same result."""
    there, run = begun(tmp_path_factory.mktemp("disk"), method, checkpoint_every=every)
    pick = random.Random(seed)
    times = {pick.randrange(16) for _ in range(many)}
    steps = iter(range(10_000))
    same(there.ended(run, lambda: next(steps) in times and there.flip(pick)), undisturbed[method])


def once(work: Callable[[], object], at: Callable[[], bool]) -> Disturb:
    """Do something the first time that something is the case."""
    done: list[object] = []
    return lambda: done or (at() and done.append(work()))


def answered(there: Flipping, run: RunId, cursor: int, how_many: int) -> Callable[[], bool]:
    """Whether so many have answered an exchange that is open."""
    journal = there.federation.journal
    return lambda: present(journal.run(run)).cursor == cursor and journal.standing(run, cursor).answered == how_many


def spoil(there: Flipping, digests: Iterable[str]) -> None:
    """Flip a bit in each of these parts of the coordinator's, once."""
    for digest in set(digests):
        for path in (there.folder / "coordinator").rglob(digest):
            path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))


def spoil_all(there: Flipping) -> None:
    """Flip a bit in each part of the coordinator's, and start its process again."""
    spoil(there, [path.name for path in (there.folder / "coordinator").rglob("b3-*")])
    forgotten(there)


def spoil_state(there: Flipping, run: RunId) -> None:
    """Flip a bit in each part of the last state and of the messages made of it, and start the coordinator's process again."""
    rounds, orders = there.federation.journal.recent_rounds(run), there.federation.journal.orders(run, 1)
    spoil(there, [digest for files in (rounds[-1].state, *(o.files for o in orders)) for digest, _ in files])
    forgotten(there)


def heal_and_go_on(there: Flipping, run: RunId) -> dict[str, Any]:
    """Bring good copies back, resume the run and play it to its end."""
    there.heal()
    there.federation.run_service.resume(run)
    return there.play(run)


def forgotten(there: Flipping) -> None:
    """The coordinator's process starts again: it has nothing in memory."""
    there.federation.compute._live.clear()
    there.federation.compute._checked = type(there.federation.compute._checked)()


def mended(there: Flipping, run: RunId) -> list[str]:
    """What the log says of parts that were made again."""
    return [str(e.details["how"]) for e in there.federation.journal.audit() if e.kind == "part_mended" and e.run == run]


@pytest.mark.parametrize("method", ["toy", pytest.param("fedavg", marks=AT_NIGHT)])
def test_a_changed_reply_is_asked_for_again(tmp_path: Path, undisturbed: dict[str, Any], method: str) -> None:
    """It was accepted; before it is folded it changes. Its site sends the same bytes from its vault."""
    there, run = begun(tmp_path, method)

    def change() -> None:
        orders = there.federation.journal.orders(run, 2)
        spoil(there, [d for o in orders if o.reply for d, _ in o.reply])
        forgotten(there)

    result = there.play(run, once(change, answered(there, run, 2, 2)))
    same(result, undisturbed[method])
    assert mended(there, run) and all("was asked for it again" in how for how in mended(there, run))
    assert any("damaged" in note for note in result["notes"])


@pytest.mark.parametrize(("method", "every"), [("toy", 1), ("toy", 2), pytest.param("fedavg", 1, marks=AT_NIGHT)])
def test_a_damaged_state_is_computed_again(tmp_path: Path, undisturbed: dict[str, Any], method: str, every: int) -> None:
    """The message of the next round is made of it: its sites, and the next fold, get what was there."""
    there, run = begun(tmp_path, method, checkpoint_every=every)

    change = once(lambda: spoil_state(there, run), answered(there, run, 1, 0))
    same(there.play(run, change), undisturbed[method])
    assert "the round that made it was folded again" in mended(there, run)


def test_what_is_made_again_must_be_what_was_there(toy: tuple[Flipping, RunId], undisturbed: dict[str, Any]) -> None:
    """A coordinator whose numbers come out otherwise now says so, and notes no repair; one that computes as before goes on."""
    there, run = toy
    compute = there.federation.compute
    known = compute._methods

    def change() -> None:
        spoil_state(there, run)
        compute._methods = (("toy", "tests.engine.test_flipped_bits:drifted"),)

    result = there.play(run, once(change, answered(there, run, 1, 0)))
    assert result["status"] == "stalled" and "folded again gives other bytes than it gave" in result["cause"]
    assert mended(there, run) == []
    compute._methods = known
    there.federation.run_service.resume(run)
    same(there.play(run), undisturbed["toy"])


def test_the_first_state_is_begun_again(toy: tuple[Flipping, RunId], undisturbed: dict[str, Any]) -> None:
    """No round comes before it."""
    there, run = toy

    change = once(lambda: spoil_all(there), answered(there, run, 0, 0))
    same(there.play(run, change), undisturbed["toy"])


def test_where_nobody_has_it_the_run_waits_and_goes_on(toy: tuple[Flipping, RunId], undisturbed: dict[str, Any]) -> None:
    """The state and the replies that it came of are all damaged: the cause names the part, the place and what to do."""
    there, run = toy

    result = there.play(run, once(lambda: spoil_all(there), answered(there, run, 2, 0)))
    assert result["status"] == "stalled"
    for words in ("Part b3-", f"in {there.folder / 'coordinator'} is damaged", "/damaged", "Bring a good copy", "run resume"):
        assert words in result["cause"], result["cause"]
    there.federation.run_service.resume(run)
    assert there.play(run)["status"] == "stalled"
    same(heal_and_go_on(there, run), undisturbed["toy"])


def test_a_later_run_of_the_same_seed_is_not_in_its_way(toy: tuple[Flipping, RunId], undisturbed: dict[str, Any]) -> None:
    """That a part was there already keeps no damaged bytes."""
    there, run = toy
    same(there.play(run), undisturbed["toy"])
    spoil(there, [path.name for path in (there.folder / "coordinator").rglob("b3-*")])
    again = there.federation.start(asked("toy"))
    same(there.play(again), undisturbed["toy"])


def test_damaged_memory_is_said_to_be(toy: tuple[Flipping, RunId], undisturbed: dict[str, Any]) -> None:
    """Nobody else has it."""
    there, run = toy

    def change() -> None:
        vault = there.federation.agents["bert"].vault  # type: ignore[index]
        head = present(vault.head(run))
        path = vault.parts(run).path(head.memory[0][0])  # type: ignore[attr-defined]
        path.write_bytes(path.read_bytes()[:-1] + b"x")

    result = there.play(run, once(change, answered(there, run, 1, 0)))
    assert result["status"] == "stalled" and "bert: This site's memory of the run is no longer whole" in result["cause"]
    assert "is damaged" in result["cause"]
    same(heal_and_go_on(there, run), undisturbed["toy"])


def test_any_bit_of_a_vaults_record(toy: tuple[Flipping, RunId], undisturbed: dict[str, Any]) -> None:
    """It is written twice: no bit of it is missed, and the run goes on."""
    there, run = toy

    def change() -> None:
        vault, path = there.federation.agents["bert"].vault, there.folder / "site-bert" / "runs" / run / "head.json"  # type: ignore[index]
        head, content = vault.head(run), path.read_bytes()
        for at in range(8 * len(content)):
            if at % 101 == 0 or content[at // 8] in b"\n":
                flipped = bytearray(content)
                flipped[at // 8] ^= 1 << at % 8
                path.write_bytes(flipped)
                assert vault.head(run) == head, at

    result = there.play(run, once(change, answered(there, run, 1, 0)))
    same(result, undisturbed["toy"])


def test_a_failure_of_before_the_run_was_resumed_counts_no_more(toy: tuple[Flipping, RunId], undisturbed: dict[str, Any]) -> None:
    """A site finds its memory damaged and says so slowly; meanwhile the run stalls for another cause, and all is healed."""
    there, run = toy
    on, bert = there.federation, ClientId("bert")

    def change() -> None:
        [slow] = on.agent_service.orders(bert)
        on.clock.advance(1.0)
        on.scheduler.mender.stall(run, PartLost("A part is damaged, and nobody has it"))
        on.clock.advance(1.0)
        on.run_service.resume(run)
        on.agent_service.report(bert, Reply(slow.id, failure=Failure("MemoryLost", "This site's memory is no longer whole")))

    same(there.play(run, once(change, answered(there, run, 1, 0))), undisturbed["toy"])


def test_a_failure_since_the_run_was_resumed_counts(tmp_path: Path) -> None:
    """It is asked again once for each time that somebody resumes it."""
    there, run = begun(tmp_path, "toy", waiting={"deadline": 3600.0})
    there.federation.turn([run])
    reports = there.federation.agent_service
    [slow] = reports.orders(ClientId("bert"))
    there.federation.clock.advance(1.0)
    there.federation.scheduler.mender.stall(run, PartLost("A part is damaged, and nobody has it"))
    there.federation.clock.advance(1.0)
    there.federation.run_service.resume(run)
    for name in toys.ROSTER:
        if name != "bert":
            [order] = reports.orders(ClientId(name))
            there.federation.handle(order)
    for status in (Status.WAITING, Status.STALLED):
        [order] = reports.orders(ClientId("bert"))
        reports.report(ClientId("bert"), Reply(order.id, failure=Failure("MemoryLost", "It is gone")))
        there.federation.turn([run])
        row = there.federation.journal.run(run)
        assert row is not None and row.status is status
    assert slow.id != order.id


def test_a_changed_record_of_the_vault_is_not_believed(toy: tuple[Flipping, RunId], undisturbed: dict[str, Any]) -> None:
    """Its numbers would be sent."""
    there, run = toy

    def change() -> None:
        path = there.folder / "site-bert" / "runs" / run / "head.json"
        path.write_text(path.read_text().replace('"cursor": 0', '"cursor": 1'))

    result = there.play(run, once(change, answered(there, run, 1, 0)))
    assert result["status"] == "stalled" and "head.json in the agent's home is not as it was written" in result["cause"]
    same(heal_and_go_on(there, run), undisturbed["toy"])
