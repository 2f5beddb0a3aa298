"""Projects on the command line: made, limited, listed and removed; named by an option, a variable or a login."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.cli.world import Coordinator, json_of, refusal_of, tide
from tideline.cli.app import app
from tideline.cli.coordinator.projects import bytes_in
from tideline.client.logins import logins
from tideline.core.errors import ConfigRefused


def made(there: Coordinator, *more: str) -> Any:
    """What a command of the admin's prints as JSON."""
    return json_of(tide(*more, "--home", there.home, "--json"))


def test_a_project_by_its_commands(there: Coordinator) -> None:
    row = made(there, "projects", "add", "cardio", "--most-runs", "5", "--most-bytes", "2GB")
    assert (row["most_runs"], row["most_members"], row["most_bytes"]) == (5, None, 2 * 10**9)
    row = made(there, "projects", "limit", "cardio", "--most-runs", "5", "--retain-runs-days", "30", "--retain-events-days", "0")
    assert (row["retain_runs_days"], row["retain_events_days"]) == (30.0, 0.0)
    row = made(there, "projects", "limit", "default", "--most-gpu-hours", "1.5", "--most-cpu-hours", "1e4")
    assert (row["most_gpu_hours"], row["most_cpu_hours"]) == (1.5, 10_000.0)
    month = tide("projects", "show", "default", "--home", there.home, "--month", "2026-10").stdout
    assert "default in 2026-10" in month and "0.00 of 1.5" in month and "0.00 of 10,000" in month
    assert made(there, "projects", "show", "default")["clients"] == []
    assert "no month" in refusal_of(tide("projects", "show", "default", "--home", there.home, "--month", "10/2026"))
    shown = tide("projects", "list", "--home", there.home).stdout
    assert "30 d, events for ever" in " ".join(shown.split()) and "as all" in shown
    made(there, "keys", "add", "--name", "alice", "--role", "viewer", "--project", "cardio")
    listed = tide("projects", "list", "--home", there.home).stdout
    assert "cardio" in listed and "0 of 5" in listed and "default" in listed
    assert made(there, "projects", "limit", "cardio", "--most-members", "3")["most_runs"] is None
    refused = tide("projects", "remove", "cardio", "--home", there.home)
    assert refused.exit_code == 2 and "keys of alice" in refused.stderr and "tideline keys revoke NAME" in refused.stderr
    made(there, "keys", "revoke", "alice")
    assert "is removed" in tide("projects", "remove", "cardio", "--home", there.home).stdout


def test_a_key_opens_what_it_was_made_for(there: Coordinator) -> None:
    """The project of the option, `default` without it, or all of them."""
    made(there, "projects", "add", "cardio")
    keys = {name: made(there, "keys", "add", "--name", name, "--role", "viewer", *more) for name, more in (
        ("ann", ()), ("bob", ("--project", "cardio")), ("cyd", ("--project", "all")),
    )}  # fmt: skip
    assert {name: key["project"] for name, key in keys.items()} == {"ann": "default", "bob": "cardio", "cyd": ""}
    shown = tide("keys", "list", "--home", there.home).stdout
    assert "cardio" in shown and "default" in shown and "all" in shown


def test_a_login_has_a_project(there: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later commands ask about it; an option or a variable goes first. A name that is none is refused before it is sent."""
    made(there, "projects", "add", "cardio")
    key = made(there, "keys", "add", "--name", "cyd", "--role", "operator", "--project", "all")["key"]
    told = CliRunner().invoke(app, ["login", "--url", there.url, "--key-stdin", "--project", "cardio"], input=key + "\n")
    assert told.exit_code == 0 and "cyd, operator in the project cardio" in told.stdout
    assert logins()[there.url].project == "cardio"
    seen = json.loads(tide("projects", "list", "--url", there.url, "--json").stdout)
    assert [row["name"] for row in seen] == ["cardio"]
    monkeypatch.setenv("TIDELINE_PROJECT", "all")
    seen = json.loads(tide("projects", "list", "--url", there.url, "--json").stdout)
    assert [row["name"] for row in seen] == ["default", "cardio"]
    for name, words in (("nope", "There is no project 'nope'"), ("No/pe", "cannot name a project")):
        assert words in refusal_of(tide("run", "list", "--url", there.url, "--project", name))


def test_a_site_is_assigned(there: Coordinator) -> None:
    assert "There is no client 'nobody'" in refusal_of(tide("clients", "assign", "nobody", "default", "--home", there.home))


@pytest.mark.parametrize(("text", "size"), [("5", 5), ("1.5 kB", 1500), ("2TB", 2 * 10**12)])
def test_sizes(text: str, size: int) -> None:
    assert bytes_in(text) == size


@pytest.mark.parametrize("text", ["", "5GiB", "-1", "many", "1e9"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ConfigRefused, match="is no size") as refused:
        bytes_in(text)
    assert "500GB" in refused.value.todo
