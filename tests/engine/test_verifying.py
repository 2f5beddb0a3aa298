"""Damage that is found before anybody stumbles over it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine import toys
from tests.engine.flipping import Flipping
from tests.engine.present import present
from tests.engine.toys import ROSTER
from tests.synthetic import NAMES, experiment, sites
from tideline.core.run import Digest, RunId
from tideline.engine.coordinator.integrity.verifying import DAY, Scrubber, Verifier

WEEK = 7 * DAY


@pytest.fixture
def there(tmp_path: Path) -> tuple[Flipping, RunId]:
    """A federation on a disk, and a run whose second exchange is open."""
    made = Flipping.over(tmp_path, toys.METHODS, sites(NAMES[:3]))
    run = made.federation.start(experiment("toy", ROSTER, config={"rounds": 3}))
    for _ in range(2):
        made.federation.turn([run])
        for order in list(made.federation.waiting()):
            made.federation.handle(order)
    made.federation.turn([run])
    return made, run


def verifier(there: Flipping) -> Verifier:
    """Over the federation's parts."""
    return Verifier(there.federation.part_store, there.federation.scheduler.mender)


def spoil(there: Flipping, digest: str) -> None:
    """Change a part's last byte."""
    [path] = (there.folder / "coordinator").glob(f"??/{digest}")
    path.write_bytes((content := path.read_bytes())[:-1] + bytes([content[-1] ^ 1]))


def needed(there: Flipping, run: RunId) -> Digest:
    """The root of the state that waits."""
    return there.federation.journal.recent_rounds(run)[-1].state[0][0]


def test_whole_parts_are_whole(there: tuple[Flipping, RunId]) -> None:
    """All are read, and nothing is written of it."""
    on, _ = there
    found = verifier(on).verify(by="alice")
    assert found.checked == len(list(on.federation.parts.digests())) and found.bytes > 0
    assert (found.damaged, found.aside, found.after) == ((), (), "")
    assert not [e for e in on.federation.journal.audit() if e.kind == "parts_verified"]


def test_damage_is_found_and_mended(there: tuple[Flipping, RunId]) -> None:
    """It is put aside, and stands in the audit log under who asked; what an open run needs is made again where that is asked."""
    on, run = there
    spoil(on, digest := needed(on, run))
    found = verifier(on).verify(by="alice")
    assert (found.damaged, found.aside, found.mended) == ((digest,), (digest,), ())
    [told] = [e for e in on.federation.journal.audit() if e.kind == "parts_verified"]
    assert (told.by, told.details) == ("alice", {"damaged": 1, "parts": [digest]})
    found = verifier(on).verify(repair=True)
    assert (found.damaged, found.aside, found.mended, found.lost) == ((), (), (digest,), ())
    assert on.play(run)["status"] == "completed"


def test_a_reply_that_is_asked_for_already(there: tuple[Flipping, RunId]) -> None:
    """A scrub has asked its site; whoever misses the part before the answer comes waits for it, and nobody calls it lost."""
    on, run = there
    for order in list(on.federation.waiting()):
        on.federation.handle(order)
    cursor = on.federation.journal.run(run).cursor  # type: ignore[union-attr]
    [reply] = {o.reply[0][0] for o in on.federation.journal.orders(run, cursor) if o.client == "anna"}
    spoil(on, reply)
    assert verifier(on).verify(repair=True).lost == ()
    again = verifier(on).verify(repair=True)
    assert (again.aside, again.lost) == ((reply,), ()) and on.play(run)["status"] == "completed"


def test_what_nothing_makes_again_is_named(there: tuple[Flipping, RunId]) -> None:
    """The replies of a round that is closed, and that no state needs any more: it says what to bring back."""
    on, run = there
    [digest] = {o.reply[0][0] for o in on.federation.journal.orders(run, 0) if o.client == "anna"}
    spoil(on, digest)
    found = verifier(on).verify(repair=True)
    assert found.aside == (digest,) and "Bring a good copy" in found.lost[0]
    assert "It is the reply of anna to round 1 of move, which has closed" in found.lost[0]


def test_a_state_and_a_reply_that_it_came_of(there: tuple[Flipping, RunId]) -> None:
    """Either of the two would do, and the words name both."""
    on, run = there
    [reply] = {o.reply[0][0] for o in on.federation.journal.orders(run, 0) if o.client == "anna"}
    on.note()
    spoil(on, state := needed(on, run))
    spoil(on, reply)
    found = verifier(on).verify(repair=True)
    assert set(found.aside) == {state, reply}
    [words] = {words for words in found.lost if "either" in words}
    assert f"Part {reply}" in words and "the reply of anna to round 1 of move, which has closed" in words
    assert f"to make part {state} again, which is damaged or gone, too, and is the state after round 1 of move" in words
    assert "A good copy of either part will do" in words
    on.heal()
    assert verifier(on).verify(repair=True).aside == ()


