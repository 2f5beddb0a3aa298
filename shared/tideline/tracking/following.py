"""Follows runs at a coordinator and writes them down, each on its page.

A follower looks again and again: at the list of runs, then at the events of each behind the mark on its page. It asks, and is
sent nothing: a follower that waits for its tracker holds no line to the coordinator, and no more than one page of events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote

import tenacity

from tideline.client.answers import RunLine, RunResult
from tideline.client.http import Client
from tideline.core.errors import Deleted, FederationError, IdentityRefused, Refused
from tideline.engine.model.runs import FINAL
from tideline.tracking.cards import card_of, tags_of
from tideline.tracking.numbers import Numbers, check_order, costs, events_in, rounds_in, totals
from tideline.tracking.outputs import Wanted, outputs
from tideline.tracking.pages import Ending, Page, Point, Tracker, trouble

AT_ONCE = 1000  # events that are read together
REST_SECONDS, MOST_REST_SECONDS = 2.0, 30.0  # between two looks
SHARE = 20  # a look takes one part in so many of the time, unless that were too rare
MOST_FAILED = 3  # runs of one look whose tracker or coordinator did not answer
PAUSES = tenacity.wait_random_exponential(multiplier=1.0, max=60.0)  # while somebody does not answer
ASIDE_SECONDS = 600.0  # for which a run that the tracker refuses is left alone
CLOSED, ANSWERED = "closed", "answered"
Say = Callable[[str], None]
Asked = Callable[[RunLine], bool]


class Pace(Protocol):
    """Time, in seconds since the epoch, and rest."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


@dataclass
class Followed:
    """A run while it is followed. seen: its last event that was read; tags: as they were last written."""

    page: Page
    numbers: Numbers
    seen: int
    tags: dict[str, str] = field(default_factory=dict)


