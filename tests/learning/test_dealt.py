"""One folder of domains at many sites: read in one process or written as a folder for each, the same rows in the same order."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.learning.images_on_disk import save_classes
from tests.learning.test_tables import table
from tests.learning.test_tables import write as write_table
from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.run import Role
from tideline.core.step import View
from tideline.learning.formats.folder import places, read_folder
from tideline.learning.formats.holdings import Holdings
from tideline.learning.partition.deals import UNSEEN, Deal, Hand, Hands, deal
from tideline.learning.partition.dirichlet import Amounts, Dirichlet, Normal
from tideline.learning.partition.folders import (
    ANY,
    kind_of,
    labels_of,
    read_dealt,
    role_of,
    sites_of,
    sizes_of,
    toml_table,
    write_sites,
)

IMAGES = World(inputs=(1, 8, 8), classes=3)
VECTORS = World(inputs=(2,), classes=3)
RULE = Deal("c", clients=3, domains=1, seed=3, share=0.3)
FEW = Amounts(Normal(6, 0.5), Normal(2, 0.1), Normal(4, 0.5))  # of rows, as these folders are small


def arrays_of(n: int, seed: int, side: int = 8) -> dict[str, Any]:
    """A domain of images, all different."""
    x = np.random.default_rng(seed).integers(0, 200, (n, side, side)).astype(np.uint8)
    return {"x": x, "y": (np.arange(n) * 7 + seed) % 3}


def all_arrays(folder: Path) -> World:
    """Three files of arrays, of different sizes and types; one says which rows it holds out."""
    folder.mkdir()
    np.savez_compressed(folder / "a.npz", **arrays_of(31, 1), test_idx=np.array([0, 5]))
    np.savez(folder / "b.npz", x=arrays_of(24, 2, 5)["x"].astype(np.float32) / 255, y=arrays_of(24, 2)["y"])
    np.savez_compressed(folder / "c.npz", **arrays_of(20, 3, 11), train_idx=np.arange(3))
    (folder / "transforms.toml").write_text("[a]\nscale = 200\nmean = [0.25]\n[c]\ninvert = true\n")
    return IMAGES


def all_images(folder: Path) -> World:
    """Three folders of images, their classes named in a list."""
    for name, n in (("a", 9), ("b", 7), ("c", 6)):
        save_classes(folder / name, {"cat": n, "dog": n, "owl": n})
    (folder / "b" / "held_out.txt").write_text("cat/00.png\n")
    (folder / "classes.txt").write_text("owl\ncat\ndog\n")
    (folder / "transforms.toml").write_text('[b]\nunreadable = "skip"\n')
    (folder / "b" / "dog" / "03.png").write_bytes(b"no image")
    return IMAGES


def all_tables(folder: Path, kind: str) -> World:
    """Three tables: a plain one, one whose split and columns are named, one with words as labels."""
    write_table(folder, kind, table(30), "a")
    write_table(folder, kind, {**table(26), "held_out": list(range(26)), "who": ["x, y"] * 26, "s": ["test"] * 26}, "b")
    write_table(
        folder, kind, {"label": [("flu", "cold", "well")[i % 3] for i in range(20)], **{k: table(20)[k] for k in "ab"}}, "c"
    )
    text = '[b]\nheld_out = "s"\ncolumns = ["b", "held_out"]\n[c]\nlabel = "label"\n'
    if kind == "csv":
        lines = (folder / "b.csv").read_text().replace("x, y", '"x; y"').replace(",", ";").splitlines(keepends=True)
        (folder / "b.csv").write_text("".join(lines))
        text = text.replace("[c]", 'separator = ";"\n[c]')
    (folder / "transforms.toml").write_text(text)
    (folder / "classes.txt").write_text("flu\ncold\nwell\n")
    return VECTORS


KINDS: Mapping[str, Callable[[Path], World]] = {
    "arrays": all_arrays,
    "images": all_images,
    "csv": lambda folder: all_tables(folder, "csv"),
    "parquet": lambda folder: all_tables(folder, "parquet"),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def folders(path: Path, out: Path, sites: Mapping[str, Hands]) -> dict[str, Path]:
    write_sites(path, {out / site: hands for site, hands in sites.items()})
    return {site: out / site for site in sites}


def same(one: Holdings, other: Holdings) -> None:
    """Two sites that hold the same, bit for bit."""
    for mine, theirs in ((one.train, other.train), (one.held_out, other.held_out)):
        assert torch.equal(mine.x.all(), theirs.x.all()) and mine.domains == theirs.domains
        assert torch.equal(mine.domain, theirs.domain)
        assert (mine.y is None) == (theirs.y is None)
        assert mine.y is None or theirs.y is None or torch.equal(mine.y, theirs.y)
        assert (mine.bare is None) == (theirs.bare is None)
        assert mine.bare is None or theirs.bare is None or torch.equal(mine.bare.all(), theirs.bare.all())


SHOTS, FEWER = Deal("c", 2, 2, 1, 0.2, shots=2), Deal("a", 2, 1, 5, 0.1, shots=1)
QUICK = [("arrays", RULE), ("images", SHOTS), ("csv", FEWER), ("parquet", RULE)]
at_night = pytest.mark.nightly(job="numbers")


@pytest.mark.parametrize(
    ("kind", "rule"), [x if x in QUICK else pytest.param(*x, marks=at_night) for x in product(KINDS, (RULE, SHOTS, FEWER))]
)
def test_in_one_process_as_in_folders(tmp_path: Path, kind: str, rule: Deal) -> None:
    """Each site has the same rows, labels and domains, in the same order, with few shots of the unseen domain and without."""
    same_sites(tmp_path, kind, rule)


@kinds
def test_a_target_has_all_rows_and_no_label_to_train_on(tmp_path: Path, kind: str) -> None:
    own = same_sites(tmp_path, kind, Deal("b", 2, 1, 3, target_share=0.25))[UNSEEN]
    hidden = [word for words in labels_found(tmp_path / "out" / UNSEEN) for word in words].count("")
    rows, n = len(own.train) + len(own.held_out), sizes_of(tmp_path / "all")["b"]
    assert n - 1 <= rows <= n, "all but an image that cannot be read"
    assert hidden == n - round(0.25 * n)


def same_sites(tmp_path: Path, kind: str, rule: Deal) -> dict[str, Holdings]:
    """What each site holds of a deal, which is the same in one process and in folders."""
    world = KINDS[kind](tmp_path / "all")
    sites = deal(sizes_of(tmp_path / "all"), rule)
    dealt = read_dealt(tmp_path / "all", world, sites)
    for site, folder in folders(tmp_path / "all", tmp_path / "out", sites).items():
        same(dealt[site], read_folder(folder, world, role_of(site)))
    assert role_of(UNSEEN) is Role.TARGET and role_of("client-1") is Role.SOURCE
    assert dealt[UNSEEN].train.y is None and dealt[UNSEEN].view(View.TRAIN, Role.TARGET).y is None
    assert dealt[UNSEEN].held_out.labelled
    return dealt


OF_DEVICES = [("arrays", "single"), ("images", "mixed"), ("csv", "split"), ("parquet", "mixed")]


@pytest.mark.parametrize(
    ("kind", "case"),
    [x if x in OF_DEVICES else pytest.param(*x, marks=at_night) for x in product(KINDS, ("single", "mixed", "split"))],
)
def test_devices_in_one_process_as_in_folders(tmp_path: Path, kind: str, case: str) -> None:
    """Each device has the same rows in the same order, also those without labels, which its folder does not hold."""
    world = KINDS[kind](tmp_path / "all")
    rule = Dirichlet(4, 2, case, ("a",) if case == "single" else (), alpha=50, scale=1, seed=1, amounts=FEW)
    sites = sites_of(tmp_path / "all", rule)
    dealt = read_dealt(tmp_path / "all", world, sites.hands, sites.roles)
    for site, folder in folders(tmp_path / "all", tmp_path / "out", sites.hands).items():
        own = read_folder(folder, world, sites.roles[site])
        same(dealt[site], own)
        hidden = sum(len(hand.bare) for hand in sites.hands[site].values())
        assert (0 if own.train.bare is None else len(own.train.bare)) == hidden
        assert sum(word == "" for words in labels_found(folder) for word in words) == hidden
        assert (sites.roles[site] is Role.TARGET) == (hidden == 0) == (own.train.y is None)
        assert own.held_out.labelled


def labels_found(folder: Path) -> list[list[str]]:
    """The labels of each domain as they stand in a folder; no text for none."""
    found = [list(kind_of(place).words(place) or ()) for place in places(folder, ANY).values()]
    return [["" if word in ("-1", "-1.0") else word for word in words] for words in found]


def test_names_of_images_without_labels_tell_nothing(tmp_path: Path) -> None:
    all_images(tmp_path / "all")
    for folder in sorted((tmp_path / "all" / "a").iterdir()):
        for file in sorted(folder.iterdir()):
            file.rename(folder / f"{folder.name}-{file.name}")
    hands = {"one": {"a": Hand(np.arange(3, 27), np.array([0]), np.array([1, 2]))}}
    (folder,) = folders(tmp_path / "all", tmp_path / "out", hands).values()
    assert sorted(f.name for f in (folder / "a" / "-1").iterdir()) == ["0.png", "1.png"]
    assert len(list((folder / "a" / "cat").iterdir())) == 7


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.float32, bool])
def test_labels_of_any_type_can_be_hidden(tmp_path: Path, kind: type) -> None:
    """Also where the type has no -1; where nothing is hidden it stays."""
    (tmp_path / "all").mkdir()
    np.savez(tmp_path / "all" / "a.npz", x=arrays_of(9, 1)["x"], y=(np.arange(9) % 2).astype(kind))
    held, rest = np.array([0, 1]), np.arange(4, 9)
    hands = {"one": {"a": Hand(rest, held, np.array([2, 3]))}, "other": {"a": Hand(rest, held)}}
    one, other = (stored(folder / "a.npz")["y"] for folder in folders(tmp_path / "all", tmp_path / "out", hands).values())
    assert one.tolist() == [0, 1, -1, -1, 0, 1, 0, 1, 0] and other.dtype == kind


def test_labels_in_a_dictionary_can_be_hidden(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    words = pa.array(["flu", "cold"] * 4).dictionary_encode()
    pq.write_table(pa.table({"a": [float(i) for i in range(8)], "y": words}), tmp_path / "all" / "a.parquet")
    hands = {"one": {"a": Hand(np.arange(3, 8), np.array([0]), np.array([1, 2]))}}
    (folder,) = folders(tmp_path / "all", tmp_path / "out", hands).values()
    own = read_folder(folder, World(inputs=(1,), classes=2, class_names=("flu", "cold")), Role.SOURCE)
    assert own.train.bare is not None and own.train.bare.all().flatten().tolist() == [1, 2]
    assert own.train.y is not None and own.train.y.tolist() == [1, 0, 1, 0, 1]


def test_a_class_is_one_word_however_it_is_written(tmp_path: Path) -> None:
    """Numbers with zeros around them, names by their place in the list."""
    (tmp_path / "all").mkdir()
    np.savez(tmp_path / "all" / "a.npz", x=np.zeros((2, 2)), y=np.array([2.0, 0.0]))
    (tmp_path / "all" / "b.csv").write_text("u,v,y\n1,2,02\n3,4,1.0\n")
    assert {name: words.tolist() for name, words in labels_of(tmp_path / "all").items()} == {"a": ["2", "0"], "b": ["2", "1"]}
    (tmp_path / "all" / "classes.txt").write_text("owl\ncat\ndog\n")
    assert labels_of(tmp_path / "all", ["b"])["b"].tolist() == ["dog", "cat"]


@kinds
def test_every_row_is_dealt_once(tmp_path: Path, kind: str) -> None:
    """Over all clients the rows of the whole folder, and the unseen site is scored by its whole domain."""
    world = KINDS[kind](tmp_path / "all")
    dealt = read_dealt(tmp_path / "all", world, deal(sizes_of(tmp_path / "all"), RULE))
    whole = read_folder(tmp_path / "all", world, Role.SOURCE)
    every = torch.cat([whole.train.x.all(), whole.held_out.x.all()]), torch.cat([whole.train.domain, whole.held_out.domain])
    clients = [holdings for site, holdings in dealt.items() if site != UNSEEN]
    rows = [tuple(row.flatten().tolist()) for h in clients for data in (h.train, h.held_out) for row in data.x.all()]
    assert sorted(rows) == sorted(tuple(row.flatten().tolist()) for row in every[0][every[1] < 2])
    seen = sorted(tuple(row.flatten().tolist()) for row in dealt[UNSEEN].held_out.x.all())
    assert seen == sorted(tuple(row.flatten().tolist()) for row in every[0][every[1] == 2])
    assert len(dealt[UNSEEN].train) == 1


def test_no_row_is_held_twice(tmp_path: Path) -> None:
    """Over all sites the memory is that of the set, and one row for the unseen site's training."""
    world = all_arrays(tmp_path / "all")
    dealt = read_dealt(tmp_path / "all", world, deal(sizes_of(tmp_path / "all"), RULE))
    stores = {
        d.x.all().untyped_storage().data_ptr(): d.x.all().untyped_storage().nbytes()
        for h in dealt.values()
        for d in (h.train, h.held_out)
    }
    assert sum(stores.values()) == (31 + 24 + 20 + 1) * 64 * 4


