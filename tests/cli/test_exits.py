"""Exit codes, and errors as sentences and as data."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.cli.world import refusal_of, tide, tide_process
from tideline.__main__ import main
from tideline.archive.errors import DigestMismatch
from tideline.cli import guard
from tideline.cli.local import demo
from tideline.cli.options import Json
from tideline.client.http import remedy
from tideline.core import errors


def end_with(error: BaseException, *args: str) -> Result:
    """Run a command that raises an error."""
    app = typer.Typer(cls=guard.Guarded, rich_markup_mode=None)
    app.callback()(lambda: None)

    @app.command()
    def fails(as_json: Json = False) -> None:
        raise error

    return CliRunner().invoke(app, ["fails", *args])


def test_every_error_has_its_code(subtests: pytest.Subtests) -> None:
    """A command that raises ends with the error's code, a sentence and no traceback."""
    kinds = {errors.ConfigRefused: 2, errors.NotFound: 2, errors.IdentityRefused: 2, errors.StepFailed: 1, errors.Stalled: 1}
    kinds |= {errors.Cancelled: 1, errors.Unreachable: 3, DigestMismatch: 4, errors.FederationError: 4}
    for kind, code in kinds.items():
        with subtests.test(kind.__name__):
            ended = end_with(kind("a"))
            assert (ended.exit_code, ended.stderr) == (code, "Error: a\n")
    interrupted = end_with(KeyboardInterrupt())
    assert (interrupted.exit_code, interrupted.stderr) == (130, "Interrupted\n")


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (FileNotFoundError(2, "No such file or directory", "a.pem"), 4, "Error: a.pem: No such file or directory\nWhat to do: "),
        (OSError(28, "No space left on device"), 4, "Error: No space left on device\nWhat to do: "),
        (OSError("odd"), 4, "Error: odd\nWhat to do: "),
        (ZeroDivisionError("a"), 4, "Error: The command failed with ZeroDivisionError\nWhat to do: Report it"),
        (BrokenPipeError(), 141, ""),
    ],
)
def test_what_nobody_foresaw_has_a_code(error: Exception, code: int, words: str) -> None:
    """A sentence, also as data, and a traceback only where the mistake is ours; nothing where nobody reads."""
    ended = end_with(error, "--json")
    assert ended.exit_code == code
    assert words in ended.stderr and ("Traceback" in ended.stderr) is isinstance(error, ZeroDivisionError)
    assert bool(ended.stdout) is bool(words) and (not words or json.loads(ended.stdout)["type"].startswith("urn:tideline:error:"))


def test_errors_as_data_have_the_doors_shape() -> None:
    """The members that the coordinator's door answers with; odd values become texts."""
    told = guard.as_data(errors.ConfigRefused("what", "todo", path="a.b", low=1, names=("x",)))
    context = {"low": 1, "names": "('x',)"}
    kind = {"type": "urn:tideline:error:ConfigRefused", "title": "Config refused", "kind": "ConfigRefused"}
    assert told == kind | {"detail": "what", "todo": "todo", "path": "a.b", "context": context}


