"""A site's data from Python: Datasets, arrays, functions; and each thing that can be wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.run import Role
from tideline.core.step import View
from tideline.engine.compute.step_runner import masked
from tideline.learning.sites.named import files_of_module, place_in
from tideline.learning.sites.site import Site, holdings_of

WORLD = World(inputs=(4,), classes=3, model="mlp")
X, Y = torch.rand(30, 4, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3
PLACE = "tests.learning.python_sites"


class Pairs(Dataset[Any]):
    """Rows of lists; what is an error is raised."""

    def __init__(self, x: Any = X, y: Any = Y) -> None:
        self.x, self.y = list(x), list(y)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> object:
        if isinstance(self.x[index], Exception):
            raise self.x[index]
        return self.x[index], self.y[index]


def with_row(values: Any, row: int, value: object) -> list[object]:
    return [value if i == row else each for i, each in enumerate(values)]


@pytest.mark.parametrize("role", list(Role))
def test_arrays_and_datasets_give_equal_rows(role: Role) -> None:
    first, *others = (holdings_of(Site(train=each), WORLD, role) for each in ((X, Y), [X, Y], (X.numpy(), Y.tolist()), Pairs()))
    assert (len(first.train), len(first.held_out)) == (24, 6)
    for other in others:
        for view in View:
            ours, theirs = first.view(view, role), other.view(view, role)
            assert torch.equal(ours.x.all(), theirs.x.all())
            assert (ours.y is None) is (theirs.y is None) and (ours.y is None or torch.equal(ours.y, theirs.y))


def test_a_target_has_no_training_label_and_nothing_that_leads_to_one() -> None:
    """Not even behind the rows that score it; labels of no class are no error there."""
    odd = Pairs(X, [7, -1, "cat"] * 10)
    held = holdings_of(Site(train=odd, test=Pairs()), WORLD, Role.TARGET)
    assert held.train.y is None and held.train.x.plain and held.held_out.x.plain
    assert held.held_out.y is not None and len(held.held_out) == 30
    assert masked(held.train, View.TRAIN, Role.TARGET).y is None
    assert holdings_of(Site(train=odd, labels=False), WORLD, Role.TARGET).held_out.y is None


def test_named_rows_are_for_what_they_are_given() -> None:
    held = holdings_of(Site(train=(X, Y), validation=(X[:5], Y[:5]), test=Pairs(X[5:9], Y[5:9])), WORLD, Role.SOURCE)
    assert torch.equal(held.held_out.x.all(), X[5:9])
    assert torch.equal(held.view(View.VALIDATION, Role.SOURCE).x.all(), X[:5])
    assert torch.equal(held.view(View.LEARN, Role.SOURCE).x.all(), X)
    assert len(held.train) == 35


def test_rows_without_a_label_stay_beside_the_others() -> None:
    held = holdings_of(Site(train=(X, with_row(Y, 4, -1)), test=(X, Y)), WORLD, Role.SOURCE)
    assert len(held.train) == 29 and held.train.bare is not None and torch.equal(held.train.bare.all(), X[4:5])


def test_white_of_images_is_one() -> None:
    white = np.full((4, 1, 8, 8), 255, np.uint8)
    held = holdings_of(Site(train=(white, [0, 1, 0, 1]), test=(white, [0, 1, 0, 1])), World(inputs=(1, 8, 8)), Role.SOURCE)
    assert float(held.train.x.all().min()) == 1.0


class Stream(IterableDataset[Any]):
    """Rows without a number."""

    def __iter__(self) -> Iterator[Tensor]:
        return iter(X)


ROW_17 = "row 17 of the training dataset: "
SECRET = Pairs(with_row(X, 17, ValueError("a secret")))
BAD: list[tuple[dict[str, Any], Role, str]] = [
    ({"train": SECRET}, Role.SOURCE, ROW_17 + "reading it raised ValueError"),
    ({"train": SECRET}, Role.TARGET, ROW_17 + "reading it raised"),
    ({"train": Pairs(X, with_row(Y, 17, 3))}, Role.SOURCE, ROW_17 + "the label is none of the classes 0 to 2"),
    ({"train": (X, with_row(Y, 17, 3))}, Role.SOURCE, ROW_17 + "the label is none of the classes 0 to 2"),
    ({"train": (X, Y), "test": (X, with_row(Y, 3, -2))}, Role.TARGET, "row 3 of the test dataset: the label is none"),
    ({"train": (X, with_row(Y, 2, 0.5))}, Role.SOURCE, "row 2 of the training dataset: the label is no whole number"),
    ({"train": Pairs(with_row(X, 17, torch.rand(5)))}, Role.SOURCE, ROW_17 + "x is 5; the world expects 4"),
    ({"train": (torch.rand(30, 5), Y)}, Role.SOURCE, "row 0 of the training dataset: x is 5; the world expects 4"),
    ({"train": (with_row(X, 1, X[1]), Y)}, Role.SOURCE, "things, not x or"),
    ({"train": (torch.full((30, 4), torch.nan), Y)}, Role.SOURCE, "row 0 of the training dataset: x holds NaN or infinity"),
    ({"train": (X, Y[:7])}, Role.SOURCE, "has 30 rows x and 7 labels y"),
    ({"train": (X, ["a"] * 30)}, Role.SOURCE, "y is no list of whole numbers"),
    ({"train": (np.array(["a", "b"]), [0, 1])}, Role.SOURCE, "x is no array of numbers"),
    ({"train": X[:0]}, Role.TARGET, "the training dataset has no rows"),
    ({"train": X[:1]}, Role.TARGET, "has 1 row, and no test dataset is given"),
    ({"train": X}, Role.SOURCE, "there is no label"),
    ({"train": (X, Y), "labels": False}, Role.SOURCE, "there is no label"),
    ({"train": X, "labels": True}, Role.PEER, "labels=True, and no row"),
    ({"train": (X, Y), "test": X}, Role.SOURCE, "row 0 of the test dataset: no held-out row has a label"),
    ({"train": X, "test": (X, with_row(Y, 3, -1))}, Role.TARGET, "row 3 of the test dataset: there is no label, while other"),
    ({"train": (X, Y * 0)}, Role.SOURCE, "all training rows that have a label are of class 0"),
    ({"train": 7}, Role.SOURCE, "the training dataset is an int"),
    ({"train": Stream()}, Role.SOURCE, "the training dataset has no length"),
    ({"train": (X, Y), "class_names": ["a", "c", "b"]}, Role.SOURCE, "class 1 is 'c' at the site and 'b' in the run"),
    ({"train": (X, Y), "class_names": ["a", "b"]}, Role.SOURCE, "the site has 2 classes and the run 3"),
]


@pytest.mark.parametrize(("given", "role", "words"), BAD, ids=lambda value: value[:40] if isinstance(value, str) else "")
def test_what_is_wrong_is_said(given: dict[str, Any], role: Role, words: str) -> None:
    """Which row of which dataset, what, and what to do; never a label, or the words of an error."""
    named = World(inputs=(4,), classes=3, model="mlp", class_names=("a", "b", "c"))
    with pytest.raises(DataRefused) as caught:
        holdings_of(Site(**given), named, role)
    assert words in caught.value.what and caught.value.todo
    assert "secret" not in f"{caught.value.what} {caught.value.todo}"


def test_a_site_that_cannot_be() -> None:
    with pytest.raises(ConfigRefused, match="role is 'sources'"):
        Site(train=X, role="sources")
    with pytest.raises(ConfigRefused, match="class_names is a str, not a list of texts"):
        Site(train=X, class_names="abc")
    with pytest.raises(ConfigRefused, match="train is a folder, and test"):
        Site(train="clinic", test=X)


@pytest.mark.parametrize(
    "text", ["python:", "python:clinic", "python:clinic:", "python::site", "python:a b:site", "python:clinic:site:x"]
)
def test_half_of_a_place_is_refused(text: str) -> None:
    with pytest.raises(ConfigRefused, match="does not name a function") as caught:
        place_in(text)
    assert "python:MODULE:NAME" in caught.value.todo


def test_a_place() -> None:
    assert place_in("clinic") is None and place_in("/data/python:a:b") is None
    assert place_in(Path("python:clinic.rows:site")) == "clinic.rows:site"
    assert [Path(file).name for file, *_ in files_of_module(f"{PLACE}:good")] == ["python_sites.py"]
    assert list(files_of_module("no.such:thing")) == []


FORMS = ["good", "as_dict", "as_three", "alone", "arrays"]


@pytest.mark.parametrize("name", FORMS)
def test_what_a_function_may_give(name: str) -> None:
    from tideline.learning.sites.module import read_python

    held = read_python(f"{PLACE}:{name}", WORLD, Role.SOURCE)
    assert held.train.y is not None and len(held.train) + len(held.held_out) == 30


WRONG = [
    ("no_such_module:site", "cannot be loaded: ModuleNotFoundError", "no_such_module"),
    (f"{PLACE}:nothing_here", "cannot be loaded: AttributeError", "nothing_here"),
    (f"{PLACE}:NUMBER", "cannot be loaded: it is no function", "NUMBER"),
    (f"{PLACE}:raises", "raises KeyError", "patient 7"),
    (f"{PLACE}:nothing", "gives nothing to train on", ""),
    (f"{PLACE}:misspelt", "with a key that has no meaning", "'tests' (did you mean test?)"),
    (f"{PLACE}:keyed", "with a key that has no meaning", "patient 9"),
    (f"{PLACE}:refuses", "raises ConfigRefused", "role is 'patient 10'"),
    (f"{PLACE}:odd_names", "class_names is a str, not a list of texts", ""),
    (f"{PLACE}:row_17", ROW_17 + "reading it raised OSError", "patient 8"),
]


@pytest.mark.parametrize(("place", "words", "said"), WRONG, ids=lambda value: value[-20:])
def test_what_is_wrong_with_a_function(place: str, words: str, said: str) -> None:
    """Its own words are for the owner: in the context, not in the sentence."""
    from tideline.learning.sites.module import read_python

    with pytest.raises(DataRefused) as caught:
        read_python(place, WORLD, Role.SOURCE)
    assert words in caught.value.what and f"python:{place}" in caught.value.what and caught.value.todo
    assert said in str(caught.value.context.get("said", ""))
    assert "patient" not in f"{caught.value.what} {caught.value.todo}"


def test_a_module_that_has_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from tideline.learning.sites.module import read_python
    from tideline_agent.trainer import files_of

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    text = "import torch\n\ndef site():\n    return torch.rand({n}, 4), torch.arange({n}) % 3\n"
    (tmp_path / "a_ward.py").write_text(text.format(n=30))
    place, before = "a_ward:site", files_of("python:a_ward:site")
    assert before and before == files_of("python:a_ward:site")
    assert len(read_python(place, WORLD, Role.SOURCE).train) == 24
    (tmp_path / "a_ward.py").write_text(text.format(n=300))
    assert files_of("python:a_ward:site") != before
    assert len(read_python(place, WORLD, Role.SOURCE).train) == 240
