"""What turns bytes into code, found in syntax trees: pickle in any form, and texts that are run.

A name is followed through the module's own imports, so that `import numpy as np`, `from torch import load as read` and a
function that is merely passed on are seen. What is built at run time from texts is not.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

# Modules that pickle, or run what they read.
MODULES = frozenset(
    (
        *("pickle", "_pickle", "cPickle", "pickletools", "copyreg", "dill", "cloudpickle", "joblib", "shelve", "marshal"),
        *("jsonpickle", "ray", "multiprocessing", "_multiprocessing", "torch.multiprocessing", "torch.package"),
        *("sklearn.externals", "pandas.io.pickle"),
    )
)
# Functions and classes of other modules. Builtins stand alone.
NAMES = frozenset(
    (
        *("torch.load", "torch.save", "torch.serialization", "torch.jit.load", "torch.hub.load"),
        *("torch.hub.load_state_dict_from_url", "torch.distributed.broadcast_object_list"),
        *("torch.distributed.all_gather_object", "torch.distributed.scatter_object_list", "pandas.read_pickle"),
        *("pandas.to_pickle", "numpy.core.multiarray._reconstruct", "concurrent.futures.ProcessPoolExecutor"),
        *("concurrent.futures.process", "asyncio.ProcessPoolExecutor", "logging.config.listen", "sqlalchemy.PickleType"),
        *("sqlalchemy.types.PickleType", "sqlalchemy.ext.serializer", "redis.client.pickle", "yaml.load", "yaml.load_all"),
        *("yaml.unsafe_load", "yaml.unsafe_load_all", "yaml.full_load", "yaml.full_load_all", "yaml.Loader", "yaml.CLoader"),
        *("yaml.UnsafeLoader", "yaml.FullLoader", "yaml.loader.Loader", "yaml.loader.UnsafeLoader", "eval", "exec"),
        *("compile", "__import__", "builtins.eval", "builtins.exec", "builtins.compile", "builtins.__import__"),
    )
)
# Methods, whatever they are called on.
METHODS = ("read_pickle", "to_pickle", "__reduce__", "__reduce_ex__")
# Readers that unpickle unless they are told not to, in so many words.
READERS = ("numpy.load", "numpy.lib.format.read_array", "numpy.lib.npyio.load", "numpy.lib.npyio.NpzFile")
YAML = ("yaml.load", "yaml.load_all")
SAFE_LOADERS = ("yaml.SafeLoader", "yaml.CSafeLoader")
IMPORTERS = ("importlib.import_module", "import_module", "__import__", "pytest.importorskip")


Nodes = list[ast.AST]
SIGNS = [frozenset(name.split(".")) for name in (*MODULES, *NAMES, *READERS, *METHODS, "allow_pickle")]


@dataclass(frozen=True, order=True)
class Finding:
    """What turns bytes into code, and its line."""

    line: int
    what: str


def findings(text: str) -> list[Finding]:
    """Return everything in a module's text that could turn bytes into code, by line."""
    words = set(re.findall(r"\w+", text))
    if not any(sign <= words for sign in SIGNS):  # a tree takes ten times as long
        return []
    nodes = list(ast.walk(ast.parse(text)))
    known = aliases(nodes)
    return sorted({*imported(nodes), *named(nodes, known), *called(nodes, known), *defined(nodes)})


def aliases(nodes: Nodes) -> dict[str, str]:
    """What each imported name stands for, those of functions included. Relative imports are our own."""
    known: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for a in node.names:
                known[a.asname or a.name.split(".")[0]] = a.name if a.asname else a.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            known |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return known


def dotted(node: ast.expr, known: dict[str, str]) -> str:
    """A name as it is called where it comes from; empty for what is no name."""
    if isinstance(node, ast.Name):
        return known.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        before = dotted(node.value, known)
        return f"{before}.{node.attr}" if before else ""
    return ""


@functools.cache
def inside(name: str, packages: frozenset[str]) -> bool:
    """Return True if a name is one of these, or lies in one."""
    steps = name.split(".")
    return any(".".join(steps[: i + 1]) in packages for i in range(len(steps)))


def imported(nodes: Nodes) -> Iterator[Finding]:
    """Forbidden modules and names, as they are imported."""
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{a.name}" for a in node.names]
        else:
            continue
        yield from (Finding(node.lineno, name) for name in names if inside(name, MODULES) or inside(name, NAMES))


def named(nodes: Nodes, known: dict[str, str]) -> Iterator[Finding]:
    """Forbidden names wherever they are used, called or passed on; `yaml.load` only without a safe loader."""
    safe = {id(call.func) for call in nodes if isinstance(call, ast.Call) and loads_safely(call, known)}
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            name = dotted(node, known)
            if id(node) not in safe and (inside(name, NAMES) or inside(name, MODULES)):
                yield Finding(node.lineno, name)
            elif isinstance(node, ast.Attribute) and node.attr in METHODS:
                yield Finding(node.lineno, f".{node.attr}")


def loads_safely(call: ast.Call, known: dict[str, str]) -> bool:
    """Return True if a call is `yaml.load` with a loader that makes plain data."""
    loaders = [*call.args[1:2], *(k.value for k in call.keywords if k.arg == "Loader")]
    return dotted(call.func, known) in YAML and any(dotted(loader, known) in SAFE_LOADERS for loader in loaders)


def called(nodes: Nodes, known: dict[str, str]) -> Iterator[Finding]:
    """Readers that may unpickle, and modules that are imported by a text."""
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name, given = dotted(node.func, known), {k.arg: k.value for k in node.keywords}
        allowed = given.get("allow_pickle")
        if (allowed is not None or name in READERS) and not is_false(allowed):
            yield Finding(node.lineno, f"{name or 'a call'} without allow_pickle=False")
        first = next(iter(node.args), None)
        if name in IMPORTERS and isinstance(first, ast.Constant) and inside(str(first.value), MODULES):
            yield Finding(node.lineno, f"{name}({first.value!r})")


def defined(nodes: Nodes) -> Iterator[Finding]:
    """Methods that tell pickle how to make an object."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.name in METHODS:
            yield Finding(node.lineno, f".{node.name}")


def is_false(value: ast.expr | None) -> bool:
    """Return True if `False` is written there."""
    return isinstance(value, ast.Constant) and value.value is False
