"""docs/notifications.md says what is sent, and how a receiver knows that it is genuine."""

from __future__ import annotations

import subprocess
import sys
import time

from tests.docs.manual import DOCS, blocks, section, tables, ticked
from tideline.engine.model.notices import MOST_TARGETS, MOST_WAITING, Form, Kind, Notice, Outgoing
from tideline_server.notify.forms import as_json, body_of
from tideline_server.notify.signing import signed

PAGE = DOCS / "notifications.md"
ONE = Outgoing("msg_1", "t", Notice(kind=Kind.FAILED, at=5.0, words="Run x has failed", source="1"))
SECRET = "whsec_c2VjcmV0IG9mIHRoaXMgdGVzdA=="


def genuine(body: bytes, headers: dict[str, str], secret: str = SECRET) -> bool:
    """What the manual's lines say of a notice."""
    (text,) = blocks(PAGE, "python")
    given = f"headers, body, secret = {headers!r}, {body!r}, {secret!r}\n"
    done = subprocess.run([sys.executable, "-c", f"{given}{text}print(genuine)"], capture_output=True, text=True, check=True)
    return {"True\n": True, "False\n": False}[done.stdout]


def test_the_manuals_lines_know_what_is_genuine() -> None:
    """What was sent just now; not another body, name or time, not by another secret, and not what is old."""
    body = body_of(Form.JSON, ONE)
    headers = dict(signed(SECRET, "msg_1", time.time(), body))
    assert genuine(body, headers)
    assert not genuine(body + b" ", headers) and not genuine(body, headers, "whsec_b3RoZXI=")
    for name, value in (("webhook-id", "msg_2"), ("webhook-timestamp", str(int(headers["webhook-timestamp"]) - 1))):
        assert not genuine(body, headers | {name: value})
    assert not genuine(body, dict(signed(SECRET, "msg_1", time.time() - 600, body)))


def test_a_vector_of_the_standard() -> None:
    """Of the specification of Standard Webhooks: its secret, name, time, body and signature."""
    body = b'{"test": 2432232314}'
    found = signed("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert found["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_kinds_keys_and_bounds() -> None:
    """The page has each kind, each key of the generic form, and the numbers of the code."""
    kinds, keys, bounds = (next(iter(tables(section(PAGE, name)))) for name in ("What is told", "The generic form", "Sending"))
    assert [ticked(row[0])[0] for row in kinds] == [kind.value for kind in Kind if kind is not Kind.TEST]
    assert [ticked(row[0])[0] for row in keys] == list(as_json(ONE))
    assert f"may have {MOST_TARGETS} targets" in section(PAGE, "What is told")
    assert f"{MOST_WAITING:,}" in " ".join(row[1] for row in bounds)
