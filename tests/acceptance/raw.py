"""A client that speaks the protocol by itself: it signs as federation.proto says, and shares no code with the agent."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tideline_protos.v1 import federation_pb2 as pb

SERVICE = "/tideline.v1.Federation/"
SECONDS = 60.0
Metadata = tuple[tuple[str, str], ...]


@dataclass
class Raw:
    """Says whatever it likes over a channel. `late`: by how many seconds its clock is wrong."""

    channel: Any
    name: str = "a"
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    receive: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate)
    late: float = 0.0

    @property
    def public(self) -> tuple[bytes, bytes]:
        return self.key.public_key().public_bytes_raw(), self.receive.public_key().public_bytes_raw()

    def proof(self, call: str, body: bytes, **other: Any) -> Metadata:
        """What proves a call; `other` says what is signed instead."""
        now = int((time.time() - self.late) * 1000)
        told = {"call": call, "name": self.name, "now": now, "body": body} | other
        digest = hashlib.sha256(told["body"]).hexdigest()
        lines = "\n".join(("tideline call 2", SERVICE + told["call"], told["name"], str(told["now"]), digest))
        signature = base64.b64encode(self.key.sign(lines.encode())).decode()
        return (("tideline-client", self.name), ("tideline-time", str(now)), ("tideline-signature", signature))

    def send(self, call: str, body: bytes, metadata: Metadata, answer: Any = None) -> Any:
        reply = self.channel.unary_unary(SERVICE + call, None, answer and answer.FromString)
        return reply(body, metadata=metadata, timeout=SECONDS)

    def ask(self, call: str, request: Any, answer: Any) -> Any:
        body = request.SerializeToString()
        return self.send(call, body, self.proof(call, body), answer)

    def enrol(self, token: str, **said: Any) -> Any:
        sign_key, receive_key = self.public
        who = {"protocol": 2, "token": token, "name": self.name, "roles": ["source"], "version": "9"}
        given: dict[str, Any] = who | {"sign_key": sign_key, "receive_key": receive_key} | said
        return self.ask("Enrol", pb.EnrolRequest(**given), pb.EnrolReply)

    def beat(self, **progress: float) -> Any:
        return self.ask("Beat", pb.BeatRequest(progress=progress), pb.BeatReply)

    def stream(self, messages: list[bytes]) -> None:
        """Whatever one likes, as a push; what comes first is signed."""
        call = self.channel.stream_unary(SERVICE + "Push", None, pb.PushReply.FromString)
        call(iter(messages), metadata=self.proof("Push", messages[0] if messages else b""), timeout=SECONDS)


def refused(call: Callable[[], Any]) -> tuple[str, str]:
    """The kind and the words of a refusal."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    told = dict(caught.value.trailing_metadata() or ())
    assert "tideline-error-bin" in told, caught.value
    error = json.loads(told["tideline-error-bin"])
    return error["kind"], error["what"]
