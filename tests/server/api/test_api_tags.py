"""Answers that have not changed, ranges of files, and lists in pages."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from api_world import EXPERIMENT, Coordinator, refused
from fastapi.testclient import TestClient

from tideline_server.api.requests.conditional import OutOfRange, Span, matches, span_of
from tideline_server.api.services import DEFAULTS
from tideline_server.main import described


def test_a_state_that_is_known_is_not_told_again(coordinator: Coordinator) -> None:
    """While nothing moves, 304 and no body; afterwards the new state with another tag."""
    run = coordinator.start()
    for path in ("/runs", f"/runs/{run}", "/clients", "/algorithms", "/algorithms/fedavg", "/keys", "/whoami"):
        first = coordinator.get(path)
        tag = first.headers["etag"]
        assert re.fullmatch(r'W/"[0-9a-f]{32}"', tag) and first.headers["cache-control"] == "private, no-cache"
        again = coordinator.get(path, headers={"If-None-Match": f'"other", {tag}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag), path
        assert "content-type" not in again.headers and "content-length" not in again.headers
    tag = coordinator.get(f"/runs/{run}").headers["etag"]
    coordinator.post(f"/runs/{run}/cancel")
    moved = coordinator.get(f"/runs/{run}", headers={"If-None-Match": tag})
    assert moved.status_code == 200 and moved.headers["etag"] != tag and moved.json()["status"] == "cancelled"


def test_what_is_no_state_has_no_tag(coordinator: Coordinator) -> None:
    """Refusals, streams, and answers to what changes something."""
    run = coordinator.start()
    for answer in (
        coordinator.get("/runs/nosuch"),
        coordinator.get(f"/runs/{run}/events?follow=false"),
        coordinator.post("/invites", {}),
    ):
        assert "etag" not in answer.headers
    assert coordinator.get("/runs/nosuch", headers={"If-None-Match": "*"}).status_code == 404


def test_tags_are_compared_weakly() -> None:
    """As If-None-Match is."""
    for known in (['"a"'], ['W/"a"'], ["*"], ['"b", "a"'], ['"b"', '"a"']):
        assert matches(known, '"a"') and matches(known, 'W/"a"'), known
    for unknown in (["a"], [], [""]):
        assert not matches(unknown, '"a"') and not matches(unknown, 'W/"a"'), unknown


SIZE = 10
RANGES: dict[str | None, tuple[int, int] | None] = {
    "bytes=0-4": (0, 5),
    "bytes=5-": (5, 10),
    "bytes=-3": (7, 10),
    "bytes=-99": (0, 10),
    "bytes=0-99": (0, 10),
    "bytes=9-9": (9, 10),
    "Bytes=0-0": (0, 1),
}
WHOLE = (None, "", "bytes=0-0,2-3", "bytes=4-2", "bytes=-", "bytes=a-b", "bytes 0-4", "lines=0-4", "bytes=\u0663-4")
WHOLE += ("bytes=+1-4", "bytes=0x1-4", "bytes=" + "9" * 30 + "-")


def test_ranges(subtests: pytest.Subtests) -> None:
    """One range within the file is given; what is not understood, or several, means the whole."""
    for header, ends in (RANGES | dict.fromkeys(WHOLE)).items():
        with subtests.test(str(header)[:20]):
            assert span_of(header, SIZE) == (None if ends is None else Span(*ends, SIZE))


def test_ranges_that_the_file_does_not_have() -> None:
    """None of its bytes."""
    for header in ("bytes=10-", "bytes=10-20", "bytes=-0", "bytes=9999999999999999999-"):
        with pytest.raises(OutOfRange, match="10 bytes"):
            span_of(header, SIZE)
    with pytest.raises(OutOfRange):
        span_of("bytes=0-", 0)


@pytest.fixture(scope="module")
def part(ended: Coordinator) -> tuple[Coordinator, str, bytes]:
    """A file of a final state: where it is, its digest, and its bytes."""
    digest = ended.get(f"/runs/{ended.run}/files").json()["root"]
    path = f"/parts/{digest}?run={ended.run}"
    return ended, path, ended.get(path).content


def test_a_file_never_changes(part: tuple[Coordinator, str, bytes]) -> None:
    """Its tag is its digest, and it may be kept for good, by whoever has the key."""
    coordinator, path, whole = part
    answer = coordinator.get(path)
    digest = path.removeprefix("/parts/").partition("?")[0]
    assert answer.headers["etag"] == f'"{digest}"' and "immutable" in answer.headers["cache-control"]
    assert "private" in answer.headers["cache-control"] and answer.headers["accept-ranges"] == "bytes"
    again = coordinator.get(path, headers={"If-None-Match": answer.headers["etag"], "Range": "bytes=0-1"})
    assert (again.status_code, again.content) == (304, b"")
    assert coordinator.get(path, headers={"If-None-Match": '"other"'}).content == whole


def test_a_range_of_a_file(part: tuple[Coordinator, str, bytes]) -> None:
    """206 with its place; the pieces are those of the whole."""
    coordinator, path, whole = part
    for header, begin, end in (("bytes=0-0", 0, 1), ("bytes=7-", 7, None), ("bytes=-5", -5, None)):
        answer, wanted, first = coordinator.get(path, headers={"Range": header}), whole[begin:end], begin % len(whole)
        assert (answer.status_code, answer.content) == (206, wanted)
        assert answer.headers["content-range"] == f"bytes {first}-{first + len(wanted) - 1}/{len(whole)}"
        assert answer.headers["content-length"] == str(len(wanted))


def test_a_range_if_it_is_the_same_file(part: tuple[Coordinator, str, bytes]) -> None:
    """If-Range with another tag, or with a date, gives the whole; several ranges do, too; one behind the end is refused."""
    coordinator, path, whole = part
    tag = coordinator.get(path).headers["etag"]
    assert coordinator.get(path, headers={"Range": "bytes=0-1", "If-Range": tag}).status_code == 206
    for other in ('"other"', f"W/{tag}", "Wed, 21 Oct 2015 07:28:00 GMT"):
        assert coordinator.get(path, headers={"Range": "bytes=0-1", "If-Range": other}).content == whole
    assert coordinator.get(path, headers={"Range": "bytes=0-1,3-4"}).content == whole
    answer = coordinator.get(path, headers={"Range": f"bytes={len(whole)}-"})
    refused(answer, 416, "Malformed")
    assert answer.headers["content-range"] == f"bytes */{len(whole)}"


def followed(coordinator: Coordinator, path: str) -> list[Any]:
    """Every page of a list, by its links."""
    pages = []
    while path:
        answer = coordinator.get(path)
        assert answer.status_code == 200, answer.text
        pages.append(answer)
        found = re.fullmatch(r'<([^>]+)>; rel="next"', answer.headers.get("link", '<>; rel="next"'))
        path = found[1] if found else ""
    return pages


def test_links_lead_through_a_list(coordinator: Coordinator) -> None:
    """Each page names the next, the last none, also where it is full; the other parameters stay."""
    for at in range(4):
        coordinator.post("/runs", EXPERIMENT | {"name": f"number {at}"})
        coordinator.post("/keys", {"name": f"key-{at}", "role": "viewer"})
    for path in ("/runs", "/keys"):
        for limit in (1, 2, 3, 4, 5):
            pages = [answer.json() for answer in followed(coordinator, f"{path}?limit={limit}")]
            assert [row for page in pages for row in page] == coordinator.get(path).json()
            assert all(len(page) == limit for page in pages[:-1]) and pages[-1]
    refused(coordinator.get("/keys?after=nosuch"), 404, "NotFound")
    refused(coordinator.get("/keys?limit=0"), 422, "ConfigRefused", "limit")


def test_links_lead_through_events(ended: Coordinator) -> None:
    """Pages of events together are all of them; a stream that goes on has none."""
    whole = ended.get(f"/runs/{ended.run}/events?follow=false").text
    for limit in (1, 3, 1000):
        pages = followed(ended, f"/runs/{ended.run}/events?follow=false&limit={limit}")
        assert "".join(page.text for page in pages) == whole
    told = refused(ended.get(f"/runs/{ended.run}/events?limit=2"), 422, "ConfigRefused", "limit")
    assert "follow=false" in told["todo"]


def test_the_description_is_made_once_and_has_its_tag(coordinator: Coordinator) -> None:
    """The same bytes for everybody, and none for whoever has them; made before a coordinator listens."""
    app = asyncio.run(described(coordinator.services, DEFAULTS))
    made = app.made
    assert json.loads(made)["info"]["title"] == "Tideline coordinator"
    with TestClient(app) as asking:
        first = asking.get("/openapi.json")
        again = asking.get("/openapi.json", headers={"If-None-Match": first.headers["etag"]})
    assert app.made is made and first.content == made and first.headers["cache-control"] == "private, no-cache"
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
