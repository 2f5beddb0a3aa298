"""What receivers read. A run is called what its user likes, and a reason is what a site says."""

from __future__ import annotations

import json
from email import message_from_bytes
from email.policy import default
from typing import Any

import pytest

from tideline.core.run import RunId
from tideline.engine.model.notices import Form, Kind, Notice, Outgoing
from tideline_server.notify.forms import as_json, as_mail, body_of, clean

EVIL = (
    "<script>alert(1)</script>\r\nBcc: all@example.org\n<!channel> <@U1> @here *b* [x](http://evil) {{DATE(1)}}"
    " \u202egnp.exe\x1b[2J & <at>all</at>"
)
NOTICE = Notice(
    kind=Kind.FAILED,
    at=1_700_000_000.5,
    words=f"Run {EVIL} has failed: {EVIL}",
    source="7",
    project="cardio",
    run=RunId("5f0c1a9be2d4"),
    run_name=EVIL,
)
ONE = Outgoing("msg_1", "t", NOTICE, more=4)
PUBLIC = "https://tideline.example.org/"


def texts(value: Any) -> list[str]:
    """Every text in plain data."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inner for text in texts(each)]


@pytest.mark.parametrize("form", [Form.JSON, Form.SLACK, Form.TEAMS])
def test_no_form_has_what_is_not_seen(form: Form) -> None:
    """No control, no turn of direction, no break of a line: names stay in their place. It is JSON in ASCII, and one body."""
    body = body_of(form, ONE, PUBLIC)
    assert body == body_of(form, ONE, PUBLIC) and body.isascii()
    for text in texts(json.loads(body)):
        assert text == clean(text) and not set(text) & set("\r\n\x1b\u202e")


def test_the_generic_form() -> None:
    """Each key of the manual. Words are as they were, as programs escape what they show."""
    told = json.loads(body_of(Form.JSON, ONE, PUBLIC))
    assert told == as_json(ONE, PUBLIC)
    fixed = {"version": 1, "id": "msg_1", "kind": "failed", "at": 1_700_000_000.5, "project": "cardio", "more": 4}
    assert {name: told[name] for name in fixed} == fixed and told["site"] is None and told["subject"] is None
    assert told["run"]["id"] == "5f0c1a9be2d4" and told["run"]["name"].startswith("<script>alert(1)</script> Bcc:")
    assert told["words"].endswith("(and 4 more since)") and told["link"] == "https://tideline.example.org/#/runs/5f0c1a9be2d4"
    assert as_json(ONE)["link"] is None


def test_slack_finds_no_mention_and_no_link() -> None:
    """Plain texts have no markup; where there is some, its three characters are entities, and the only link is ours."""
    told = json.loads(body_of(Form.SLACK, ONE, PUBLIC))
    marked = [told["text"], *(e["text"] for b in told["blocks"] for e in b.get("elements", ()) if e["type"] == "mrkdwn")]
    assert marked[1:] == ["<https://tideline.example.org/#/runs/5f0c1a9be2d4|Show the run>"]
    assert not set(told["text"]) & set("<>") and "&lt;!channel&gt;" in told["text"] and told["link_names"] == 0
    assert {b["text"]["type"] for b in told["blocks"] if "text" in b} == {"plain_text"}
    assert max(len(b["text"]["text"]) for b in told["blocks"] if b["type"] == "header") <= 150


def test_teams_finds_no_tag_and_no_function() -> None:
    """Runs of rich text have no Markdown; the only action is ours."""
    told = json.loads(body_of(Form.TEAMS, ONE, PUBLIC))
    card = told["attachments"][0]["content"]
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    for text in texts(card["body"]):
        assert not set(text) & set("<>") and "{{" not in text
    assert [each["url"] for each in card["actions"]] == ["https://tideline.example.org/#/runs/5f0c1a9be2d4"]
    assert "msteams" not in card


def test_mail_has_the_headers_that_we_give_it() -> None:
    """A name with a line's end is one line; what is shown and what is sent are the same."""
    sent = as_mail(ONE, "tideline@example.org", "ann@example.org", PUBLIC).as_bytes()
    told = message_from_bytes(sent, policy=default)
    assert set(told.keys()) == {
        *("From", "To", "Subject", "Message-ID", "Auto-Submitted", "Date", "Content-Type", "Content-Transfer-Encoding"),
        "MIME-Version",
    }
    assert (told["To"], told["From"], told["Bcc"]) == ("ann@example.org", "tideline@example.org", None)
    assert told["Subject"].startswith("Tideline: Run failed in cardio: <script>") and "\n" not in told["Subject"]
    assert told["Message-ID"] == "<msg_1@tideline.invalid>"
    body = told.get_content()
    assert "(and 4 more since)" in body and f"{PUBLIC}#/runs/5f0c1a9be2d4" in body and "\u202e" not in body


def test_what_is_about_no_run() -> None:
    """Neither a run nor a link."""
    full = Outgoing("msg_2", "t", Notice(kind=Kind.DISK, at=1.0, words="full", source="1", subject="here:/disk"))
    told = as_json(full, PUBLIC)
    assert (told["run"], told["link"], told["project"], told["subject"]) == (None, None, "all", "here:/disk")
    assert as_mail(full, "a@b", "c@d")["Subject"] == "Tideline: Disk nearly full: here:/disk"
    assert b"Show the run" not in body_of(Form.SLACK, full, PUBLIC) + body_of(Form.TEAMS, full, PUBLIC)


def test_cleaning() -> None:
    """What is seen stays, in any script."""
    assert clean("Zürich 心臓 \u200bx\u2028y\ud800z\x00") == "Zürich 心臓 x y z"
