"""Messages as files: what is written is read, the layout is everybody's, and nothing that is not declared gets in."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load

from tests.budgets import examples
from tests.secure.play import Play, changed, names, terms_of
from tideline.archive import layout
from tideline.archive.errors import BadMetadata, HeaderTooLarge, Missing, OutOfRange, Undeclared, WrongDims, WrongType
from tideline.core.errors import Malformed
from tideline.secure.rounds.forms import MOST_PLAIN, from_bytes, to_buffers, to_bytes
from tideline.secure.rounds.messages import (
    Advert,
    Agreement,
    Agreements,
    Delivery,
    Masked,
    Parcels,
    Revealed,
    Roll,
    Survivors,
    Unmasked,
)
from tideline.secure.rounds.site import Agreed, Keyed, Sent, Sharing
from tideline.secure.rounds.terms import MOST_SITES, Terms

SURVIVORS = Survivors("00" * 32, ("anna", "bert"))
VALUES = np.array([1, 2**32 - 1, 0], np.uint32)
MASKED = Masked("00" * 32, "anna", VALUES)


@pytest.fixture(scope="module")
def messages() -> list[Any]:
    """One of each."""
    play = Play(terms_of(names(4)))
    name = play.terms.sites[0]
    sent, masked = play.masked[name]
    survivors = play.summed(play.terms.sites).survivors
    agreed, agreement = play.agree(name, survivors)
    (answer,) = play.unmasked(play.summed(play.terms.sites), [name])
    states = [play.begun[name][0], play.shared[name][0], sent, agreed]
    before = [play.terms, play.begun[name][1], play.roll, play.shared[name][1], play.delivery(name), masked]
    return [*before, survivors, agreement, Agreements((agreement,)), answer, *states]


def test_every_message_is_read_as_it_was_written(messages: list[Any]) -> None:
    kinds = [Terms, Advert, Roll, Parcels, Delivery, Masked, Survivors, Agreement, Agreements, Unmasked]
    kinds += [Keyed, Sharing, Sent, Agreed]
    assert [type(each) for each in messages] == kinds
    for each in messages:
        read = from_bytes(type(each), to_bytes(each), 5)
        assert read == each and to_bytes(read) == to_bytes(each)


def test_a_message_is_of_one_kind(messages: list[Any]) -> None:
    for each in messages:
        for kind in {type(other) for other in messages} - {type(each)}:
            with pytest.raises(Malformed):
                from_bytes(kind, to_bytes(each), 5)


def test_other_programs_read_the_values() -> None:
    """By the safetensors package; numbers have signs there, and are the same bytes."""
    assert load(to_bytes(MASKED))["values"].tolist() == [1, -1, 0]
    wide = changed(MASKED, values=np.array([2**64 - 2], np.uint64))
    assert load(to_bytes(wide))["values"].tolist() == [-2]


def test_golden() -> None:
    """The bytes of a message are fixed."""
    head = (
        b'{"__metadata__":{"tideline.layout":"1","tideline.record":"{\\"form\\":\\"tideline secure 1\\",\\"is\\":\\"Masked\\",'
        b'\\"roll\\":\\"ab\\",\\"site\\":\\"anna\\",\\"values\\":null}"},"values":{"dtype":"I32","shape":[3],"data_offsets":[0,12]}}'
    )
    size = -(-(len(head) + 8) // 64) * 64 - 8
    expected = size.to_bytes(8, "little") + head.ljust(size) + b"\1\0\0\0\xff\xff\xff\xff\0\0\0\0"
    assert to_bytes(changed(MASKED, roll="ab")) == expected


def test_values_are_not_copied() -> None:
    assert np.shares_memory(np.frombuffer(to_buffers(MASKED)[1], np.uint32), VALUES)
    file = to_bytes(MASKED)
    read = from_bytes(Masked, file, 3).values
    assert np.shares_memory(read, np.frombuffer(file, np.uint8)) and not read.flags.writeable


def file_of(tree: Any, arrays: dict[str, tuple[str, tuple[int, ...]]] | None = None) -> bytes:
    """A file of any structure, and arrays of zeros."""
    head, order = layout.build(arrays or {}, {layout.RECORD: json.dumps(tree)})
    sizes = (layout.ITEM_BYTES[dtype] * int(np.prod(shape)) for dtype, shape in (arrays or {}).values())
    return head + bytes(sum(sizes)) if order or not arrays else head


def tree_of(message: Any, **more: Any) -> dict[str, Any]:
    """A message's structure, changed."""
    head = layout.parse(memoryview(to_bytes(message)))
    return {**head.structure, **more}


def changed_terms(**more: Any) -> bytes:
    """The file of a round's terms with other fields."""
    return file_of(tree_of(terms_of(names(4)), **more))


def with_share(share: Any) -> bytes:
    """The file of an answer that brings this share."""
    answer = Unmasked("00", "anna", (Revealed("bert", b"x"),), ())
    return file_of(tree_of(answer, seeds=[{"author": "bert", "share": share}]))


def with_arrays(**arrays: tuple[str, tuple[int, ...]]) -> bytes:
    """The file of masked values with other arrays."""
    return file_of(tree_of(MASKED), arrays)


