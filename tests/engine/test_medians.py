"""Runs whose missing cells are filled by the medians over sites, and models that fill by themselves."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import tideline
from tideline.algorithms import METHODS
from tideline.client.answers import RunResult
from tideline.core.asked.world import plain_world, world_in
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.run import RunId
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.engine.site.rules import Least, SiteRules
from tideline.experiments.simulation import models_of
from tideline.learning.around.medians import LEAST, weighted_median
from tideline.learning.exporting import export_model
from tideline.learning.formats.folder import read_folder
from tideline.learning.model_file import FORMAT, packed, read_model, weights_for
from tideline.learning.prediction import Classifier, predict_data
from tideline.learning.rows.filled import medians_of

ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
COLUMNS = {"age": "number", "sex": ["f", "m"], "kind": {"categories": ["a", "b", "c"], "as": "codes", "other": True}}
WORLD = {"columns": COLUMNS, "missing": "median", "classes": 2, "model": {"name": "tabular", "options": {"hidden": 16}}}
HEAD = ["age", "sex", "kind", "y"]


def rows(seed: int, n: int = 120, scale: float = 1.0) -> list[list[str]]:
    """Ages by class, a sex and a kind that tell a little of it, a tenth of all cells missing."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        y = int(rng.integers(2))
        cells = [
            f"{scale * (40 + 25 * y + rng.normal()):.3f}",
            "fm"[int(rng.random() < 0.3 + 0.4 * y)],
            "abcz"[int(rng.integers(4))],
        ]
        made.append([*("" if rng.random() < 0.1 else cell for cell in cells), str(y)])
    return made


def lay(folder: Path, table: list[list[str]], head: list[str] = HEAD) -> Path:
    folder.mkdir(exist_ok=True)
    with (folder / "ward.csv").open("w", newline="") as file:
        csv.writer(file).writerows([head, *table])
    return folder


def federation(home: Path, rules: Mapping[str, SiteRules] | None = None, **tables: list[list[str]]) -> Federation:
    made = {name: lay(home / name, tables.get(name, rows(i))) for i, name in enumerate(ROSTER)}
    known = rules or {}
    given = {n: {"rules": known[n]} if n in known else {} for n in made}
    return Federation(METHODS, {n: SimSite(partial(read_folder, folder), **given[n]) for n, folder in made.items()})


def experiment(method: str = "fedavg", **more: Any) -> dict[str, Any]:
    config = {"rounds": 4, "rate": 0.3} if method == "fedavg" else {"source_rounds": 2, "rounds": 1}
    return {"method": method, "config": config, "world": WORLD, "roster": ROSTER, "seed": 1, **more}


def ended(played: Federation, given: Mapping[str, Any]) -> dict[str, Any]:
    return dict(played.run(played.start(dict(given))))


def test_a_run_with_missing_cells(tmp_path: Path) -> None:
    """It learns; its contract says what each labelled site tells, and the target tells nothing."""
    result = ended(federation(tmp_path), experiment())
    assert result["status"] == "completed", result["cause"]
    assert all(client["accuracy"] > 0.7 for client in result["clients"])
    told = [clause for clause in result["contract"] if clause["phase"] == "medians"]
    assert {(clause["field"], clause["exposure"]) for clause in told} == {("cells", "count"), ("medians", "statistic")}
    assert world_in(result["world"]).inputs == (1 + 3 + 1,)


@pytest.mark.nightly(job="services")
@pytest.mark.parametrize("method", ["shot", "feddadil", "gaussian_heads"])
def test_methods_that_remember(tmp_path: Path, method: str) -> None:
    """First memories are made again once the medians are known; no NaN comes anywhere."""
    config = {"shot": {"source_rounds": 2, "rounds": 1}, "feddadil": {"encoder_rounds": 0}, "gaussian_heads": {}}[method]
    world = WORLD if method == "shot" else {**WORLD, "model": "linear"}
    result = ended(federation(tmp_path), experiment(method, config=config, world=world))
    assert result["status"] == "completed", result["cause"]


def test_a_wild_site_moves_no_median(tmp_path: Path) -> None:
    """The least value with half of the rows at it or below; of a few sites that of one."""
    values, weights = torch.tensor([[1.0, 5.0], [2.0, 1e9], [3.0, 6.0]]), torch.tensor([[1.0, 1.0], [1.0, 1.0], [5.0, 1.0]])
    assert weighted_median(values, weights).tolist() == [3.0, 6.0]
    cells = torch.tensor([[1.0, torch.nan], [2.0, 7.0], [9.0, torch.nan]])
    counts, medians = medians_of(cells, 2)
    assert (counts.tolist(), medians.tolist()) == ([3, 0], [2.0, 0.0])