def test_what_a_completed_run_left_is_named(there: tuple[Flipping, RunId]) -> None:
    """Its replies are gone by then. The same experiment, once more, writes the same bytes."""
    on, run = there
    on.play(run)
    spoil(on, final := needed(on, run))
    found = verifier(on).verify(repair=True)
    assert (found.damaged, found.aside, found.mended) == ((final,), (final,), ())
    assert f"It is the final state of run {run}, which has completed" in found.lost[0]
    assert "start the same experiment with the same seed once more" in found.lost[0] and "run resume" not in found.lost[0]
    again = on.federation.start(experiment("toy", ROSTER, config={"rounds": 3}))
    assert on.play(again)["state_digest"] == final and verifier(on).verify(repair=True).aside == ()


def test_a_completed_run_of_which_all_is_kept_is_mended(there: tuple[Flipping, RunId]) -> None:
    """Another run of the same seed has just come to where it ended: its parts make both."""
    on, run = there
    on.play(run)
    final = needed(on, run)
    again = on.federation.start(experiment("toy", ROSTER, config={"rounds": 3}))
    for _ in range(4):
        on.federation.turn([again])
        for order in list(on.federation.waiting()):
            on.federation.handle(order)
    spoil(on, final)
    found = verifier(on).verify(repair=True)
    assert (found.mended, found.lost) == ((final,), ()) and on.play(again)["state_digest"] == final


def test_what_no_run_needs_is_cleared(there: tuple[Flipping, RunId]) -> None:
    """A part that nobody collected yet: once that is asked, nothing is damaged any more. What a run needs stays where it lies."""
    on, run = there
    spoil(on, digest := on.federation.parts.put([b"left by a process that was killed" * 9]))
    assert verifier(on).verify().aside == verifier(on).verify().aside == (digest,)
    [needed] = {o.reply[0][0] for o in on.federation.journal.orders(run, 0) if o.client == "anna"}
    spoil(on, needed)
    found = verifier(on).verify(repair=True)
    assert (found.cleared, found.aside, len(found.lost)) == ((digest,), (needed,), 1)
    assert list(on.federation.parts.damaged()) == [needed] and not on.federation.parts.has(digest)
    again = verifier(on).verify(repair=True)
    assert (again.cleared, again.aside) == ((), (needed,))


def test_one_look_reads_for_some_seconds(there: tuple[Flipping, RunId]) -> None:
    """The next goes on behind it."""
    on, _ = there
    after, seen = "", 0
    for _ in range(100):
        found = verifier(on).verify(after, seconds=-1.0)
        after, seen = found.after, seen + found.checked
        if not after:
            break
    assert seen == len(list(on.federation.parts.digests()))


def test_the_marker_is_left_alone(there: tuple[Flipping, RunId]) -> None:
    """Nobody reads it; without it the store would count as away."""
    on, _ = there
    on.federation.part_store.own("here")
    marker = present(on.federation.journal.marker())
    spoil(on, marker)
    assert verifier(on).verify().damaged == () and on.federation.parts.has(marker)


def scrubber(there: Flipping, days: float, told: Callable[[str], None] = lambda part: None) -> Scrubber:
    """One that reads everything once a week."""
    return Scrubber(verifier(there), there.federation.clock, days, told)


def test_a_scrub_keeps_pace(there: tuple[Flipping, RunId]) -> None:
    """After half of the time about half has been read, after all of it everything; and then it begins anew."""
    on, _ = there
    told: list[str] = []
    scrub = scrubber(on, 7.0, told.append)
    scrub.step()
    for digest in (parts := list(on.federation.parts.digests())):
        spoil(on, digest)
    on.federation.clock.advance(WEEK / 2)
    scrub.step()
    half = len(told)
    assert 0 < half < len(parts)
    on.federation.clock.advance(WEEK / 2 - 1.0)
    scrub.step()
    mended = {e.details["part"] for e in on.federation.journal.audit() if e.kind == "part_mended"}  # on the way to another
    assert set(told) <= set(parts) and len(mended | set(told)) >= len(parts) - 1
    on.federation.clock.advance(WEEK)
    scrub.step()
    assert scrub.damaged is not None and scrub.damaged > 0


def test_a_scrub_that_is_off_reads_nothing(there: tuple[Flipping, RunId]) -> None:
    """It counts what was put aside all the same."""
    on, run = there
    scrub = scrubber(on, 0.0)
    spoil(on, needed(on, run))
    for _ in range(3):
        on.federation.clock.advance(WEEK)
        scrub.step()
    assert scrub.damaged == 0
