"""What a person does wrong at the command line of a coordinator or an agent: what, where, what to do, and an exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from tests.acceptance.conftest import SITES, WORLD, joined
from tests.acceptance.harness import ROOT, Net, free_port
from tests.cli.world import tide
from tideline_protos.v1 import federation_pb2 as pb

pytestmark = pytest.mark.processes
REFUSED, UNREACHABLE = 2, 3


def tideline(*args: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tideline", *args],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))},
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def here(*args: str) -> tuple[int, str]:
    """Run a command that is refused at once, in this process."""
    ended = tide(*args)
    return ended.exit_code, " ".join(ended.output.split())


@pytest.fixture(scope="module")
def odd(federation: Net, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a site of that name, which has no data yet."""
    folder = tmp_path_factory.mktemp("odd")
    with joined(federation, {"odd": folder}, {"odd": "source"}):
        yield folder


def agent(federation: Net, name: str, data: Path, token: str, home: Path, *more: str) -> tuple[int, str]:
    """Start an agent that is expected to end by itself."""
    command = federation.agent_command(name, data, "source", token)
    command[command.index("--home") + 1] = str(home)
    return tideline(*command, *more)


@pytest.mark.nightly(job="journeys")
def test_a_name_belongs_to_one_agent(federation: Net, data: dict[str, Path], tmp_path: Path) -> None:
    """A second agent of an enrolled name, from another home, is refused with its reason."""
    code, said = agent(federation, "a", data["a"], "no-token", tmp_path)
    assert code == REFUSED and "belongs to another agent" in said and "another name" in said


def test_a_home_serves_one_agent(federation: Net, data: dict[str, Path]) -> None:
    """The same command twice at once is refused: two processes would answer for each other."""
    code, said = agent(federation, "a", data["a"], "no-token", federation.home / "home-a")
    assert code == REFUSED and "Another agent runs with the home" in said


@pytest.mark.quick
def test_a_token_serves_once(federation: Net, data: dict[str, Path], tmp_path: Path) -> None:
    token = federation.client().post("/invites", {"name": "", "ttl_seconds": 600})["token"]
    federation.start("once", *federation.agent_command("once", data["a"], "source", token))
    federation.until(lambda: "enrolled" in federation.log("once"), "the first agent to enrol")
    code, said = agent(federation, "twice", data["a"], token, tmp_path)
    federation.leave("once")
    assert code == REFUSED and "was used by 'once'" in said and "ask for a new one" in said


def test_a_token_expires(federation: Net, data: dict[str, Path], tmp_path: Path) -> None:
    client = federation.client()
    token = client.post("/invites", {"name": "slow", "ttl_seconds": 1})["token"]
    until = time.time() + 1.1
    federation.until(lambda: time.time() > until, "the token to expire")
    code, said = agent(federation, "slow", data["a"], token, tmp_path)
    assert code == REFUSED and "expired" in said and "tideline invite" in said


def test_an_unknown_token(federation: Net, data: dict[str, Path], tmp_path: Path) -> None:
    code, said = agent(federation, "nobody", data["a"], "made-up", tmp_path)
    assert code == REFUSED and "not known here" in said


def test_another_protocol_version(federation: Net) -> None:
    """An agent of another protocol is refused, with both versions and what to do."""
    with grpc.insecure_channel(federation.address) as channel:
        enrol = channel.unary_unary("/tideline.v1.Federation/Enrol", pb.EnrolRequest.SerializeToString, pb.EnrolReply.FromString)
        with pytest.raises(grpc.RpcError) as caught:
            enrol(pb.EnrolRequest(protocol=99, token="t", name="n", version="9.9"), timeout=60)
    told = dict(caught.value.trailing_metadata())["tideline-error-bin"]
    error = json.loads(told)
    assert (
        error["kind"] == "VersionRefused" and "9.9" in error["what"] and "99" in error["what"] and "same version" in error["todo"]
    )


@pytest.mark.quick
def test_a_stranger_opens_nothing(federation: Net) -> None:
    with grpc.insecure_channel(federation.address) as channel:
        beat = channel.unary_unary("/tideline.v1.Federation/Beat", pb.BeatRequest.SerializeToString, pb.BeatReply.FromString)
        for metadata in ((), (("tideline-client", "a"), ("authorization", "Bearer guess"))):
            with pytest.raises(grpc.RpcError) as caught:
                beat(pb.BeatRequest(), metadata=metadata, timeout=60)
            assert caught.value.code() in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)


