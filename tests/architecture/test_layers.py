"""Imports point downward, and each third-party package has one door."""

from __future__ import annotations

import ast
import sys

import pytest

from tests.architecture.sources import Source, imports, sources

# Each layer with the layers that it may import, beside itself. The longest name that fits a module is its layer.
LAYERS: dict[str, tuple[str, ...]] = {
    "tideline": (),  # the package itself: its version
    "tideline.core": (),
    "tideline.archive": ("tideline.core",),
    "tideline.numerics": (),
    "tideline.nets": ("tideline.core", "tideline.numerics", "tideline.learning"),
    "tideline.learning": ("tideline.core", "tideline.numerics", "tideline.nets"),
    "tideline.algorithms": ("tideline.core", "tideline.numerics", "tideline.nets", "tideline.learning"),
    "tideline.planning": ("tideline.core", "tideline.numerics"),
    "tideline.engine": ("tideline.core", "tideline.archive", "tideline.engine.weights"),
    # Where a person's weights, out of the store, meet what networks are: the one module of the kernel that knows them.
    "tideline.engine.weights": ("tideline.core", "tideline.archive", "tideline.engine", "tideline.learning"),
    "tideline_protos": (),
    "tideline_server": (
        *("tideline.core", "tideline.archive", "tideline.engine", "tideline.learning", "tideline.nets"),
        *("tideline.algorithms", "tideline.numerics", "tideline.planning", "tideline_protos"),
    ),
    "tideline_agent": (
        *("tideline.core", "tideline.archive", "tideline.engine", "tideline.learning", "tideline.nets"),
        *("tideline.algorithms", "tideline.numerics", "tideline_protos"),
    ),
}
TOP = ("tideline.__main__", "tideline.cli")
# Families of methods that others build on; every other method keeps out of its neighbours' folders.
FAMILIES = ("averaging", "hypernetworks", "personal", "source_free")
OURS = ("tideline", "tideline_server", "tideline_agent", "tideline_protos")
# Where a person's own file of weights is read: the one `torch.load`, which there says weights_only=True in so many words.
WEIGHTS = "tideline.learning.weights"

# Third-party packages and the modules through which alone they come in.
DOORS: dict[str, tuple[str, ...]] = {
    "fastapi": ("tideline_server.api", "tideline_server.main"),
    "uvicorn": ("tideline_server.api", "tideline_server.main"),
    "starlette": ("tideline_server.api", "tideline_server.main"),
    "grpc": ("tideline_server.rpc", "tideline_agent.link"),
    "google.protobuf": ("tideline_server.rpc", "tideline_agent.link"),
    "tideline_protos": ("tideline_server.rpc", "tideline_agent.link"),
    "sqlalchemy": ("tideline_server.store",),
    "alembic": ("tideline_server.store",),
    "psycopg": ("tideline_server.store",),
    "prometheus_client": ("tideline_server.metrics", "tideline_agent.metrics"),
    "redis": ("tideline_server.bell",),
    "obstore": ("tideline_server.parts",),
    "PIL": ("tideline.learning.images",),
    "pyarrow": ("tideline.learning.parquet",),
    "ot": ("tideline.numerics.transport",),
    "cvxpy": ("tideline.numerics.signomial",),
    "torchvision": ("tideline.learning.datasets", "tideline.nets"),
    "safetensors": ("tideline.learning.weights",),
    "cryptography": ("tideline_server.rpc", "tideline_agent.keys", "tideline_agent.link", "tideline.cli"),
    "OpenSSL": ("tideline_agent.link",),
    "nacl": ("tideline.archive.sealing",),
    "yaml": ("tideline.cli",),
    "typer": TOP,
    "rich": TOP,
    "pickle": (),
    "cPickle": (),
    "dill": (),
    "cloudpickle": (),
    "joblib": (),
    "shelve": (),
    "marshal": (),
}


def inside(module: str, package: str) -> bool:
    """Whether a module is a package or lies in it."""
    return module == package or module.startswith(package + ".")


def layer(module: str) -> str:
    """The layer that a module, or a name inside one, belongs to."""
    if any(inside(module, top) for top in TOP):
        return "top"
    return max((name for name in LAYERS if inside(module, name)), key=len)


def at_door(module: str, doors: tuple[str, ...]) -> bool:
    """Whether a module is one of the doors. A door for gRPC may be split into files: rpc, rpc_orders."""
    return any(inside(module, door) or (door.endswith(".rpc") and module.startswith(door + "_")) for door in doors)


