"""The manual's tables say what the code has: settings, words, keys of a result, errors, options of the benchmark."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import load, loading, looking, reading, robust, soak, throttled, transport
from tests.acceptance.hostile.calls import CALLS
from tests.acceptance.hostile.files import FILES
from tests.acceptance.hostile.orders import ORDERS
from tests.acceptance.hostile.requests import REQUESTS
from tests.acceptance.hostile.siege import ATTACKS
from tests.docs.manual import DOCS, FENCE, ROOT, blocks, section, tables, text_of, ticked
from tests.synthetic import experiment, sites
from tideline import nets
from tideline.algorithms import METHODS
from tideline.bench import grid
from tideline.bench import tables as bench_tables
from tideline.cli import guard
from tideline.cli.app import app
from tideline.cli.coordinator.links import FLAGS
from tideline.cli.local import demo
from tideline.core import errors
from tideline.core.asked.world import Kind, World
from tideline.core.privacy import Audience, Exposure
from tideline.engine.coordinator.result import failure
from tideline.engine.model.experiment import DealData
from tideline.engine.simulation.federation import simulate
from tideline.planning.request import Device, LinksRequest, PhiWeights
from tideline_server.api.models import LinkPlan, PlannedLink, RunResult, SweptPlan
from tideline_server.errors import TABLE, code_of
from tideline_server.settings import CoordinatorSettings

OPERATING, RESULT, ERRORS, LINKS = (DOCS / name for name in ("operating.md", "result.md", "errors.md", "links.md"))


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


def test_words_of_a_policy() -> None:
    """Every exposure and every audience is named where policies are explained."""
    for page in ("site-policy.md", "privacy.md"):
        assert {*Exposure, *Audience} <= set(ticked(text_of(DOCS / page))), page


def test_keys_of_a_result() -> None:
    """docs/result.md has each key of a result and of a site's line, of the door's and of the demonstration's, and nothing else;
    where a key holds a list, its row names the keys of the list's items.
    """
    result = simulate(METHODS, experiment("fedavg", {"anna": "source", "bert": "source", "carl": "target"}), sites())
    whole, client, *_ = pages = tables(text_of(RESULT))
    added = set(re.findall(r'result\["(\w+)"\] =', inspect.getsource(demo)))
    assert sorted(key for row in whole for key in ticked(row[0])) == sorted({*result, *RunResult.model_fields, *added})
    assert set(result) < set(RunResult.model_fields)
    assert sorted(key for row in client for key in ticked(row[0])) == sorted(result["clients"][0])
    rows = {key: row[1] for table in pages for row in table for key in ticked(row[0])}
    for name in ("phases", "curve", "contract"):
        assert ticked(rows[name]) == list(result[name][0]), name
    assert set(ticked(rows["failures"])) == set(re.findall(r'^ +"(\w+)":', inspect.getsource(failure), flags=re.MULTILINE))


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


def test_the_networks(subtests: pytest.Subtests) -> None:
    """docs/networks.md has a row for each network, in the order of the code, with the number of features that it makes."""
    rows = tables(text_of(DOCS / "networks.md"))[0]
    assert [row[0].strip("`") for row in rows] == list(nets.NETS)
    for name, row in zip(nets.NETS, rows, strict=True):
        with subtests.test(name):
            width = nets.width(WORLDS.get(name, World(inputs=(3, 32, 32), model=name)))
            assert str(width) == row[2].replace("as many as inputs", str(3 * 32 * 32))


def test_every_error_has_its_codes() -> None:
    """docs/errors.md has a row for each class of the core and each class with codes of its own, and the codes are those."""
    (rows,) = tables(text_of(ERRORS))
    told = {row[0].strip("`"): tuple(row[1:4]) for row in rows}
    kinds = classes(errors.FederationError) | set(TABLE)
    assert told == {k.__name__: (str(code_of(k).http), code_of(k).grpc, str(guard.code_of(k("what")))) for k in kinds}
    assert all(row[4] and row[5] for row in rows)


def test_settings_of_deals_and_grids() -> None:
    """A row for each key, and no others."""
    for page, heading, place, kind in (
        ("cli.md", "Experiment files", 0, DealData),
        ("benchmarks.md", "The grid file", 0, grid.Grid),
        ("benchmarks.md", "The grid file", 1, grid.GridMethod),
    ):
        rows = tables(section(DOCS / page, heading))[place]
        assert sorted(row[0].strip("`") for row in rows) == sorted(f.name for f in dataclasses.fields(kind)), kind


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


def test_the_benchmarks(subtests: pytest.Subtests) -> None:
    """benchmarks/README.md names each key of a row and each option, and no others."""
    parts = re.split(r"^# ", FENCE.sub("", text_of(ROOT / "benchmarks" / "README.md")), flags=re.MULTILINE)
    for module in (transport, load, loading, looking, soak, throttled, reading, robust):
        with subtests.test(module.__name__):
            name = f"{module.__name__.replace('.', '/')}.py"
            options, keys, *_ = tables(next(part for part in parts if f"`{name}`" in part))
            assert {word for row in keys for word in ticked(row[0])} == {f.name for f in dataclasses.fields(module.Row)}
            known = set(re.findall(r'add_argument\("(--\w+)"', text_of(ROOT / name)))
            assert {word for row in options for word in ticked(row[0])} == known


LIES = {
    "Hostile calls from an agent": {name: (f"`{lie.kind}`", lie.words or "-") for name, lie in CALLS.items()},
    "Hostile files": {name: (f"`{lie.kind}`", lie.words or "-") for name, lie in FILES.items()},
    "Hostile HTTP requests": {
        name: (str(lie.status), f"`{lie.kind}`" if lie.kind else "-", lie.words or "-") for name, lie in REQUESTS.items()
    },
    "Hostile orders from a coordinator": {name: (f"`{lie.kind}`", lie.words or "-") for name, lie in ORDERS.items()},
}


def test_each_lie_has_its_row(subtests: pytest.Subtests) -> None:
    """Its name, its kind of error and words of it; of a request the status too. No two lies have one name."""
    for heading, lies in LIES.items():
        with subtests.test(heading):
            (rows,) = tables(section(DOCS / "admission.md", heading))
            assert {row[0]: tuple(row[1:]) for row in rows} == lies and len(rows) == len(lies)
    names = [name for lies in LIES.values() for name in lies]
    assert len(names) == len(set(names)) > 40


def test_each_crowd_has_its_row() -> None:
    """Its name, and what stops it."""
    (rows,) = tables(section(DOCS / "admission.md", "Crowds"))
    assert [row[0] for row in rows] == list(ATTACKS) and all(row[1] for row in rows)


def test_every_promise_names_its_tests(subtests: pytest.Subtests) -> None:
    """docs/reliability.md promises R1 to R9, each with its words, its means and its tests: files and functions that are there."""
    rows = dict(re.findall(r"^\| (R\d) \|(.*)\|$", text_of(DOCS / "reliability.md"), re.M))
    assert list(rows) == [f"R{n}" for n in range(1, 10)]
    for number, row in rows.items():
        named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", row)
        assert named and len([cell for cell in row.split("|") if cell.strip()]) == 3, number
        for path, function in named:
            with subtests.test(f"{number}: {path}::{function}"):
                body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
                functions = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
                tests = {name for name in functions if name.startswith("test_")}
                assert tests and (not function or function in tests)


def links_table(heading: str, place: int) -> dict[str, str]:
    """A table of the page: what stands beside each key."""
    return {key: row[1] for row in tables(section(LINKS, heading))[place] for key in ticked(row[0])}


def test_the_example_of_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command says what the page prints, of the file that the page prints."""
    monkeypatch.chdir(tmp_path)
    Path("devices.yaml").write_text(blocks(LINKS, "yaml")[0])
    (block,) = blocks(LINKS, "console")
    line, _, printed = block.partition("\n")
    done = CliRunner().invoke(app, line.split()[2:], catch_exceptions=False)
    assert done.exit_code == 0
    assert [line.rstrip() for line in done.output.splitlines()] == printed.splitlines()


def test_the_keys_of_a_question_of_links() -> None:
    """Each with its default, where it has one."""
    asked, device = links_table("Request", 0), links_table("Request", 1)
    fields = {f.name: f for f in dataclasses.fields(LinksRequest)}
    assert set(fields) <= set(asked) and set(asked) - set(fields) <= {"error", "count", "labelled", "watts"}
    assert list(device) == [f.name for f in dataclasses.fields(Device)]
    assert set(ticked(asked["phi"])) == {f.name for f in dataclasses.fields(PhiWeights)}
    for name in ("solver", "weights", "complexity", "energy_mode"):
        assert set(fields[name].metadata["choices"]) <= set(ticked(asked[name]))
        assert asked[name].endswith(f"`{fields[name].default}`")


def test_the_keys_of_a_plan_of_links() -> None:
    """Each, with those inside, and each flag."""
    answered = links_table("Response", 0)
    assert list(answered) == list(LinkPlan.model_fields)
    assert ticked(answered["alpha"]) == [f.alias or name for name, f in PlannedLink.model_fields.items()]
    assert set(ticked(answered["sweep"])) == set(SweptPlan.model_fields)
    assert [flag for flag in ticked(answered["flags"]) if flag in FLAGS] == list(FLAGS)
