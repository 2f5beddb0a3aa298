"""The stream of changes: who hears what, how it ends, and that many listeners cost no more looks than one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from api_world import EXPERIMENT, HOME_KEY, OWN, QUICK, refused
from following import following
from test_api_key_sessions import Door
from test_changes import CountedJournal

from tests.server.loops import LONG, on_a_loop
from tideline.core.errors import Unreachable
from tideline_server.api.requests.cookies import SESSION
from tideline_server.feed.watching import MOST_WAITING, Feed, Listener, Watch

SOON = {"poll_seconds": 0.001, "recheck_seconds": 0.001, "keep_alive_seconds": 0.001}
PATIENT = {"poll_seconds": 0.001, "recheck_seconds": 1e6, "keep_alive_seconds": 1e6}


@pytest.fixture
def door() -> Door:
    """A coordinator with two projects, whose streams look often and never ask whether they may go on."""
    door = Door(**PATIENT)
    door.add_project("retina")
    return door


async def start(door: Door, **changes: Any) -> str:
    """A run."""
    answer = await door.asend("POST", "/runs", json=EXPERIMENT | changes, headers=OWN)
    return str(answer.json()["run"])


@on_a_loop
async def test_a_page_hears_what_changes(door: Door) -> None:
    """First who greets; then each line as the list has it, who is gone, that sites changed."""
    async with following(door.app, "/changes", OWN) as (page, _):
        assert page.status == 200 and page.headers["content-type"].startswith("text/event-stream")
        assert page.headers["cache-control"] == "no-cache" and page.headers["x-accel-buffering"] == "no"
        assert await page.until(1) == [("hello", {"version": "1.2.3", "now": door.clock.at})]
        run = await start(door)
        (_, (kind, line)) = await page.until(2)
        assert kind == "run" and [line] == (await door.asend("GET", "/runs", headers=OWN)).json()
        await door.asend("POST", f"/runs/{run}/cancel", headers=OWN)
        assert (await page.until(3))[2][1]["status"] == "cancelled"
        await door.asend("DELETE", f"/runs/{run}", headers=OWN)
        assert (await page.until(4))[3] == ("gone", {"run": run})
        await asyncio.to_thread(door.join, "dora")
        assert (await page.until(5))[4] == ("sites", {})


@on_a_loop
async def test_nothing_is_told_to_another_project(door: Door) -> None:
    """A viewer of retina hears of retina's run, and of no other; who sees all may name one in the address, and hears the same."""
    viewer, operator = door.add_key("bob", "viewer", "retina"), door.add_key("olga", "operator", "retina")
    async with AsyncExitStack() as pages:
        every, theirs, named = [
            (await pages.enter_async_context(following(door.app, path, headers)))[0]
            for path, headers in (("/changes", OWN), ("/changes", viewer), ("/changes?project=retina", OWN))
        ]
        for page in (every, theirs, named):
            await page.until(1)
        for run in (await start(door), await start(door)):
            await door.asend("POST", f"/runs/{run}/cancel", headers=OWN)
            await door.asend("DELETE", f"/runs/{run}", headers=OWN)
        await asyncio.to_thread(door.join, "dora")
        own = EXPERIMENT | {"roster": {"dora": "source"}}
        await door.asend("POST", "/clients/dora/projects", json={"projects": ["retina"]}, headers=OWN)
        answer = await door.asend("POST", "/runs", json=own, headers=operator)
        assert answer.status_code == 201, answer.text
        last = ("run", answer.json()["run"])
        for page in (theirs, named):
            while (told := page.events[-1])[0] != "run":
                await page.until(len(page.events) + 1)
            assert (told[0], told[1]["id"]) == last
            assert {kind for kind, _ in page.events} == {"hello", "sites", "run"}
            assert {data["project"] for kind, data in page.events if kind == "run"} == {"retina"}
        while every.events[-1][0] != "run" or every.events[-1][1]["id"] != last[1]:
            await every.until(len(every.events) + 1)
        assert {kind for kind, _ in every.events} >= {"hello", "run", "sites"}


