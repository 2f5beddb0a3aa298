"""Commands about runs against a coordinator behind its real door, and the export of any state."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from tests.cli.world import EXPERIMENT, KEY, LARGE_WORLD, Coordinator, json_of, output_of, refusal_of, tide
from tests.enrolling import enrol
from tideline.algorithms import METHODS
from tideline.algorithms.averaging.messages import State
from tideline.archive.errors import Malformed, PartMismatch
from tideline.archive.parts import MemoryParts
from tideline.archive.reader import decode
from tideline.archive.writer import encode
from tideline.client.export import OpenPart, export
from tideline.core.record import Weights, field, record
from tideline.core.run import Digest
from tideline.core.tokens import read_token
from tideline.engine.coordinator.result import result_of


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An experiment as people write it, in JSON, which is YAML too."""
    path = tmp_path / "e.yaml"
    path.write_text(json.dumps(EXPERIMENT, indent=2))
    return path


def test_start_list_show_cancel(there: Coordinator, file: Path) -> None:
    """A run is started, listed, shown and cancelled; JSON says the same as the words."""
    started = tide("run", "start", file, "--home", there.home, "--set", "config.rounds=3")
    run = started.stdout.split()[1].rstrip(".")
    assert started.exit_code == 0 and f"tideline run watch {run}" in started.stdout
    (listed,) = json_of(tide("run", "list", "--home", there.home, "--json"))
    assert (listed["id"], listed["status"], listed["of"]) == (run, "waiting", 6)
    assert run in tide("run", "list", "--home", there.home).stdout
    assert "waiting for 2 of 2 sites (anna, bert)" in output_of(tide("run", "show", run, "--home", there.home))
    result = json_of(tide("run", "show", run, "--home", there.home, "--json"))
    assert result["config"]["rounds"] == 3
    assert tide("run", "cancel", run, "--home", there.home).stdout == f"Run {run} is cancelled\n"
    again = tide("run", "cancel", run, "--home", there.home, "--json")
    assert again.exit_code == 2 and json.loads(again.stdout)["kind"] == "Refused"
    watched = tide("run", "watch", run, "--home", there.home)
    assert watched.exit_code == 1 and "cancelled by a person" in watched.stdout


def test_a_run_is_shown_as_the_engine_tells_it(there: Coordinator) -> None:
    """`run show --json` is the engine's result and how far the plan is; --history adds every metric, and no word to the table."""
    run = there.complete()
    shown, more = (json_of(tide("run", "show", run, "--home", there.home, "--json", *h)) for h in ([], ["--history"]))
    told = json.loads(json.dumps(result_of(there.federation.journal, run, there.federation.clock.now(), history=True)))
    assert {k: v for k, v in more.items() if k not in ("plan_length", "cursor", "project")} == told
    assert shown == {**more, "history": shown["history"]} and len(more["history"]) == 6 and more["project"] == "default"
    words, same = (tide("run", "show", run, "--home", there.home, *h).stdout for h in ([], ["--history"]))
    assert (
        all(word in words for word in ("anna", "bert", "completed", told["state_digest"][:12], "source-only")) and words == same
    )


