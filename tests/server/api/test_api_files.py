"""Fetching a final state."""

from __future__ import annotations

from api_world import Coordinator, refused

from tideline.archive.digests import digest_of
from tideline.archive.layout import parse
from tideline_server.api.routes.files import CHUNK_BYTES, chunks


def test_a_final_state_can_be_rebuilt(ended: Coordinator) -> None:
    """Every file that the state names comes whole: its bytes have its digest, and the root is the result's digest."""
    named = ended.get(f"/runs/{ended.run}/files").json()
    assert named["root"] == named["files"][0][0] == ended.get(f"/runs/{ended.run}").json()["state_digest"]
    got = [ended.get(f"/parts/{digest}?run={ended.run}") for digest, _ in named["files"]]
    assert [[digest_of([g.content]), len(g.content)] for g in got] == named["files"]
    assert all(g.headers["content-length"] == str(len(g.content)) for g in got)
    assert [list(each) for each in parse(memoryview(got[0].content)).parts] == named["files"][1:]


def test_there_is_no_final_state_before_the_end(coordinator: Coordinator) -> None:
    """An open and a cancelled run are a conflict, with their status."""
    run = coordinator.start()
    assert "is waiting" in refused(coordinator.get(f"/runs/{run}/files"), 409, "Refused")["detail"]
    refused(coordinator.get(f"/parts/b3-{'0' * 64}?run={run}"), 409, "Refused")
    coordinator.post(f"/runs/{run}/cancel")
    assert "is cancelled" in refused(coordinator.get(f"/runs/{run}/files"), 409, "Refused")["detail"]


def test_a_half_done_state_is_not_given_out(coordinator: Coordinator) -> None:
    """A run that was cancelled on its way keeps its last checkpoint to itself."""
    run, federation = coordinator.start(), coordinator.federation
    for order in list(federation.waiting()):
        federation.handle(order)
    row = federation.run_service.find(run)  # type: ignore[arg-type]
    federation.turn([row.id])
    coordinator.post(f"/runs/{run}/cancel")
    (root, _), *_ = federation.journal.rounds(row.id)[-1].state
    refused(coordinator.get(f"/parts/{root}?run={run}"), 409, "Refused")


def test_a_digest_alone_opens_nothing(coordinator: Coordinator) -> None:
    """What sites sent, and the states of other runs, cannot be fetched by knowing their digests."""
    run, other = coordinator.start(), coordinator.start(seed=4)
    coordinator.play(run)
    coordinator.play(other)
    (root, _), *_ = coordinator.get(f"/runs/{other}/files").json()["files"]
    assert coordinator.get(f"/parts/{root}?run={other}").status_code == 200
    refused(coordinator.get(f"/parts/{root}?run={run}"), 404, "NotFound")
    held = coordinator.federation.parts.put([b"what a site sent"])
    refused(coordinator.get(f"/parts/{held}?run={run}"), 404, "NotFound")


def test_a_part_needs_its_run_and_a_whole_digest(ended: Coordinator) -> None:
    """Without a run, or with something that is no digest, nothing is looked for."""
    refused(ended.get(f"/parts/b3-{'0' * 64}"), 422, "ConfigRefused", "run")
    refused(ended.get(f"/parts/..%2Fsecret?run={ended.run}"), 404, "NotFound")
    refused(ended.get(f"/parts/abc?run={ended.run}"), 422, "ConfigRefused", "digest")


def test_a_part_that_is_gone_is_not_found(coordinator: Coordinator) -> None:
    """A store that lost a file says so, in the one shape."""
    run = coordinator.start()
    coordinator.play(run)
    root = coordinator.get(f"/runs/{run}/files").json()["root"]
    coordinator.federation.parts.drop(root)
    refused(coordinator.get(f"/parts/{root}?run={run}"), 404, "PartMissing")


def test_large_files_go_out_in_pieces() -> None:
    """No more than one mebibyte is copied at a time, and the pieces are the whole."""
    whole = bytes(range(256)) * (CHUNK_BYTES // 256) * 2 + b"tail"
    pieces = list(chunks(memoryview(whole)))
    assert [len(p) for p in pieces] == [CHUNK_BYTES, CHUNK_BYTES, 4]
    assert b"".join(pieces) == whole
