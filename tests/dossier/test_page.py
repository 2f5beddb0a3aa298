"""The page a person reads: harmless whatever names and texts are in it, and complete by itself."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from tests.dossier.stage import ROSTER, contents, lines, made, part, played, verified
from tests.synthetic import NAMES, experiment, sites
from tideline.algorithms import METHODS
from tideline.dossier.controls import controls
from tideline.dossier.layout import NAMES as FILES
from tideline.dossier.layout import PAGE, PARTS, POLICIES, REPLIES, RUN, WHAT
from tideline.dossier.page import page, visible
from tideline.engine.model.orders import Failure
from tideline.engine.simulation.federation import Federation

HOSTILE = {
    "html": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "quotes": "\"'><a href='javascript:alert(1)'>x</a>",
    "bidi": "lung \u202egnp.exe\u202c \u2066x\u2069 \u200f\u200b",
    "terminal": "\x1b[2J\x1b]0;owned\x07\r\n\x00\x9b31m",
    "long": "x" * 5000,
    "entities": "&lt;b&gt; &#60;script&#62; &amp;amp;",
    "hebrew": "מחקר 12",
}


class Read(HTMLParser):
    """Tags, attributes and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


TAGS = "html head meta title style body main h1 h2 h3 p span bdi b br dl dt dd div table thead tr th td code ul li pre"
ALLOWED = set(TAGS.split())


def harmless(text: str) -> Read:
    """A page that loads and runs nothing, and whose characters steer nothing."""
    found = Read(text)
    assert found.tags <= ALLOWED and not found.open
    names = {name for name, _ in found.attributes}
    assert names <= {"lang", "charset", "name", "content", "http-equiv", "class", "tabindex", "role", "aria-label"}
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in found.attributes
    assert "url(" not in text and "@import" not in text
    assert all(c.isprintable() or c in "\n\u00a0" for c in text)
    return found


@pytest.fixture(scope="module")
def dossier() -> bytes:
    federation, run = played(experiment("fedavg", ROSTER, name="Retina, first study"))
    return made(federation.journal, run)


def test_it_loads_and_runs_nothing(dossier: bytes) -> None:
    found = harmless(contents(dossier)[PAGE].decode())
    words = " ".join(found.words)
    headings = ("Controls of what leaves", "The contract", "The sites' policies", "What left each site", "Checking this file")
    assert all(heading in words for heading in headings)
    assert all(name in found.words and WHAT[name] in words for name in FILES)
    assert "Retina, first study" in words


def test_it_is_made_of_the_other_files(dossier: bytes) -> None:
    parts = {name: part(dossier, name) for name in PARTS}
    assert page(parts, lines(dossier, REPLIES)).encode() == contents(dossier)[PAGE]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names(name: str) -> None:
    """A run's name, and what a site says of a failure: as they are in the data, and harmless on the page."""
    text = HOSTILE[name]
    federation = Federation(METHODS, sites(NAMES[:3]))
    run = federation.start(experiment("fedavg", ROSTER, name=text.replace("\x00", "")[:200]))
    federation.run_service.cancel(run)
    content = made(federation.journal, run)
    parts = {each: part(content, each) for each in PARTS}
    assert parts[RUN]["name"] == federation.journal.run(run).name  # type: ignore[union-attr]
    harmless(contents(content)[PAGE].decode())
    verified(content)
    parts[POLICIES]["sites"][0]["refusals"] = [{**vars(Failure("PolicyRefused", text)), "at": None, "phase": text, "round": 1}]
    parts[RUN] |= {"cause": text, "notes": [text], "asked_by": text, "project": text, "software": text}
    row = {
        **dict.fromkeys(("site", "phase", "step", "outcome", "order", "utc"), text),
        "round": 1,
        "bytes": 1,
        "files": [[text, 1]],
    }
    found = harmless(page(parts, [row | {"failure": {"kind": text, "what": text}}]))
    assert visible(text) in found.words


def test_what_steers_is_shown() -> None:
    assert visible("a\u202eb\x1b[0m") == "a\\u202eb\\u001b[0m" and visible("מחקר é") == "מחקר é"


def test_each_control_names_a_file(dossier: bytes) -> None:
    found = list(controls({name: part(dossier, name) for name in PARTS}))
    assert [each.name for each in found][:2] == ["Purpose", "Contract"] and len(found) == 7
    assert all(each.rule.endswith(".") and each.shown and each.file in FILES for each in found)


def test_it_has_a_form_for_paper(dossier: bytes) -> None:
    text = contents(dossier)[PAGE].decode()
    assert "@page { size: A4" in text and re.search(r"@media print \{[^@]*overflow: visible", text)
