"""Orders that lie to an agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.acceptance.conftest import WORLD
from tests.acceptance.hostile.false_coordinator import altered
from tests.archive.values import file, head
from tideline.archive.digests import digest_of
from tideline_protos.v1 import federation_pb2 as pb

BAD = file(head(), size=1 << 20)
BEYOND = (1 << 64) - 1


@dataclass(frozen=True)
class Order:
    """An honest order, altered, and what comes when its parts are fetched; the failure that is told, and words in it."""

    alter: Callable[[pb.Order], pb.Order]
    kind: str
    words: str
    parts: tuple[bytes, ...] = ()


def with_part(content: bytes, size: int | None = None, digest: str | None = None) -> Callable[[pb.Order], pb.Order]:
    """An order whose message is this file."""
    named = pb.File(digest=digest or digest_of([content]), size=len(content) if size is None else size)
    return lambda order: altered(order, files=[named])


SAMPLES = {"phase": "join", "step": "join", "field": "rows", "dims": "", "exposure": "samples", "audience": ["coordinator"]}
NOBODY = "b3-" + "0" * 64
ORDERS: Mapping[str, Order] = {
    "run that is a path": Order(lambda o: altered(o, run="../outside"), "Malformed", "cannot name a run"),
    "run that is absolute": Order(lambda o: altered(o, run="/tmp/outside"), "Malformed", "cannot name a run"),
    "run that is hidden": Order(lambda o: altered(o, run=".ssh"), "Malformed", "cannot name a run"),
    "run with a NUL": Order(lambda o: altered(o, run="a\0b"), "Malformed", "cannot name a run"),
    "run with an endless name": Order(lambda o: altered(o, run="r" * 5000), "Malformed", "cannot name a run"),
    "role that the owner forbids": Order(lambda o: altered(o, {"role": "target"}), "RosterRefused", "may not be a target"),
    "role that there is not": Order(lambda o: altered(o, {"role": "owner"}), "Malformed", "its role is missing or wrong"),
    "role that is a list": Order(lambda o: altered(o, {"role": ["source"]}), "Malformed", "its role is missing or wrong"),
    "contract beyond the policy": Order(lambda o: altered(o, {"contract": [SAMPLES]}), "ContractRefused", "policy forbids"),
    "contract of fewer clauses": Order(lambda o: altered(o, {"contract": []}), "ContractRefused", "another contract"),
    "contract of nonsense": Order(lambda o: altered(o, {"contract": [7]}), "ContractRefused", "cannot be understood"),
    "brief that is no JSON": Order(lambda o: altered(o, "{"), "Malformed", "its method is missing"),
    "brief of megabytes": Order(lambda o: altered(o, {"more": "x" * (2 << 20)}), "Malformed", "its method is missing"),
    "deep brief": Order(lambda o: altered(o, "[" * 100_000), "Malformed", "its method is missing"),
    "method that there is not": Order(lambda o: altered(o, {"method": "os:system"}), "NotFound", "There is no method"),
    "config of other settings": Order(lambda o: altered(o, {"config": {"rounds": -1}}), "ConfigRefused", "rounds"),
    "thousands of threads": Order(lambda o: altered(o, {"threads": 4096}), "Malformed", "its threads is missing or wrong"),
    "no threads": Order(lambda o: altered(o, {"threads": 0}), "Malformed", "its threads is missing or wrong"),
    "samples of terabytes": Order(
        lambda o: altered(o, {"world": {**WORLD, "inputs": [1 << 40]}}), "ConfigRefused", "at most 67108864"
    ),
    "samples of many sides": Order(
        lambda o: altered(o, {"world": {**WORLD, "inputs": [9999] * 9}}), "ConfigRefused", "9 sizes; a sample has 1 to 5"
    ),
    "billions of classes": Order(
        lambda o: altered(o, {"world": {**WORLD, "classes": 1 << 40}}), "ConfigRefused", "at most 1048576"
    ),
    "place before the beginning": Order(lambda o: altered(o, cursor=-7), "Malformed", "its place is missing or wrong"),
    "message that is a path": Order(with_part(b"x", digest="../../identity.json"), "BadName", "is not a digest"),
    "message of exabytes": Order(with_part(b"x", size=BEYOND), "TooLarge", "the limit is 1099511627776"),
    "message in one piece": Order(with_part(b"x"), "TooLarge", "more than 64 MiB at once", (bytes((64 << 20) + 1),)),
    "empty message": Order(with_part(b""), "TooLarge", "a part of 0 bytes"),
    "message of other bytes": Order(with_part(b"x", digest=NOBODY), "DigestMismatch", "", (b"x",)),
    "message longer than told": Order(with_part(b"x"), "TooLarge", "follow the last part", (b"xyz",)),
    "message that lies of its header": Order(with_part(BAD), "HeaderTruncated", "claims 1048576 bytes", (BAD,)),
}
