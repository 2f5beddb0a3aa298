"""What the candidates of the leaderboard's rehearsals predict for all rows of a target, those included that do not score its run.

    python benchmarks/spikes/rehearsal_rows.py LEADERBOARD OUT

LEADERBOARD is what `leaderboard.py` wrote, whose runs that rehearsed are made again; a file that is there is not. OUT takes files
as `rehearsal_outcomes.py` writes them, for `rehearsal_rules.py` and `rehearsal_intervals.py`. Labels of a target's training rows,
which no run has, are those of the data files.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from torch import Tensor

from benchmarks.spikes.rehearsal_outcomes import SETS, distance
from tideline.algorithms import METHODS
from tideline.core.run import Role
from tideline.core.step import View
from tideline.experiments.simulation import simulate_text
from tideline.learning.rehearsal import client
from tideline.written.files import read_file

CELLS = "linear/cells/chosen-by-rehearsal-*/experiment.yaml"  # of a set


@dataclass(frozen=True)
class Predicted:
    """Rows of a site in one view, x (n, d), and each candidate's probabilities p (m, n, classes)."""

    role: Role
    x: Tensor
    p: Tensor


Known = dict[tuple[str, View], Predicted]


@contextmanager
def recorded() -> Iterator[Known]:
    """What sites look up of candidates' predictions while simulations run in this process."""
    found, looked_up = Known(), client.predicted

    def recording(site: Any, view: View) -> list[Tensor | None]:
        p = looked_up(site, view)
        found[site.me, view] = Predicted(
            site.role, torch.cat(list(site.data.x.parts())), torch.stack([q for q in p if q is not None])
        )
        return p

    client.predicted = recording
    try:
        yield found
    finally:
        client.predicted = looked_up


def labels_in(folder: Path) -> dict[bytes, int]:
    """The label of each row of a set's data files, by the row's bytes."""
    known = dict[bytes, int]()
    for path in sorted(folder.glob("*.npz")):
        with np.load(path, allow_pickle=False) as file:
            known |= {x.astype(np.float32).tobytes(): int(y) for x, y in zip(file["x"], file["y"], strict=True)}
    return known


def outcome(name: str, known: Known, labels: Mapping[bytes, int]) -> dict[str, Any]:
    """Of one site: training rows, then held-out ones; held: which are these."""
    views = [known[name, view] for view in (View.TRAIN, View.HELD_OUT)]
    x = torch.cat([each.x for each in views])
    y = torch.tensor([labels[row.numpy().tobytes()] for row in x])
    held = torch.arange(len(x)) >= len(views[0].x)
    return {"p": torch.cat([each.p for each in views], 1).half(), "x": x, "y": y, "held": held}


def write(path: Path, target: str, known: Known, labels: Mapping[bytes, int]) -> None:
    """A target and its rehearsals."""
    places = {name: outcome(name, known, labels) for name in dict.fromkeys(name for name, _ in known)}
    (me,) = {name for (name, _), each in known.items() if each.role is Role.TARGET}
    made = dict[str, Any]()
    for name, place in places.items():
        others = [(each["x"], each["y"]) for who, each in places.items() if who not in (me, name)]
        place["far"] = torch.tensor(distance(others, place["x"]))
        key = f"{target}/{'' if name == me else name}"
        made |= {f"{key}/{what}": place[what].numpy() for what in ("p", "y", "held", "far")}
    np.savez(path, **made)


def main() -> None:
    """Write what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("leaderboard", type=Path, help="the folder that leaderboard.py wrote")
    parser.add_argument("out", type=Path, help="where the files go")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in SETS:
        labels = labels_in(args.leaderboard / "data" / name)
        for file in sorted((args.leaderboard / name).glob(CELLS)):
            text = read_file(file)
            path = args.out / f"product-{name}-{file.parent.name.rsplit('-', 1)[0]}.npz"
            if not path.exists():
                with recorded() as known:
                    simulate_text(text, METHODS)
                write(path, str(text.value["deal"]["leave_out"]), known, labels)


if __name__ == "__main__":
    main()
