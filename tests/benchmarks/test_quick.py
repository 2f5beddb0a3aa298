"""The small forms of the benchmarks come to their ends. What they count is looked at, never how long anything took."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.acceptance.harness import ROOT
from tideline.learning.datasets import digits

pytestmark = pytest.mark.processes


PATH = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def measured(name: str, *more: str, code: int = 0) -> dict[str, Any]:
    """The row of a benchmark in its small form."""
    command = [sys.executable, "-W", "error", str(ROOT / "benchmarks" / f"{name}.py"), "--quick", "--json", *more]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=200, env=os.environ | {"PYTHONPATH": PATH}, check=False
    )
    assert done.returncode == code, done.stderr
    row: dict[str, Any] = json.loads(done.stdout)
    return row


@pytest.mark.nightly(job="benchmarks")
def test_load() -> None:
    """Every run completes with its seed's digest, every agent is heard, and the coordinator holds a connection for each."""
    row = measured("load")
    assert (row["completed"], row["wrong"], row["cuts"]) == (row["runs"], 0, 0)
    assert row["files"]["coordinator"] > row["agents"]
    assert row["beat_ms"]["idle"]["max"] > 0 < row["order_ms"]["max"]


@pytest.mark.nightly(job="benchmarks")
def test_looking() -> None:
    row = measured("looking")
    assert all(row[kind][figure] > 0 for kind in ("open", "event", "events", "ended") for figure in ("cpu", "wall", "kb"))
    assert row["event"]["kb"] < row["events"]["kb"]


@pytest.mark.nightly(job="benchmarks")
def test_ledger() -> None:
    """Every look is measured, and a limit that is exceeded says so."""
    row = measured("ledger")
    assert row["entries"] == 2000 and all(row[key] > 0 for key in ("read_ms", "page_ms", "word_ms", "digest_ms", "export_ms"))
    measured("ledger", "--limit", "read_ms=0", code=1)


@pytest.mark.nightly(job="benchmarks")
def test_dashboard() -> None:
    """Both pages are shown, after the browser's first paint, and the long run's page takes no more files than there are."""
    if shutil.which("chromium") is None:
        pytest.skip("NOT TESTED: there is no browser on this machine (Debian: apt-get install chromium)")
    row = measured("dashboard")
    assert (row["runs"], row["sites"]) == (4, 3) and row["events"] >= 10_000 and row["found"] > 0
    for page in ("list", "run"):
        assert 0 < row[page]["paint"] <= row[page]["shown"] and row[page]["kb"] > 0 < row[page]["files"] < 60
    assert row["shown"] == row["list"]["shown"]


@pytest.mark.nightly(job="benchmarks")
def test_lists() -> None:
    """Every list is looked at as an admin, an operator and a viewer, and those of a project are shorter than the whole."""
    row = measured("lists")
    assert (row["runs"], set(row["lists"])) == (8, {"admin", "operator", "viewer"})
    assert all(0 < each["p50"] <= each["p99"] and each["kb"] >= 0 for of in row["lists"].values() for each in of.values())
    assert row["lists"]["viewer"]["/runs"]["kb"] < row["lists"]["admin"]["/runs"]["kb"] and row["worst"] > 0 < row["every"]


@pytest.mark.nightly(job="benchmarks")
def test_simulation() -> None:
    """Every column is measured, with all clients and with a part of them; growth over two sizes has an exponent."""
    for row in (measured("simulation"), measured("simulation", "--clients", "4/8")):
        assert set(row["seconds"]) == set(row["memory_mb"]) == {"loop", "ours", "processes"}
        assert min(row["seconds"].values()) > 0
        assert row["accuracy"]["ours"] == row["accuracy"]["processes"]
    assert row["clients"] == "4/8"
    assert math.isfinite(measured("simulation", "--scale")["exponent"])


@pytest.mark.nightly(job="benchmarks")
@pytest.mark.parametrize("model", ["mlp", "lenet"])
def test_clients_as_one_batch(model: str) -> None:
    """They become what they become one by one, but for the last digits, which depend on the processor."""
    row = measured("spikes/batched_clients", "--model", model)
    assert row["accuracy"]["loop"] == pytest.approx(row["accuracy"]["batched"])
    assert max(row["difference"]) < 1e-5 and row["same_bits"] > 0.5
    assert min(row["seconds"].values()) > 0 and max(row["operations"].values()) < 1e-5


