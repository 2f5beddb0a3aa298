"""Targets and notices in the database: what the log says is queued once for each who wants it, and claimed by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from journal_names import ANN, BOB, OTHER, RUN
from journal_values import began, first, joins, run_row, together

from tideline.core.errors import Refused
from tideline.engine.audit.log import About, Entry
from tideline.engine.model.access.projects import EVERY, Project
from tideline.engine.model.notices import DAY, HOUR, MOST_TARGETS, MOST_WAITING, Form, Kind, Notice, Outgoing, Target, lasting
from tideline.engine.model.orders import Hold
from tideline.engine.model.runs import OPEN, Status
from tideline_server.store import SqlJournal

NOW = 1_000_000.0


@pytest.fixture
def journal(migrated_where: str) -> Iterator[SqlJournal]:
    """A journal in a database, empty."""
    with closing(SqlJournal(migrated_where)) as journal:
        yield journal


def target(name: str = "chat", **changes: object) -> Target:
    """A target that hears everything of all projects."""
    given = {"project": EVERY, "url": "https://hooks.example/x", "form": Form.JSON, "kinds": tuple(Kind)[:-1], "secret": "s"}
    return Target(**{"id": f"id-{name}", "name": name, **given, "created": NOW, **changes})  # type: ignore[arg-type]


def waiting(journal: SqlJournal, now: float = NOW + 30 * DAY) -> list[Outgoing]:
    """What waits, as one claims it who has all the time of the world; it is claimed until far away then."""
    found = list[Outgoing]()
    while some := journal.notices.claim(now, f"reader{len(found)}", 365 * DAY, 10):
        found += [outgoing for outgoing, _ in some]
    return found


def read(journal: SqlJournal, now: float = NOW) -> None:
    """Follow the log to its end."""
    while journal.notices.follow(now):
        pass


def kinds_of(found: list[Outgoing]) -> list[tuple[str, str]]:
    """What is told to whom."""
    return sorted((outgoing.target, outgoing.notice.kind.value) for outgoing in found)


def entries(journal: SqlJournal, kind: str) -> list[Entry]:
    """Entries of the audit log."""
    return list(journal.audit(about=About(kind=kind)))


def test_targets_come_back_as_they_were_added(journal: SqlJournal) -> None:
    """By project and name. A name is given once in a project, and stands in the log without what may be secret."""
    chat, other = target(), target("ann", project="cardio", url="mailto:ann@example.org", form=Form.EMAIL, kinds=(Kind.FAILED,))
    assert journal.notices.add_target(chat) and journal.notices.add_target(other)
    assert not journal.notices.add_target(chat) and not journal.notices.add_target(replace(chat, id="another"))
    assert journal.notices.add_target(replace(chat, id="another", project="cardio"))
    assert [each.id for each in journal.notices.targets()] == ["id-chat", "id-ann", "another"]
    assert journal.notices.targets("cardio")[0] == other
    [first_entry, *_] = entries(journal, "target_added")
    assert first_entry.details == {
        "target": "chat",
        "project": "all",
        "on": [kind.value for kind in chat.kinds],
        "form": "json",
        "to": "https://hooks.example/...",
    }
    assert journal.notices.remove_target(chat, "bob", NOW) and not journal.notices.remove_target(chat, "bob", NOW)
    [removed] = entries(journal, "target_removed")
    assert removed.by == "bob" and removed.details == {"target": "chat", "project": "all"}


def test_there_are_so_many_targets_and_no_more(journal: SqlJournal) -> None:
    """Of one project; others have their own. Also where the last two are added at once."""
    for number in range(MOST_TARGETS - 1):
        journal.notices.add_target(target(f"t{number}", project="cardio"))

    def add(number: int) -> bool:
        try:
            return journal.notices.add_target(target(f"last{number}", project="cardio"))
        except Refused as error:
            assert error.context["quota"] == "targets"
            return False

    assert sorted(together(lambda: add(1), lambda: add(2))) == [False, True]  # type: ignore[type-var]
    assert journal.notices.add_target(target())


def test_what_happens_to_runs_is_queued_for_who_wants_it(journal: SqlJournal) -> None:
    """Of the target's project alone, of its kinds alone, once however often the log is read; and nothing from before."""
    journal.create([run_row(RUN, project="cardio"), run_row(OTHER)], [*joins(RUN), *joins(OTHER)])
    journal.set_status(RUN, OPEN, Status.STALLED, "before", NOW)
    read(journal)
    for each in (
        target(),
        target("cardio", project="cardio"),
        target("brain", project="brain"),
        target("few", kinds=(Kind.FAILED,)),
    ):
        journal.notices.add_target(each)
    assert not journal.notices.pending(NOW).news
    journal.reopen(RUN, Status.RUNNING, "again", NOW, NOW + 60, [])
    journal.set_status(RUN, OPEN, Status.FAILED, "no room", NOW + 1)
    journal.set_status(OTHER, OPEN, Status.STALLED, "ann is away", NOW + 2)
    assert journal.notices.pending(NOW).news
    read(journal)
    read(journal)
    found = waiting(journal)
    assert kinds_of(found) == [("id-cardio", "failed"), ("id-chat", "failed"), ("id-chat", "stalled"), ("id-few", "failed")]
    one = next(each for each in found if each.target == "id-cardio")
    assert (one.notice.words, one.notice.project, one.notice.run) == (f"Run name of {RUN} has failed: no room", "cardio", RUN)
    assert one.notice.at == NOW + 1 and one.id.startswith("msg_")


