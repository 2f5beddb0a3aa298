"""No bytes become code: nowhere in the tree, tests, benchmarks and tools included, is anything pickled or unpickled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.pickling import findings
from tests.architecture.sources import REPOSITORY

ROOTS = ("shared", "server", "client_agent", "protos", "tests", "benchmarks", "tools", "deploy")
# Where what may stand all the same, and why.
SPAWN = (
    *("multiprocessing", "multiprocessing.get_context", "multiprocessing.process.BaseProcess", "pickle.PicklingError"),
    *("multiprocessing.connection.Connection", "multiprocessing.connection.wait"),
)
EXCEPTIONS: dict[tuple[str, str], str] = {
    **dict.fromkeys(
        (("shared/tideline/engine/simulation/pools.py", what) for what in SPAWN),
        "between a simulation and the processes that it spawned itself: nothing of it comes from another party",
    ),
    **dict.fromkeys(
        (("shared/tideline/engine/process/ray_tasks.py", what) for what in ("ray", "ray.exceptions", "ray.get")),
        "between a simulation and the workers of its owner's Ray cluster: bytes of archives, plain data, and how sites open data",
    ),
    ("shared/tideline/learning/weights.py", "torch.load"): "reads a person's own file, with weights_only=True (test_layers.py)",
    ("shared/tideline/learning/weights.py", "torch.save"): "writes a state dict that a person asks for, tensors by name",
    ("tests/cli/test_models.py", "torch.load"): "reads that file again, with weights_only=True",
    ("tests/learning/test_weights.py", "torch.save"): "writes the files that a person may bring",
    ("tests/cli/test_weights.py", "torch.save"): "writes the files that a person may bring",
    ("tests/docs/test_models.py", "exec"): "runs the example of docs/models.md, as its readers do",
    ("tests/docs/test_models.py", "compile"): "runs the example of docs/models.md, as its readers do",
    ("tests/learning/test_folder.py", "exec"): "runs the examples of docs/data.md, as their readers do",
    ("tests/learning/test_folder.py", "compile"): "runs the examples of docs/data.md, as their readers do",
}


def files() -> Iterator[Path]:
    """Every module of every root, generated stubs too."""
    for root in ROOTS:
        yield from sorted((REPOSITORY / root).rglob("*.py"))


def found() -> dict[str, list[tuple[str, int]]]:
    """What stands in each file, with its line."""
    told = {str(path.relative_to(REPOSITORY)): findings(path.read_text(encoding="utf-8")) for path in files()}
    return {name: [(f.what, f.line) for f in each] for name, each in told.items()}


def test_nothing_is_pickled() -> None:
    """Neither here nor in what another party may have sent; an exception that is no longer needed is removed."""
    told = found()
    assert len(told) > 200 and any(name.startswith("tools/") for name in told)
    beyond = [f"{name}:{line} {what}" for name, each in told.items() for what, line in each if (name, what) not in EXCEPTIONS]
    assert not beyond, "\n".join(["These turn bytes into code; write safetensors or JSON instead:", *beyond])
    needed = {(name, what) for name, each in told.items() for what, _ in each}
    assert needed >= set(EXCEPTIONS), "no longer needed"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("import pickle", "pickle"),
        ("import pickle as p", "pickle"),
        ("from pickle import loads", "pickle.loads"),
        ("def f():\n    import _pickle", "_pickle"),
        ("import cPickle", "cPickle"),
        ("import dill", "dill"),
        ("from cloudpickle import dumps", "cloudpickle.dumps"),
        ("import joblib.externals", "joblib.externals"),
        ("import shelve", "shelve"),
        ("import marshal", "marshal"),
        ("import multiprocessing as mp", "multiprocessing"),
        ("from multiprocessing import Queue", "multiprocessing.Queue"),
        ("from multiprocessing.connection import Pipe", "multiprocessing.connection.Pipe"),
        ("from torch import multiprocessing", "torch.multiprocessing"),
        ("import torch\ntorch.multiprocessing.Queue()", "torch.multiprocessing.Queue"),
        ("from concurrent.futures import ProcessPoolExecutor", "concurrent.futures.ProcessPoolExecutor"),
        ("import torch\nx = torch.load(path)", "torch.load"),
        ("import torch\nx = torch.load(path, weights_only=True)", "torch.load"),
        ("import torch as t\nt.save(x, path)", "torch.save"),
        ("from torch import load as read", "torch.load"),
        ("import torch\nread = torch.load", "torch.load"),
        ("import torch.serialization\ntorch.serialization.load(x)", "torch.serialization.load"),
        ("import numpy as np\nnp.load(p)", "numpy.load without allow_pickle=False"),
        ("import numpy as np\nnp.load(p, allow_pickle=True)", "numpy.load without allow_pickle=False"),
        ("import numpy as np\nnp.load(p, allow_pickle=flag)", "numpy.load without allow_pickle=False"),
        ("import numpy as np\nnp.load(p, None, False)", "numpy.load without allow_pickle=False"),
        ("from numpy import load\nload(p)", "numpy.load without allow_pickle=False"),
        ("from numpy.lib.format import read_array\nread_array(f)", "numpy.lib.format.read_array without allow_pickle=False"),
        ("import numpy as np\nnp.save(p, x, allow_pickle=True)", "numpy.save without allow_pickle=False"),
        ("reader(allow_pickle=1)", "reader without allow_pickle=False"),
        ("import pandas as pd\npd.read_pickle(p)", "pandas.read_pickle"),
        ("frame().to_pickle(p)", ".to_pickle"),
        ("import yaml\nyaml.load(text)", "yaml.load"),
        ("import yaml\nyaml.load(text, Loader=yaml.Loader)", "yaml.load"),
        ("import yaml\nyaml.load(text, yaml.FullLoader)", "yaml.FullLoader"),
        ("from yaml import unsafe_load", "yaml.unsafe_load"),
        ("eval(text)", "eval"),
        ("exec(text, {})", "exec"),
        ("run = exec", "exec"),
        ("import builtins\nbuiltins.eval(text)", "builtins.eval"),
        ("code = compile(text, 'x', 'exec')", "compile"),
        ("__import__('pickle')", "__import__"),
        ("import importlib\nimportlib.import_module('pickle')", "importlib.import_module('pickle')"),
        ("from importlib import import_module\nimport_module('dill')", "importlib.import_module('dill')"),
        ("class A:\n    def __reduce__(self):\n        return 1", ".__reduce__"),
    ],
)
def test_what_must_be_caught(text: str, what: str) -> None:
    """Each way in, however it is spelled."""
    assert what in [f.what for f in findings(text)]


@pytest.mark.parametrize(
    "text",
    [
        "import numpy as np\nnp.load(p, allow_pickle=False)",
        "import numpy as np\nnp.savez(p, x=x)",
        "import numpy as np\nnp.loadtxt(p)",
        "import json\njson.load(f)",
        "import tomllib\ntomllib.load(f)",
        "import yaml\nyaml.safe_load(text)",
        "import yaml\nyaml.load(text, Loader=yaml.SafeLoader)",
        "import yaml\nyaml.load(text, yaml.CSafeLoader)",
        "class Composer(yaml.SafeLoader): ...",
        "import torch\ntorch.frombuffer(view)",
        "net.eval()",
        "import re\nre.compile('x')",
        "session.exec(query)",
        "from .pickle import ours",
        "'import pickle'  # pickle",
        "from concurrent.futures import ThreadPoolExecutor",
        "load(path)",
        "from safetensors.torch import load, save\nload(b)\nsave(x)",
        "import importlib\nimportlib.import_module(name)",
    ],
)
def test_what_must_not_be_caught(text: str) -> None:
    """Plain readers, methods of the same names, our own modules, words in texts."""
    assert findings(text) == []