def test_a_report_in_a_folder(there: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written is told, in words and as JSON; the folder is named after the run unless it is given."""
    run = there.complete()
    made = json_of(tide("run", "report", run, "--out", tmp_path / "a" / "b", "--home", there.home, "--json"))
    assert json.loads(Path(made["result"]).read_text())["history"][0]["phase"] == "train"
    assert "Accuracies side by side" in Path(made["report"]).read_text()
    matrices = [f"score-confusion-of-{whose}-round-2" for whose in ("anna", "bert", "all-sites")]
    drawn = ["accuracy", "train-loss", *matrices, "traffic"]
    names = [f"{name}.{suffix}" for name in drawn for suffix in ("png", "csv")]
    assert [Path(each).name for each in made["figures"]] == names
    assert all(Path(each).parent == tmp_path / "a" / "b" / "figures" and Path(each).stat().st_size for each in made["figures"])
    monkeypatch.chdir(tmp_path)
    told = output_of(tide("run", "report", run, "--home", there.home))
    folder = Path(f"report-{run}")
    lines = [["result", str(folder / "result.json")], ["report", str(folder / "report.html")]]
    lines += [["figure", str(folder / "figures" / name)] for name in names]
    assert [line.split() for line in told.splitlines()] == lines


def test_an_unknown_run_is_looked_for_in_the_list(there: Coordinator) -> None:
    """Every command about a run says by which command the runs are listed."""
    run = there.start()
    for command in ("show", "watch", "cancel", "report"):
        ended = tide("run", command, "nosuch", "--home", there.home)
        assert (ended.exit_code, "There is no run 'nosuch'" in ended.stderr) == (2, True)
        assert "What to do: See `tideline run list`" in ended.stderr
    assert f"did you mean {run}?" in tide("run", "show", f"{run}x", "--home", there.home).stderr


def test_a_report_of_an_open_run(there: Coordinator, tmp_path: Path) -> None:
    run = there.start()
    made = json_of(tide("run", "report", run, "--out", tmp_path / "a", "--home", there.home, "--json"))
    assert made["figures"] == [] and "waiting" in Path(made["report"]).read_text()


def test_a_report_that_cannot_be_written(there: Coordinator, tmp_path: Path) -> None:
    """An unknown run and a folder that is a file are refused; nothing is left behind."""
    run = there.complete()
    (tmp_path / "file").write_text("mine")
    for asked, out, words in (
        ("nobody", "new", "There is no run 'nobody'"),
        (run, "file", f"{tmp_path / 'file' / 'figures'} cannot be written: Not a directory"),
    ):
        refused = tide("run", "report", asked, "--out", tmp_path / out, "--home", there.home, "--json")
        assert (refused.exit_code, words in refused.stderr) == (2, True), refused.stderr
        assert json.loads(refused.stdout)["type"].startswith("urn:tideline:error:")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "home"]


def test_watch_until_the_end(there: Coordinator, file: Path) -> None:
    """A watch shows rounds and accuracies while they happen, ends with the run, and prints its result."""
    done = threading.Event()

    def work() -> None:
        while not (runs := there.federation.journal.headlines()):
            time.sleep(0.02)
        time.sleep(0.3)
        try:
            there.federation.run(runs[0].id)
            done.set()
        finally:
            if not done.is_set():
                there.federation.run_service.cancel(runs[0].id)  # or the watch would go on

    thread = threading.Thread(target=work)
    thread.start()
    watched = tide("run", "start", file, "--watch", "--home", there.home, "--json", "--set", "reference={method: fedprox}")
    thread.join()
    assert done.is_set() and watched.exit_code == 0
    assert json.loads(watched.stdout)["status"] == "completed"
    lines = watched.stderr.splitlines()
    assert lines[1:3] == ["sites gathered: 2 replies", "train 1: 1 reply"]
    assert lines[3].startswith("score 1: 2 replies, accuracy ") and "anna" in lines[3] and "bert" in lines[3]
    assert lines[-1] == "completed"
    assert len(lines) == 7


def test_a_stalled_run_ends_a_watch_and_can_be_resumed(there: Coordinator) -> None:
    """A stalled run is told with its cause and code 1; after resume it completes."""
    run = there.start()
    there.federation.run(run, order_of=lambda orders: [])
    watched = tide("run", "watch", run, "--home", there.home)
    assert watched.exit_code == 1
    assert "0 of 2 sites answered" in watched.stdout and "stalled" in watched.stderr
    assert f"tideline run resume {run}" in watched.stderr
    assert tide("run", "resume", run, "--home", there.home).stdout == f"Run {run} is waiting\n"
    there.federation.run(run)
    assert tide("run", "watch", run, "--home", there.home).exit_code == 0
    assert tide("run", "resume", run, "--home", there.home).exit_code == 2


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("method: fedavg\nroster: {anna: source}\nconfig:\n  rounds: 2\n  rats: 1\n", 5, "config.rats is not a known setting"),
        ("method: fedavg\nroster: {anna: source}\nconfig:\n\n  rounds: -1\n", 5, "it should be at least 0"),
        ("method: fedavk\nroster: {anna: source}\n", 1, f"Use one of: {', '.join(sorted(dict(METHODS)))} (did you mean fedavg?)"),
        ("method: fedavg\nroster:\n  bert: target\n", 2, "No member can teach"),
        ("method: fedavg\n\nselect:\n- labels: {site: x}\n  role: peer\n", 4, "No enrolled client has the labels"),
        ("method: fedavg\nroster: {anna: source}\npreset: huge\n", 3, "Use one of: demo, tiny"),
        ("method: fedavg\nroster: {anna: source}\nworld:\n  model: lenett\n", 4, "did you mean lenet?"),
        ("method: fedavg\nroster: {a b: source}\n", None, "cannot name a client"),
        ("roster: {anna: source}\n", None, "method is missing"),
    ],
)
def test_what_the_coordinator_refuses_is_told_with_its_line(
    there: Coordinator, tmp_path: Path, text: str, line: int | None, words: str
) -> None:
    """Mistakes that only the coordinator can find come back with the line of the file, as words and as data."""
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    told = tide("run", "start", path, "--home", there.home, "--json")
    assert told.exit_code == 2
    assert told.stderr.startswith(f"Error: {path}:{'' if line is None else f'{line}: '}")
    assert words in told.stderr
    error = json.loads(told.stdout)
    assert set(error) == {"type", "title", "detail", "kind", "todo", "path", "context"}
    assert error["context"].get("line") == line
    assert there.federation.journal.run_ids() == ()


def test_export_equals_the_state(there: Coordinator, tmp_path: Path) -> None:
    """The file opens with safetensors and holds the final state, parts and root alike, bit for bit."""
    run = there.complete(world=LARGE_WORLD)
    out = tmp_path / "state.safetensors"
    files = there.federation.journal.rounds(run)[-1].state
    assert len(files) == 2, "the model has a part"
    told = json_of(tide("run", "export", run, "--state", "--out", out, "--home", there.home, "--json"))
    assert (told["tensors"], told["state_digest"]) == (4, files[0][0])
    state = decode(State, files[0][0], there.federation.parts)
    read = load_file(out)
    assert read.keys() == {f"model/{name}" for name in state.model}
    assert all(torch.equal(read[f"model/{name}"], tensor) for name, tensor in state.model.items())
    with safe_open(out, "pt") as opened:
        assert opened.metadata()["tideline.state"] == files[0][0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["home", "state.safetensors"]
    assert "4 tensors" in tide("run", "export", run, "--state", "--out", out, "--home", there.home).stdout


def test_export_of_what_is_not_there(there: Coordinator, tmp_path: Path) -> None:
    """An open run, an unknown one, a wrong name and a missing folder are refused, and nothing is left behind."""
    run = there.start()
    for asked, out, words in (
        (run, "a.safetensors", "only a completed run"),
        ("nobody", "a.safetensors", "There is no run 'nobody'"),
        (run, "a.txt", "does not end in .safetensors"),
        (run, "none/a.safetensors", "There is no folder"),
    ):
        for more in ([], ["--state"]):
            there_is = tide("run", "export", asked, *more, "--out", tmp_path / out, "--home", there.home)
            assert (there_is.exit_code, words in there_is.stderr) == (2, True), there_is.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["home"]


def test_export_of_damaged_bytes(there: Coordinator, tmp_path: Path) -> None:
    """A part whose bytes are not those of its digest ends the export with code 4 and leaves no file."""
    run = there.complete(world=LARGE_WORLD)
    part = there.federation.journal.rounds(run)[-1].state[1][0]
    held = there.federation.parts._held
    content = held[part] if isinstance(held[part], bytes) else held[part].content()
    held[part] = content[:-1] + bytes([content[-1] ^ 1])
    for more in ([], ["--state"]):
        told = tide("run", "export", run, *more, "--out", tmp_path / "a.safetensors", "--home", there.home)
        assert told.exit_code == 4 and part[:12] in told.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["home"]


def test_invite_prints_a_command_that_works(there: Coordinator) -> None:
    """The token is the run service's, for the name and labels, and says where this coordinator's door for agents is."""
    told = tide("invite", "--name", "carl", "--labels", "site=c,gpu=1", "--ttl", "30m", "--home", there.home, "--json")
    made = json.loads(told.stdout)
    assert made["command"].startswith(f"tideline agent --token {made['token']} --name carl ")
    assert read_token(made["token"]).addresses == ("127.0.0.1:7",)
    client = enrol(there.federation.run_service, made["token"], "carl", ("peer",))
    assert client.labels == {"site": "c", "gpu": "1"}
    assert made["expires"] == pytest.approx(1800 + there.federation.clock.now())
    assert "enrolled already" in refusal_of(tide("invite", "--name", "carl", "--home", there.home))
    assert made["token"] not in tide("invite", "--name", "dora", "--home", there.home).stdout


def test_an_invitation_names_the_addresses_that_were_given(there: Coordinator) -> None:
    given = ("--address", "https://tideline.example.org", "--address", "10.0.0.7:7800")
    made = json_of(tide("invite", "--name", "erna", *given, "--home", there.home, "--json"))
    assert read_token(made["token"]).addresses == ("https://tideline.example.org", "10.0.0.7:7800")
    refused = tide("invite", "--name", "fred", "--address", "tideline.example.org", "--home", there.home)
    assert refused.exit_code == 2 and "'tideline.example.org' is no address" in refused.stderr


def test_an_invitation_is_written_to_a_file(there: Coordinator, tmp_path: Path) -> None:
    """Only its owner may read it, and nothing shows the token; where nothing can be written, none is made."""
    file = tmp_path / "carl's token"
    told = tide("invite", "--name", "carl", "--home", there.home, "--out", file)
    token = file.read_text().strip()
    assert read_token(token).addresses == ("127.0.0.1:7",) and file.stat().st_mode & 0o777 == 0o600
    assert told.exit_code == 0 and token not in told.output and "--token-file" in told.stdout
    made = json_of(tide("invite", "--name", "dora", "--home", there.home, "--out", file, "--json"))
    assert made["token_file"] == str(file) and "token" not in made and file.read_text().strip() != token
    refused = tide("invite", "--name", "emil", "--home", there.home, "--out", tmp_path / "nowhere" / "token")
    assert refused.exit_code == 2 and "cannot be written" in refused.stderr and "--out" in refused.stderr


@pytest.mark.parametrize(("option", "value"), [("--ttl", "soon"), ("--ttl", "1w"), ("--labels", "a"), ("--labels", "=b")])
def test_an_invitation_with_odd_words_is_refused(there: Coordinator, option: str, value: str) -> None:
    """Lifetimes and labels that cannot be read are refused before anything is asked."""
    assert f"{option} is '{value}'" in refusal_of(tide("invite", "--name", "carl", option, value, "--home", there.home))


def test_the_address_and_key_of_a_coordinator(there: Coordinator, tmp_path: Path) -> None:
    """Options, then the environment, then the home say where the coordinator is and with which key it is asked."""
    env = {"TIDELINE_URL": there.url, "TIDELINE_API_KEY": KEY}
    assert tide("run", "list", env=env).exit_code == 0
    assert tide("run", "list", env={"TIDELINE_HOME": str(there.home)}).exit_code == 0
    assert tide("run", "list", "--url", there.url + "/", "--api-key", KEY).exit_code == 0
    unread = tide("run", "list", env=env | {"TIDELINE_CA": str(tmp_path / "none.pem")})
    assert unread.exit_code == 2 and "none.pem cannot be used" in unread.stderr and "TIDELINE_CA" in unread.stderr
    for wrong in (["--api-key", "wrong"], []):
        refused = refusal_of(tide("run", "list", "--url", there.url, *wrong, "--home", there.home if wrong else tmp_path))
        assert "API key is missing or wrong" in refused and "TIDELINE_API_KEY" in refused


def test_a_key_is_not_shown_to_another_coordinator(there: Coordinator) -> None:
    """The key that lies in the default home goes to this machine only, unless that home is named."""
    from tideline.client.http import Client, Endpoint

    default = Path.home() / ".tideline" / "coordinator"
    default.parent.mkdir()
    default.symlink_to(there.home)
    elsewhere = (Endpoint(url="https://elsewhere.example"), Endpoint(url="https://a.b", home=default))
    doors = (Endpoint(), Endpoint(url=there.url), *elsewhere)
    sent = [Client.of(door)._http.headers.get("authorization") for door in doors]
    assert sent == [f"Bearer {KEY}", f"Bearer {KEY}", None, f"Bearer {KEY}"]


def test_names_from_elsewhere_do_not_steer_the_terminal(there: Coordinator) -> None:
    run = there.start(name="[red]\x1b[2Jhello")
    for words in (tide("run", "list", "--home", there.home).stdout, tide("run", "show", run, "--home", there.home).stdout):
        assert "\x1b" not in words
    assert "[red] [2Jhello" in tide("run", "list", "--home", there.home).stdout


def test_an_id_with_odd_characters_is_no_other_address(there: Coordinator) -> None:
    told = tide("run", "show", "../clients", "--home", there.home)
    assert told.exit_code in (2, 4) and told.stdout == ""
    assert there.federation.journal.run_ids() == ()


@record
class Inner:
    """What a state may hold."""

    rate: float = field(doc="a number")
    large: torch.Tensor = field("...", doc="a tensor")


@record
class Everything:
    """Every sort of value that a state may have."""

    model: Weights = field(doc="weights")
    clouds: tuple[Inner, ...] = field(doc="records in a row")
    maybe: torch.Tensor | None = field("...", doc="or none")
    by_site: dict[str, int] = field(doc="numbers")


def state() -> Everything:
    """A state with tensors in its root and tensors in parts, of several types, one of them empty and one twice."""
    big = torch.arange(300_000, dtype=torch.float32).reshape(300, 1000)
    weights = {"conv.weight": big, "same": big, "half": torch.ones(3, dtype=torch.bfloat16)}
    weights |= {"flag": torch.tensor([True, False]), "none": torch.zeros(0, 4), "count": torch.tensor(7)}
    return Everything(weights, (Inner(0.5, big * 2), Inner(1.5, torch.ones(2))), None, {"a": 1})


def opener(parts: MemoryParts, instead: dict[Digest, bytes]) -> OpenPart:
    """Parts as they are, or something in their place."""

    @contextlib.contextmanager
    def opened(digest: Digest, size: int) -> Iterator[memoryview]:
        yield memoryview(instead[digest]) if digest in instead else parts.view(digest)

    return opened


def test_the_file_equals_the_state(tmp_path: Path) -> None:
    """Every tensor is found by its path with equal bytes; the other values are kept in the file's own words."""
    parts, out = MemoryParts(), tmp_path / "a.safetensors"
    message = encode(state(), parts)
    assert len(message.files) == 3
    made = export(opener(parts, {}), message.digest, message.files[0][1], out)
    read = load_file(out)
    expected = {f"model/{name}": tensor for name, tensor in state().model.items()}
    expected |= {f"clouds/{i}/large": inner.large for i, inner in enumerate(state().clouds)}
    assert read.keys() == expected.keys()
    for name, tensor in expected.items():
        assert read[name].dtype == tensor.dtype and torch.equal(read[name], tensor), name
    assert made["values"] == {"clouds/0/rate": 0.5, "clouds/1/rate": 1.5, "maybe": None, "by_site/a": 1}


def test_a_part_that_is_another_tensor_is_refused(tmp_path: Path) -> None:
    """A part of another shape, a root without a record, and no archive at all leave no file."""
    parts, out = MemoryParts(), tmp_path / "a.safetensors"
    message = encode(state(), parts)
    (first, _), (second, _) = message.files[1:]
    other = encode(Everything({"w": torch.ones(600, 600)}, (), None, {}), parts).files[1][0]
    swapped = opener(parts, {first: bytes(parts.view(other))})
    with pytest.raises(PartMismatch):
        export(swapped, message.digest, 0, out)
    for root in (second, parts.put([b"12345678"])):
        with pytest.raises(Malformed):
            export(opener(parts, {}), root, 0, out)
    assert list(tmp_path.iterdir()) == []
