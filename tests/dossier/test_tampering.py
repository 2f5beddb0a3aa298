"""A change of any byte is found, and the file that has it is named; so is what others have put together."""

from __future__ import annotations

import hashlib
import io
import json
import random
import struct
import zipfile
from pathlib import Path

import pytest

from tests.dossier.stage import OTHER, OURS, contents, made, packed, played, signed, verified
from tideline.core.errors import ConfigRefused, DossierBroken
from tideline.dossier.container import MOST_BYTES, members_in
from tideline.dossier.layout import AUDIT, HEADS, KEY, NAMES, PAGE, PARTS, REPLIES, RUN, SIGNATURE, SUMS
from tideline.dossier.signing import read_fingerprint
from tideline.dossier.verifying import verify

SEED, TRIES, SPLICES = 5, 600, 400


@pytest.fixture(scope="module")
def good() -> bytes:
    federation, run = played()
    content = made(federation.journal, run)
    assert verified(content, OURS.fingerprint).trusted
    return content


@pytest.fixture(scope="module")
def files(good: bytes) -> dict[str, bytes]:
    return contents(good)


def broken(content: bytes, words: str = "", member: str | None = None, signer: str = "") -> DossierBroken:
    """What a verification says; it always says what to do."""
    with pytest.raises(DossierBroken, match=words or None) as refused:
        verified(content, signer)
    assert refused.value.todo and "member" in refused.value.context
    if member is not None:
        assert refused.value.context["member"] == member
    return refused.value


def flipped(content: bytes, at: int, bits: int = 1) -> bytes:
    return content[:at] + bytes([content[at] ^ bits]) + content[at + 1 :]