@on_a_loop
async def test_fifty_pages_share_the_looks(door: Door) -> None:
    """However many listen: one first look, and from then on each change found once and told to all. After the last has gone
    nothing looks; who comes then is greeted after a first look of his own.
    """
    journal = CountedJournal(door.services.journal)
    door.wear(journal=journal)
    journal.calls.clear()
    async with AsyncExitStack() as pages:
        streams = [(await pages.enter_async_context(following(door.app, "/changes", OWN)))[0] for _ in range(50)]
        await start(door)
        for page in streams:
            assert [kind for kind, _ in await page.until(2)] == ["hello", "run"]
        assert journal.calls["audit_tip"] == 1 and journal.calls["clients"] <= 2
        assert abs(journal.calls["current"] - 1 - journal.calls["mentions"]) <= 1, "one of each in a look"
    watch = next(iter(door.app.state.feed._of.values()))
    assert watch._polling is None and not watch._listeners
    async with following(door.app, "/changes", OWN) as (page, _):
        await page.until(1)
        assert journal.calls["audit_tip"] == 2


@on_a_loop
async def test_a_page_that_comes_again_is_greeted(door: Door) -> None:
    """Also with the number of an event: what it missed stands in the lists, which it loads again."""
    async with following(door.app, "/changes", OWN) as (page, _):
        await page.until(1)
    run = await start(door)
    async with following(door.app, "/changes", OWN | {"Last-Event-ID": "7"}) as (page, _):
        assert [kind for kind, _ in await page.until(1)] == ["hello"]
        await door.asend("POST", f"/runs/{run}/cancel", headers=OWN)
        assert [data["status"] for _, data in (await page.until(2))[1:]] == ["cancelled"]


@pytest.mark.parametrize("path", ["/changes", "/runs/{run}/events"])
@pytest.mark.parametrize("how", ["key revoked", "session ended", "signed out", "session expired", "key in the header revoked"])
@on_a_loop
async def test_a_stream_ends_with_what_it_was_begun_by(path: str, how: str) -> None:
    """A page's session, or a key: when it is not good any more, nothing more is heard."""
    door = Door(**SOON)
    key = door.key("bob", "viewer")
    page = door.signed_in(key) if "header" not in how else {"Authorization": f"Bearer {key}"}
    run = door.post("/runs", EXPERIMENT, headers=OWN).json()["run"]
    async with following(door.app, path.format(run=run), {"Cookie": ""} | page) as (stream, call):
        await stream.until(1)
        assert not call.done()
        if how == "session expired":
            door.clock.at += 9 * 3600.0
        elif how == "session ended":
            (row,) = (await door.asend("GET", "/sessions", headers=OWN)).json()
            await door.asend("DELETE", f"/sessions/{row['id']}", headers=OWN)
        elif how == "signed out":
            await door.asend("POST", "/sign-out", headers=page)
        else:
            await door.asend("DELETE", "/keys/bob", headers=OWN)
        await asyncio.wait_for(asyncio.shield(call), LONG)
        before = stream.text
        await door.asend("POST", f"/runs/{run}/cancel", headers=OWN)
        assert stream.text == before and "cancelled" not in before
    refused(await door.asend("GET", path.format(run=run), headers=page), 401, "IdentityRefused")


@on_a_loop
async def test_a_stream_ends_when_nobody_can_say_who_listens() -> None:
    """Where the store is away that knows the sessions: the page comes again, and is let in once it is back."""
    door = Door(**SOON)
    page = door.signed_in(door.key("bob", "viewer"))
    journal = CountedJournal(door.services.journal)
    door.wear(journal=journal)
    async with following(door.app, "/changes", page) as (stream, call):
        await stream.until(1)
        journal.away = "user_session"
        await asyncio.wait_for(asyncio.shield(call), LONG)
    refused(await door.asend("GET", "/changes", headers=page), 503, "Unreachable")
    journal.away = "audit_tip"
    refused(await door.asend("GET", "/changes", headers=page), 503, "Unreachable")
    journal.away = ""
    async with following(door.app, "/changes", page) as (stream, _):
        await stream.until(1)


