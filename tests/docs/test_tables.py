"""The manual's tables say what the code has: settings, words, keys of a result, errors, options of the benchmark."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

import pytest

from benchmarks import load, loading, looking, reading, robust, soak, throttled, transport
from tests.docs.manual import DOCS, FENCE, ROOT, section, tables, text_of, ticked
from tests.synthetic import experiment, sites
from tideline import nets
from tideline.algorithms import METHODS
from tideline.bench import grid
from tideline.bench import tables as bench_tables
from tideline.cli import guard
from tideline.cli.local import demo
from tideline.core import errors
from tideline.core.asked.world import Kind, World
from tideline.core.privacy import Audience, Exposure
from tideline.engine.coordinator.result import failure
from tideline.engine.model.experiment import DealData
from tideline.engine.simulation.federation import simulate
from tideline_server.api.models import RunResult
from tideline_server.errors import TABLE, code_of
from tideline_server.settings import CoordinatorSettings

OPERATING, RESULT, ERRORS = DOCS / "operating.md", DOCS / "result.md", DOCS / "errors.md"


def test_settings_of_the_coordinator() -> None:
    """docs/operating.md has a row for each setting: its option, its variable and its default; and one for the log."""
    (rows,) = tables(section(OPERATING, "Settings of the coordinator"))
    told = {row[0].strip("`"): (row[1].strip("`"), row[2].strip("`")) for row in rows if row[0] != "none"}
    secrets = {row[1].strip("`"): row[2] for row in rows if row[0] == "none"}
    assert secrets == {"TIDELINE_ADMIN_KEY": "none", "TIDELINE_SMTP_PASSWORD": "none"}, "they have no option"
    words = {None: "none", False: "no", (): "none"}
    fields = CoordinatorSettings.__dataclass_fields__
    ours = {
        f"--{name.replace('_', '-')}": (
            f"TIDELINE_{name.upper()}",
            str(f.default if type(f.default) is float else words.get(f.default, f.default)),
        )
        for name, f in fields.items()
        if name not in ("admin_key", "smtp_password", "oidc_client_secret")  # secrets
    }
    assert told == ours | {"--log-json": ("TIDELINE_LOG_JSON", "no"), "--log-level": ("TIDELINE_LOG_LEVEL", "info")}


@pytest.mark.parametrize("page", ["site-policy.md", "privacy.md"])
def test_words_of_a_policy(page: str) -> None:
    """Every exposure and every audience is named where policies are explained."""
    assert {*Exposure, *Audience} <= set(ticked(text_of(DOCS / page)))


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    """A small run's result."""
    return simulate(METHODS, experiment("fedavg", {"anna": "source", "bert": "source", "carl": "target"}), sites())


def test_keys_of_a_result(result: dict[str, Any]) -> None:
    """docs/result.md has each key of a result, of the door's and of the demonstration's, and nothing else."""
    added = set(re.findall(r'result\["(\w+)"\] =', inspect.getsource(demo)))
    told = [key for row in tables(text_of(RESULT))[0] for key in ticked(row[0])]
    assert sorted(told) == sorted({*result, *RunResult.model_fields, *added})
    assert set(result) < set(RunResult.model_fields)


def test_keys_of_a_client(result: dict[str, Any]) -> None:
    """The second table has each key of a site's line, and nothing else."""
    told = [key for row in tables(text_of(RESULT))[1] for key in ticked(row[0])]
    assert sorted(told) == sorted(result["clients"][0])


def test_keys_inside(result: dict[str, Any]) -> None:
    """Where a key holds a list, its row names the keys of the list's items."""
    rows = {key: row[1] for table in tables(text_of(RESULT)) for row in table for key in ticked(row[0])}
    for name in ("phases", "curve", "contract"):
        assert ticked(rows[name]) == list(result[name][0]), name
    made = set(re.findall(r'^ +"(\w+)":', inspect.getsource(failure), flags=re.MULTILINE))
    assert set(ticked(rows["failures"])) == made


def classes(kind: type[errors.FederationError]) -> set[type[errors.FederationError]]:
    """The error classes of the core below one."""
    below = {each for each in kind.__subclasses__() if each.__module__ == errors.__name__}
    return below.union(*(classes(each) for each in below))


