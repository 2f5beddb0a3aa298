"""What an operator and an admin decide by commands: projects, clients, deletions, notices, and the database of old."""

from __future__ import annotations

import fcntl
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.world import Coordinator, assert_refuses, assert_tells, json_of, output_of, refusal_of, tide
from tests.postgres import own_schema
from tests.receivers import receiving
from tests.services import free_port
from tideline import __version__
from tideline.cli.coordinator.projects import bytes_in
from tideline.client.logins import logins
from tideline.core.errors import ConfigRefused
from tideline.engine.coordinator.enrolment import Applicant
from tideline.engine.coordinator.notices.targets import Targets
from tideline.engine.coordinator.retention.archiving import Archiving
from tideline.engine.coordinator.retention.deleting import Deleting
from tideline.engine.coordinator.retention.keeping import DAY, Retention, Rules
from tideline.engine.model.access.projects import Quota
from tideline.engine.model.accounts import Keys
from tideline.engine.model.deletion import Cutoffs
from tideline.engine.simulation.adapters import ManualClock
from tideline_server.notify.addresses import allowed_in
from tideline_server.notify.sending import NoticeSender
from tideline_server.notify.webhooks import Webhooks
from tideline_server.retention.archive import FolderArchive
from tideline_server.store import SqlJournal
from tideline_server.store.database.revisions import OLDEST, known, newest


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
    assert_refuses(tide("projects", "remove", "cardio", "--home", there.home), "keys of alice", "tideline keys revoke NAME")
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
    told = tide("login", "--url", there.url, "--key-stdin", "--project", "cardio", answer=key + "\n")
    assert told.exit_code == 0 and "cyd, operator in the project cardio" in told.stdout
    assert logins()[there.url].project == "cardio"
    seen = json_of(tide("projects", "list", "--url", there.url, "--json"))
    assert [row["name"] for row in seen] == ["cardio"]
    monkeypatch.setenv("TIDELINE_PROJECT", "all")
    seen = json_of(tide("projects", "list", "--url", there.url, "--json"))
    assert [row["name"] for row in seen] == ["default", "cardio"]
    for name, words in (("nope", "There is no project 'nope'"), ("No/pe", "cannot name a project")):
        assert words in refusal_of(tide("run", "list", "--url", there.url, "--project", name))


def test_a_site_is_assigned(there: Coordinator) -> None:
    assert "There is no client 'nobody'" in refusal_of(tide("clients", "assign", "nobody", "default", "--home", there.home))


def test_sizes() -> None:
    sizes = {"5": 5, "1.5 kB": 1500, "2TB": 2 * 10**12}
    assert {text: bytes_in(text) for text in sizes} == sizes
    for text in ("", "5GiB", "-1", "many", "1e9"):
        with pytest.raises(ConfigRefused, match="is no size") as refused:
            bytes_in(text)
        assert "500GB" in refused.value.todo


KEYS = Keys("00" * 32, "99" * 32)
FINGERPRINT = "af2d 92c4 c14b cc03 ca35 0e49 6c12 336c"


def held(there: Coordinator) -> None:
    """Carl is invited with --hold, by the command, and enrols."""
    told = tide("invite", "--name", "carl", "--labels", "site=c", "--hold", "--home", there.home)
    assert told.exit_code == 0 and "tideline clients approve carl" in told.stdout
    token = next(word for word in told.stdout.split() if word.startswith("tide1_"))
    there.federation.run_service.enrolment.admit(token, Applicant("carl", ("peer",), "9.8", keys=KEYS))


def test_a_list_of_clients(there: Coordinator) -> None:
    held(there)
    shown = tide("clients", "list", "--home", there.home).stdout
    carl = next(line for line in shown.splitlines() if "carl" in line)
    assert all(word in carl for word in ("pending", FINGERPRINT, "peer", "site=c", "9.8", "1970-01-01"))
    rows = json_of(tide("clients", "list", "--json", "--home", there.home))
    assert [row["name"] for row in rows] == ["anna", "bert", "carl"]


def test_a_client_is_approved(there: Coordinator) -> None:
    """The answer shows the fingerprint once more; done again, the same."""
    held(there)
    for _ in range(2):
        told = tide("clients", "approve", "carl", "--home", there.home)
        assert told.exit_code == 0 and told.stdout == f"carl is approved, fingerprint {FINGERPRINT}\n"
    assert output_of(tide("clients", "rotate", "carl", "--home", there.home)).startswith("carl is asked for new keys")
    assert "approved, new keys awaited" in tide("clients", "list", "--home", there.home).stdout