def test_few_known_cells_tell_nothing(tmp_path: Path) -> None:
    """Below the owner's floor of rows a column has no median; where no site tells one, the run says which column it is."""
    thin = [["" if i >= LEAST - 2 else row[0], *row[1:]] for i, row in enumerate(rows(0))]
    result = ended(federation(tmp_path, anna=thin, bert=thin), experiment())
    assert result["status"] == "failed" and "column 'age'" in str(result["cause"])
    strict = {name: SiteRules(least=Least(rows=80)) for name in ("anna", "bert")}
    half = [["" if i % 2 else row[0], *row[1:]] for i, row in enumerate(rows(0))]
    result = ended(federation(tmp_path, strict, anna=half, bert=half), experiment())
    assert result["status"] == "failed" and "column 'age'" in str(result["cause"])


def test_one_labelled_site_tells_no_median(tmp_path: Path) -> None:
    with pytest.raises(ConfigRefused, match="and there is one"):
        federation(tmp_path).start(experiment(roster={"anna": "source", "carl": "target"}))


@pytest.mark.nightly(job="services")
def test_a_model_fills_by_itself(tmp_path: Path) -> None:
    """Written and read, as ONNX, and for tables whose columns stand in another order; a missing column is named."""
    played = federation(tmp_path)
    model = models(played, ended(played, experiment()))["model"]
    assert model.medians is not None and abs(float(model.medians.values[0]) - 52) < 20
    (file := tmp_path / "m.safetensors").write_bytes(packed(model))
    read = read_model(file)
    assert packed(read) == packed(model) and f'"format": {FORMAT}'.encode() in file.read_bytes().replace(b"\\", b"")
    x = torch.tensor([[40.0, 1, 0, 0, 0], [torch.nan, 0, 1, 0, 3]])
    ready = tideline.load(file)
    filled = x.clone()
    filled[1, 0] = model.medians.values[0]
    assert torch.equal(ready.predict(x).probabilities, ready.predict(filled).probabilities)
    with pytest.raises(DataRefused, match="Row 0 holds NaN"):
        ready.predict(torch.full((1, 5), torch.nan))
    table = rows(7, 40)
    scores = predict_data(ready, lay(tmp_path / "new", table), tmp_path / "a.csv")
    turned = lay(tmp_path / "turned", [[row[3], "note", *row[2::-1]] for row in table], ["y", "note", *HEAD[2::-1]])
    assert predict_data(ready, turned, tmp_path / "b.csv") == {**scores, "file": str(tmp_path / "b.csv")}
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    with pytest.raises(DataRefused, match="there is no column 'age'"):
        predict_data(ready, lay(tmp_path / "less", [row[1:] for row in table], HEAD[1:]), tmp_path / "c.csv")
    pytest.importorskip("onnxscript")
    import onnx
    import onnxruntime

    export_model(read, tmp_path / "m.onnx", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    assert np.allclose(session.run(["probabilities"], {"x": x.numpy()})[0], ready.predict(x).probabilities.numpy(), atol=1e-5)
    assert '"columns"' in onnx.load(tmp_path / "m.onnx").metadata_props[0].value


def models(played: Federation, result: Mapping[str, Any]) -> Mapping[str, Any]:
    return dict(models_of(played, RunId(result["run"]), cast(RunResult, result), METHODS))


def test_weights_of_other_columns(tmp_path: Path) -> None:
    """The same network of the same size is of other things."""
    played = federation(tmp_path)
    model = models(played, ended(played, experiment()))["model"]
    given = {**plain_world(model.world), "normalise": "shared"}
    other = world_in(
        {**given, "columns": [{**cast(dict[str, Any], each)} for each in reversed(cast(list[Any], given["columns"]))]}
    )
    with pytest.raises(ConfigRefused, match="other columns: the first that differs is 'kind'"):
        weights_for(other, model)
    assert weights_for(world_in(given), model)


def test_the_site_normalises_what_is_filled(tmp_path: Path) -> None:
    """By its own statistics; codes stay what they are, and the run's model fills before it measures."""
    played = federation(tmp_path)
    result = ended(played, experiment(world={**WORLD, "normalise": "site"}))
    assert result["status"] == "completed", result["cause"]
    model = models(played, result)["model"]
    assert model.by_given
    found = Classifier(model).normalising_by([torch.tensor([[30.0, 1, 0, 0, 3], [torch.nan, 0, 1, 0, 2], [70, 0, 1, 0, 1]])])
    by = found.model.statistics
    assert by is not None and bool(torch.isfinite(by.mean).all()) and float(by.scale[4]) == 0.0


def test_indicators_ask_for_nothing(tmp_path: Path) -> None:
    """No exchange, and a single labelled site will do."""
    given = experiment(world={**WORLD, "missing": "indicator"}, roster={"anna": "source", "carl": "target"})
    result = ended(federation(tmp_path), given)
    assert result["status"] == "completed" and "medians" not in {clause["phase"] for clause in result["contract"]}


def test_undeclared_cells_fail_the_join(tmp_path: Path) -> None:
    """The site's sentence names the column, not the cell."""
    table = [[row[0], "secret", *row[2:]] for row in rows(0)]
    result = ended(federation(tmp_path, anna=table), experiment())
    assert result["status"] != "completed" and "column sex" in str(result) and "secret" not in str(result)