def ids(source: Source) -> str:
    """A readable name."""
    return source.module


def test_every_module_has_a_layer() -> None:
    """A new package has to be given its place before it can be tested, and an empty search would prove nothing."""
    assert len(sources()) > 40
    for source in sources():
        assert source.module == "tideline" or layer(source.module) != "tideline", source.module


@pytest.mark.parametrize("source", sources(), ids=ids)
def test_imports_point_downward(source: Source) -> None:
    """Also inside functions, also for types alone; the top layer may import anything."""
    at = layer(source.module)
    for each in imports(source):
        if at == "top" or not any(inside(each.name, ours) for ours in OURS):
            continue
        target = layer(each.name)
        assert target in (at, "tideline", *LAYERS[at]), (
            f"{source.path}:{each.line} imports {each.name}: {at} may not know {target}"
        )


@pytest.mark.parametrize("source", [s for s in sources() if inside(s.module, "tideline.algorithms")], ids=ids)
def test_methods_share_through_families_only(source: Source) -> None:
    """A method's folder imports no other method's folder."""
    own = source.module.split(".")[2:3]
    for each in imports(source):
        steps = each.name.split(".")
        if steps[:2] == ["tideline", "algorithms"] and len(steps) > 2 and own:
            assert steps[2] in (*own, *FAMILIES), f"{source.path}:{each.line} imports {each.name}"


# Who resolves names of methods, and so may reach the registry of all of them.
ROOTS = ("tideline_server", "tideline_agent")


@pytest.mark.parametrize("source", [s for s in sources() if layer(s.module) in ROOTS], ids=ids)
def test_shells_know_no_single_method(source: Source) -> None:
    """A shell may import the registry's tuple, never a method."""
    for each in imports(source):
        if inside(each.name, "tideline.algorithms"):
            assert each.name in ("tideline.algorithms", "tideline.algorithms.METHODS"), f"{source.path}:{each.line}"


@pytest.mark.parametrize("source", sources(), ids=ids)
def test_third_party_packages_have_one_door(source: Source) -> None:
    """Whoever replaces a package finds it in one place."""
    for each in imports(source):
        for package, doors in DOORS.items():
            if inside(each.name, package) and not inside(source.module, package):
                assert at_door(source.module, doors), f"{source.path}:{each.line} imports {each.name}; its door is {doors}"


@pytest.mark.parametrize("source", [s for s in sources() if inside(s.module, "tideline.core")], ids=ids)
def test_the_vocabulary_needs_only_the_standard_library(source: Source) -> None:
    """Beside it only torch, and that for types, or inside a function."""
    at_import = {id(node) for node in source.tree.body}
    for each in imports(source):
        package = each.name.split(".")[0]
        assert package in sys.stdlib_module_names or package in ("torch", "tideline"), f"{source.path}:{each.line}"
    for node in ast.walk(source.tree):
        if id(node) in at_import and isinstance(node, ast.Import | ast.ImportFrom):
            assert "torch" not in ast.unparse(node), f"{source.path}:{node.lineno} loads torch"


@pytest.mark.parametrize("source", sources(), ids=ids)
def test_no_bytes_become_code(source: Source) -> None:
    """No torch.save, no pickled arrays, no exec or eval; torch.load, and modules named by text, in one place each."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        where = f"{source.path}:{node.lineno}"
        assert called not in ("torch.save", "exec", "eval", "compile", "__import__"), where
        assert called != "torch.load" or (source.module == WEIGHTS and loads_weights_only(node)), where
        pickles = [k for k in node.keywords if k.arg == "allow_pickle"]
        assert all(isinstance(k.value, ast.Constant) and k.value.value is False for k in pickles), where
        if called.endswith("import_module"):
            assert source.module == "tideline.core.registry" or layer(source.module) == "top", where


def loads_weights_only(call: ast.Call) -> bool:
    """Whether `weights_only=True` is written there."""
    told = next((k.value for k in call.keywords if k.arg == "weights_only"), None)
    return isinstance(told, ast.Constant) and told.value is True


@pytest.mark.parametrize(
    ("text", "only"),
    [
        ("torch.load(path, weights_only=True)", True),
        ("torch.load(path)", False),
        ("torch.load(path, weights_only=False)", False),
        ("torch.load(path, weights_only=flag)", False),
        ("torch.load(path, **given)", False),
    ],
)
def test_weights_alone_are_loaded(text: str, only: bool) -> None:
    """Nothing less than the word itself."""
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call) and loads_weights_only(call) is only
