"""What is public has a docstring whose example runs; `import tideline` is quick."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import tideline

NAMES = [name for name in tideline.__all__ if name not in ("__version__", "errors")]


@pytest.mark.parametrize("name", NAMES)
def test_the_example_in_the_docstring_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    public = getattr(tideline, name)
    text = inspect.getdoc(public)
    assert text and ">>>" in text, "no example"
    found = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    out: list[str] = []
    failed, _ = doctest.DocTestRunner(verbose=False).run(found, out=out.append)
    assert not failed, "".join(out)


@pytest.mark.parametrize("name", [name for name in NAMES if inspect.isclass(getattr(tideline, name))])
def test_methods_are_described(name: str) -> None:
    for own, each in vars(getattr(tideline, name)).items():
        if not own.startswith("_") and (inspect.isfunction(each) or isinstance(each, property)):
            assert inspect.getdoc(each), f"{name}.{own}"


def test_what_is_not_public_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'simulat'"):
        tideline.simulat  # noqa: B018
    assert set(tideline.__all__) <= set(dir(tideline))


def test_importing_it_loads_no_torch() -> None:
    code = "import sys, tideline; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