def test_a_client_is_revoked(there: Coordinator) -> None:
    """With its reason, which the list tells; it is neither approved nor asked for keys then, and may be invited again."""
    for _ in range(2):
        told = tide("clients", "revoke", "anna", "--reason", "has left", "--home", there.home)
        assert told.exit_code == 0 and re.fullmatch("anna is revoked, fingerprint [0-9a-f ]{39}\n", told.stdout)
    assert "anna: revoked on 1970-01-01 00:00 UTC: has left" in tide("clients", "list", "--home", there.home).stdout
    for what in ("approve", "rotate"):
        assert_refuses(tide("clients", what, "anna", "--home", there.home), "was revoked on", "tideline invite --name anna")
    assert tide("invite", "--name", "anna", "--home", there.home).exit_code == 0


def test_who_is_not_there(there: Coordinator) -> None:
    """A name that is near is suggested; one that is none is refused."""
    for what in ("approve", "revoke", "rotate"):
        assert_refuses(tide("clients", what, "annna", "--home", there.home), "There is no client 'annna'", "did you mean anna?")
        assert tide("clients", what, "no/name", "--home", there.home).exit_code in (2, 4)


class SomeEvents:
    """A journal with old events."""

    def drop_events(self, before: Cutoffs, most: int) -> int:
        return 0

    def old_events(self, before: Cutoffs) -> int:
        return 7


def run_of(there: Coordinator) -> str:
    return str(there.complete(world={"inputs": [1, 8, 8], "classes": 10, "model": "linear"}))


def tell(there: Coordinator, *more: str) -> Any:
    return tide(*more, "--home", there.home)


def test_a_run_is_deleted(there: Coordinator) -> None:
    """Once and for all: whoever asks for it hears so, and to delete it again changes nothing."""
    run = run_of(there)
    assert "you did not confirm" in refusal_of(tell(there, "run", "delete", run))
    assert run in output_of(tell(there, "run", "delete", run, "--yes"))
    assert "was deleted at" in refusal_of(tell(there, "run", "show", run))
    assert json.loads(output_of(tell(there, "run", "delete", run, "--yes", "--json")))["deleted"][0]["run"] == run
    assert run not in tell(there, "run", "list").stdout


def test_what_cannot_be_deleted(there: Coordinator) -> None:
    assert tell(there, "run", "delete", "nobody", "--yes").exit_code == 2
    run = str(there.start())
    assert f"tideline run cancel {run}" in refusal_of(tell(there, "run", "delete", run, "--yes"))


def test_what_goes_next_is_shown(there: Coordinator, tmp_path: Path) -> None:
    """The rules, a project's own, the runs, the events and the entries; without rules that nothing is due."""
    run = run_of(there)
    said = tell(there, "retention", "show").stdout
    assert "Runs are kept for ever, their events for ever." in said and "Nothing is due" in said
    at = there.federation
    retention = Retention(Deleting(at.run_service), SomeEvents(), Rules(runs_days=30.0, events_days=5.0))
    archive = FolderArchive(tmp_path / "audit")
    archiving = Archiving(journal=at.journal, archive=archive, clock=at.clock, days=-1.0, most=4)
    there.app.state.services = replace(there.app.state.services, retention=retention, archiving=archiving)
    assert f"{run} (" not in tell(there, "retention", "show").stdout
    at.journal.limit_project("default", Quota(retain_runs_days=-1.0 / DAY), 0.0)
    said = " ".join(tell(there, "retention", "show").stdout.split())
    assert "Runs are kept for 30 days after a run's end, their events for 5 days" in said
    assert "Those of default: runs for" in said and f"{run} (" in said and "goes next" in said
    assert "7 events of runs that are over will go" in said and "4 entries of the audit log will go into a file" in said
    archiving.trouble = "the disk is full"
    shown = json_of(tell(there, "retention", "show", "--json"))
    assert shown["audit_trouble"] and shown["audit_entries"] == 4 and shown["projects"][0]["name"] == "default"


