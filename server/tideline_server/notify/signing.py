"""The signature of a webhook, as Standard Webhooks has it: HMAC-SHA-256 of id, time and body, by the target's secret."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping

PREFIX = "whsec_"


def signed(secret: str, name: str, at: float, body: bytes) -> Mapping[str, str]:
    """The headers that say which notice this is, when it was sent, and that it is from who has the secret."""
    moment = str(int(at))
    key = base64.b64decode(secret.removeprefix(PREFIX))
    made = hmac.digest(key, f"{name}.{moment}.".encode() + body, "sha256")
    return {"webhook-id": name, "webhook-timestamp": moment, "webhook-signature": f"v1,{base64.b64encode(made).decode()}"}
