"""The stream of a run's events: complete, in order, resumable, and it ends."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anyio
import pytest
from api_world import Coordinator, refused
from following import following

from tests.server.loops import LONG
from tideline_server.api import ApiSettings


def parsed(text: str) -> list[dict[str, Any]]:
    """The events of a stream; id and event must say what data says."""
    found = []
    for block in text.split("\n\n"):
        lines = [line.partition(": ")[::2] for line in block.splitlines() if not line.startswith(":")]
        if lines:
            fields = dict(lines)
            data = json.loads(fields["data"])
            assert (int(fields["id"]), fields["event"]) == (data["seq"], data["kind"])
            found.append(data)
    return found


def recorded(coordinator: Coordinator, run: str, after: int = 0) -> list[dict[str, Any]]:
    """The journal's events in the stream's shape."""
    events = coordinator.federation.journal.events(run, after)  # type: ignore[arg-type]
    row = coordinator.federation.journal.run(run)  # type: ignore[arg-type]
    assert row is not None
    places = {-1: {"phase": "join", "round": 1}} | {i: {"phase": f.phase, "round": f.round} for i, f in enumerate(row.plan)}
    where = [places[e.data["cursor"]] if "client" in e.data else {} for e in events]
    return [{"seq": e.seq, "at": e.at, "kind": e.kind, "data": {**e.data, **at}} for e, at in zip(events, where, strict=True)]


def test_the_past_is_told_in_order(ended: Coordinator) -> None:
    """A finished run's stream holds every event of the journal and ends by itself, with the completion last."""
    answer = ended.get(f"/runs/{ended.run}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    told = parsed(answer.text)
    assert told == recorded(ended, ended.run)
    assert (told[0]["kind"], told[-1]["kind"]) == ("created", "completed")


def test_a_stream_begins_where_it_is_asked_to(ended: Coordinator) -> None:
    """With the newest so many, or at a time; what was seen counts before either."""
    told = recorded(ended, ended.run)
    for last in (1, 3, len(told), len(told) + 5):
        assert parsed(ended.get(f"/runs/{ended.run}/events?last={last}").text) == told[-last:]
    since = told[len(told) // 2]["at"]
    later = [event for event in told if event["at"] >= since]
    assert parsed(ended.get(f"/runs/{ended.run}/events?since={since}").text) == told[-len(later) :]
    assert parsed(ended.get(f"/runs/{ended.run}/events?since={told[-1]['at'] + 1}").text) == []
    assert parsed(ended.get(f"/runs/{ended.run}/events?last=2", headers={"Last-Event-ID": "1"}).text) == told[1:]
    refused(ended.get(f"/runs/{ended.run}/events?last=0"), 422, "ConfigRefused", "last")


def test_a_cut_stream_goes_on_without_loss_or_repeat(ended: Coordinator) -> None:
    """Wherever a stream was cut, Last-Event-ID or ?after= gives exactly the rest; the header wins over the address."""
    n_events = len(recorded(ended, ended.run))
    for cut in range(n_events + 2):
        rest = recorded(ended, ended.run, cut)
        headers = {"Last-Event-ID": str(cut)}
        assert parsed(ended.get(f"/runs/{ended.run}/events", headers=headers).text) == rest
        assert parsed(ended.get(f"/runs/{ended.run}/events?after={cut}").text) == rest
        assert parsed(ended.get(f"/runs/{ended.run}/events?after=1", headers=headers).text) == rest


def test_a_wrong_place_is_refused(ended: Coordinator) -> None:
    """Events are counted from 1; anything else is refused with the parameter's name."""
    for value in ("-1", "first", str(1 << 64)):
        refused(ended.get(f"/runs/{ended.run}/events", params={"after": value}), 422, "ConfigRefused", "after")
        refused(ended.get(f"/runs/{ended.run}/events", headers={"Last-Event-ID": value}), 422, "ConfigRefused", "last-event-id")


async def followed(coordinator: Coordinator, run: str) -> str:
    """The whole stream of a run that is played meanwhile on another thread."""
    texts = []

    async def follow() -> None:
        texts.append((await coordinator.asend("GET", f"/runs/{run}/events")).text)

    with anyio.fail_after(LONG):
        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            await anyio.to_thread.run_sync(coordinator.play, run)
    return texts[0]


def test_a_run_is_followed_to_its_end(coordinator: Coordinator) -> None:
    """A follower from the beginning is told every event while the run is played, and is let go at its completion."""
    run = coordinator.start()
    told = parsed(anyio.run(followed, coordinator, run))
    assert told == recorded(coordinator, run)
    assert told[-1]["kind"] == "completed"


@pytest.mark.nightly(job="services")
def test_a_bell_that_never_rings_loses_nothing() -> None:
    """The bell is a hint: with one that is always lost, every event arrives all the same."""

    async def lost(topic: str, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            await anyio.Event().wait()
        return False

    coordinator = Coordinator(moved=lost)
    run = coordinator.start()
    assert parsed(anyio.run(followed, coordinator, run)) == recorded(coordinator, run)


def test_an_impatient_bell_makes_no_noise() -> None:
    """Comments come after a quiet while, not whenever a wait was cut short."""

    async def impatient(topic: str, seconds: float) -> bool:
        await anyio.lowlevel.checkpoint()
        return False

    coordinator = Coordinator(ApiSettings(keep_alive_seconds=3600), moved=impatient)
    run = coordinator.start()
    assert ": still here" not in anyio.run(followed, coordinator, run)


async def heard(coordinator: Coordinator, run: str, enough: str) -> str:
    """The text of a stream that its reader leaves as soon as it has seen enough."""
    async with following(coordinator.app, f"/runs/{run}/events", {}) as (stream, _):
        await stream.until_text(enough)
    return stream.text


def test_a_quiet_stream_is_kept_alive(coordinator: Coordinator) -> None:
    """While nothing happens, comments keep proxies from cutting the line; a client that leaves is let go."""
    run = coordinator.start()
    assert [e["kind"] for e in parsed(asyncio.run(heard(coordinator, run, ": still here\n\n")))] == ["created"]


def test_a_follower_that_left_in_the_middle_comes_back(coordinator: Coordinator) -> None:
    """Leaving an open run's stream and coming back with the last number gives each event once."""
    run = coordinator.start()
    first = parsed(asyncio.run(heard(coordinator, run, "event: created")))
    coordinator.play(run)
    rest = coordinator.get(f"/runs/{run}/events", headers={"Last-Event-ID": str(first[-1]["seq"])})
    assert first + parsed(rest.text) == recorded(coordinator, run)


def test_a_cancelled_run_ends_its_streams(coordinator: Coordinator) -> None:
    """Whoever follows a run that is cancelled is told so, and let go."""
    run = coordinator.start()

    async def main() -> str:
        async with following(coordinator.app, f"/runs/{run}/events", {}) as (stream, call):
            await coordinator.asend("POST", f"/runs/{run}/cancel")
            await asyncio.wait_for(asyncio.shield(call), LONG)
        return stream.text

    assert [e["kind"] for e in parsed(asyncio.run(main()))] == ["created", "cancelled"]
