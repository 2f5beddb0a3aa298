"""Make the stubs from federation.proto, or check that the committed ones are what it makes: protos.py [--check]."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "protos"
PROTO = "tideline_protos/v1/federation.proto"
GENERATOR = ROOT.parent / ".venv/protos/bin/python"
STUBS = ("federation_pb2.py", "federation_pb2.pyi")


def generate(out: Path) -> None:
    """Write the stubs below a folder."""
    flags = [f"--python_out={out}", f"--pyi_out={out}"]
    subprocess.run([GENERATOR, "-m", "grpc_tools.protoc", "-I", str(ROOT), *flags, PROTO], check=True, cwd=ROOT)


def stale() -> list[str]:
    """The committed stubs that differ from what the generator makes."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        fresh = Path(folder) / PROTO
        committed = ROOT / PROTO
        return [name for name in STUBS if (fresh.parent / name).read_bytes() != (committed.parent / name).read_bytes()]


def main() -> int:
    """0 if all is in step."""
    if "--check" not in sys.argv[1:]:
        generate(ROOT)
        return 0
    behind = stale()
    if behind:
        sys.stderr.write(f"Out of step with {PROTO}: {', '.join(behind)}. Run: make protos\n")
    return 1 if behind else 0


if __name__ == "__main__":
    sys.exit(main())
