"""The one-time link to the owner's page. The home holds the hash of its secret until it is used; the page's address, too.

page.link      hash of the secret, and until when it is good: gone once it is used
page.address   where the agent's page listens, as long as it does
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from pathlib import Path

from tideline.core.errors import Refused, StorageFull
from tideline_agent.home.identity import write
from tideline_agent.home.words import check_home

LINK, ADDRESS = "page.link", "page.address"
LINK_SECONDS = 600.0


def new_link(home: Path, now: float | None = None) -> str:
    """A link that works once; one that was made before works no longer. Raises Refused where no page is served, StorageFull."""
    check_home(home)
    try:
        address = (home / ADDRESS).read_text("ascii").strip()
    except (OSError, ValueError):
        raise Refused(f"No agent serves a page for {home}", "Start it with: tideline agent --page 127.0.0.1:7890") from None
    secret = secrets.token_urlsafe(32)
    until = (time.time() if now is None else now) + LINK_SECONDS
    try:
        write(home / LINK, json.dumps({"hash": hash_of(secret), "until": until}).encode())
    except OSError as error:
        what = f"The link's file {home / LINK} cannot be written: {error.strerror}"
        raise StorageFull(what, "Free disk space at the site, and ask again: tideline site page") from error
    return f"http://{address}/#link={secret}"


def spend(home: Path, secret: str, now: float) -> bool:
    """Whether it is the link's secret. It is so once: of two who show it at the same moment, one is let in."""
    try:
        raw = json.loads((home / LINK).read_bytes())
        known, until = str(raw["hash"]), float(raw["until"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if not hmac.compare_digest(known, hash_of(secret)) or now >= until:
        return False
    spent = home / f"{LINK}.{secrets.token_hex(8)}"
    try:
        (home / LINK).replace(spent)  # of two, one finds it
        still = json.loads(spent.read_bytes()).get("hash") == known
        spent.unlink()
    except (OSError, ValueError, AttributeError):
        return False
    return bool(still)


def hash_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