@pytest.mark.nightly(job="benchmarks")
def test_soak_and_a_limit_that_is_exceeded() -> None:
    """Runs follow one another and complete; what exceeds a limit is an error."""
    row = measured("soak", "--limit", "files.coordinator.most=1", code=1)
    assert row["completed"] == row["runs"] > 4
    assert set(row["memory"]) == set(row["flat"]) == {"coordinator", "worker", "agent", "trainer"}


@pytest.mark.nightly(job="benchmarks")
def test_throttled() -> None:
    """Cut twice, the update arrives whole, and less than half of it is sent again."""
    row = measured("throttled")
    assert row["completed"] and row["same"]
    assert row["cuts"] == 2 <= row["connections"]
    assert row["bytes"] < row["sent"] < 1.5 * row["bytes"]


@pytest.mark.nightly(job="benchmarks")
@pytest.mark.parametrize("only", ["seconds", "accuracy"])
def test_narrow(only: str) -> None:
    """Every form is played over real lines and in one process, and takes fewer bytes than float32."""
    command = [sys.executable, str(ROOT / "benchmarks" / "narrow.py"), "--quick", "--json", "--only", only]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=200, env=os.environ | {"PYTHONPATH": PATH}, check=False
    )
    assert done.returncode in (0, 1), done.stderr  # 1: a round took too long, on a busy machine or of so few bytes
    rows = {row["form"]: row for row in map(json.loads, done.stdout.splitlines())}
    whole = rows["float32"]["bytes"]
    assert rows["int8"]["bytes"] < rows["bfloat16"]["bytes"] < 0.6 * whole
    if only == "accuracy":
        assert rows["float32"]["points"] == 0 and all(row["fewer"] > 1 for form, row in rows.items() if form != "float32")


@pytest.mark.nightly(job="benchmarks")
def test_loading() -> None:
    row = measured("loading", "--images", "300", "--batches", "4")
    assert row["images"] == 300 and row["load_ratio"] > 0 and 0 < row["look_s"] <= row["start_s"] < row["first_s"] + 10


@pytest.mark.nightly(job="benchmarks")
def test_reading() -> None:
    """Every row is read, by every loop, and what is looked at is not kept."""
    row = measured("reading", "--only", "npz")
    assert row["rows"] == 2500 and row["result_mb"] == 10
    assert row["read_s"] >= 0 <= row["plain_s"] and row["check_over"] < row["read_over"]


@pytest.mark.nightly(job="benchmarks")
def test_training() -> None:
    row = measured("training")
    assert (row["images"], row["workers"]) == ("memory", 0) and min(row["fit"], row["loop"]) > 0


@pytest.mark.nightly(job="benchmarks")
def test_robust() -> None:
    """Every rule and attack is played; the mean is lost to a wrong direction, rules are not; Krum leaves out most sites."""
    row = measured("robust", "--limit", "lost.sign_flip.none.mean=1", code=1)
    assert row["cost"]["none"] == {"mean": 0.0, "spread": 0.0}
    lost = {rule: figure["mean"] for rule, figure in row["lost"]["sign_flip"].items()}
    assert lost.pop("none") > 2 * max(lost.values())
    assert sum(row["chosen"]["krum"].values()) == pytest.approx(1, abs=0.05)


@pytest.mark.nightly(job="benchmarks")
def test_stlf() -> None:
    """All rules link the same models; ST-LF has a link for each target and spends least of all but what chooses as it does."""
    row = measured("stlf")
    rules = row["rules"]
    assert len(rules) == 7 and row["divergence_mb"] < row["mb"]
    assert rules["plan"]["links"] == 5 < rules["fedavg_alpha"]["links"]
    assert rules["plan"]["share"] < rules["average_degree"]["share"] < 100
    assert all(0 <= each["accuracy"] <= 100 for each in rules.values())