@pytest.mark.parametrize("name", NAMES)
def test_a_change_within_a_file_names_it(good: bytes, name: str) -> None:
    member = next(each for each in members_in(io.BytesIO(good), NAMES) if each.name == name)
    for at in (member.begin, (member.begin + member.end) // 2, member.end - 1):
        broken(flipped(good, at), f"^{name} is not as it was signed", name)


def test_any_byte_anywhere(good: bytes) -> None:
    """Every byte between the files, and many within them; in each bit that was drawn."""
    members, drawn = members_in(io.BytesIO(good), NAMES), random.Random(SEED)
    within = {at for each in members for at in range(each.begin, each.end)}
    places = [at for at in range(len(good)) if at not in within]
    assert len(places) > 1000
    for at in [*places, *drawn.sample(sorted(within), TRIES)]:
        broken(flipped(good, at, 1 << drawn.randrange(8)))


def test_spliced_files(good: bytes) -> None:
    """Pieces taken out, put in, repeated, swapped or zeroed at places that were drawn: each is found, and none by a traceback."""
    drawn = random.Random(SEED)
    for _ in range(SPLICES):
        at, size, to = drawn.randrange(len(good)), drawn.choice((1, 2, 30, 46, 500, 20_000)), drawn.randrange(len(good))
        piece = good[at : at + size]
        taken_out, put_in = good[:at] + good[at + size :], good[:to] + piece + good[to:]
        in_place = [good[:at] + other + good[at + size :] for other in (bytes(len(piece)), piece[::-1])]
        content = drawn.choice((taken_out, put_in, good[:to] + piece + good[to + size :], *in_place))
        if content != good:
            broken(content)


def test_a_cut_or_a_longer_file(good: bytes) -> None:
    for content in (good[:-1], good[1:], good[: len(good) // 2], good + b"\0", b"\0" + good, good + good):
        broken(content)
    for content in (b"", b"PK", b"x" * 10_000):
        broken(content)


def test_what_a_zip_program_writes_is_no_dossier(files: dict[str, bytes]) -> None:
    """The same files, as others pack them: with their dates, or compressed."""
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as archive:
            for name in NAMES:
                archive.writestr(name, files[name])
        broken(out.getvalue(), "not as it was written")


def test_members_that_are_others(files: dict[str, bytes]) -> None:
    """One more, one less, one twice, another order, another name: each in words."""
    more = {**files, "virus.exe": b"MZ"}
    broken(packed(more, (*NAMES[:3], "virus.exe", *NAMES[3:])), "has what no dossier has: virus.exe", "virus.exe")
    broken(packed(more, (*NAMES, "virus.exe")), "has what no dossier has", "virus.exe")
    for name in NAMES:
        broken(packed(files, [each for each in NAMES if each != name]), f"lacks {name}", name)
        broken(packed(files, (*NAMES, name)), f"has {name} twice", name)
    broken(packed(files, NAMES[::-1]), "stand in another order")
    broken(packed(files, (NAMES[1], NAMES[0], *NAMES[2:])), "stand in another order")


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "..\\run.json", "run.json/", "RUN.JSON", "a" * 200, "\x1b[31m"]
)
def test_names_that_lead_elsewhere(files: dict[str, bytes], name: str) -> None:
    names = [name if each == RUN else each for each in NAMES]
    broken(packed({**files, name: files[RUN]}, names), "no dossier has")


def test_a_file_that_would_grow(files: dict[str, bytes]) -> None:
    """A compressed member is none of a dossier's, however little it has; sizes that are made up lead nowhere."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in NAMES:
            archive.writestr(zipfile.ZipInfo(name), bytes(50_000_000) if name == AUDIT else files[name], zipfile.ZIP_DEFLATED)
    assert len(out.getvalue()) < 1_000_000
    broken(out.getvalue(), "not as it was written")
    good = packed(files)
    at = good.index(b"PK\x01\x02")
    for size in (2**32 - 1, 2**31, len(good)):
        broken(good[: at + 20] + struct.pack("<2I", size, size) + good[at + 28 :])
    begin, length = len(good) - 6, len(good) - 10
    for place in (begin, length):
        broken(good[:place] + struct.pack("<I", 2**32 - 1) + good[place + 4 :])


def test_a_file_that_is_too_long(tmp_path: Path) -> None:
    file = tmp_path / "sparse.zip"
    with file.open("wb") as out:
        out.truncate(MOST_BYTES * 4)
    with pytest.raises(DossierBroken, match="more than a dossier can have"):
        verify(file)


def test_two_directories_show_one_content(files: dict[str, bytes], good: bytes) -> None:
    """What one program reads is what all read: no second archive before, behind or between."""
    other = packed({**files, PAGE: b"<p>all is well"})
    for content in (other + good, good + other, good[:100] + other + good[100:]):
        broken(content)


def test_a_signature_of_another_dossier(good: bytes, files: dict[str, bytes]) -> None:
    """By the same key, over other sums; and one by another key, which is found by its fingerprint alone."""
    federation, run = played()
    other = contents(made(federation.journal, run, at=1.0))
    broken(packed({**files, SIGNATURE: other[SIGNATURE]}), "The signature does not fit", SIGNATURE)
    broken(packed({**files, SUMS: other[SUMS]}), "is not as it was signed")
    broken(packed({**files, SUMS: other[SUMS], SIGNATURE: other[SIGNATURE]}), "is not as it was signed")
    broken(packed({**files, SIGNATURE: OTHER.sign(files[SUMS])}), "The signature does not fit")
    broken(packed({**files, KEY: OTHER.pem}), "signer.pem is not as it was signed", KEY)
    for wrong in (b"", bytes(64), files[SIGNATURE][:63], files[SIGNATURE] + b"\0", bytes(5000)):
        broken(packed({**files, SIGNATURE: wrong}))
    again = signed(files, OTHER)
    assert verified(again).signer == OTHER.fingerprint, "it is whole, and says whose it is"
    refused = broken(again, "and not by", KEY, signer=OURS.fingerprint)
    assert "tideline dossier signer" in refused.todo and refused.context["found"] == OTHER.fingerprint


def test_a_key_in_another_form(files: dict[str, bytes], subtests: pytest.Subtests) -> None:
    odd = b"-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----\n"
    for pem in (b"", odd, OURS.pem + b"\n", OURS.pem.replace(b"\n", b"\r\n"), b"note\n" + OURS.pem, bytes(2000)):
        with subtests.test(pem):
            sums = files[SUMS].replace(*(hashlib.sha256(key).hexdigest().encode() for key in (files[KEY], pem)))
            broken(packed({**files, KEY: pem, SUMS: sums, SIGNATURE: OURS.sign(sums)}), member=KEY)


def test_sums_in_another_form(files: dict[str, bytes], subtests: pytest.Subtests) -> None:
    sums, (first, second, *rest) = files[SUMS], files[SUMS].splitlines(keepends=True)
    noted = (
        sums + b"\n",
        b"# a note\n" + sums,
        sums + second,
        b"".join((second, *rest)),
        b"".join(sorted((first, second, *rest))),
    )
    changed = (sums.replace(b"  ", b" *"), sums.replace(b"dossier 1", b"dossier 2"), sums.upper(), bytes(5000))
    for other in (*noted, *changed):
        with subtests.test(other):
            assert other != sums
            broken(packed({**files, SUMS: other, SIGNATURE: OURS.sign(other)}), member=SUMS)


def test_entries_of_the_log_are_computed_again(files: dict[str, bytes]) -> None:
    """Whoever holds the key cannot change an entry, leave one out of the heads, or tell replies that no entry has."""
    entries = files[AUDIT].splitlines(keepends=True)
    row = json.loads(entries[3])
    for change in ({"by": "mallory"}, {"before": "0" * 64}, {"before": "zz"}, {"seq": "3"}, {"hash": row["before"]}, {"x": 1}):
        line = json.dumps({**row, **change}).encode() + b"\n"
        refused = broken(signed({**files, AUDIT: b"".join([*entries[:3], line, *entries[4:]])}), "audit.jsonl, line 4", AUDIT)
        assert "hash" in refused.what or "no entry" in refused.what
    for content in (b"\n", b"[]\n", b"{}\n", b"null\n", b"\xff\n", b"[" * 100_000 + b"\n", entries[0].rstrip()):
        broken(signed({**files, AUDIT: content}), member=AUDIT)
    broken(signed({**files, AUDIT: b"".join([entries[1], entries[0], *entries[2:]])}), "does not follow", AUDIT)
    broken(signed({**files, AUDIT: b"".join([*entries, entries[-1]])}), "does not follow", AUDIT)
    broken(signed({**files, AUDIT: b"".join(entries[:-1])}), member=HEADS)
    broken(signed({**files, AUDIT: b"".join(entries[1:])}), member=HEADS)
    middle = next(i for i, line in enumerate(entries) if json.loads(line)["kind"] == "round_closed")
    broken(signed({**files, AUDIT: b"".join([*entries[:middle], *entries[middle + 1 :]])}), member=HEADS)


def test_heads_fit_the_excerpt(files: dict[str, bytes]) -> None:
    heads = json.loads(files[HEADS])
    other_heads = ({**heads["excerpt_last"], "hash": "0" * 64}, {**heads["head"], "seq": 1}, None, {"seq": "many", "hash": "x"})
    begins = {"seq": heads["excerpt_first"]["seq"], "hash": "0" * 64}
    excerpts = ({"excerpt_first": heads["excerpt_last"]}, {"excerpt_last": None}, {"begins": begins})
    counts = ({"archived": {"seq": [], "hash": 1}}, {"entries": heads["entries"] + 1})
    for change in (*({"head": head} for head in other_heads), *excerpts, *counts):
        broken(signed({**files, HEADS: json.dumps({**heads, **change}).encode()}))


def test_replies_are_held_to_the_log(files: dict[str, bytes]) -> None:
    rows = files[REPLIES].splitlines(keepends=True)
    at = next(i for i, line in enumerate(rows) if json.loads(line)["files"])
    row = json.loads(rows[at])
    changed = json.dumps({**row, "files": [["b3-" + "0" * 64, 1]]}).encode() + b"\n"
    strange = json.dumps({**row, "order": "0" * 32}).encode() + b"\n"
    broken(signed({**files, REPLIES: b"".join([*rows[:at], *rows[at + 1 :]])}), "lacks the order", REPLIES)
    for lines in ([*rows[:at], changed, *rows[at + 1 :]], [*rows, strange], [*rows, rows[at]]):
        broken(signed({**files, REPLIES: b"".join(lines)}), "tells otherwise of the order", REPLIES)
    broken(signed({**files, REPLIES: b"{}\n" + files[REPLIES]}))
    broken(signed({**files, REPLIES: b"x"}), "does not end", REPLIES)


@pytest.mark.parametrize("name", PARTS)
def test_parts_that_are_none(files: dict[str, bytes], name: str) -> None:
    for content in (b"", b"[]", b"1", b"\xff", b"{", b"[" * 200_000):
        broken(signed({**files, name: content}), "is no JSON object", name)


@pytest.mark.parametrize("name", [RUN, HEADS])
def test_parts_that_say_something_else(files: dict[str, bytes], name: str) -> None:
    for content in (b"{}", b'{"head":1}', b'{"run":{},"finished":1,"as_of":{"utc":[]}}', b'{"head":{},"entries":"x"}'):
        broken(signed({**files, name: content}))


@pytest.mark.parametrize("text", ["", "12", "g" * 64, "0" * 63, "0" * 65, "../x"])
def test_fingerprints_that_are_none(text: str) -> None:
    with pytest.raises(ConfigRefused, match="is no fingerprint"):
        read_fingerprint(text)


def test_fingerprints_as_people_type_them() -> None:
    digits = OURS.fingerprint
    groups = " ".join(digits[at : at + 4] for at in range(0, 64, 4))
    assert {read_fingerprint(each) for each in (digits, groups, groups.upper().replace(" ", ":"), f" {digits}\n")} == {digits}


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "none.zip", tmp_path):
        with pytest.raises(ConfigRefused, match="cannot be read"):
            verify(path)


def test_a_dossier_of_an_earlier_version_stays_good() -> None:
    """Form 1, as it was first made: whoever changes what is verified goes on to verify this."""
    golden = Path(__file__).parents[1] / "golden" / "dossier_1.zip"
    found = verify(golden, OURS.fingerprint)
    assert (found.run["name"], found.run["finished"], found.replies, found.heads["whole"]) == ("the first", True, 13, True)
    broken(flipped(golden.read_bytes(), 5000))