def test_an_approval_is_awaited_once(journal: SqlJournal) -> None:
    """However often its agent says so. Other reasons to wait call nobody."""
    journal.notices.add_target(target())
    began(journal)
    for at in range(3):
        journal.hold(ANN, {first(ANN): Hold.APPROVAL}, NOW + at)
        journal.hold(BOB, {first(BOB): Hold.HOURS}, NOW + at)
    assert [(e.client, e.run, e.details) for e in entries(journal, "approval_awaited")] == [(ANN, RUN, {"order": first(ANN)})]
    read(journal)
    [found] = waiting(journal)
    assert (found.notice.kind, found.notice.site) == (Kind.APPROVAL, ANN)
    assert found.notice.words == f"Run name of {RUN} waits for the approval of the owner of {ANN}"


def test_runs_that_belong_to_another_tell_what_went_wrong_alone(journal: SqlJournal) -> None:
    """A reference that completes is no news; one that stalls is, with whose it is."""
    journal.notices.add_target(target())
    journal.create([run_row(RUN), run_row(OTHER, parent=RUN)], [])
    journal.set_status(OTHER, OPEN, Status.COMPLETED, "", NOW)
    journal.set_status(RUN, OPEN, Status.COMPLETED, "", NOW)
    read(journal)
    assert [each.notice.run for each in waiting(journal)] == [RUN]


@pytest.mark.nightly(job="services")
def test_a_cause_is_told_once_an_hour(journal: SqlJournal) -> None:
    """What comes within the hour is counted and told at its end, with the newest words."""
    journal.notices.add_target(target())
    began(journal)
    for at in range(4):
        journal.set_status(RUN, OPEN, Status.STALLED, f"for the {at}. time", NOW + at)
        journal.reopen(RUN, Status.RUNNING, "again", NOW + at, NOW + 60, [])
        read(journal, NOW + at)
        if at == 0:
            [(one, _)] = journal.notices.claim(NOW, "me", 60.0, 10)
            journal.notices.sent(one, NOW)
    assert journal.notices.claim(NOW + HOUR - 1, "me", 60.0, 10) == ()
    [(late, _)] = journal.notices.claim(NOW + HOUR, "me", 60.0, 10)
    assert (late.more, late.slot) == (2, NOW + HOUR) and late.notice.words.endswith("for the 3. time") and late.id != one.id