NO_BYTES = (WrongType, r"Unmasked.seeds\[0\].share is .* where up to 4096 bytes in hexadecimal")
WITHOUT_SITES = {name: value for name, value in tree_of(SURVIVORS).items() if name != "sites"}
REFUSED: list[tuple[type[Any], bytes, type[Malformed], str]] = [
    (Survivors, file_of(tree_of(SURVIVORS, form="tideline secure 2")), BadMetadata, "no Survivors of tideline secure 1"),
    (Survivors, file_of(tree_of(SURVIVORS, more=1)), Undeclared, "Survivors.more is not declared"),
    (Survivors, file_of(WITHOUT_SITES), Missing, "Survivors.sites is declared and missing"),
    (Survivors, file_of(tree_of(SURVIVORS, roll=3)), WrongType, "Survivors.roll is an int where a printable text"),
    (Survivors, file_of(tree_of(SURVIVORS, roll="x" * 1025)), WrongType, "up to 1024"),
    (Survivors, file_of(tree_of(SURVIVORS, roll="a\nb")), WrongType, "printable"),
    (Survivors, file_of(tree_of(SURVIVORS, sites="anna")), WrongType, "Survivors.sites is a str where a list"),
    (Survivors, file_of(tree_of(SURVIVORS, sites=["a"] * 4097)), WrongType, "a list of up to 4096"),
    (Survivors, file_of(tree_of(SURVIVORS, sites=["a", None])), WrongType, r"Survivors.sites\[1\] is None where"),
    (Survivors, file_of(tree_of(SURVIVORS), {"x": ("I32", (1,))}), Undeclared, "holds 'x', which Survivors does not declare"),
    *((Unmasked, with_share(share), *NO_BYTES) for share in ("zz", "AB", "a", "ab ab", "\u00e9\u00e9", 3, "ab" * 4097)),
    (Terms, changed_terms(clip=True), WrongType, "Terms.clip is a bool where a finite number"),
    (Terms, changed_terms(length=1.5), WrongType, "Terms.length is a float where a whole number"),
    (Terms, changed_terms(length=1 << 62), WrongType, "Terms.length is an int where a whole number below"),
    (Terms, changed_terms(place=None), WrongType, "Terms.place is None where an object"),
    (Terms, changed_terms(exponent=60), OutOfRange, r"Terms is refused: The sum of 4 sites .* could wrap"),
    (Masked, with_arrays(), Missing, "Masked.values is declared and missing"),
    (Masked, with_arrays(values=("F32", (3,))), WrongType, "'values' has the type F32 and 1 axes"),
    (Masked, with_arrays(values=("I32", (3, 1))), WrongType, "'values' has the type I32 and 2 axes"),
    (Masked, with_arrays(values=("I32", (4,))), WrongDims, "'values' has 4 values; 3 are awaited at most"),
    (Masked, with_arrays(other=("I32", (3,))), Missing, "Masked.values is declared and missing"),
]


def test_a_file_that_breaks_its_declaration_is_refused_by_name(subtests: pytest.Subtests) -> None:
    """A structure, bytes, numbers and arrays that a message does not declare; and terms under which a sum could wrap."""
    for at, (kind, file, error, words) in enumerate(REFUSED):
        with subtests.test(f"{at} {kind.__name__}: {words}"), pytest.raises(error, match=words):
            from_bytes(kind, file, 3)


def test_what_is_too_large_is_not_parsed() -> None:
    with pytest.raises(HeaderTooLarge, match="The message has"):
        from_bytes(Survivors, bytes(MOST_PLAIN + 1))
    with pytest.raises(HeaderTooLarge, match=r"The header holds \d+ texts"):
        to_bytes(Parcels((Play(terms_of(names(4))).shared["site-000"][1].parcels[0],) * 20_000))


def test_the_largest_round_fits() -> None:
    """3500 sites: each message as it would be, but the graph gives parcels to 1108 neighbours, and here all have one."""
    many = tuple(sorted(names(MOST_SITES)))
    parcel = Play(terms_of(names(4))).shared["site-000"][1].parcels[0]
    advert = Play(terms_of(names(4))).begun["site-000"][1]
    for message in (
        Roll(terms_of(many), tuple(changed(advert, site=name) for name in many)),
        Delivery("00" * 32, "b3", many, (parcel,) * 1109),
        Agreements((Agreement("00" * 32, "anna", bytes(64)),) * MOST_SITES),
        Unmasked("00" * 32, "anna", tuple(Revealed(name, bytes(33)) for name in many), ()),
    ):
        assert from_bytes(type(message), to_bytes(message)) == message


def test_values_of_other_types_are_not_written() -> None:
    with pytest.raises(WrongType, match="Values have the type float64 and 1 axes; they are 32 or 64 bits, in one axis"):
        to_bytes(changed(MASKED, values=np.zeros(3)))


@settings(max_examples=examples(300))
@given(st.data())
def test_any_change_of_bytes_is_read_or_refused(data: st.DataObject) -> None:
    """By an error of ours, whichever byte is another, or where it is cut."""
    file = bytearray(to_bytes(MASKED))
    at = data.draw(st.integers(0, len(file) - 1))
    file[at] = data.draw(st.integers(0, 255))
    try:
        read = from_bytes(Masked, bytes(file[: data.draw(st.integers(0, len(file)))]), 3)
    except Malformed:
        return
    assert read.values.shape[0] <= 3
