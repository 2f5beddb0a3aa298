"""Imports point downward, and each third-party package has one door."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator

from tests.architecture.sources import Source, imports, place, report, sources

# Each layer with the layers that it may import, beside itself. The longest name that fits a module is its layer.
LAYERS: dict[str, tuple[str, ...]] = {
    # The package itself: its version, and what it loads when it is asked for.
    "tideline": ("tideline.core", "tideline.learning", "tideline.python"),
    "tideline.core": (),
    "tideline.archive": ("tideline.core",),
    "tideline.numerics": (),
    # Its accountant is an extra, which a refusal names.
    "tideline.numerics.privacy": ("tideline.core",),
    # Sums of what sites send, of which nobody reads a part. No torch: sites mask beside their keys.
    "tideline.secure": ("tideline.core", "tideline.archive"),
    "tideline.nets": ("tideline.core", "tideline.numerics", "tideline.learning"),
    "tideline.learning": ("tideline.core", "tideline.numerics", "tideline.numerics.privacy", "tideline.nets"),
    "tideline.algorithms": ("tideline.core", "tideline.numerics", "tideline.nets", "tideline.learning"),
    "tideline.planning": ("tideline.core", "tideline.numerics"),
    "tideline.engine": ("tideline.core", "tideline.archive", "tideline.secure"),
    # The wall: torch, and what networks are, are known to this room of the engine alone.
    "tideline.engine.compute": (
        *("tideline.core", "tideline.archive", "tideline.engine", "tideline.learning", "tideline.nets"),
        "tideline.numerics.privacy",  # what charges come to, before a run starts
        "tideline.secure",
    ),
    "tideline.engine.simulation": ("tideline.core", "tideline.archive", "tideline.engine", "tideline.engine.compute"),
    # What commands share, the lowest first: a client of the HTTP API and the types of its answers, reports of results, experiment
    # files and their simulation, grids of simulations.
    "tideline.oidc": ("tideline.core",),
    # Files of web pages, for whoever serves some.
    "tideline.pages": (),
    "tideline.client": ("tideline.core", "tideline.archive", "tideline.engine", "tideline.oidc"),
    "tideline.report": ("tideline.core", "tideline.engine", "tideline.client"),
    # What a coordinator signs of a run, and what checks it: of reports it has their words and tables, and no chart.
    "tideline.dossier": ("tideline.core", "tideline.engine", "tideline.client", "tideline.report"),
    "tideline.written": ("tideline.core", "tideline.engine", "tideline.learning"),
    "tideline.experiments": (
        *("tideline.core", "tideline.archive", "tideline.engine", "tideline.engine.simulation", "tideline.learning"),
        *("tideline.nets", "tideline.client", "tideline.report", "tideline.written"),
    ),
    "tideline.bench": (
        *("tideline.core", "tideline.archive", "tideline.engine", "tideline.engine.compute", "tideline.learning"),
        *("tideline.client", "tideline.report", "tideline.written", "tideline.experiments"),
    ),
    # Followers of runs, which write them into experiment trackers.
    "tideline.tracking": (
        *("tideline.core", "tideline.engine", "tideline.learning", "tideline.client", "tideline.report", "tideline.experiments"),
    ),
    # What programs use, beside the commands.
    "tideline.python": (
        *("tideline.core", "tideline.engine", "tideline.learning", "tideline.nets", "tideline.client", "tideline.report"),
        *("tideline.written", "tideline.experiments"),
    ),
    "tideline_protos": (),
    "tideline_server": (
        *("tideline.core", "tideline.archive", "tideline.engine", "tideline.engine.compute", "tideline.learning"),
        *("tideline.nets", "tideline.algorithms", "tideline.numerics", "tideline.planning", "tideline_protos"),
        *("tideline.oidc", "tideline.written", "tideline.pages", "tideline.dossier"),
    ),
    "tideline_agent": (
        *("tideline.core", "tideline.archive", "tideline.engine", "tideline.engine.compute", "tideline.learning"),
        *("tideline.nets", "tideline.algorithms", "tideline.numerics", "tideline_protos", "tideline.pages"),
        "tideline.numerics.privacy",  # what charges come to, closer than without a library
    ),
}
# What users run: it may import anything.
TOP = ("tideline.__main__", "tideline.cli")
# Families of methods that others build on; every other method keeps out of its neighbours' folders.
FAMILIES = ("averaging", "hypernetworks", "personal", "source_free")
OURS = ("tideline", "tideline_server", "tideline_agent", "tideline_protos")
# Where a person's own file of weights is read: the one `torch.load`, which there says weights_only=True in so many words.
# And where one is written, of tensors and their names alone.
WEIGHTS = "tideline.learning.weights"

# Third-party packages and the modules through which alone they come in.
DOORS: dict[str, tuple[str, ...]] = {
    "fastapi": ("tideline_server.api", "tideline_server.main"),
    "uvicorn": ("tideline_server.api", "tideline_server.main", "tideline_agent.page"),
    "starlette": ("tideline_server.api", "tideline_server.main", "tideline_agent.page"),
    "grpc": ("tideline_server.rpc", "tideline_agent.link"),
    "google.protobuf": ("tideline_server.rpc", "tideline_agent.link"),
    "tideline_protos": ("tideline_server.rpc", "tideline_agent.link"),
    "sqlalchemy": ("tideline_server.store",),
    "alembic": ("tideline_server.store",),
    "psycopg": ("tideline_server.store",),
    "prometheus_client": ("tideline_server.metrics", "tideline_agent.metrics"),
    "redis": ("tideline_server.bell",),
    "obstore": ("tideline_server.parts",),
    "PIL": ("tideline.learning.formats.images",),
    "pyarrow": ("tideline.learning.formats.parquet", "tideline.learning.formats.columns"),
    "ot": ("tideline.numerics.transport.optimal_transport",),
    "cvxpy": ("tideline.numerics.links.signomial",),
    "torchvision": ("tideline.learning.datasets", "tideline.learning.loading.augmenting", "tideline.nets"),
    "timm": ("tideline.nets.families",),
    "safetensors": ("tideline.learning.weights", "tideline.learning.model_file"),
    "onnx": ("tideline.learning.onnx_file",),
    "onnxruntime": ("tideline.learning.onnx_file",),
    "onnxscript": ("tideline.learning.onnx_file",),
    "cryptography": (
        *("tideline_server.rpc", "tideline_server.tls", "tideline_agent.home.identity", "tideline_agent.link"),
        *("tideline.client", "tideline.dossier.signing", "tideline.numerics.privacy.streams"),
        *("tideline.secure.keys", "tideline.secure.masks"),
    ),
    "dp_accounting": ("tideline.numerics.privacy.accounting",),
    "OpenSSL": ("tideline_agent.link",),
    "nacl": ("tideline.archive.sealing",),
    "yaml": ("tideline.written",),
    "typer": ("tideline.__main__", "tideline.cli", "tideline.client.output"),
    "rich": ("tideline.cli", "tideline.client.watching"),
    "matplotlib": ("tideline.report", "tideline.bench.figures"),
    "httpx": ("tideline.client.http", "tideline.oidc"),
    "httpcore": ("tideline_agent.link", "tideline_server.notify"),
    "authlib": ("tideline.oidc", "tideline_server.oidc"),
    "joserfc": ("tideline_server.oidc",),
    "pandas": ("tideline.python.result",),
    "ray": ("tideline.engine.process.ray_tasks",),
    "mlflow": ("tideline.tracking.to_mlflow",),
    "tensorboard": ("tideline.tracking.to_tensorboard",),
    "trackio": ("tideline.tracking.to_trackio",),
    "wandb": ("tideline.tracking.to_wandb", "tideline.tracking.wandb_logs"),
    "pickle": ("tideline.engine.simulation.pools",),
    **dict.fromkeys(("cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"), ()),
}


def inside(module: str, package: str) -> bool:
    """Return True if a module is a package or lies in it."""
    return module == package or module.startswith(package + ".")


def layer(module: str) -> str:
    """The layer that a module, or a name inside one, belongs to."""
    if any(inside(module, top) for top in TOP):
        return "top"
    return max((name for name in LAYERS if inside(module, name)), key=len)


def at_door(module: str, doors: tuple[str, ...]) -> bool:
    """Return True if a module is one of the doors. A door for gRPC may be split into files: rpc, rpc_orders."""
    return any(inside(module, door) or (door.endswith(".rpc") and module.startswith(door + "_")) for door in doors)


def offenders(find: Callable[[Source], Iterator[str]], looked_at: Callable[[Source], bool] = lambda source: True) -> None:
    """Fail with every offence that `find` yields, one a line. A search that looks at no module would prove nothing."""
    searched = [source for source in sources() if looked_at(source)]
    assert searched
    report(offence for source in searched for offence in find(source))


def test_every_module_has_a_layer() -> None:
    """A new package has to be given its place before it can be tested, and an empty search would prove nothing."""
    assert len(sources()) > 40
    for source in sources():
        assert source.module == "tideline" or layer(source.module) != "tideline", source.module


def upward(source: Source) -> Iterator[str]:
    """Imports of what lies above or beside; the top layer may import anything."""
    at = layer(source.module)
    for x in imports(source):
        if at == "top" or not any(inside(x.name, ours) for ours in OURS):
            continue
        target = layer(x.name)
        if target not in (at, "tideline", *LAYERS[at]):
            yield f"{place(source, x.line)} imports {x.name}: {at} may not know {target}"


def test_imports_point_downward() -> None:
    """Also inside functions, also for types alone."""
    offenders(upward)


def neighbours(source: Source) -> Iterator[str]:
    """Imports of another method's folder; families are for all."""
    own = source.module.split(".")[2:3]
    for x in imports(source):
        steps = x.name.split(".")
        if steps[:2] == ["tideline", "algorithms"] and len(steps) > 2 and own and steps[2] not in (*own, *FAMILIES):
            yield f"{place(source, x.line)} imports {x.name}"