def test_a_port_in_use(federation: Net, tmp_path: Path) -> None:
    code, said = tideline("coordinator", "--home", str(tmp_path), "--grpc-port", str(federation.grpc), "--http-port", "0")
    assert code == REFUSED and str(federation.grpc) in said and "--grpc-port" in said


def test_a_home_in_use(federation: Net) -> None:
    code, said = here("coordinator", "--home", str(federation.folder), "--grpc-port", "0", "--http-port", "0")
    assert code == REFUSED and "Another coordinator uses" in said


def test_beyond_this_machine_only_with_tls(tmp_path: Path) -> None:
    code, said = here("coordinator", "--home", str(tmp_path), "--host", "0.0.0.0")
    assert code == REFUSED and "--tls-cert" in said and "--insecure" in said


def test_a_coordinator_that_is_not_there(data: dict[str, Path], tmp_path: Path) -> None:
    """An agent waits a while for its coordinator, then says what it tried."""
    port = free_port()
    where = ("--coordinator", f"127.0.0.1:{port}", "--home", str(tmp_path), "--wait", "1")
    code, said = tideline("agent", *where, "--token", "t", "--name", "x", "--role", "source", "--data", str(data["a"]))
    assert code == UNREACHABLE and f"127.0.0.1:{port}" in said and "coordinator runs" in said
    code, said = here("run", "list", "--url", f"http://127.0.0.1:{port}", "--api-key", "k")
    assert code == UNREACHABLE and str(port) in said


def test_data_that_cannot_be_used(federation: Net, odd: Path, data: dict[str, Path]) -> None:
    """A site whose folder is empty declines at the join; the run says which site, which folder and why, and can be resumed."""
    for file in odd.iterdir():
        file.unlink()
    run = federation.run({"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": {"a": "source", "odd": "source"}})
    result = federation.ended(run)
    assert result["status"] == "stalled" and "odd" in result["cause"] and str(odd) in result["cause"]
    (odd / "blobs.npz").write_bytes((data["b"] / "blobs.npz").read_bytes())
    federation.client().post(f"/runs/{run}/resume", {})
    federation.completed(run)


@pytest.mark.parametrize(
    ("features", "classes", "told"), [(5, 3, ("a sample of x is 5", "expects 6 features")), (6, 4, ("label 3", "classes 0 to 2"))]
)
def test_a_site_of_another_shape(federation: Net, odd: Path, features: int, classes: int, told: tuple[str, str]) -> None:
    """Other features or more classes than the run's world: the run names the site, what came and what was expected."""
    for file in odd.iterdir():
        file.unlink()
    rng = np.random.default_rng(0)
    np.savez(odd / "rows.npz", x=rng.normal(size=(40, features)).astype(np.float32), y=np.arange(40) % classes)
    roster = {"a": "source", "odd": "source", "c": "target"}
    given = {"method": "feddadil", "preset": "tiny", "config": {"encoder_rounds": 0}, "roster": roster}
    run = federation.run(given | {"world": {"inputs": [6], "classes": 3, "model": "linear", "normalise": "none"}})
    result = federation.ended(run)
    assert result["status"] == "stalled" and "odd: " in result["cause"], result["cause"]
    assert all(words in result["cause"] for words in told), result["cause"]


@pytest.mark.quick
def test_a_policy_that_says_no(federation: Net, data: dict[str, Path], tmp_path: Path) -> None:
    """A site whose owner forbids weights declines, and the run names the clause."""
    policy = tmp_path / "policy.toml"
    policy.write_text('[forbid]\nweights = ["coordinator"]\n')
    with joined(federation, {"strict": data["a"]}, {"strict": "source"}, "--policy", str(policy)):
        roster = {"a": "source", "strict": "source"}
        run = federation.run({"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": roster})
        result = federation.ended(run)
    assert result["status"] == "stalled" and "strict" in result["cause"] and "WEIGHTS" in result["cause"]


def test_a_role_that_the_owner_does_not_allow(federation: Net) -> None:
    """A roster that gives a site another role than its owner allows is refused at once."""
    from tideline.core.errors import RosterRefused

    roster = {**SITES, "c": "source"}
    with pytest.raises(RosterRefused, match="its owner allows target"):
        federation.run({"method": "fedavg", "world": WORLD, "roster": roster})
