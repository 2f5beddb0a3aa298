"""No bytes become code: nowhere in the tree, tests, benchmarks and tools included, is anything pickled or unpickled."""

from __future__ import annotations

import pytest

from tests.architecture.pickling import findings
from tests.architecture.sources import REPOSITORY, report

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


def test_nothing_is_pickled() -> None:
    """Neither here nor in what another party may have sent; an exception that is no longer needed is removed."""
    paths = [path for root in ROOTS for path in sorted((REPOSITORY / root).rglob("*.py"))]  # generated stubs too
    places = {path.relative_to(REPOSITORY).as_posix(): findings(path.read_text(encoding="utf-8")) for path in paths}
    assert len(places) > 200 and any(name.startswith("tools/") for name in places)
    report(
        (f"{name}:{x.line} {x.what}" for name, rows in places.items() for x in rows if (name, x.what) not in EXCEPTIONS),
        "These turn bytes into code; write safetensors or JSON instead:",
    )
    assert {(name, x.what) for name, rows in places.items() for x in rows} >= set(EXCEPTIONS), "no longer needed"


# What is reported, with texts that it must be reported for: each way in, however it is spelled.
CAUGHT = {
    "pickle": ["import pickle", "import pickle as p"],
    "pickle.loads": ["from pickle import loads"],
    "_pickle": ["def f():\n    import _pickle"],
    "cPickle": ["import cPickle"],
    "dill": ["import dill"],
    "cloudpickle.dumps": ["from cloudpickle import dumps"],
    "joblib.externals": ["import joblib.externals"],
    "shelve": ["import shelve"],
    "marshal": ["import marshal"],
    "multiprocessing": ["import multiprocessing as mp"],
    "multiprocessing.Queue": ["from multiprocessing import Queue"],
    "multiprocessing.connection.Pipe": ["from multiprocessing.connection import Pipe"],
    "torch.multiprocessing": ["from torch import multiprocessing"],
    "torch.multiprocessing.Queue": ["import torch\ntorch.multiprocessing.Queue()"],
    "concurrent.futures.ProcessPoolExecutor": ["from concurrent.futures import ProcessPoolExecutor"],
    "torch.load": [
        *("import torch\nx = torch.load(path)", "import torch\nx = torch.load(path, weights_only=True)"),
        *("from torch import load as read", "import torch\nread = torch.load"),
    ],
    "torch.save": ["import torch as t\nt.save(x, path)"],
    "torch.serialization.load": ["import torch.serialization\ntorch.serialization.load(x)"],
    "numpy.load without allow_pickle=False": [
        "import numpy as np\nnp.load(p)",
        "import numpy as np\nnp.load(p, allow_pickle=True)",
        "import numpy as np\nnp.load(p, allow_pickle=flag)",
        "import numpy as np\nnp.load(p, None, False)",
        "from numpy import load\nload(p)",
    ],
    "numpy.lib.format.read_array without allow_pickle=False": ["from numpy.lib.format import read_array\nread_array(f)"],
    "numpy.save without allow_pickle=False": ["import numpy as np\nnp.save(p, x, allow_pickle=True)"],
    "reader without allow_pickle=False": ["reader(allow_pickle=1)"],
    "pandas.read_pickle": ["import pandas as pd\npd.read_pickle(p)"],
    ".to_pickle": ["frame().to_pickle(p)"],
    "yaml.load": ["import yaml\nyaml.load(text)", "import yaml\nyaml.load(text, Loader=yaml.Loader)"],
    "yaml.FullLoader": ["import yaml\nyaml.load(text, yaml.FullLoader)"],
    "yaml.unsafe_load": ["from yaml import unsafe_load"],
    "eval": ["eval(text)"],
    "exec": ["exec(text, {})", "run = exec"],
    "builtins.eval": ["import builtins\nbuiltins.eval(text)"],
    "compile": ["code = compile(text, 'x', 'exec')"],
    "__import__": ["__import__('pickle')"],
    "importlib.import_module('pickle')": ["import importlib\nimportlib.import_module('pickle')"],
    "importlib.import_module('dill')": ["from importlib import import_module\nimport_module('dill')"],
    ".__reduce__": ["class A:\n    def __reduce__(self):\n        return 1"],
}
# Plain readers, methods of the same names, our own modules, words in texts.
HARMLESS = [
    *("import numpy as np\nnp.load(p, allow_pickle=False)", "import numpy as np\nnp.savez(p, x=x)"),
    *("import numpy as np\nnp.loadtxt(p)", "import json\njson.load(f)", "import tomllib\ntomllib.load(f)"),
    *("import yaml\nyaml.safe_load(text)", "import yaml\nyaml.load(text, Loader=yaml.SafeLoader)"),
    *("import yaml\nyaml.load(text, yaml.CSafeLoader)", "class Composer(yaml.SafeLoader): ..."),
    *("import torch\ntorch.frombuffer(view)", "net.eval()", "import re\nre.compile('x')", "session.exec(query)"),
    *("from .pickle import ours", "'import pickle'  # pickle", "from concurrent.futures import ThreadPoolExecutor"),
    *("load(path)", "from safetensors.torch import load, save\nload(b)\nsave(x)"),
    "import importlib\nimportlib.import_module(name)",
]


def test_what_must_be_caught(subtests: pytest.Subtests) -> None:
    for what, texts in CAUGHT.items():
        for text in texts:
            with subtests.test(text):
                assert what in [finding.what for finding in findings(text)]


def test_what_must_not_be_caught(subtests: pytest.Subtests) -> None:
    for text in HARMLESS:
        with subtests.test(text):
            assert findings(text) == []
