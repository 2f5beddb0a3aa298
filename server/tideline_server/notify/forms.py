"""A notice as receivers read it. Names and reasons come from users and sites: each form makes them harmless in its own way."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any

from tideline.engine.model.access.projects import ALL
from tideline.engine.model.notices import Form, Kind, Outgoing

VERSION = 1  # of the JSON form
TITLES: Mapping[Kind, str] = {
    Kind.STALLED: "Run stalled",
    Kind.FAILED: "Run failed",
    Kind.COMPLETED: "Run completed",
    Kind.APPROVAL: "Approval needed",
    Kind.CERTIFICATE: "Certificate soon over",
    Kind.DISK: "Disk nearly full",
    Kind.TEST: "Test",
}
# Characters that are not seen, or that turn what follows around: controls, formats, surrogates, private ones, breaks of lines.
UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def clean(text: str) -> str:
    """A text in one line, without characters that are not seen or change how others are."""
    return " ".join("".join(" " if unicodedata.category(c) in UNSEEN else c for c in text).split())


def words_of(outgoing: Outgoing) -> str:
    """What is told, with how many of its cause came since."""
    more = f" (and {outgoing.more} more since)" if outgoing.more else ""
    return f"{clean(outgoing.notice.words)}{more}"


def title_of(outgoing: Outgoing) -> str:
    project = outgoing.notice.project
    return f"Tideline: {TITLES[outgoing.notice.kind]}{f' in {project}' if project else ''}"


def link_of(outgoing: Outgoing, public_url: str) -> str | None:
    """Where the API shows the run, if there is one and the coordinator knows its own address."""
    run = outgoing.notice.run
    return f"{public_url.rstrip('/')}/#/runs/{run}" if run and public_url else None


def as_json(outgoing: Outgoing, public_url: str = "") -> dict[str, Any]:
    """The generic form (docs/notifications.md)."""
    notice = outgoing.notice
    return {
        "version": VERSION,
        "id": outgoing.id,
        "kind": notice.kind.value,
        "at": notice.at,
        "project": notice.project or ALL,
        "run": {"id": notice.run, "name": clean(notice.run_name)} if notice.run else None,
        "site": clean(notice.site) or None,
        "subject": clean(notice.subject) or None,
        "words": words_of(outgoing),
        "more": outgoing.more,
        "link": link_of(outgoing, public_url),
    }


def slack_escaped(text: str) -> str:
    """A text in which Slack finds no link, no mention and no channel. Its three characters have entities."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def as_slack(outgoing: Outgoing, public_url: str = "") -> dict[str, Any]:
    """Blocks. What others wrote stands in plain texts, which have no markup; the line for lists and sounds is escaped."""
    title, words, link = title_of(outgoing), words_of(outgoing), link_of(outgoing, public_url)
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": title[:150], "emoji": False}},
        {"type": "section", "text": {"type": "plain_text", "text": words, "emoji": False}},
    ]
    if link is not None:
        text = f"<{slack_escaped(link)}|Show the run>"
        blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": text}]})
    return {"text": slack_escaped(f"{title}: {words}"), "mrkdwn": False, "link_names": 0, "blocks": blocks}


def teams_escaped(text: str) -> str:
    """A text in which Teams finds no tag, no mention and no function of cards, such as {{DATE(...)}}."""
    return text.replace("<", "\u2039").replace(">", "\u203a").replace("{{", "{ {").replace("}}", "} }").replace("${", "$ {")


def as_teams(outgoing: Outgoing, public_url: str = "") -> dict[str, Any]:
    """An adaptive card. Runs of rich text have no Markdown."""
    link = link_of(outgoing, public_url)

    def line(text: str, **more: Any) -> dict[str, Any]:
        return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": teams_escaped(text), **more}]}

    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [line(title_of(outgoing), weight="Bolder"), line(words_of(outgoing))],
    }
    if link is not None:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Show the run", "url": link}]
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


BODIES: Mapping[Form, Callable[[Outgoing, str], dict[str, Any]]] = {
    Form.JSON: as_json,
    Form.SLACK: as_slack,
    Form.TEAMS: as_teams,
}


def body_of(form: Form, outgoing: Outgoing, public_url: str = "") -> bytes:
    """The body of a webhook: the same bytes at each try."""
    return json.dumps(BODIES[form](outgoing, public_url), sort_keys=True, separators=(",", ":")).encode()


def as_mail(outgoing: Outgoing, sender: str, to: str, public_url: str = "") -> EmailMessage:
    """An e-mail. Its Message-ID is the notice's name, so that mail programs show one that comes twice once."""
    notice, link = outgoing.notice, link_of(outgoing, public_url)
    made = EmailMessage(policy=SMTP)
    made["From"], made["To"], made["Subject"] = (
        sender,
        to,
        f"{title_of(outgoing)}: {clean(notice.run_name or notice.subject)[:80]}",
    )
    made["Message-ID"], made["Auto-Submitted"] = f"<{outgoing.id}@tideline.invalid>", "auto-generated"
    made["Date"] = datetime.fromtimestamp(notice.at, UTC)
    made.set_content("\n\n".join([words_of(outgoing), *([link] if link else []), f"Notice {outgoing.id}"]) + "\n")
    return made
