"""Keys that commands keep: who may read them, for which coordinator they are used, and when they are not."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.cli.world import KEY, Coordinator, assert_refuses, json_of, refusal_of, tide
from tideline.cli.coordinator import access as commands
from tideline.client.logins import Login, address, drop, file_of_logins, logins, quoted, save
from tideline.core.errors import ConfigRefused, IdentityRefused, NotFound


def log_in(url: str, key: str, *more: str) -> Any:
    return tide("login", "--url", url, "--key-stdin", *more, answer=key + "\n")


@pytest.fixture
def operator(there: Coordinator) -> str:
    """The key of an operator."""
    return str(json_of(tide("keys", "add", "--name", "alice", "--role", "operator", "--home", there.home, "--json"))["key"])


def test_a_login_is_kept_for_this_user_alone(there: Coordinator, operator: str) -> None:
    """In a file of mode 0600, under the address; the key is not printed. Later commands use it."""
    told = log_in(there.url + "/", operator)
    assert told.exit_code == 0 and f"Logged in to {there.url} as alice, operator" in told.stdout and operator not in told.output
    assert file_of_logins() == Path.home() / ".config" / "tideline" / "keys.toml"
    assert stat.S_IMODE(file_of_logins().stat().st_mode) == 0o600
    assert logins() == {there.url: Login(operator, "alice", "operator")}
    listed = tide("run", "list", "--url", there.url)
    assert listed.exit_code == 0 and listed.stderr == ""
    assert "The key 'alice' is an operator; listing the keys needs admin" in refusal_of(tide("keys", "list", "--url", there.url))


def test_the_only_login_says_where(there: Coordinator, operator: str) -> None:
    """Where neither an address nor a home is given; which one is told on stderr. Of two none is taken."""
    log_in(there.url, operator)
    listed = tide("run", "list", "--json")
    assert listed.exit_code == 0 and json.loads(listed.stdout) == []
    assert listed.stderr == f"Using {there.url}, where you are logged in\n"
    save("https://other.example", Login("k"))
    assert tide("run", "list").exit_code == 3


def test_a_home_that_is_named_goes_first(there: Coordinator, operator: str) -> None:
    log_in(there.url, operator)
    assert tide("keys", "list", "--home", there.home).exit_code == 0
    assert tide("keys", "list", "--url", there.url, "--api-key", KEY).exit_code == 0


def test_logging_out(there: Coordinator, operator: str) -> None:
    log_in(there.url, operator)
    assert tide("logout", "--url", there.url).exit_code == 0 and logins() == {}
    assert f"No key is saved for {there.url}" in refusal_of(tide("logout", "--url", there.url))
    assert "tideline login" in refusal_of(tide("run", "list", "--url", there.url))


def test_a_wrong_key_is_not_kept(there: Coordinator) -> None:
    assert "missing or wrong" in refusal_of(log_in(there.url, "tidekey_wrong")) and not file_of_logins().exists()


def test_what_is_no_key(there: Coordinator) -> None:
    for key in ("", "a b", "\u00e4", "a\x07"):
        assert "is not a key" in refusal_of(log_in(there.url, key))


def test_without_a_terminal_there_is_nobody_to_ask() -> None:
    """The option for programs is named. At a terminal the key is asked for without echo."""
    assert "--key-stdin" in refusal_of(tide("login", "--url", "http://127.0.0.1:1"))
    with pytest.raises(ConfigRefused), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())
        patch.setattr(commands.typer, "prompt", lambda *_, hide_input, err: "" if hide_input and err else "shown")
        commands.read_key(False)


def test_a_file_that_others_can_read_is_refused(there: Coordinator, operator: str) -> None:
    """With what to do about it; nothing is sent. Commands that need no kept key go on."""
    log_in(there.url, operator)
    for mode in (0o640, 0o604, 0o660, 0o644):
        file_of_logins().chmod(mode)
        assert_refuses(tide("run", "list", "--url", there.url), f"mode {mode:04o}", f"chmod 600 {file_of_logins()}")
        assert tide("run", "list", "--home", there.home).exit_code == 0
        assert log_in(there.url, operator).exit_code == 2


@pytest.mark.parametrize("text", ["[", "a = 1", '["x"]\nkey = "k"\nmore = "m"', '["x"]\n', "\x00"])
def test_a_damaged_file_is_refused(text: str) -> None:
    file_of_logins().parent.mkdir(parents=True)
    file_of_logins().write_text(text)
    file_of_logins().chmod(0o600)
    with pytest.raises(IdentityRefused, match="cannot be read"):
        save("https://a", Login("k"))
    assert file_of_logins().read_text() == text


def test_texts_come_back_as_they_were() -> None:
    odd = Login("k", 'a"b\\c\n\x7f\u00e4\U0001f30a', "viewer", "/a b/[c].pem")
    save("https://a", odd)
    threads = [threading.Thread(target=save, args=(f"https://h{i}", Login(str(i)))) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert logins() == {"https://a": odd, **{f"https://h{i}": Login(str(i)) for i in range(8)}}
    assert sorted(path.name for path in file_of_logins().parent.iterdir()) == ["keys.lock", "keys.toml"]
    drop("https://h3")
    with pytest.raises(NotFound, match="No key is saved for https://h3"):
        drop("https://h3")
    assert quoted("\x7f") == '"\\u007f"'


def test_where_keys_lie(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "x"))
    assert file_of_logins() == tmp_path / "x" / "tideline" / "keys.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert file_of_logins() == Path.home() / ".config" / "tideline" / "keys.toml"
    assert address("HTTPS://Host.Example:7880/") == "https://host.example:7880"


def test_the_certificate_is_remembered(there: Coordinator, operator: str) -> None:
    import certifi

    folder = Path(certifi.where())
    there_was = Path.cwd()
    os.chdir(folder.parent)
    try:
        assert log_in(there.url, operator, "--ca", folder.name).exit_code == 0
    finally:
        os.chdir(there_was)
    assert logins()[there.url].ca == str(folder)
    Path(file_of_logins()).write_text(file_of_logins().read_text().replace(str(folder), "/nowhere/ca.pem"))
    assert "/nowhere/ca.pem cannot be used" in refusal_of(tide("run", "list", "--url", there.url))


def test_keys_by_their_commands(there: Coordinator) -> None:
    """Made and printed once, listed without the key, revoked; what is wrong is told."""
    at = ("--home", there.home)
    made = tide("keys", "add", "--name", "bob", "--role", "viewer", "--ttl", "90d", *at)
    assert (
        made.exit_code == 0 and "Key of bob, viewer, until " in made.stdout and f"tideline login --url {there.url}" in made.stdout
    )
    key = next(word for word in made.stdout.split() if word.startswith("tidekey_"))
    assert tide("run", "list", "--url", there.url, "--api-key", key).exit_code == 0
    listed = tide("keys", "list", *at)
    assert "bob" in listed.stdout and "viewer" in listed.stdout and key not in listed.stdout
    (row,) = json_of(tide("keys", "list", *at, "--json"))
    assert (row["name"], row["created_by"]) == ("bob", "admin")
    assert tide("keys", "revoke", "bob", *at).stdout == "The key of bob is revoked\n"
    assert "'bob' was revoked on" in tide("run", "list", "--url", there.url, "--api-key", key).stderr
    for args, words in (
        (["add", "--name", "x", "--role", "boss"], "viewer, operator, admin"),
        (["add", "--name", "x", "--role", "viewer", "--ttl", "soon"], "--ttl is 'soon'"),
        (["revoke", "nobody"], "There is no key 'nobody'"),
        (["revoke", "../runs"], ""),
    ):
        refused = tide("keys", *args, *at)
        assert refused.exit_code in (2, 4) and words in refused.stderr, refused.stderr