def test_methods_share_through_families_only() -> None:
    """A method's folder imports no other method's folder."""
    offenders(neighbours, lambda s: inside(s.module, "tideline.algorithms"))


# Who resolves names of methods, and so may reach the registry of all of them.
ROOTS = ("tideline_server", "tideline_agent")


def single_methods(source: Source) -> Iterator[str]:
    """Imports of a method, beside the registry's tuple."""
    for x in imports(source):
        if inside(x.name, "tideline.algorithms") and x.name not in ("tideline.algorithms", "tideline.algorithms.METHODS"):
            yield f"{place(source, x.line)} imports {x.name}"


def test_shells_know_no_single_method() -> None:
    """A shell may import the registry's tuple, never a method."""
    offenders(single_methods, lambda s: layer(s.module) in ROOTS)


def elsewhere(source: Source) -> Iterator[str]:
    """Third-party packages that come in beside their door."""
    for x in imports(source):
        for package, doors in DOORS.items():
            if inside(x.name, package) and not inside(source.module, package) and not at_door(source.module, doors):
                yield f"{place(source, x.line)} imports {x.name}; its door is {doors}"


def test_third_party_packages_have_one_door() -> None:
    """Whoever replaces a package finds it in one place."""
    offenders(elsewhere)


def heavy(source: Source) -> Iterator[str]:
    """Imports beyond the standard library; torch at import."""
    for x in imports(source):
        package = x.name.split(".")[0]
        if package not in sys.stdlib_module_names and package not in ("torch", "tideline"):
            yield f"{place(source, x.line)} imports {x.name}"
    for node in source.tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom) and "torch" in ast.unparse(node):
            yield f"{place(source, node.lineno)} loads torch"


