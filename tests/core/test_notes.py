"""Notes hold what their kind declares, and nothing else fits into them."""

from __future__ import annotations

import pytest

from tideline.core.errors import FederationError, Malformed
from tideline.core.notes import KINDS, Note
from tideline.engine.process.pipe import family

NUMBERS = {
    "gpu_seconds": 6.0,
    "cpu_seconds": 7.0,
    "seconds": 2.0,
    "percent": 50.0,
    "tries_left": 1.0,
    "megabytes": 12.0,
    "count": 3.0,
    "rows": 4.0,
    "hours": 5.0,
}
WORDS = {"error": "ValueError", "device": "cuda:1", "way": "behind"}


def whole(kind: str) -> Note:
    """A note with every field of its kind."""
    declared = KINDS[kind]
    return Note(kind, {n: NUMBERS[n] for n in declared.numbers}, {w: WORDS[w] for w in declared.words})


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_makes_a_sentence(kind: str) -> None:
    """All its fields stand in its sentence, and it says when it is told."""
    declared = KINDS[kind]
    assert all(f"{{{name}" in declared.sentence for name in (*declared.numbers, *declared.words))
    assert "{" not in whole(kind).sentence and declared.when


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_field_too_many_or_too_few_is_refused(kind: str) -> None:
    """Beside the declared fields there is no room for anything."""
    good = whole(kind)
    with pytest.raises(Malformed):
        Note(kind, {**good.numbers, "age": 71.0}, good.words)
    with pytest.raises(Malformed):
        Note(kind, good.numbers, {**good.words, "name": "Anna"})
    for numbers in [{k: v for k, v in good.numbers.items() if k != n} for n in good.numbers]:
        with pytest.raises(Malformed):
            Note(kind, numbers, good.words)


def test_an_unknown_kind_is_refused() -> None:
    """Free words have no kind."""
    with pytest.raises(Malformed, match="no note of the kind"):
        Note("the label of row 3 is SECRET")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1.0, 1e300])
def test_a_number_that_is_none_is_refused(number: float) -> None:
    """Finite, not negative, of a size that means something."""
    with pytest.raises(Malformed):
        Note("trained", {"seconds": number})


@pytest.mark.parametrize("word", ["", "a b", "x" * 65, "ValueError: SECRET", "é", "3rd", "a\nb"])
def test_an_error_is_a_name(word: str) -> None:
    """The name of a class, and no sentence."""
    with pytest.raises(Malformed):
        Note("declined", {}, {"error": word})


@pytest.mark.parametrize("word", ["", "a100 of Anna", "cuda:", "CUDA", "cuda:1234"])
def test_a_device_is_a_device(word: str) -> None:
    """As torch names them."""
    with pytest.raises(Malformed):
        Note("device_missing", {}, {"device": word})


def test_every_error_of_ours_has_a_name_that_fits() -> None:
    """Whatever fails can be told."""
    for kind in family(FederationError):
        assert Note("declined", {}, {"error": kind.__name__}).sentence
