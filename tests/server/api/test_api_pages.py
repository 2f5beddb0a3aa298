"""The dashboard's files over HTTP: these and no others, without a key, and with all that keeps a page of ours apart."""

from __future__ import annotations

import gzip
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from api_world import QUICK, Coordinator, locked, refused

from tideline.pages.files import MEDIA, static_file, walked
from tideline_server.api import ApiSettings
from tideline_server.metrics import Metrics
from tideline_server.pages import table

ROOT = Path(__file__).parents[3]
FOLDERS = (ROOT / "shared" / "tideline" / "pages" / "static", ROOT / "server" / "tideline_server" / "pages" / "static")
POLICY = dict.fromkeys(("default-src", "form-action", "base-uri", "frame-ancestors"), "'none'")
POLICY |= dict.fromkeys(("script-src", "style-src", "font-src", "connect-src"), "'self'") | {"img-src": "'self' data:"}


@pytest.fixture(scope="module")
def door() -> Coordinator:
    """A coordinator that asks for a key."""
    return locked()


def test_every_file_of_the_folder_is_served(door: Coordinator) -> None:
    """Its bytes, its type, and headers by which a browser runs and shows nothing from elsewhere."""
    files = {path.relative_to(each).as_posix(): path for each in FOLDERS for path in each.rglob("*") if path.is_file()}
    assert set(table()) == {path for path in files if "/." not in f"/{path}"} >= {"index.html", "app.js"}
    for path in table():
        answer = door.get(f"/pages/{path}")
        assert (answer.status_code, answer.content) == (200, files[path].read_bytes())
        assert answer.headers["Content-Type"] == MEDIA[path.rpartition(".")[2]], "browsers take it for what it says"
        policy = dict(each.strip().split(" ", 1) for each in answer.headers["Content-Security-Policy"].split(";"))
        assert policy == POLICY
        assert answer.headers["Referrer-Policy"] == "no-referrer" and answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cross-Origin-Opener-Policy"] == answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert answer.headers["Cache-Control"] == "no-cache"


def test_the_first_page(door: Coordinator) -> None:
    """Lies at the root. All that it names is served, and it has no script of its own."""
    page = door.get("/")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8" and page.text.startswith("<!DOCTYPE html>")
    assert page.text == door.get("/pages/index.html").text
    for named in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert named.startswith("data:") or door.get(named).status_code == 200, named
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", page.text)


def test_what_the_first_page_needs_is_asked_for_with_it(door: Coordinator) -> None:
    """All that its script imports at once, and nothing else: one round of requests before it shows something."""
    needed, left = set[str](), ["app.js"]
    while left:
        path = left.pop()
        folder = Path(path).parent
        for named in re.findall(r'^import .* from "([^"]+)";$', table()[path].body.decode(), re.MULTILINE):
            found = Path(os.path.normpath(folder / named)).as_posix()
            left += [found] if found not in needed else []
            needed.add(found)
    asked = re.findall(r'rel="modulepreload" href="/pages/([^"]+)"', door.get("/").text)
    assert sorted(asked) == sorted(needed)


NOWHERE = (
    *("/pages/", "/pages/nothing.js", "/pages/../files.py", "/pages/..%2Ffiles.py", "/pages/%2e%2e/files.py"),
    *("/pages//etc/passwd", "/pages/static/index.html", "/pages/index.html/", "/pages/INDEX.HTML", "/pages/index.html%00"),
    *("/pages/.", "/pages/..\\files.py", "/pages/vendor", "/index.html"),
)


def test_nothing_else_is_served(door: Coordinator, subtests: pytest.Subtests) -> None:
    """Whatever an address says: what is not in the table is not there."""
    for path in NOWHERE:
        with subtests.test(path):
            answer = door.get(path)
            assert answer.status_code in (401, 404) and "import" not in answer.text


def test_hidden_files_are_an_editors(tmp_path: Path) -> None:
    """And are not served; files of folders are."""
    (tmp_path / ".cache").mkdir()
    (tmp_path / "vendor").mkdir()
    for name in (".index.html.swp", ".cache/a.js", "vendor/a.js", "index.html"):
        (tmp_path / name).write_text("x")
    assert [path for path, _ in walked(tmp_path)] == ["index.html", "vendor/a.js"]


def test_a_page_that_a_browser_has(door: Coordinator) -> None:
    """Is not sent again, and always asked for."""
    first = door.get("/pages/app.js")
    again = door.get("/pages/app.js", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"") and again.headers["ETag"] == first.headers["ETag"]
    assert again.headers["Cache-Control"] == "no-cache" and "Content-Security-Policy" in again.headers
    assert door.get("/pages/app.js", headers={"If-None-Match": '"other"'}).status_code == 200


def test_it_is_packed_for_who_takes_that(door: Coordinator, subtests: pytest.Subtests) -> None:
    """Once, and not for each that asks; whoever says nothing of it gets it as it is."""
    page, packing = table()["index.html"], ("gzip", "br, GZIP;q=0.5", "*")
    for accepted in (*packing, "gzip;q=0", "gzip; q=0.0", "br", ""):
        with subtests.test(accepted):
            answer = door.get("/", headers={"Accept-Encoding": accepted})
            assert (answer.headers.get("Content-Encoding") == "gzip") == (accepted in packing)
            assert answer.content == page.body and answer.headers["Vary"] == "Accept-Encoding"
    assert gzip.decompress(page.packed) == page.body


def test_what_packs_badly_is_sent_as_it_is() -> None:
    """Small files, and pictures."""
    assert static_file("a.js", b"1;").packed == static_file("a.png", b"1" * 1000).packed == b""
    assert static_file("a.unknown", b"").media == "application/octet-stream"


def test_without_the_dashboard() -> None:
    """None of it is there, nor is what signs pages in; the manual is."""
    door = locked(replace(QUICK, dashboard=False))
    for path in ("/", "/pages/index.html"):
        refused(door.get(path), 404, "NotFound")
    assert door.get("/docs").status_code == 200
    assert ApiSettings().dashboard


def test_pages_are_counted_by_kind() -> None:
    """Strangers' addresses make no new numbers."""
    metrics = Metrics("1.2.3")
    door = Coordinator(seen=metrics.http_request)
    for path in ("/", "/pages/app.js", "/pages/a", "/pages/b"):
        door.get(path)
    text = metrics.text()[0].decode()
    routes = set(re.findall(r'tideline_http_requests_total\{[^}]*route="([^"]+)"', text))
    assert routes == {"/", "/pages/{path}"}