def test_wrong_usage_ends_with_2() -> None:
    """Unknown commands and options, missing arguments and wrong types."""
    for args in (["fly"], ["run", "fly"], ["run", "show"], ["version", "--fast"], ["demo", "--rounds", "x"], ["agent"]):
        ended = tide(*args)
        assert (ended.exit_code, ended.stdout) == (2, "")
        assert "Usage: " in ended.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--agents", "1"], "Invalid value for '--agents'"),
        (["--agents", "65"], "Invalid value for '--agents'"),
        (["--method", "fedavk"], "There is no method 'fedavk'"),
        (["--out", "taken"], "taken/figures cannot be written"),
        (["--policy", "absent.toml"], "The policy file absent.toml does not exist"),
        (["--network", "torchvision/resnet81"], "no classification model of that name"),
        (["--network", "torchvision/squeezenet1_0"], "does more between its features and its head"),
        (["--network", "small", "--networks", "absent:small"], "--networks: absent:small: No module named 'absent'"),
    ],
)
def test_a_demonstration_that_cannot_be_is_refused_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], words: str
) -> None:
    """Numbers, methods and folders that do not fit are refused before a coordinator is started; --help has the same numbers."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("mine")
    ended = tide("demo", *args)
    assert ended.exit_code == 2 and words in ended.stderr and "coordinator" not in ended.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]
    assert "2<=x<=64" in tide("demo", "--help").stdout
    with pytest.raises(errors.ConfigRefused, match="--agents is 1; it should be between 2 and 64"):
        demo.check(demo.DemoOptions("fedavg", 1))


def test_nobody_at_home_or_at_the_address(tmp_path: Path) -> None:
    """A command says where it looked, or whose address it has read where, and what to do; so does a watch, at once."""
    ended = tide("run", "list", "--home", tmp_path, "--json")
    assert ended.exit_code == 3 and json.loads(ended.stdout)["kind"] == "Unreachable"
    assert str(tmp_path) in ended.stderr and "tideline coordinator" in ended.stderr
    (tmp_path / "coordinator.json").write_text('{"grpc": "127.0.0.1:1", "http": "http://127.0.0.1:1", "pid": 1}')
    for words in (["list"], ["watch", "any"]):
        ended = tide("run", *words, "--home", tmp_path)
        assert ended.exit_code == 3 and "No coordinator answers" in ended.stderr and len(ended.stderr.splitlines()) == 2
        assert "http://127.0.0.1:1" in ended.stderr and "coordinator.json" in ended.stderr


def test_a_certificate_that_nobody_vouches_for() -> None:
    assert "--ca" in remedy("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate")
    assert "tideline coordinator" in remedy("[Errno 111] Connection refused")


@pytest.mark.parametrize("url", ["", "127.0.0.1:7880", "ftp://a", "http://", "http://a:port", "http://[::1"])
def test_what_is_no_address(url: str) -> None:
    assert "is not an address" in refusal_of(tide("run", "list", "--url", url))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"http": 1, "grpc": 2}'])
def test_a_damaged_home_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "coordinator.json").write_text(text)
    assert "coordinator.json cannot be read" in refusal_of(tide("run", "list", "--home", tmp_path))


@pytest.fixture
def stranger() -> Iterator[str]:
    """Somebody else's web server."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = {"/runs": (200, b"<html>"), "/runs/teapot": (418, b'{"kind": "Brew", "detail": "a", "todo": "b"}')}
            status, body = known.get(self.path, (404, b"[]"))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if status == 418:
                self.send_header("Tideline-Api", "2")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_stranger_at_the_address(stranger: str) -> None:
    """An answer that is no coordinator's is called that; an error of a kind that we do not know keeps its name."""
    for args in (["run", "list"], ["run", "show", "x"]):
        ended = tide(*args, "--url", stranger)
        assert ended.exit_code == 4 and "is not a Tideline coordinator" in ended.stderr
    ended = tide("run", "show", "teapot", "--url", stranger, "--json")
    assert ended.exit_code == 4 and json.loads(ended.stdout)["kind"] == "Brew"


def test_a_process_ends_with_the_code(tmp_path: Path) -> None:
    """`python -m tideline` hands the code on, and prints no traceback."""
    ended = tide_process("simulate", tmp_path / "none.yaml")
    assert ended.returncode == 2
    assert ended.stderr.startswith("Error: ") and "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("args", "env", "words"),
    [
        (["--http-port", "99999"], {}, "--http-port is 99999"),
        ([], {"TIDELINE_GRPC_PORT": "many"}, "TIDELINE_GRPC_PORT is 'many'"),
        (["--host", "0.0.0.0"], {}, "without TLS"),
        (["--tls-cert", "a.pem"], {}, "both a certificate and a key"),
        (["--parts-cache", "0"], {}, "--parts-cache is 0.0"),
        ([], {"TIDELINE_PARTS_CACHE": "nan"}, "TIDELINE_PARTS_CACHE is 'nan'"),
    ],
)
def test_a_coordinator_that_cannot_be_is_refused(tmp_path: Path, args: list[str], env: dict[str, str], words: str) -> None:
    """Settings of the coordinator that do not fit are named as they were given."""
    assert words in refusal_of(tide("coordinator", "--home", tmp_path / "home", *args, env=env))


def test_an_agent_that_cannot_be_is_refused(tmp_path: Path) -> None:
    base = ["agent", "--coordinator", "127.0.0.1:1", "--data", tmp_path, "--role", "peer", "--home", tmp_path / "home"]
    boss = "--role is 'boss'; it should be one of source, target, peer"
    for option, value, words in (
        ("--coordinator", "here", "is not an address"),
        ("--role", "boss", boss),
        ("--data", "/nowhere", "is not a folder"),
        ("--coordinator", "far.example:7800", "without TLS"),
    ):
        assert words in refusal_of(tide(*base, option, value))


class Loading(ModuleType):
    """A module that is interrupted while it is loaded."""

    def __getattr__(self, name: str) -> NoReturn:
        raise KeyboardInterrupt


def test_an_interruption_before_any_command_is_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """To load all modules takes a moment; Ctrl-C ends that, too, with a word and no traceback."""
    monkeypatch.setitem(sys.modules, "tideline.cli.app", Loading("tideline.cli.app"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == guard.INTERRUPTED
    assert capsys.readouterr().err == "Interrupted\n"