def test_what_lasts_is_told_once_in_its_period(journal: SqlJournal) -> None:
    """A disk that stays full, however often and by how many it is seen. Projects do not hear of it."""
    for each in (target(), target("cardio", project="cardio")):
        journal.notices.add_target(each)
    for at in (NOW, NOW + 5, NOW + 7 * HOUR):
        source = lasting(Kind.DISK, at)
        full = Notice(kind=Kind.DISK, at=at, words="full", source=source, subject="here:/disk")
        journal.notices.queue([full, full], at)
        for outgoing, _ in journal.notices.claim(at, "me", 60.0, 10):
            journal.notices.sent(outgoing, at)
    assert journal.notices.pending(NOW).waiting == 0
    assert journal.notices.targets()[0].last_sent == NOW + 7 * HOUR and journal.notices.targets("cardio")[0].last_sent is None


def test_a_claim_is_one_coordinators(journal: SqlJournal) -> None:
    """Of two that look at once one gets a notice; who comes late writes nothing over what another claims since."""
    journal.notices.add_target(target())
    began(journal)
    journal.set_status(RUN, OPEN, Status.FAILED, "", NOW)
    together(lambda: journal.notices.follow(NOW), lambda: journal.notices.follow(NOW))
    both = together(*(lambda who=who: journal.notices.claim(NOW, who, 60.0, 10) for who in ("one", "two")))  # type: ignore[misc]
    assert sorted(len(each) for each in both) == [0, 1]  # type: ignore[arg-type]
    [(old, known)] = next(each for each in both if each)  # type: ignore[misc]
    assert journal.notices.claim(NOW + 59, "three", 60.0, 10) == ()
    [(new, _)] = journal.notices.claim(NOW + 60, "three", 60.0, 10)
    assert (new.id, new.attempts, new.claim) == (old.id, 2, "three")
    journal.notices.sent(old, NOW + 61)
    journal.notices.give_up(old, known, "too late", NOW + 61)
    assert journal.notices.pending(NOW).waiting == 1 and entries(journal, "notice_given_up") == []
    journal.notices.put_off(new, NOW + 500, "HTTP 500")
    assert journal.notices.targets()[0].reason == "HTTP 500"
    [(last, _)] = journal.notices.claim(NOW + 500, "four", 60.0, 10)
    journal.notices.sent(last, NOW + 501)
    assert journal.notices.pending(NOW).waiting == 0 and journal.notices.targets()[0].reason == ""


def test_a_target_has_one_try_at_a_time(journal: SqlJournal) -> None:
    """The oldest of what is due; others have theirs beside it."""
    for name in ("one", "two"):
        journal.notices.add_target(target(name))
    journal.create([run_row(RUN), run_row(OTHER)], [])
    for run in (RUN, OTHER):
        journal.set_status(run, OPEN, Status.FAILED, "", NOW)
    read(journal)
    for _ in range(2):
        assert sorted(each.target for each, _ in journal.notices.claim(NOW, "me", 60.0, 10)) == ["id-one", "id-two"]
    assert journal.notices.claim(NOW, "me", 60.0, 10) == ()


def test_what_is_given_up_stands_in_the_log(journal: SqlJournal) -> None:
    """And so does a receiver that is gone, to which nothing is sent any more."""
    journal.notices.add_target(target())
    journal.create([run_row(RUN), run_row(OTHER)], [])
    journal.set_status(RUN, OPEN, Status.FAILED, "", NOW)
    read(journal)
    [(one, known)] = journal.notices.claim(NOW, "me", 60.0, 10)
    journal.notices.give_up(one, known, "HTTP 500", NOW + DAY)
    [entry] = entries(journal, "notice_given_up")
    assert (entry.run, entry.details["notice"], entry.details["reason"], entry.details["tries"]) == (RUN, one.id, "HTTP 500", 1)
    journal.notices.end_target(known, "HTTP 410", NOW + DAY)
    journal.notices.end_target(known, "HTTP 410", NOW + DAY + 1)
    assert [e.details["reason"] for e in entries(journal, "target_ended")] == ["HTTP 410"]
    journal.set_status(OTHER, OPEN, Status.FAILED, "", NOW + DAY)
    read(journal)
    assert journal.notices.pending(NOW).waiting == 0 and journal.notices.targets()[0].ended == NOW + DAY