@on_a_loop
async def test_a_stream_ends_when_the_coordinator_closes() -> None:
    """By itself, so that nobody has to cut it; meanwhile comments keep it open."""
    door, closing = Door(**{**SOON, "recheck_seconds": 1e6}), asyncio.Event()
    door.wear(ending=closing.is_set)
    async with following(door.app, "/changes", OWN) as (stream, call):
        await stream.until(1)
        while ": still here\n\n" not in stream.text:
            await asyncio.sleep(0)
        closing.set()
        await asyncio.wait_for(asyncio.shield(call), LONG)


def test_a_page_of_a_session_needs_no_header(door: Door) -> None:
    """Browsers send none with a stream, but the cookie; no other cookie is one."""
    page = door.signed_in(HOME_KEY)
    cookie = {"Cookie": page["Cookie"]}
    answer = door.get("/changes?follow=false", headers=cookie)
    assert answer.status_code == 200 and answer.text.startswith("retry: 3000\nevent: hello\n")
    refused(door.get("/changes"), 401, "IdentityRefused")
    refused(door.get("/changes", headers={"Cookie": f"{SESSION}=x"}), 401, "IdentityRefused")
    refused(door.get("/changes?project=nothing", headers=cookie), 404, "NotFound", "project")
    assert door.get("/runs?project=nothing", headers=cookie).status_code == 200, "elsewhere it is the header alone"


@on_a_loop
async def test_who_takes_nothing_begins_anew() -> None:
    """A page that sleeps holds a bounded number of batches; then its stream is over."""
    listener = Listener[int]()
    for _ in range(MOST_WAITING):
        listener.give([1])
    assert not listener.over
    listener.give([1])
    assert listener.over and await listener.next(0.0) == [1]


@on_a_loop
async def test_looks_go_on_after_one_that_failed() -> None:
    """What is found later is told; a fault that nobody expected ends the streams, which then begin anew."""
    steps: list[Any] = [Unreachable("away", "wait"), Unreachable("away", "wait"), [1], [], ValueError("a fault")]

    def poll() -> Sequence[int]:
        step = steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return list(step)

    begun = list[int]()
    feed = Feed(lambda: begun.append(1) or poll, 0.0)  # type: ignore[func-returns-value]
    watch, listener = await feed.join()
    assert await listener.next(LONG) == [1] and not listener.over
    while not listener.over:
        await asyncio.sleep(0)
    steps[:] = [[2], *[[]] * 10_000]
    again, other = await feed.join()
    assert again is watch and await other.next(LONG) == [2] and begun == [1, 1]
    watch.leave(listener)
    assert watch._polling is not None
    watch.leave(other)
    assert watch._polling is None


@on_a_loop
async def test_two_who_come_at_once_share_the_first_look() -> None:
    """And one that fails leaves nothing behind."""
    begun = list[int]()

    def begin() -> Callable[[], Sequence[int]]:
        begun.append(1)
        if len(begun) == 1:
            raise Unreachable("away", "wait")
        return lambda: ()

    watch = Watch(begin, 1e6)
    with pytest.raises(Unreachable):
        await watch.join()
    listeners = await asyncio.gather(*(watch.join() for _ in range(5)))
    assert begun == [1, 1] and len(set(map(id, listeners))) == 5
    for listener in listeners:
        watch.leave(listener)


def test_the_plain_defaults() -> None:
    """A look a second, and five seconds until a stream of who may not follow it ends."""
    assert (QUICK.poll_seconds, QUICK.recheck_seconds) == (1.0, 5.0)