@pytest.fixture
def notifying(there: Coordinator, tmp_path: Path) -> Iterator[Coordinator]:
    """The coordinator of the commands, which notifies for the time of a test."""
    state, store, clock = there.app.state, SqlJournal(tmp_path / "journal.db"), ManualClock(1000.0)
    before, sender = state.services, NoticeSender(Webhooks(allowed_in(["127.0.0.0/8"]), seconds=2.0))
    state.services = replace(before, targets=Targets(store.notices, sender, clock))
    yield there
    state.services = before
    store.close()


def done(there: Coordinator, *more: str) -> Any:
    return tide("notify", *more, "--home", there.home)


def test_a_target_by_its_commands(notifying: Coordinator) -> None:
    """Its secret is printed once; a test says how it went; the list says what goes where."""
    with receiving() as receiver:
        made = done(notifying, "add", receiver.url, "--on", "failed, stalled", "--name", "chat")
        assert made.exit_code == 0 and "chat gets notices of all projects: stalled, failed" in made.stdout
        assert made.stdout.count("whsec_") == 1
        assert done(notifying, "test", "chat").stdout == "chat took it: HTTP 204\n"
    listed = done(notifying, "list").stdout
    assert "chat" in listed and "all" in listed and "whsec_" not in listed and "/hook" not in listed
    [row] = json_of(done(notifying, "list", "--json"))
    assert (row["on"], row["form"]) == (["stalled", "failed"], "json")
    assert "gets no more notices" in done(notifying, "remove", "chat").stdout
    assert "There is no target 'chat'" in refusal_of(done(notifying, "remove", "chat"))


def test_a_test_that_is_not_taken_ends_with_3(notifying: Coordinator) -> None:
    with receiving() as receiver:
        receiver.answers = [500]
        done(notifying, "add", receiver.url, "--on", "failed", "--name", "chat", "--form", "teams")
        found = done(notifying, "test", "chat")
    assert found.exit_code == 3 and "chat did not take the test: HTTP 500" in found.stderr


def test_what_is_refused(notifying: Coordinator) -> None:
    for words, said in (
        (("https://10.0.0.1/", "--on", "failed"), "10.0.0.1 has no address to which notices may go"),
        (("https://10.0.0.1/", "--on", "fialed"), "did you mean failed?"),
        (("https://10.0.0.1/", "--on", "failed", "--form", "sms"), "--form is 'sms'"),
        (("mailto:ann@example.org", "--on", "failed"), "This coordinator sends no e-mail"),
        (("https://10.0.0.1/", "--on", " , "), "on names nothing"),
    ):
        assert said in refusal_of(done(notifying, "add", *words))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A coordinator's home with a database in it."""
    SqlJournal(tmp_path / "coordinator.db").close()
    return tmp_path


def test_it_shows_and_takes_back(home: Path) -> None:
    assert_tells(tide("database", "show", "--home", str(home)), f"stands at revision {newest()}", f"by tideline {__version__}")
    assert json.loads(output_of(tide("database", "downgrade", OLDEST, "--home", str(home), "--json")))["revision"] == OLDEST
    assert json_of(tide("database", "show", "--home", str(home), "--json"))["upgrades"] == []


def test_not_while_its_coordinator_runs(home: Path) -> None:
    with (home / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert f"Another coordinator uses {home}" in refusal_of(tide("database", "downgrade", OLDEST, "--home", str(home)))
        assert tide("database", "show", "--home", str(home)).exit_code == 0


def test_a_database_elsewhere() -> None:
    with own_schema() as url:
        SqlJournal(url).close()
        secret = url.replace("postgres@", "postgres:hush@")
        told = tide("database", "show", "--database", secret)
        assert told.exit_code == 0 and newest() in told.output and "hush" not in told.output


@pytest.mark.parametrize("words", [("show",), ("downgrade", OLDEST)])
def test_what_is_not_there(tmp_path: Path, words: tuple[str, ...]) -> None:
    """No home, and no server: nothing is made, and the codes are those of the manual."""
    told = tide("database", *words, "--home", str(tmp_path / "nowhere"))
    assert told.exit_code == 2 and "There is no database" in told.stderr and not (tmp_path / "nowhere").exists()
    told = tide("database", *words, "--database", f"postgresql://postgres@127.0.0.1:{free_port()}/test")
    assert told.exit_code == 3, told.output


def test_a_revision_that_is_none(home: Path) -> None:
    told = tide("database", "downgrade", "12", "--home", str(home))
    assert told.exit_code == 2 and f"Choose one of: {', '.join(each for each in known() if each >= OLDEST)}\n" in told.stderr