class Follower:
    """Follows the runs of a coordinator that are asked for, with those that belong to them.

    alone: whether what a tracker refuses of one run is an error; else that run is put aside, and said.
    """

    def __init__(self, client: Client, tracker: Tracker, wanted: Wanted, pace: Pace, say: Say, alone: bool = False) -> None:
        self._client, self._tracker, self._wanted, self._pace = client, tracker, wanted, pace
        self._say, self._alone = say, alone
        self._followed: dict[str, Followed] = {}
        self._over: set[str] | None = None
        self._aside: dict[str, float] = {}

    def follow(self, asked: Asked, forever: bool) -> None:
        """Look until all that was asked for is over, or without end. Who does not answer is asked again."""
        while True:
            began = self._pace.now()
            left = self._insisting()(self.poll, asked)
            if not left and not forever:
                return
            self._pace.sleep(min(max(REST_SECONDS, SHARE * (self._pace.now() - began)), MOST_REST_SECONDS))

    def _insisting(self) -> tenacity.Retrying:
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception(may_pass),
            wait=PAUSES,
            sleep=self._pace.sleep,
            before_sleep=self._warn_once(),
            reraise=True,
        )

    def _warn_once(self) -> Callable[[tenacity.RetryCallState], None]:
        """Says what is wrong when it begins, and when it changes."""
        last = ""

        def report(state: tenacity.RetryCallState) -> None:
            nonlocal last
            error = state.outcome.exception() if state.outcome else None
            words = trouble(error) if isinstance(error, FederationError) else str(error)
            if words != last:
                self._say(f"{words}. Trying again until it does; nothing is lost meanwhile")
            last = words

        return report

    def poll(self, asked: Asked) -> bool:
        """Write down what is new of each run. Whether any that was asked for is not over.

        Raises what went wrong with the first run for which waiting may help, once the others had their turn.
        """
        if self._over is None:
            self._over = set(self._tracker.written())
        lines: list[RunLine] = self._client.get("/runs")
        self._drop_all_but(lines)
        left, failed = False, list[FederationError]()
        for line in family_of(lines, asked):
            if line["id"] in self._over or self._aside.get(line["id"], 0.0) > self._pace.now():
                continue
            children = [each for each in lines if each["parent"] == line["id"]]
            try:
                left = not self._written(line, all(each["status"] in FINAL for each in children)) or left
            except FederationError as error:
                failed.append(error)
                if isinstance(error, Refused) or len(failed) == MOST_FAILED:
                    break
        if failed:
            raise next((error for error in failed if isinstance(error, Refused)), failed[0])
        return left

    def _drop_all_but(self, lines: Sequence[RunLine]) -> None:
        """Close the pages of runs that were deleted before they were wholly written."""
        there = {line["id"] for line in lines}
        for run in [run for run in self._followed if run not in there]:
            self._followed.pop(run).page.close(Ending("deleted", self._pace.now()))

    def _written(self, line: RunLine, may_end: bool) -> bool:
        """Whether all of a run stands on its page now. A page whose write failed is opened anew: it says how far it is."""
        run = line["id"]
        try:
            done = self._advance(line, may_end)
        except Refused as error:
            self._followed.pop(run, None)
            if self._alone or isinstance(error, IdentityRefused):
                raise
            if not isinstance(error, Deleted):  # by somebody, since the list was read
                self._say(f"Run {run} is put aside for {ASIDE_SECONDS / 60:.0f} minutes: {trouble(error)}")
                self._aside[run] = self._pace.now() + ASIDE_SECONDS
            return False
        except FederationError:
            self._followed.pop(run, None)
            raise
        if done:
            self._followed.pop(run, None)
            assert self._over is not None
            self._over.add(run)
        return done

    def _advance(self, line: RunLine, may_end: bool) -> bool:
        """Write down one run as far as it is. The list was read before its events: who is over there has no more to tell."""
        of = self._followed.get(line["id"]) or self._opened(line)
        self._followed[line["id"]] = of
        if of.page.over:
            return True
        while self._page_of_events(of, line):
            pass
        if line["status"] in FINAL and may_end:
            self._end(of, line)
            return True
        if of.tags["tideline.status"] != line["status"]:
            self._update(of, self._result(line), line)
        return False

    def _opened(self, line: RunLine) -> Followed:
        result = self._result(line)
        card = card_of(result, line)
        page = self._tracker.page(card)
        if not page.over:
            page.set_tags(card.tags)  # it may be an old page, of a run that was elsewhere then
        return Followed(page, Numbers(result["contract"]), page.mark, dict(card.tags))

    def _result(self, line: RunLine, history: bool = False) -> RunResult:
        return self._client.run(f"{quote(line['id'], safe='')}{'?history=true' if history else ''}")

    def _page_of_events(self, of: Followed, line: RunLine) -> bool:
        """Write down the next events. Whether there may be more."""
        events = self._client.events(quote(line["id"], safe=""), of.seen, limit=AT_ONCE)
        points = list[Point]()
        if not check_order(events, of.seen):
            points += points_of_history(self._result(line, history=True), of.numbers, line["created"])
        rounds = rounds_in(self._result(line)) if any(each["kind"] == CLOSED for each in events) else {}
        mark = of.page.mark
        for event in events:
            found = of.numbers.answered(event) if event["kind"] == ANSWERED else ()
            if event["kind"] == CLOSED:
                found, mark = of.numbers.closed(event, rounds), event["seq"]
            points += pointed(found, event.get("at", line["created"]))
        if points or mark > of.page.mark:
            of.page.write(points, mark)
        of.seen = events[-1]["seq"] if events else of.seen
        return len(events) == AT_ONCE

    def _update(self, of: Followed, result: RunResult, line: RunLine, **more: str) -> None:
        tags = tags_of(result, line) | more
        of.page.set_tags({name: value for name, value in tags.items() if of.tags.get(name) != value})
        of.tags |= tags

    def _end(self, of: Followed, line: RunLine) -> None:
        """Write down what is known at the end alone, then that it is all."""
        result = self._result(line, history=True)
        ended = line.get("ended") or line["created"] + (result["seconds"] or 0.0)
        of.page.write(list(pointed(totals(result, of.numbers.declared), ended)), of.page.mark)
        with outputs(self._client, result, self._wanted) as made:
            if made.without:
                self._say(f"Run {line['id']} is written without a model: {made.without}")
            of.page.attach(made.folder, made.models)
        of.page.close(Ending(result["status"], ended, tags_of(result, line)))


def may_pass(error: BaseException) -> bool:
    """Whether waiting may help: everything of ours but a refusal."""
    return isinstance(error, FederationError) and not isinstance(error, Refused)


def family_of(lines: Iterable[RunLine], asked: Asked) -> list[RunLine]:
    """The runs that are asked for, and behind them those that belong to them: their pages name the page of their parent."""
    listed = list(lines)
    wanted = {line["id"] for line in listed if asked(line)}
    members = [line for line in listed if line["id"] in wanted or line["parent"] in wanted]
    return sorted(members, key=lambda line: line["parent"] is not None)


def pointed(found: Iterable[tuple[str, int, float]], at: float) -> Iterator[Point]:
    return (Point(key, step, value, at) for key, step, value in found)


def points_of_history(result: RunResult, numbers: Numbers, at: float) -> Iterator[Point]:
    """Every point that a result with its history has, in place of events that a rule of age has deleted. It has no times."""
    for event in events_in(result):
        found = numbers.answered(event) if event["kind"] == ANSWERED else numbers.closed(event, {})
        yield from pointed(found, at)
    for closed in result["phases"]:
        yield from pointed(costs(closed), at)
