"""Weights over HTTP: a file is taken in under its digest while it comes, whole or not at all, and a run begins from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import torch
from api_world import EXPERIMENT, QUICK, SITES, Coordinator, holdings, refused, unread
from safetensors.torch import save

from tideline import nets
from tideline.algorithms import METHODS
from tideline.archive.digests import digest_of
from tideline.archive.folder import FolderParts
from tideline.core.asked.world import World
from tideline.core.settings import parse
from tideline.engine.coordinator.part_store import GRACE_SECONDS
from tideline.engine.simulation.federation import Federation, SimSite
from tideline_server.api import ApiSettings


def network(seed: int = 1) -> bytes:
    """A file of weights of the small experiment's network."""
    torch.manual_seed(seed)
    return save(nets.weights_of(nets.build(parse(World, EXPERIMENT["world"]))))


def at(content: bytes) -> str:
    """Where a file is uploaded."""
    return f"/weights/{digest_of([content])}"


def put(coordinator: Coordinator, content: bytes, path: str = "", **headers: str) -> httpx.Response:
    """Upload a file."""
    return coordinator.send("PUT", path or at(content), content=content, headers=headers)


def streamed(*chunks: bytes) -> Callable[[], AsyncIterator[bytes]]:
    """A body in pieces."""

    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return body


def site_data(coordinator: Coordinator) -> list[str]:
    """The parts that the coordinator has."""
    return list(coordinator.federation.parts.digests())


@pytest.fixture
def on_disk(tmp_path: Path) -> Coordinator:
    """A coordinator whose parts lie in a folder."""
    made = Coordinator()
    sites = {name: SimSite(lambda world, role, name=name: holdings(name)) for name in SITES}
    made.federation = Federation(METHODS, sites, tmp_path)
    made.services = made.plain_services()
    return made.beside(made.federation.journal)


