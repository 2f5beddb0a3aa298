"""What a site computes on, and how busy that is: read from the system, whatever that says, and without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tideline_agent.machine import gpus
from tideline_agent.machine.device import device_name, processor
from tideline_agent.machine.gpus import Gpu, gpu_of, gpus_in, listed
from tideline_agent.machine.use import Machine

GIB = 1 << 30
TWO = """0, GPU-aaaa, NVIDIA H100 80GB HBM3, 87, 40960, 81559
1, GPU-bbbb, NVIDIA A2, [N/A], [N/A], 15356
"""


def command(folder: Path, text: str, status: int = 0) -> Path:
    """A driver's command that says this."""
    path = folder / gpus.COMMAND[0]
    path.write_text(f"#!{sys.executable}\nimport sys\nsys.stdout.write({text!r})\nsys.exit({status})\n")
    path.chmod(0o755)
    return path


def test_the_drivers_command_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it lies on the path; one that fails, and none at all, are no GPUs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert listed() == ""
    command(tmp_path, TWO)
    assert [each.name for each in gpus_in(listed(), {})] == ["NVIDIA H100 80GB HBM3", "NVIDIA A2"]
    command(tmp_path, "No devices were found", 6)
    assert listed() == ""


def test_what_is_read_of_each() -> None:
    """What the driver does not say is not known."""
    first, second = gpus_in(TWO, {})
    assert first == Gpu("NVIDIA H100 80GB HBM3", 0.87, 40 * GIB, 81559 << 20)
    assert second == Gpu("NVIDIA A2", None, None, 15356 << 20)


@pytest.mark.parametrize(
    ("only", "names"),
    [("1", ["NVIDIA A2"]), ("1,0", ["NVIDIA A2", "NVIDIA H100 80GB HBM3"]), ("GPU-bb", ["NVIDIA A2"]), ("", []), ("-1", [])],
)
def test_those_that_cuda_shows(only: str, names: list[str]) -> None:
    """In its order, and up to the first that is not there."""
    assert [each.name for each in gpus_in(TWO, {gpus.VISIBLE: only})] == names


def test_odd_lines_are_left_out() -> None:
    """Nothing that it prints is more than a name and numbers."""
    odd = "\n".join(["", "a,b", "0, GPU-1, \u202eevil\x1b[2J" + "x" * 200 + ", 1e99, -4, nan", "x" * 10_000, ",,,,,,"])
    (found,) = gpus_in(odd, {})
    assert found == Gpu(("evil[2J" + "x" * 200)[:80], None, None, None)


@pytest.mark.parametrize(
    ("device", "built", "name"),
    [
        ("auto", True, "NVIDIA H100 80GB HBM3"),
        ("cuda", True, "NVIDIA H100 80GB HBM3"),
        ("cuda:1", True, "NVIDIA A2"),
        ("cuda:7", True, "cuda:7"),
        ("auto", False, processor()),
        ("cpu", True, processor()),
        ("mps", False, "mps"),
    ],
)
def test_what_steps_compute_on(device: str, built: bool, name: str) -> None:
    """As the owner has set it, and as torch was built."""
    assert device_name(device, lambda: TWO, lambda: built) == name


def test_a_processor_has_a_name(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A Processor \u202e (R)\n")
    assert processor(tmp_path / "cpuinfo").startswith("A Processor  (R), ")
    assert processor(tmp_path / "none").endswith(("core", "cores")) and gpu_of("cuda", ()) is None


def test_how_busy_it_is(tmp_path: Path) -> None:
    """Between two looks; within two seconds nothing is read again, and a system that says nothing is not known."""
    stat, clock, looks = tmp_path / "stat", [0.0], list[int]()
    machine = Machine("cpu", lambda: looks.append(1) or TWO, stat, lambda: clock[0])  # type: ignore[func-returns-value]
    stat.write_text("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 1 1 1\n")
    assert machine.use().cpu is None
    stat.write_text("cpu  160 0 100 740 100 0 0 0 0 0\n")
    assert machine.use().cpu is None and len(looks) == 1
    clock[0] = 2.0
    found = machine.use()
    assert found.cpu == pytest.approx(0.6) and [gpu.use for gpu in found.gpus] == [0.87, None] and len(looks) == 2
    for text in ("", "cpu x", "intr 1 2 3 4 5 6 7 8"):
        clock[0] += 2.0
        stat.write_text(text)
        assert machine.use().cpu is None


def test_it_loads_no_torch() -> None:
    """The agent's own process knows none."""
    code = "import sys; from tideline_agent.machine.use import Machine; Machine('auto').use(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"
