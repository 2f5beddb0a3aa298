"""Runs are deleted by a person's word and by the rules of age; what others need stays."""

from __future__ import annotations

import pytest

from tests.engine.toys import stage, start, until
from tests.laws.stage import Stage
from tideline.core.errors import Deleted, NotFound, Refused, Unreachable
from tideline.core.run import RunId
from tideline.engine.coordinator.retention.deleting import Deleting
from tideline.engine.coordinator.retention.keeping import DAY, PAUSE_SECONDS, Retention, Rules, outlook
from tideline.engine.model.access.projects import Project, Quota
from tideline.engine.model.deletion import Cutoffs, Tombstone


class Thinning:
    """Events by their age, as a database has them."""

    def __init__(self, left: int = 0) -> None:
        self.left, self.asked = left, list[float]()

    def drop_events(self, before: Cutoffs, most: int) -> int:
        """Some of them."""
        self.asked.append(before.others)
        some = min(self.left, most)
        self.left -= some
        return some

    def old_events(self, before: Cutoffs) -> int:
        """All of them."""
        return self.left


def ended(on: Stage) -> RunId:
    """A run that was cancelled amid its rounds."""
    run = start(on)
    until(on, run, 1)
    on.run_service.cancel(run)
    return run


def keeper(on: Stage, days: float, gone: list[Tombstone] | None = None, thinning: Thinning | None = None) -> Retention:
    """The rules, with both ages the same."""
    told = gone.append if gone is not None else lambda of: None
    return Retention(Deleting(on.run_service), thinning or Thinning(), Rules(days, days), told)


def test_a_deleted_run_is_told_of() -> None:
    """Whoever asks for it hears when it was deleted and by whom; deleting it again changes nothing."""
    on = stage()
    run = ended(on)
    made = Deleting(on.run_service).delete(run, "ann")
    with pytest.raises(Deleted, match=rf"Run {run} .* was deleted at .* UTC by ann") as caught:
        on.run_service.find(run)
    assert caught.value.context["by"] == "ann"
    on.clock.advance(5.0)
    assert Deleting(on.run_service).delete(run, "bob") == made
    with pytest.raises(Deleted):
        on.run_service.cancel(run)


def test_its_parts_go_with_it() -> None:
    """Nothing lies in the store after the next collection."""
    on = stage()
    run = ended(on)
    Deleting(on.run_service).delete(run)
    on.part_store.collect()
    assert list(on.parts.digests()) == []


def test_an_open_run_stays() -> None:
    """With what to do instead."""
    on = stage()
    run = start(on)
    with pytest.raises(Refused, match=f"{run} is waiting.*tideline run cancel {run}"):
        Deleting(on.run_service).delete(run)
    assert on.run_service.find(run)


def test_an_unknown_run_is_not_found() -> None:
    """It was never there, so nobody deleted it."""
    with pytest.raises(NotFound) as caught:
        Deleting(stage().run_service).delete(RunId("nobody"))
    assert not isinstance(caught.value, Deleted)


def test_a_rule_deletes_what_is_old_enough() -> None:
    """Not before; the tombstone names the rule."""
    on, gone = stage(), list[Tombstone]()
    run = ended(on)
    rules = keeper(on, 30.0, gone)
    rules.step()
    on.clock.advance(29.0 * DAY)
    rules.step()
    assert (gone, outlook(rules).runs) == ([], ())
    on.clock.advance(2.0 * DAY)
    assert [row.id for row in outlook(rules).runs] == [run]
    rules.step()
    assert [(of.run, of.rule, of.by) for of in gone] == [(run, "--retain-runs-days 30", "")]
    with pytest.raises(Deleted, match="by the rule --retain-runs-days 30"):
        on.run_service.find(run)


def test_without_rules_everything_stays() -> None:
    """However old it is."""
    on, thinning = stage(), Thinning(5)
    run = ended(on)
    on.clock.advance(1e5 * DAY)
    rules = keeper(on, 0.0, thinning=thinning)
    rules.step()
    assert on.run_service.find(run) and thinning.left == 5
    assert (outlook(rules).runs, outlook(rules).events) == ((), 0)


def test_events_go_in_small_transactions() -> None:
    """Until none is left; then nobody is asked before the next look."""
    on, thinning = stage(), Thinning(2500)
    rules = keeper(on, 1.0, thinning=thinning)
    assert outlook(rules).events == 2500
    rules.step()
    assert (thinning.left, len(thinning.asked)) == (0, 4)
    rules.step()
    assert len(thinning.asked) == 4
    on.clock.advance(PAUSE_SECONDS)
    rules.step()
    assert len(thinning.asked) == 5


def test_a_store_that_is_away_is_no_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was due is deleted at a later step."""
    on, gone = stage(), list[Tombstone]()
    run = ended(on)
    on.clock.advance(2.0 * DAY)
    rules, delete = keeper(on, 1.0, gone), on.journal.delete_runs

    def away(*args: object) -> tuple[Tombstone, ...]:
        raise Unreachable("The store is away")

    monkeypatch.setattr(on.journal, "delete_runs", away)
    rules.step()
    assert gone == []
    monkeypatch.setattr(on.journal, "delete_runs", delete)
    rules.step()
    assert [of.run for of in gone] == [run]


def test_who_comes_second_changes_nothing() -> None:
    """Two coordinators with the same rules delete a run once."""
    on, first, second = stage(), list[Tombstone](), list[Tombstone]()
    ended(on)
    on.clock.advance(2.0 * DAY)
    one, other = keeper(on, 1.0, first), keeper(on, 1.0, second)
    one.step()
    other.step()
    assert (len(first), second) == (1, [])
    assert [entry.kind for entry in on.journal.audit()].count("run_deleted") == 1


def test_a_project_has_rules_of_its_own() -> None:
    """In place of the coordinator's, either way; 0 keeps its runs for ever."""
    on, gone = stage(), list[Tombstone]()
    run = ended(on)
    rules = keeper(on, 30.0, gone)
    on.journal.limit_project("default", Quota(retain_runs_days=0.0, retain_events_days=90.0), 0.0)
    on.clock.advance(60.0 * DAY)
    rules.step()
    assert gone == [] and outlook(rules).runs == ()
    assert outlook(rules).rules.projects == {"default": Rules(0.0, 90.0)}
    on.journal.limit_project("default", Quota(retain_runs_days=50.0), 0.0)
    assert [row.id for row in outlook(rules).runs] == [run]
    on.clock.advance(PAUSE_SECONDS)
    rules.step()
    assert [(of.run, of.rule) for of in gone] == [(run, "--retain-runs-days 50 of the project default")]


def test_a_project_may_be_the_only_one_with_a_rule() -> None:
    """The coordinator has none, and others keep their runs."""
    on, gone = stage(), list[Tombstone]()
    ended(on)
    rules = keeper(on, 0.0, gone)
    on.journal.add_project(Project("cardio", quota=Quota(retain_runs_days=1.0)))
    on.clock.advance(5.0 * DAY)
    rules.step()
    assert gone == []
    on.journal.limit_project("default", Quota(retain_runs_days=1.0), 0.0)
    on.clock.advance(PAUSE_SECONDS)
    rules.step()
    assert len(gone) == 1