def test_a_file_is_uploaded_once_and_a_run_begins_from_it(coordinator: Coordinator) -> None:
    """201, then 200; the run's result names it; with no rounds the final state is the file's."""
    content = network()
    told = {"digest": at(content).removeprefix("/weights/"), "bytes": len(content)}
    for status in (201, 200):
        answer = put(coordinator, content)
        assert (answer.status_code, answer.json()) == (status, told)
    assert coordinator.get(at(content)).json() == told
    run = coordinator.start(weights=told["digest"], config={"rounds": 0})
    coordinator.play(run)
    result = coordinator.get(f"/runs/{run}").json()
    assert (result["status"], result["weights"]) == ("completed", told["digest"])
    plain = coordinator.get(f"/runs/{coordinator.start()}").json()
    assert plain["weights"] is None


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_other_bytes_than_the_address_says(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> None:
    """422 with both digests, and nothing stays."""
    coordinator: Coordinator = request.getfixturevalue("coordinator" if kind == "memory" else "on_disk")
    wanted, got = "b3-" + "ab" * 32, digest_of([b"other"])
    error = refused(put(coordinator, b"other", f"/weights/{wanted}"), 422, "ConfigRefused", "digest")
    assert wanted in error["detail"] and got in error["detail"] and error["context"]["digest"] == got
    assert site_data(coordinator) == [] and not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_an_address_that_is_no_digest(coordinator: Coordinator) -> None:
    """Refused in the one shape, before anything is kept."""
    for address in ("abc", "AB" * 32, "0" * 65):
        assert put(coordinator, b"x", f"/weights/{address}").status_code in (404, 405, 422), address
    assert site_data(coordinator) == []


def test_the_length_is_announced(coordinator: Coordinator) -> None:
    """411 for a body of chunks, which nobody could bound ahead; nothing of it is read."""
    answer = coordinator.send("PUT", at(b"x"), content=unread())
    refused(answer, 411, "Malformed")


def test_a_file_beyond_the_limit() -> None:
    """413 as soon as it announces itself, with the limit; a look tells the limit ahead."""
    coordinator = Coordinator(ApiSettings(max_weights_bytes=10))
    answer = coordinator.send("PUT", at(b"x"), content=unread(), headers={"Content-Length": "11"})
    error = refused(answer, 413, "TooLarge")
    assert error["context"] == {"limit": 10} and "--weights-limit" in error["todo"]
    assert refused(coordinator.get(at(b"x")), 404, "NotFound")["context"] == {"limit": 10}
    assert put(coordinator, b"0123456789").status_code == 201


def test_more_bytes_than_announced(coordinator: Coordinator) -> None:
    """413, and nothing stays."""
    body, headers = streamed(b"1234", b"5678"), {"Content-Length": "5"}
    refused(coordinator.send("PUT", at(b"12345678"), content=body(), headers=headers), 413, "TooLarge")
    assert site_data(coordinator) == []


@pytest.mark.parametrize("how", ["short", "cut", "silent"])
def test_of_a_cut_upload_nothing_stays(on_disk: Coordinator, tmp_path: Path, how: str) -> None:
    """Whether it ends too early, the line breaks, or nothing comes any more."""
    content, files = network(), sorted(tmp_path.rglob("*"))
    if how == "short":
        body, headers = streamed(content[:-1]), {"Content-Length": str(len(content))}
        answer = on_disk.send("PUT", at(content), content=body(), headers=headers)
        assert "1 bytes before its announced end" in refused(answer, 400, "DataTruncated")["detail"]
    else:
        quick = on_disk.beside(on_disk.federation.journal, ApiSettings(body_seconds=0.05))
        status = anyio.run(partly, quick, content, how == "cut")
        assert status == (400 if how == "cut" else 408)
    assert sorted(tmp_path.rglob("*")) == files and site_data(on_disk) == []
    assert isinstance(on_disk.federation.parts, FolderParts)
    assert put(on_disk, content).status_code == 201


async def partly(coordinator: Coordinator, content: bytes, cut: bool) -> int:
    """Send half of a file, then break the line or fall silent; the answer's status."""
    first, told = True, list[Any]()

    async def receive() -> dict[str, Any]:
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": content[: len(content) // 2], "more_body": True}
        if cut:
            return {"type": "http.disconnect"}
        await anyio.sleep_forever()
        raise AssertionError

    async def send(message: Any) -> None:
        told.append(message)

    headers = [(b"content-length", str(len(content)).encode())]
    scope = {"type": "http", "method": "PUT", "path": at(content), "raw_path": at(content).encode(), "headers": headers}
    scope |= {"query_string": b"", "http_version": "1.1", "scheme": "http", "server": ("c", 80), "client": ("1.1.1.1", 1)}
    await coordinator.app(scope, receive, send)  # type: ignore[arg-type]
    return int(told[0]["status"])


def test_a_compressed_file_is_refused(coordinator: Coordinator) -> None:
    """It would be another file."""
    refused(put(coordinator, b"x", **{"Content-Encoding": "gzip"}), 415, "Malformed")


def test_a_file_may_be_longer_than_any_other_body_and_is_no_json(coordinator: Coordinator) -> None:
    """It streams past the doors that take in and read bodies, in any pieces; a key to be done once changes nothing."""
    content = bytes(range(256)) * 12_000
    pieces = [content[i : i + 70_001] for i in range(0, len(content), 70_001)]
    headers = {"Content-Length": str(len(content)), "Idempotency-Key": "a"}
    for status in (201, 200):
        answer = coordinator.send("PUT", at(content), content=streamed(*pieces)(), headers=headers)
        assert answer.status_code == status and "idempotent-replayed" not in answer.headers
    assert len(content) > QUICK.max_body_bytes and site_data(coordinator) == [at(content).removeprefix("/weights/")]


@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_a_viewer_brings_nothing(door: Coordinator, method: str) -> None:
    """403 before a byte is read; without a key, 401."""
    viewer, body = door.add_key("vera", "viewer"), {}
    if method == "PUT":
        viewer, body = viewer | {"Content-Length": "5"}, {"content": unread()}
    error = refused(door.send(method, at(b"x"), headers=viewer, **body), 403, "PermissionRefused")
    assert error["context"] == {"role": "viewer", "needs": "operator"}
    refused(door.send(method, at(b"x")), 401, "IdentityRefused")


def test_a_run_from_weights_that_are_not_here(coordinator: Coordinator) -> None:
    """422 at their place, with what to do; no run is begun, also where they were here and are collected."""
    for digest in ("b3-" + "0" * 64, at(network()).removeprefix("/weights/")):
        error = refused(coordinator.post("/runs", EXPERIMENT | {"weights": digest}), 422, "ConfigRefused", "weights")
        assert "PUT /weights" in error["todo"]
        put(coordinator, network())
        coordinator.federation.clock.advance(GRACE_SECONDS + 1)
        coordinator.federation.part_store.collect()
    refused(coordinator.post("/runs", EXPERIMENT | {"weights": "net.safetensors"}), 422, "ConfigRefused", "weights")
    assert coordinator.get("/runs").json() == [] and site_data(coordinator) == []


def test_a_run_from_weights_that_do_not_fit(coordinator: Coordinator) -> None:
    """422 at submission, with the first differences; also for a file that is none."""
    for content, said in ((save({"w": torch.ones(1)}), "and 2 more"), (b"no file of tensors", "cannot be read")):
        put(coordinator, content)
        digest = at(content).removeprefix("/weights/")
        error = refused(coordinator.post("/runs", EXPERIMENT | {"weights": digest}), 422, "ConfigRefused", "weights")
        assert said in error["detail"], error


def test_a_run_that_waits_keeps_its_weights(coordinator: Coordinator) -> None:
    """However long its sites take to join; a key that is sent again starts nothing anew after they are gone."""
    content = network()
    put(coordinator, content)
    body = EXPERIMENT | {"weights": at(content).removeprefix("/weights/")}
    headers = {"Idempotency-Key": "start"}
    run = coordinator.post("/runs", body, headers=headers).json()["run"]
    coordinator.federation.clock.advance(5 * GRACE_SECONDS)
    coordinator.federation.part_store.collect()
    coordinator.play(run)
    coordinator.federation.part_store.collect()
    assert coordinator.get(f"/runs/{run}").json()["status"] == "completed"
    refused(coordinator.get(at(content)), 404, "NotFound")
    again = coordinator.post("/runs", body, headers=headers)
    assert (again.status_code, again.json()["run"]) == (201, run)


def test_the_manual_says_which_methods_take_weights(coordinator: Coordinator) -> None:
    """Of each method, whether a run of it may bring some."""
    told = {name: coordinator.get(f"/algorithms/{name}").json()["weights"] for name, _ in METHODS}
    assert told["fedavg"] and told["fedprox"] and not told["local"]
