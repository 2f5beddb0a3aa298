"""From what happens to a run to its receiver: away, failing, gone; and coordinators that die or work side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from journal_names import OTHER, RUN
from journal_values import run_row, together

from tests.receivers import Receiver, receiving
from tideline.engine.audit.log import About
from tideline.engine.coordinator.notices.courier import CLAIM_SECONDS, Courier, Reports
from tideline.engine.model.notices import DAY, HOUR, Form, Kind, Notice, Outgoing, Target
from tideline.engine.model.runs import OPEN, Status
from tideline.engine.ports.notices import Sent
from tideline.engine.simulation.adapters import ManualClock
from tideline_server.notify.addresses import allowed_in
from tideline_server.notify.sending import NoticeSender
from tideline_server.notify.webhooks import Webhooks
from tideline_server.store import SqlJournal

NOW = 1_000_000.0


class Crash(BaseException):
    """The process ends here."""


class Scene:
    """A journal with a run, a receiver, and as many coordinators as one likes."""

    def __init__(self, where: str | Path, receiver: Receiver) -> None:
        self.where, self.receiver, self.clock = where, receiver, ManualClock(NOW)
        self.journal = SqlJournal(where)
        self.sender = NoticeSender(Webhooks(allowed_in(["127.0.0.0/8"]), seconds=120.0))
        self.outcomes = list[str]()
        self.journals, self.couriers = [self.journal], list[Courier]()
        self.add("chat", receiver.url)

    def add(self, name: str, url: str) -> None:
        """A target that hears everything."""
        given = {"url": url, "form": Form.JSON, "kinds": tuple(Kind)[:-1], "secret": "whsec_c2VjcmV0", "created": NOW}
        self.journal.notices.add_target(Target(id=f"id-{name}", name=name, project="", **given))  # type: ignore[arg-type]

    def courier(
        self, send: Callable[..., Sent] | None = None, watch: Callable[[float], list[Notice]] = lambda now: []
    ) -> Courier:
        """A coordinator's courier, on a connection of its own."""
        self.journals.append(SqlJournal(self.where))
        sender = self.sender if send is None else Standing(send)
        made = Courier(
            notices=self.journals[-1].notices,
            sender=sender,
            clock=self.clock,
            watch=watch,
            reports=Reports(self.outcomes.append),
            draw=lambda: 1.0,
        )
        self.couriers.append(made)
        return made

    def fails(self, cause: str = "no room") -> None:
        """The run fails."""
        self.journal.create([run_row(RUN)], [])
        self.journal.set_status(RUN, OPEN, Status.FAILED, cause, self.clock.now())

    def kinds(self) -> list[str]:
        """What the audit log has of notices."""
        return [e.kind for e in self.journal.audit() if e.kind.startswith(("notice", "target_e"))]


class Standing:
    """A sender that does what the test says."""

    def __init__(self, send: Callable[..., Sent]) -> None:
        self._send = send

    def check(self, target: Target) -> None:
        """Any address will do."""

    def send(self, target: Target, outgoing: Outgoing, now: float) -> Sent:
        """What the test says."""
        return self._send(target, outgoing, now)


@pytest.fixture
def scene(migrated_where: str) -> Iterator[Scene]:
    """A scene on each database."""
    with receiving() as receiver:
        scene = Scene(migrated_where, receiver)
        yield scene
        for opened in (*scene.couriers, *scene.journals):
            opened.close()


def test_a_run_that_fails_is_heard_of(scene: Scene) -> None:
    """Once, however often the courier looks."""
    courier = scene.courier()
    courier.step()
    assert courier.waiting == 0
    scene.fails()
    for _ in range(3):
        courier.step()
    [got] = scene.receiver.got
    assert json.loads(got.body)["words"] == f"Run name of {RUN} has failed: no room"
    assert (scene.outcomes, courier.waiting) == (["sent"], 0)


def test_a_receiver_that_is_away_for_an_hour_gets_it_after_that(scene: Scene) -> None:
    """Over a coordinator's end and another's start; each try later than the one before, all with one name."""
    scene.receiver.answers = [500]
    scene.fails()
    scene.courier().step()
    began, tries = len(scene.receiver.got), list[float]()
    courier = scene.courier()  # another, as after a restart: the row says when
    while scene.clock.now() < NOW + HOUR:
        scene.clock.advance(5.0)
        before = len(scene.receiver.got)
        courier.step()
        tries += [scene.clock.now()] * (len(scene.receiver.got) - before)
    assert began == 1 and tries[0] == NOW + 10.0 and 6 < len(tries) < 12
    pauses = [b - a for a, b in pairwise(tries)]
    assert pauses == sorted(pauses) and scene.journal.notices.targets()[0].reason == "HTTP 500"
    scene.receiver.answers = [200]
    scene.clock.advance(HOUR)
    courier.step()
    assert len({got.headers["webhook-id"] for got in scene.receiver.got}) == 1
    assert len({got.body for got in scene.receiver.got}) == 1
    assert scene.outcomes.count("sent") == 1 and courier.waiting == 0