def test_arrays_keep_their_bytes(tmp_path: Path) -> None:
    """x and y are of the type that they were, packed where they were packed; nothing else is in the file."""
    all_arrays(tmp_path / "all")
    sites = deal(sizes_of(tmp_path / "all"), RULE)
    for site, folder in folders(tmp_path / "all", tmp_path / "out", sites).items():
        for name, hand in sites[site].items():
            before, after = (stored(place / f"{name}.npz") for place in (tmp_path / "all", folder))
            assert set(after) == {"x", "y", "test_idx"}
            assert before["x"].dtype == after["x"].dtype and before["y"].dtype == after["y"].dtype
            assert np.array_equal(after["x"][after["test_idx"]], before["x"][hand.held])
            assert np.array_equal(np.delete(after["x"], after["test_idx"], 0), before["x"][hand.train])


def stored(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def test_images_are_copied_as_they_are(tmp_path: Path) -> None:
    """The files' own bytes, also of one that cannot be read, which its owner lets go."""
    all_images(tmp_path / "all")
    sites = deal(sizes_of(tmp_path / "all"), RULE)
    copied = [f for folder in folders(tmp_path / "all", tmp_path / "out", sites).values() for f in folder.rglob("*.png")]
    originals = {f.relative_to(tmp_path / "all").as_posix(): f for f in (tmp_path / "all").rglob("*.png")}
    twice = [f for f in copied if "again" in f.name]
    assert len(copied) == len(originals) + 1 and len(twice) == 1
    for file in copied:
        name = "/".join(file.parts[-3:]).replace("-again", "")
        assert file.read_bytes() == originals[name].read_bytes()


def test_cells_of_tables_stay_as_they_are(tmp_path: Path) -> None:
    """Columns that are no features too; the split gets a column, the one that there is or a new one."""
    all_tables(tmp_path / "all", "csv")
    sites = deal(sizes_of(tmp_path / "all"), RULE)
    found: dict[str, list[list[str]]] = {"a": [], "b": []}
    for folder in folders(tmp_path / "all", tmp_path / "out", sites).values():
        for name, lines in found.items():
            if (folder / f"{name}.csv").exists():
                with (folder / f"{name}.csv").open(newline="") as file:
                    lines += list(csv.reader(file, delimiter=";" if name == "b" else ","))
    assert {tuple(line) for line in found["a"] if line[0] == "a"} == {("a", "b", "y", "held_out")}
    assert {tuple(line) for line in found["b"] if line[0] == "a"} == {("a", "b", "y", "held_out", "who", "s")}
    assert {line[4] for line in found["b"]} == {"who", "x; y"} and {line[5] for line in found["b"]} == {"s", "test", "train"}


def test_a_new_column_has_a_new_name(tmp_path: Path) -> None:
    for name in "abc":
        write_table(tmp_path / "all", "parquet", {**table(20), "held_out": list(range(20))}, name)
    world = World(inputs=(3,), classes=3)
    sites = deal(sizes_of(tmp_path / "all"), RULE)
    for site, folder in folders(tmp_path / "all", tmp_path / "out", sites).items():
        (file,) = folder.glob("*.parquet")
        assert pq.read_table(file).column_names == ["a", "b", "y", "held_out", "held_out_2"]
        assert read_folder(folder, world, role_of(site)).train.x.all().shape[1] == 3


def array(**changed: Any) -> Callable[[Path], None]:
    """Return what writes the domain b anew, as arrays that are changed."""
    return lambda folder: np.savez(folder / "b.npz", x=arrays_of(24, 2)["x"], **changed)


def text(words: str) -> Callable[[Path], None]:
    """Return what writes the domain b as a table in place of arrays."""

    def write(folder: Path) -> None:
        (folder / "b.npz").unlink()
        (folder / "b.csv").write_text(words)

    return write


def flat(folder: Path) -> None:
    (folder / "b.npz").unlink()
    save_classes(folder / "b", {".": 5})


def line_break(folder: Path) -> None:
    (folder / "b.npz").unlink()
    save_classes(folder / "b", {"0": 5, "1": 5})
    (folder / "b" / "0" / "00.png").rename(folder / "b" / "0" / "0\n0.png")


SPOILT: list[tuple[Callable[[Path], Any], str]] = [
    (array(), "there are no labels"),
    (flat, "there are no labels"),
    (text("u,v\n1,2\n3,4\n5,6\n"), "there are no labels"),
    (array(y=np.where(np.arange(24) > 20, -1, np.arange(24) % 3)), "3 of 24 rows have no label, the first of them row 21"),
    (array(y=np.full(24, -1)), "there are no labels"),
    (text("u,v,y\n1,2,0\n3,4\n5,6,1\n"), "line 3 has 2 cells"),
    (lambda folder: (folder / "b.csv").write_text("u,v,y\n1,2,0\n"), "are both the domain b"),
    (lambda folder: (folder / "b.npz").write_bytes(b"PK no archive"), "cannot be read as an .npz file"),
    (line_break, "the name of a file has a line break"),
]


@pytest.mark.parametrize(("spoil", "said"), SPOILT)
def test_what_cannot_be_dealt_is_refused(tmp_path: Path, spoil: Callable[[Path], None], said: str) -> None:
    all_arrays(tmp_path / "all")
    spoil(tmp_path / "all")
    with pytest.raises(DataRefused) as refusal:
        folders(tmp_path / "all", tmp_path / "out", deal(sizes_of(tmp_path / "all"), RULE))
    assert said in refusal.value.what and "all" in refusal.value.what and refusal.value.todo


def test_what_one_site_would_be_refused_for_is_told_with_its_name(tmp_path: Path) -> None:
    """A domain of one class makes a client that cannot learn, as its agent would say."""
    all_arrays(tmp_path / "all")
    np.savez(tmp_path / "all" / "a.npz", x=arrays_of(9, 1)["x"], y=np.zeros(9, int))
    (tmp_path / "all" / "transforms.toml").unlink()
    sites = deal(sizes_of(tmp_path / "all"), Deal("c", 2, 1))
    with pytest.raises(DataRefused, match=r"all \(client-[12]\): all training rows are of class 0"):
        read_dealt(tmp_path / "all", IMAGES, sites)


def test_names_of_domains_and_settings_survive(tmp_path: Path) -> None:
    """Quotes, spaces and accents; numbers, lists and texts of transforms.toml."""
    (tmp_path / "all").mkdir()
    names = ('a "b"', "ç é", "ward 1")
    for i, name in enumerate(names):
        np.savez(tmp_path / "all" / f"{name}.npz", **arrays_of(20, i))
    told = {name: {"scale": 200.5, "invert": True, "mean": [0.1], "std": [1e-3]} for name in names}
    (tmp_path / "all" / "transforms.toml").write_text("\n".join(toml_table(*each) for each in told.items()))
    sites = deal(sizes_of(tmp_path / "all"), Deal(names[2], 2, 1))
    dealt = read_dealt(tmp_path / "all", IMAGES, sites)
    for site, folder in folders(tmp_path / "all", tmp_path / "out", sites).items():
        same(dealt[site], read_folder(folder, IMAGES, role_of(site)))


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
values = st.one_of(
    texts, st.booleans(), st.floats(1e-9, 1e9), st.lists(st.floats(-1e9, 1e9), max_size=3), st.lists(texts, max_size=3)
)


@given(texts, st.dictionaries(st.sampled_from(["scale", "label", "drop"]), values))
def test_toml_is_read_as_it_was_written(name: str, table: dict[str, Any]) -> None:
    import tomllib

    assert tomllib.loads(toml_table(name, table)) == {name: table}