def test_the_vocabulary_needs_only_the_standard_library() -> None:
    """Beside it only torch, and that for types, or inside a function."""
    offenders(heavy, lambda s: inside(s.module, "tideline.core"))


def code_from_bytes(source: Source) -> Iterator[str]:
    """Calls that turn bytes, or texts, into code."""
    for node in source.of(ast.Call):
        if not is_harmless(node, source.module):
            yield f"{place(source, node.lineno)} calls {ast.unparse(node.func)}"


def is_harmless(call: ast.Call, module: str) -> bool:
    """Return True if a call makes no code of what it is given, or does so at the one place that may."""
    called = ast.unparse(call.func)
    if called in ("exec", "eval", "compile", "__import__") or (called == "torch.save" and module != WEIGHTS):
        return False
    if called == "torch.load" and not (module == WEIGHTS and loads_weights_only(call)):
        return False
    if called.endswith("import_module") and module != "tideline.core.algorithm":
        return False
    pickles = [k.value for k in call.keywords if k.arg == "allow_pickle"]
    return all(isinstance(value, ast.Constant) and value.value is False for value in pickles)


def test_no_bytes_become_code() -> None:
    """No pickled arrays, no exec or eval; torch.load, torch.save, and modules named by text, in one place x."""
    offenders(code_from_bytes)


def loads_weights_only(call: ast.Call) -> bool:
    """Return True if `weights_only=True` is written there."""
    value = next((k.value for k in call.keywords if k.arg == "weights_only"), None)
    return isinstance(value, ast.Constant) and value.value is True


def test_weights_alone_are_loaded() -> None:
    """Nothing less than the word itself."""
    arguments = ("", ", weights_only=False", ", weights_only=flag", ", **given", ", weights_only=True")
    calls = [ast.parse(f"torch.load(path{more})", mode="eval").body for more in arguments]
    assert [loads_weights_only(call) for call in calls if isinstance(call, ast.Call)] == [False, False, False, False, True]