def test_after_a_day_it_is_given_up(scene: Scene) -> None:
    """With an entry in the log. What comes later is tried anew."""
    scene.receiver.answers = [503]
    scene.fails()
    courier = scene.courier()
    courier.step()
    for _ in range(200):
        scene.clock.advance(600.0)
        courier.step()
    assert scene.outcomes.count("given_up") == 1 and scene.kinds() == ["notice_given_up"] and courier.waiting == 0
    [entry] = scene.journal.audit(about=About(kind="notice_given_up"))
    assert NOW + DAY <= entry.at <= NOW + DAY + 1200 and entry.details["reason"] == "HTTP 503"
    scene.receiver.answers = [204]
    scene.journal.create([run_row(OTHER)], [])
    scene.journal.set_status(OTHER, OPEN, Status.STALLED, "", scene.clock.now())
    courier.step()
    assert scene.outcomes[-1] == "sent"


def test_a_receiver_that_is_gone_gets_nothing_more(scene: Scene) -> None:
    """410 says so."""
    scene.receiver.answers = [410]
    scene.fails()
    courier = scene.courier()
    courier.step()
    scene.journal.create([run_row(OTHER)], [])
    scene.journal.set_status(OTHER, OPEN, Status.FAILED, "", NOW)
    courier.step()
    assert len(scene.receiver.got) == 1 and scene.kinds() == ["target_ended"] and scene.outcomes == ["gone"]


def test_one_target_that_fails_holds_up_no_other(scene: Scene) -> None:
    """Each has tries of its own."""
    with receiving() as other:
        scene.add("other", other.url)
        scene.receiver.answers = [500]
        scene.fails()
        scene.courier().step()
        assert len(other.got) == 1 and sorted(scene.outcomes) == ["failed", "sent"]


def test_a_target_that_fails_is_left_alone(scene: Scene) -> None:
    """With all that waits for it: its oldest is tried, and once that is taken, the others go."""
    scene.receiver.answers = [500]
    courier = scene.courier()
    for at, run in enumerate((RUN, OTHER)):
        scene.journal.create([run_row(run)], [])
        scene.journal.set_status(run, OPEN, Status.FAILED, "", NOW)
        scene.clock.advance(float(at))
        courier.step()
    assert len(scene.receiver.got) == 2, "the second came while the first waited"
    for _ in range(20):
        scene.clock.advance(30.0)
        courier.step()
    tries = len(scene.receiver.got)
    assert tries < 10 and len({got.headers["webhook-id"] for got in scene.receiver.got[2:]}) == 1
    scene.receiver.answers = [204]
    scene.clock.advance(HOUR)
    courier.step()
    assert len(scene.receiver.got) == tries + 2 and courier.waiting == 0


def test_a_kill_between_queueing_and_sending_loses_nothing(scene: Scene) -> None:
    """Another coordinator sends it once the claim of the dead one is over."""

    def dies(*of: object) -> Sent:
        raise Crash

    scene.fails()
    with pytest.raises(Crash):
        scene.courier(dies).step()
    heir = scene.courier()
    heir.step()
    assert scene.receiver.got == [] and heir.waiting == 1
    scene.clock.advance(CLAIM_SECONDS)
    heir.step()
    assert len(scene.receiver.got) == 1 and heir.waiting == 0


def test_a_kill_between_sending_and_noting_doubles_it_under_one_name(scene: Scene) -> None:
    """So that the receiver can drop the double."""

    def sends_and_dies(*of: object) -> Sent:
        scene.sender.send(*of)  # type: ignore[arg-type]
        raise Crash

    scene.fails()
    with pytest.raises(Crash):
        scene.courier(sends_and_dies).step()
    scene.clock.advance(CLAIM_SECONDS)
    scene.courier().step()
    first, second = scene.receiver.got
    assert first.headers["webhook-id"] == second.headers["webhook-id"] and first.body == second.body
    assert first.headers["webhook-timestamp"] != second.headers["webhook-timestamp"]


def test_coordinators_side_by_side_send_once(scene: Scene) -> None:
    """However close they are."""
    scene.fails()
    couriers = [scene.courier() for _ in range(3)]
    for _ in range(3):
        together(*(courier.step for courier in couriers))
    assert len(scene.receiver.got) == 1 and scene.outcomes == ["sent"]


def test_what_a_coordinator_sees_is_told_once_by_all_of_them(scene: Scene) -> None:
    """A certificate is the same at each; it is told again the next day."""

    def soon(now: float) -> list[Notice]:
        day = str(int(now // DAY))
        return [Notice(kind=Kind.CERTIFICATE, at=now, words="soon over", source=day, subject="the coordinator")]

    couriers = [scene.courier(watch=soon) for _ in range(2)]
    for courier in couriers * 2:
        courier.step()
    assert len(scene.receiver.got) == 1
    scene.clock.advance(DAY)
    for courier in couriers * 2:
        courier.step()
    assert [json.loads(got.body)["kind"] for got in scene.receiver.got] == ["certificate"] * 2
