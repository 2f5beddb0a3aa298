"""Experiment files: what is wrong is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tideline.core.errors import ConfigRefused, DataRefused, NotFound, RosterRefused
from tideline.engine.model.experiment import read_experiment
from tideline.written.files import read_file
from tideline.written.yaml_lines import MAX_ALIASES, MAX_DEPTH, MAX_VALUES, read_yaml

BOMB = "a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)
)
# name, text, line, words of the message
BAD_TEXTS = [
    ("a tab", "method: fedavg\nconfig:\n\trounds: 1\n", 3, "a tab stands where YAML wants spaces"),
    ("twice", "method: fedavg\nseed: 1\nmethod: local\n", 3, "'method' appears twice"),
    ("twice below", "method: fedavg\nconfig:\n  rate: 1\n  rate: 2\n", 4, "'rate' appears twice"),
    ("a list", "- method\n- fedavg\n", 1, "this is not an experiment"),
    ("a text", "method\n", 1, "this is not an experiment"),
    ("a tag", "method: fedavg\nname: !!python/object/apply:os.system ['true']\n", 2, "the tag"),
    ("open bracket", "method: fedavg\nworld: {inputs: [1, 2\n", 3, "expected"),
    ("no colon", "method: fedavg\nseed\n", 3, "could not find expected ':'"),
    ("two documents", "method: fedavg\n---\nmethod: local\n", 2, "a second document"),
    ("a bomb", BOMB, 1, "aliases stand for too many values"),
    ("many aliases", f"a: &a 1\nb: [{', '.join(['*a'] * (MAX_ALIASES + 1))}]\n", 2, "too many values or aliases"),
    ("itself", "method: fedavg\nconfig: &a\n  b: *a\n", 2, "nested more than"),
    ("deep", "a: 1\nb: " + "[" * 5000 + "]" * 5000, 2, f"nested more than {MAX_DEPTH}"),
    ("many", "a:\n" + "- 1\n" * (MAX_VALUES + 1), MAX_VALUES - 1, "too many values"),
    ("unknown alias", "a: 1\nb: *c\n", 2, "undefined alias"),
    ("a large number", "method: fedavg\nseed: 123456789012345678901234567890\n", 2, "does not fit 64 bits"),
    ("an endless number", "seed: 1\nconfig: {rate: 1e999}\n", 2, "does not fit 64 bits"),
    ("a bell", "method: fedavg\nname: a\x07b\n", 2, "a character that YAML does not allow"),
    ("a key of keys", "method: fedavg\n? [a, b]\n: 1\n", 2, "a key that is no text"),
]
# text, line, words: a file that reads well but holds something wrong
WRONG = [
    ("method: fedavg\nrounds: 3\n", 2, "rounds is not a known setting. Settings of the method stand in config. Use one of"),
    ("method: fedavg\nmodel: lenet\n", 2, "model is not a known setting. It is a setting of world: write it there. Use one of"),
    ("method: fedavg\nworld:\n  clases: 3\n", 3, "did you mean classes?"),
    ("method: fedavg\nworld:\n  inputs:\n  - 1\n  - 0\n", 5, "world.inputs[1] is 0; it should be at least 1"),
    ("method: fedavg\nroster:\n  a.b: source\n  c.d: sauce\n", 4, "should be one of source, target, peer (did you mean source?)"),
    ("method: fedavg\nselect:\n- labels: {site: a}\n  role: pear\n", 4, "select[0].role is 'pear'"),
    ("method: fedavg\n\n# a remark\nwaiting: {deadline: 0}\n", 4, "waiting.deadline is 0"),
    ("method: fedavg\nselect:\n- role: peer\n", 3, "select[0].labels is missing"),
    ("method: fedavg\nseed: yes\n", 2, "it should be a whole number"),
    ("method: fedavg\nthreads: 1.5\n", 2, "it should be a whole number"),
]


def write(tmp_path: Path, text: str, name: str = "e.yaml") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(("text", "line", "words"), [row[1:] for row in BAD_TEXTS], ids=[row[0] for row in BAD_TEXTS])
def test_a_file_that_cannot_be_read_is_told_with_its_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigRefused) as caught:
        read_file(path)
    assert caught.value.what.startswith(f"{path}:{line}: ")
    assert words in str(caught.value)
    assert caught.value.context["line"] == line


@pytest.mark.parametrize(("text", "line", "words"), WRONG)
def test_a_wrong_key_or_value_is_told_with_its_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    """What the reader of experiments refuses is told at its line, with what would be allowed."""
    path = write(tmp_path, text)
    experiment = read_file(path)
    with pytest.raises(ConfigRefused) as caught, experiment.located():
        read_experiment(experiment.value)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "raw", "words"),
    [
        ("e.yaml", b"", "is empty"),
        ("e.yaml", b"# nothing\n", "is empty"),
        ("e.yaml", b"#" * ((1 << 20) + 1), "longer than 1 MiB"),
        ("e.yaml", b"method: fedavg\nname: \xff\n", ":2: a byte that is not UTF-8"),
        ("e.json", b'{"method": "fedavg",\n}', ":2: not JSON"),
        ("e.json", b'{\n"seed": 1,\n"seed": 2}', ":3: 'seed' appears twice here"),
        ("e.json", b"[" * 100_000, "not JSON of moderate depth"),
        ("e.json", b"[]", "this is not an experiment"),
    ],
)
def test_odd_files_are_refused(tmp_path: Path, name: str, raw: bytes, words: str) -> None:
    """Empty, long, binary and half files are refused in a sentence."""
    path = tmp_path / name
    path.write_bytes(raw)
    with pytest.raises(ConfigRefused) as caught:
        read_file(path)
    assert words in caught.value.what


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(ConfigRefused, match="cannot be read"):
            read_file(path)


def test_values_mean_what_people_mean() -> None:
    """Numbers such as 1e-3 are numbers; words such as no and 12:30 are words; keys are what is written."""
    text = "a: 1e-3\nb: no\nc: 12:30\nd: 010\ne: 0x1F\nf: ~\ng: 2024-01-01\nno: [true, 'true', -3, +2, .5]\n1: {x: null}\n"
    read = read_yaml(text, "e").value
    plain = {"a": 0.001, "b": "no", "c": "12:30", "d": 10, "e": 31, "f": None, "g": "2024-01-01"}
    assert read == {**plain, "no": [True, "true", -3, 2, 0.5], "1": {"x": None}}
    assert isinstance(read["a"], float)


def test_json_is_read_as_json_with_lines(tmp_path: Path) -> None:
    """Tabs are fine in JSON, its escapes hold, and lines are known all the same."""
    path = write(tmp_path, '{\n\t"name": "\\ud83d\\ude00\\/",\n\t"config": {\n\t\t"rate": 1e-3}\n}\n', "e.json")
    read = read_file(path)
    assert read.value == {"name": "\U0001f600/", "config": {"rate": 0.001}}
    assert read.place("config.rate") == f"{path}:4"


def test_aliases_in_moderation(tmp_path: Path) -> None:
    """An alias repeats its value, at the line where it was written first."""
    path = write(tmp_path, "data:\n  a: &site\n    role: source\n    rows: 1\n  b: *site\n")
    read = read_file(path)
    assert read.value["data"]["b"] == {"role": "source", "rows": 1}
    assert read.place("data.b.rows") == f"{path}:4"


def test_the_place_of_what_is_not_written_is_that_around_it(tmp_path: Path) -> None:
    """A path that the file does not hold is placed at the nearest thing that it does hold."""
    read = read_file(write(tmp_path, "method: fedavg\nroster:\n  a: source\n"))
    assert read.place("roster.b").endswith(":2")
    assert read.place("select[3].role") == read.name
    assert read.place("") == read.name


def test_set_overrides_and_is_named_as_the_place(tmp_path: Path) -> None:
    """--set changes a value, makes mappings on its way, and errors about it name it instead of a line."""
    read = read_file(write(tmp_path, "method: fedavg\nworld: {model: mlp}\n"))
    made = read.changed(["config.rounds=0", "world.inputs=[1, 8, 8]", "name=", "world.model=lenet"])
    world = {"model": "lenet", "inputs": [1, 8, 8]}
    assert made.value == {"method": "fedavg", "world": world, "config": {"rounds": 0}, "name": ""}
    assert read.value == {"method": "fedavg", "world": {"model": "mlp"}}
    with pytest.raises(ConfigRefused) as caught, made.located():
        raise ConfigRefused("config.rounds is 0", path="config.rounds")
    assert caught.value.what == "--set config.rounds=0: config.rounds is 0"


@pytest.mark.parametrize("setting", ["rounds", "=3", ".rounds=3", "a..b=3", "method.x=1", "seed=[1", "seed=a: b: c"])
def test_a_set_that_sets_nothing_is_refused(tmp_path: Path, setting: str) -> None:
    """--set without a key, with a broken value, or into something that is no mapping."""
    read = read_file(write(tmp_path, "method: fedavg\n"))
    with pytest.raises(ConfigRefused, match="--set"):
        read.changed([setting])


def test_errors_keep_their_class_and_foreign_paths_are_left_alone(tmp_path: Path) -> None:
    """The place is added to what the file can be blamed for, and to nothing else."""
    read = read_file(write(tmp_path, "method: x\nroster:\n  a: source\n"))
    for kind, path in ((RosterRefused, "roster.a"), (NotFound, "method")):
        with pytest.raises(kind, match=r"e\.yaml:\d: so") as caught, read.located():
            raise kind("so", path=path)
        assert caught.value.context["path"] == path
    for other in (DataRefused("so", path="method"), NotFound("so")):
        with pytest.raises(type(other)) as caught, read.located():
            raise other
        assert caught.value.what == "so"