def shipped(folder: Path) -> None:
    """Few rows of the digits that the package ships, as the benchmarks read sets."""
    folder.mkdir()
    rows = np.arange(200)
    for name in ("mnist", "usps", "coloured"):
        raw = digits.load(name)
        np.savez(folder / f"{name}.npz", x=raw.x[rows], y=raw.y[rows], train_idx=rows[:150], test_idx=rows[150:])


@pytest.mark.nightly(job="benchmarks")
def test_a_malicious_source(tmp_path: Path) -> None:
    """A source all of whose labels are wrong weighs something, and the table tells what it costs."""
    shipped(tmp_path / "digits")
    out = tmp_path / "rows.jsonl"
    more = ("--data", str(tmp_path), "--domains", "mnist,usps,coloured", "--methods", "kd3a", "--out", str(out))
    row = measured("kd3a_malicious", *more)
    assert (row["target"], row["bad"], row["share"]) == ("usps", "mnist", 1.0)
    assert len(row["weight"]) == 2 and all(0 <= each <= 100 for each in row["weight"])
    out.write_text(json.dumps({**row, "share": 0.0, "accuracy": row["accuracy"] + 10}) + "\n" + out.read_text())
    command = [sys.executable, str(ROOT / "benchmarks" / "kd3a_malicious.py"), "--table", str(out)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | {"PYTHONPATH": PATH}, check=True)
    assert "| kd3a |" in told.stdout and "| 10.0 ± 0.0 |" in told.stdout


@pytest.mark.nightly(job="benchmarks")
def test_alignment(tmp_path: Path) -> None:
    """FADA is scored before and after its rounds, on domains that the package ships; rows that are there are not run again."""
    shipped(tmp_path / "digits")
    out = tmp_path / "rows.jsonl"
    more = ("--data", str(tmp_path), "--targets", "usps", "--methods", "fada_III", "--out", str(out))
    row = measured("alignment", *more)
    assert (row["target"], row["method"], row["seed"]) == ("usps", "fada_III", 0)
    assert 0 <= row["source_only"] <= 100 and 0 <= row["accuracy"] <= 100 and row["mb"] > 0
    assert json.loads(out.read_text()) == row
    alone = measured("alignment", *more[:5], "alone,fada_III", *more[6:])
    assert alone["method"] == "alone"
    assert [json.loads(each) for each in out.read_text().splitlines()] == [row, alone]


def test_a_limit_on_what_is_not_measured_is_refused() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "load.py"), "--limit", "speed=1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "speed" in done.stderr


@pytest.mark.nightly(job="benchmarks")
def test_secure_sums() -> None:
    """A site and the coordinator are measured; beside its values a site sends little."""
    row = measured("secure_sums")
    assert (row["sites"], row["remain"], row["neighbours"]) == (8, 6, 7)
    assert min(value for name, value in row.items() if name.endswith("_s")) > 0 and 1 < row["up_ratio"] < 1.1 and row["up_kb"] > 1


@pytest.mark.nightly(job="benchmarks")
def test_links() -> None:
    """Every table is made; the optimum is proven, nothing is below it, and as energy weighs more its optimum takes no more."""
    command = [sys.executable, "-W", "error", str(ROOT / "benchmarks" / "links.py"), "--quick", "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=200, env=os.environ | {"PYTHONPATH": PATH}, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["table"] for row in rows} == {"time", "gap", "regimes", "energy"}
    assert all(row["status"] == ["proven"] for row in rows if row.get("solver") == "exact" and row["table"] == "time")
    assert all(row["rounded"]["mean"] >= row["polished"]["mean"] >= 0 for row in rows if row["table"] == "gap")
    joules = next(row["joules"] for row in rows if row["table"] == "energy" and row["solver"] == "exact")
    assert joules == sorted(joules, reverse=True)


@pytest.mark.nightly(job="benchmarks")
def test_newcomer() -> None:
    command = [sys.executable, "-W", "error", "-m", "benchmarks.newcomer", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, env=os.environ | {"PYTHONPATH": PATH})
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert row["commands"] == 3 and 0 < row["enrolled_s"] <= row["joined_s"] <= row["first_reply_s"]