def test_a_deleted_run_calls_nobody(journal: SqlJournal) -> None:
    """What waits goes with it; what nobody has read yet is passed over."""
    journal.notices.add_target(target())
    began(journal)
    began(journal, OTHER)
    journal.set_status(RUN, OPEN, Status.FAILED, "", NOW)
    read(journal)
    journal.set_status(OTHER, OPEN, Status.FAILED, "", NOW)
    assert journal.notices.pending(NOW).waiting == 1
    journal.delete_runs([RUN, OTHER], "ann", "", NOW)
    assert journal.notices.pending(NOW).waiting == 0
    read(journal)
    assert not journal.notices.pending(NOW).news and journal.notices.pending(NOW).waiting == 0


def test_a_removed_target_or_project_takes_what_waits_along(journal: SqlJournal) -> None:
    """Nobody sends it later."""
    journal.add_project(Project("cardio"))
    for each in (target(), target("theirs", project="cardio")):
        journal.notices.add_target(each)
    journal.create([run_row(RUN, project="cardio")], [])
    journal.set_status(RUN, OPEN, Status.FAILED, "", NOW)
    read(journal)
    assert journal.notices.pending(NOW).waiting == 2 and journal.end_project("cardio", NOW)
    assert [each.name for each in journal.notices.targets()] == ["chat"] and journal.notices.pending(NOW).waiting == 1
    journal.notices.remove_target(target(), "", NOW)
    assert journal.notices.pending(NOW).waiting == 0


def test_so_much_waits_and_no_more(journal: SqlJournal) -> None:
    """What does not fit is counted, and shown with the target."""
    journal.notices.add_target(target())
    many = [Notice(kind=Kind.DISK, at=NOW, words="", source="1", subject=str(at)) for at in range(MOST_WAITING + 3)]
    journal.notices.queue(many, NOW)
    assert journal.notices.pending(NOW).waiting == MOST_WAITING and journal.notices.targets()[0].left_out == 3


def test_what_was_sent_is_forgotten_after_days(journal: SqlJournal) -> None:
    """With the next that is due."""
    journal.notices.add_target(target())
    for at, subject in ((NOW, "a"), (NOW + 5 * DAY, "b")):
        journal.notices.queue([Notice(kind=Kind.DISK, at=at, words="", source="1", subject=subject)], at)
        for outgoing, _ in journal.notices.claim(at, "me", 60.0, 10):
            journal.notices.sent(outgoing, at)
    journal.notices.queue([Notice(kind=Kind.DISK, at=NOW, words="", source="1", subject="b")], NOW + 5 * DAY)
    assert journal.notices.pending(NOW).waiting == 0, "that one is known"
    journal.notices.queue([Notice(kind=Kind.DISK, at=NOW, words="", source="1", subject="a")], NOW + 5 * DAY)
    assert journal.notices.pending(NOW).waiting == 1


def test_a_transaction_that_fails_has_read_nothing(journal: SqlJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read and what was queued are one: a kill between them is a kill before both."""
    from tideline_server.store.notices import outbox

    journal.notices.add_target(target())
    began(journal)
    journal.set_status(RUN, OPEN, Status.FAILED, "", NOW)

    def dies(*of: object) -> None:
        real(*of)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    real = outbox.put
    with monkeypatch.context() as amid:
        amid.setattr(outbox, "put", dies)
        with pytest.raises(KeyboardInterrupt):
            journal.notices.follow(NOW)
    assert journal.notices.pending(NOW).news and journal.notices.pending(NOW).waiting == 0
    read(journal)
    assert len(waiting(journal)) == 1


def test_tests_are_seldom(journal: SqlJournal) -> None:
    """One in so many seconds, whoever asks."""
    journal.notices.add_target(target())
    assert journal.notices.begin_test(target(), NOW, 10.0) <= 0
    assert journal.notices.begin_test(target(), NOW + 4, 10.0) == 6.0
    assert journal.notices.begin_test(target(), NOW + 10, 10.0) <= 0