WORLDS = {
    "tabular": World(inputs=(32,), model="tabular"),
    "conv1d": World(inputs=(3, 32), model="conv1d"),
    "conv3d": World(inputs=(1, 8, 8, 8), model="conv3d"),
    "tokens": World(inputs=(8,), model="tokens", dtype=Kind.INT64, vocabulary=20),
}


@pytest.mark.parametrize("row", tables(text_of(DOCS / "networks.md"))[0], ids=lambda row: row[0].strip("`"))
def test_the_networks(row: list[str]) -> None:
    """docs/networks.md says how many features each network makes."""
    name = row[0].strip("`")
    assert str(nets.width(WORLDS.get(name, World(inputs=(3, 32, 32), model=name)))) == row[2].replace(
        "as many as inputs", str(3 * 32 * 32)
    )


def test_every_network_is_in_the_manual() -> None:
    """docs/networks.md has a row for each, in the order of the code."""
    assert [row[0].strip("`") for row in tables(text_of(DOCS / "networks.md"))[0]] == list(nets.NETS)


def test_every_error_has_its_codes() -> None:
    """docs/errors.md has a row for each class of the core and each class with codes of its own, and the codes are those."""
    (rows,) = tables(text_of(ERRORS))
    told = {row[0].strip("`"): tuple(row[1:4]) for row in rows}
    kinds = classes(errors.FederationError) | set(TABLE)
    assert told == {k.__name__: (str(code_of(k).http), code_of(k).grpc, str(guard.code_of(k("what")))) for k in kinds}
    assert all(row[4] and row[5] for row in rows)


@pytest.mark.parametrize(
    ("page", "heading", "place", "kind"),
    [
        ("cli.md", "Experiment files", 0, DealData),
        ("benchmarks.md", "The grid file", 0, grid.Grid),
        ("benchmarks.md", "The grid file", 1, grid.GridMethod),
    ],
)
def test_settings_of_deals_and_grids(page: str, heading: str, place: int, kind: Any) -> None:
    """A row for each key, and no others."""
    rows = tables(section(DOCS / page, heading))[place]
    assert sorted(row[0].strip("`") for row in rows) == sorted(f.name for f in dataclasses.fields(kind))


def test_what_a_bench_writes() -> None:
    """docs/benchmarks.md names every file; what `base` may say is what the code takes."""
    (rows,) = tables(section(DOCS / "benchmarks.md", "Output files"))
    told = {row[0].strip("`") for row in rows}
    assert told >= {bench_tables.RESULTS, bench_tables.CURVES, bench_tables.TABLE, "figures/scores.png", "figures/curves-dN.png"}
    base = next(row[2] for row in tables(section(DOCS / "benchmarks.md", "The grid file"))[0] if row[0] == "`base`")
    assert set(ticked(base)) == set(grid.BASE)


def test_failures_that_are_no_errors() -> None:
    """The two words that a result uses for a reply that is not there are explained."""
    assert {"Silent", "Late"} <= set(ticked(text_of(ERRORS)))
    assert {"Silent", "Late"} == set(re.findall(r'"(Silent|Late)"', inspect.getsource(failure)))


@pytest.mark.parametrize(
    "module", [transport, load, loading, looking, soak, throttled, reading, robust], ids=lambda module: str(module.__name__)
)
def test_the_benchmarks(module: Any) -> None:
    """benchmarks/README.md names each key of a row and each option, and no others."""
    name = f"{module.__name__.replace('.', '/')}.py"
    parts = re.split(r"^# ", FENCE.sub("", text_of(ROOT / "benchmarks" / "README.md")), flags=re.MULTILINE)
    options, keys, *_ = tables(next(part for part in parts if f"`{name}`" in part))
    told = {word for row in keys for word in ticked(row[0])}
    assert told == {f.name for f in dataclasses.fields(module.Row)}
    source = text_of(ROOT / name)
    assert {word for row in options for word in ticked(row[0])} == set(re.findall(r'add_argument\("(--\w+)"', source))
