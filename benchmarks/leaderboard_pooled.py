"""What a user would have who may pool all rows: estimators of skada on the same deals, in the same files as a bench's results.

Rows labelled `pooled data` are no federation: sources' labelled training rows and the target's unlabelled ones lie in one place.
skada: Gnassounou et al., "SKADA: scikit-learn API for domain adaptation"; `pip install skada`.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from tideline.bench.grid import Cell
from tideline.bench.scores import Score, Status, json_of
from tideline.client.output import replace_file
from tideline.learning.partition.deals import UNSEEN, Deal, deal
from tideline.numerics.labels.scores import wilson

PLAIN = "logistic regression"
COMPONENTS, JDOT_ITERATIONS = 50, 10


def classifier() -> LogisticRegression:
    return LogisticRegression(max_iter=300, C=0.1)


def estimators() -> Mapping[str, Callable[[], Any]]:
    """By name. The first adapts nothing; the others are skada's, with its defaults but for components and iterations."""
    from skada import CORAL, JDOTClassifier, OTMapping, SubspaceAlignment

    return {
        PLAIN: classifier,
        "CORAL": lambda: CORAL(classifier()),
        "subspace alignment": lambda: SubspaceAlignment(classifier(), n_components=COMPONENTS, random_state=0),
        "OT mapping": lambda: OTMapping(classifier(), norm="max"),
        "JDOT": lambda: JDOTClassifier(classifier(), n_iter_max=JDOT_ITERATIONS),
    }


@dataclass(frozen=True)
class Pooled:
    """One fit: an estimator, and the deal whose rows are pooled."""

    folder: Path
    name: str
    rule: Deal

    @property
    def key(self) -> str:
        """The name of its file, of the data, the estimator and the deal."""
        files = [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(self.folder.glob("*.npz"))]
        text = json.dumps([files, self.name, asdict(self.rule), COMPONENTS, JDOT_ITERATIONS])
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return f"{self.name.replace(' ', '-')}-{self.rule.leave_out}-s{self.rule.seed}-{digest}"


@dataclass(frozen=True)
class Rows:
    """Sources' rows on their scale, (n, d) with labels (n,); the target's that are adapted to, and those that score."""

    x: NDArray[np.float64]
    y: NDArray[np.int64]
    target: NDArray[np.float64]
    held: NDArray[np.float64]
    held_y: NDArray[np.int64]


def pool(folder: Path, rule: Deal) -> Rows:
    """The rows of a deal in one place, standardised by the sources' training rows."""
    domains = {path.stem: np.load(path, allow_pickle=False) for path in sorted(folder.glob("*.npz"))}
    arrays = {name: (file["x"].astype(np.float64), file["y"]) for name, file in domains.items()}
    sites = deal({name: len(y) for name, (_, y) in arrays.items()}, rule)
    hand = sites.pop(UNSEEN)[rule.leave_out]
    parts = [(arrays[name][0][h.train], arrays[name][1][h.train]) for hands in sites.values() for name, h in hands.items()]
    x, y = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    scale, (own, labels) = StandardScaler().fit(x), arrays[rule.leave_out]
    return Rows(scale.transform(x), y, scale.transform(own[hand.bare]), scale.transform(own[hand.held]), labels[hand.held])


def fitted(name: str, rows: Rows) -> NDArray[np.int64]:
    """The predicted classes of the rows that score, (m,). Target labels are -1, skada's word for hidden ones."""
    estimator = estimators()[name]()
    if name == PLAIN:
        return np.asarray(estimator.fit(rows.x, rows.y).predict(rows.held))
    x, y = np.concatenate([rows.x, rows.target]), np.concatenate([rows.y, np.full(len(rows.target), -1)])
    domain = np.concatenate([np.ones(len(rows.x), int), np.full(len(rows.target), -2)])
    estimator.fit(x, y, sample_domain=domain)
    return np.asarray(estimator.predict(rows.held, sample_domain=np.full(len(rows.held), -2), allow_source=True))


def play(of: Pooled, out: Path) -> None:
    """Fit, score, and write what came of it; an error of the estimator is its result, too."""
    begun = time.perf_counter()
    try:
        with threadpool_limits(1), warnings.catch_warnings(action="ignore"):
            rows = pool(of.folder, of.rule)
            right = int((fitted(of.name, rows) == rows.held_y).sum())
        made: dict[str, object] = {"right": right, "rows": len(rows.held_y)}
    except (ValueError, np.linalg.LinAlgError) as error:
        made = {"cause": str(error)}
    replace_file(out / f"{of.key}.json", json.dumps({**made, "seconds": time.perf_counter() - begun}) + "\n")


def run(fits: list[Pooled], out: Path, jobs: int) -> None:
    """Whatever is not there yet: the fits of a deal in a process of their own, `jobs` of these at once."""
    out.mkdir(parents=True, exist_ok=True)
    todo: dict[Deal, list[Pooled]] = {}
    for each in fits:
        if not (out / f"{each.key}.json").exists():
            todo.setdefault(each.rule, []).append(each)

    def child(rule: Deal) -> str:
        given = {"folder": str(todo[rule][0].folder), "names": [each.name for each in todo[rule]], "rule": asdict(rule)}
        subprocess.run([sys.executable, __file__, json.dumps(given), str(out)], check=True)
        return f"pooled data, target {rule.leave_out}, seed {rule.seed}"

    with ThreadPoolExecutor(jobs) as workers:
        for i, words in enumerate(workers.map(child, todo)):
            print(f"[{i + 1}/{len(todo)}] {words}", flush=True)


def score(of: Pooled, out: Path) -> Score:
    """A fit's result as a bench has its cells'."""
    label = f"{of.name}, pooled data"
    cell = Cell(
        label=label,
        method=of.name,
        leave_out=of.rule.leave_out,
        domains=1,
        seed=of.rule.seed,
        text="",
        digest="",
        key="",
        adapts=True,
    )
    found = json_of(out / f"{of.key}.json")
    if not found or "right" not in found:
        return Score(cell, Status.WAITING if found is None else Status.FAILED, "" if found is None else str(found["cause"]))
    right, n = int(str(found["right"])), int(str(found["rows"]))
    low, high = wilson(right, n)
    return Score(cell, Status.DONE, ood=right / n, rows=n, low=low, high=high, seconds=float(str(found["seconds"])))


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    for one in asked["names"]:
        play(Pooled(Path(asked["folder"]), one, Deal(**asked["rule"])), Path(sys.argv[2]))
