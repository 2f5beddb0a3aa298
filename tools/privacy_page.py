"""Make docs/privacy.md from the registry, or check that the committed page is what it makes: privacy_page.py [--check]."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tideline.algorithms import METHODS
from tideline.core.algorithm import Algorithm, contract
from tideline.core.notes import KINDS
from tideline.core.privacy import DEFAULT_POLICY, Audience, Clause, Exposure, contract_digest
from tideline.core.registry import Methods, resolve

PAGE = Path(__file__).resolve().parent.parent / "docs" / "privacy.md"
MEANINGS = {
    Exposure.METRIC: "a number that describes a step, such as a loss or an accuracy",
    Exposure.COUNT: "how many rows there are, in all or by class",
    Exposure.WEIGHTS: "parameters of a network that was trained on the data",
    Exposure.STATISTIC: "sums, means or other summaries over rows",
    Exposure.SYNTHETIC: "made-up points that stand for the data",
    Exposure.FEATURES: "what a network computes from single rows",
    Exposure.SAMPLES: "rows themselves",
}
HEAD = """\
# What leaves a site

<!-- Made by tools/privacy_page.py: change that file, then run it. -->

Data stay at a site; only [central](methods/central.md), a reference, sends rows, where owners let it. What a site sends is
declared: every field of a reply says what it exposes and whom it may reach.
The list of these declarations is a method's **contract**. It is derived from the types of the method's replies, never
written by hand. `tideline contract NAME` shows it, from the code that is installed where you type it. The tables below
are for each method's default settings.

## Where it is checked

"""
CHECKS = (
    ("a method is imported", "each field of each reply has an exposure and an audience", "the method does not load"),
    (
        "a site joins, and at every order",
        "the coordinator's contract is held to the owner's policy, before any work",
        "the site answers `ContractRefused`",
    ),
    (
        "a site joins, and at every order",
        "the site derives the contract from its own code and compares the digests",
        "the site answers `ContractRefused`",
    ),
    (
        "a reply is written",
        "only declared fields, of the declared types and dims; only declared, finite metrics",
        "the step fails at the site and its message stays there",
    ),
    (
        "a reply is read",
        "the coordinator checks the same again before it records the reply",
        "the reply is refused and recorded as failed",
    ),
)
WORDS = """\
An agent pushes only the files of its own reply, and can fetch only what an open order of its own names. What is for `peers`
alone travels sealed: the coordinator passes it on and cannot read it ([peers.md](peers.md)).

## What each word means

From least to most. The default policy is what a site lets out if its owner gave no `--policy` file
([operating.md](operating.md#a-sites-policy) shows one).

"""
TAIL = """\
## What else a coordinator learns

These are no part of a contract, because they are no part of a method:

- when a site enrols: its name, its public keys, the roles that its owner allows, the version of Tideline;
- when it joins a run: whether its training rows have labels, yes or no;
- while it works: that it lives, and how far its step is; and, unless its owner forbids them, the notes
  [below](#what-an-agent-tells-of-its-work);
- when an order fails: the kind of error and its sentence. Of an error that Tideline did not foresee only the type is
  told, because its words may hold data; they are in the agent's own log. Sentences about data name the domain's
  file or folder, and may name a class, a label, a size, or a column by its number or as the owner's settings do. They
  hold no image file's name, no cell, no range of values, no column's name as it stands in the file, and no words of the
  library that read it;
- sizes and times of transfers, and the digest of each file; of a value that is sealed for other sites also who made it when,
  the digest and size of what is inside, and for whom it is;
- when an agent rotates its keys: the old keys' signature of the new ones, which it tells the run's other sites with the keys.

## What an agent tells of its work

An agent tells its coordinator in notes what happens while it works, so that who watches a run sees why it waits. This is all
that a note can hold: the order that it belongs to, one of these kinds, and the numbers and names that stand in braces. `error`
is the name of an error's class and nothing of its words, `device` is such as `cuda:0`. Both ends refuse any other note.
`--no-notes`, or `notes = ["coordinator"]` below `[forbid]` in the policy file, switches them off; [logs.md](logs.md) says how
they are shown.

NOTES

## Where memory stays

What a step keeps is the site's **memory**. It is written to the agent's home (`HOME/runs/RUN/`) and read by the next
step of the same run. It is in no message, so it has no clause. A killed agent finds it there; whoever can read that
folder can read it.

## How much of an image is in what leaves

Tried with [fada](methods/fada.md), which can send its domain identifiers either a half of a gradient (the default) or the
features of a mini-batch, clipped and noised (`critic: features`). An attacker who has G as the site uses it, every setting, and
4000 rows of the same kind of its own, trains a network that turns messages back into images
(`benchmarks/inversion.py`; USPS, `fada_small`). 1 is the error of the mean image; *blind* is what the same network reaches
if it is shown nothing, so that the difference is what the message gives away.

| message | rows in it | error | blind | given away |
| --- | --- | --- | --- | --- |
| features, no noise | each alone | 0.50 | 1.00 | 0.50 |
| features, noise 0.1 | each alone | 0.61 | 1.00 | 0.39 |
| features, noise 0.5 | each alone | 0.94 | 1.00 | 0.06 |
| features, noise 1 (the default) | each alone | 1.01 | 1.00 | none found |
| half of a gradient | 16 | 0.63 | 0.69 | 0.06 |
| half of a gradient | 32 | 0.57 | 0.60 | 0.04 |

![Images of a site, and what an attacker makes of each kind of message](pictures/inversion.png)

In the picture the first row of each three is what the site had, the second what was made of the message, the third what the
same attack makes of nothing. Features without noise give single images back. A guess at a whole batch is put beside the images
that it fits best, so that it looks like them whatever it is: of a gradient over 16 rows and more the attacker gets little that it
does not know without. Fewer rows, a batch that is sent again and again, or a cleverer attack may give more: this is what was
tried, and no proof.

## What is not claimed

- What is declared can tell about the data. Weights can be inverted or asked whether a row was among those trained on;
  synthetic points (atoms) can come close to rows; a sum over few rows is nearly those rows. The contract says what
  leaves, not that it is harmless.
- Nothing is clipped and no noise is added, but for features (`fada` with `critic: features`), and there are no secure sums: the
  coordinator sees each site's reply as it is.
- An audience says to whom a method hands a single site's value. What a method makes of all values, such as a mean, may go
  to every member.
- An audience is about sites and the coordinator. Of people, whoever has a key of the coordinator reads the results of its
  runs, and the final state of those that have completed. [Tables for admins](result.md#tables-for-admins), and the final state of
  runs that tell such tables, are shown to keys with the role admin only.
- Files are not encrypted where they lie. In transit they are, if the doors use TLS.
- The code that is installed at a site is trusted: a method can read what its step is given. Owners choose what they
  install.
"""


def page(methods: Methods) -> str:
    """The whole page."""
    found = [resolve(methods, name) for name, _ in methods]
    checks = ["| when | what | if it fails |", "|---|---|---|", *(cells(each) for each in CHECKS), ""]
    methods_told = ["## Method by method", "", *(text for a in found for text in method(a))]
    tail = TAIL.replace("NOTES", "\n".join(notes()))
    return "\n".join([HEAD + checks[0], *checks[1:], WORDS + "\n".join([*exposures(), "", *methods_told, tail])])


def notes() -> Iterator[str]:
    """A line for each kind of note."""
    yield "| kind | level | when | sentence |"
    yield "|---|---|---|---|"
    for name, kind in KINDS.items():
        yield cells((f"`{name}`", kind.level.value, kind.when, re.sub(r"\{(\w+)[^}]*\}", r"`{\1}`", kind.sentence)))


def exposures() -> Iterator[str]:
    """A line for each exposure, with what the default policy says of it."""
    yield "| exposure | what it is | leaves by default for |"
    yield "|---|---|---|"
    for exposure in Exposure:
        allowed = [f"`{a.value}`" for a in Audience if (exposure, a) in DEFAULT_POLICY]
        yield f"| `{exposure.value}` | {MEANINGS[exposure]} | {', '.join(allowed) or 'nobody'} |"


def method(algorithm: Algorithm) -> Iterator[str]:
    """A method's clauses."""
    clauses = contract(algorithm, algorithm.config())
    yield f"### {algorithm.name}"
    yield ""
    yield f"{algorithm.summary}. [Its page](methods/{algorithm.name}.md)."
    yield ""
    yield "| phase | step | field | dims | exposure | audience | what it is |"
    yield "|---|---|---|---|---|---|---|"
    yield from map(row, clauses)
    yield ""
    if algorithm.claims:
        yield "What is and is not claimed beyond that:"
        yield ""
        yield from (f"- {claim}" for claim in algorithm.claims)
        yield ""
    yield f"Digest of the contract: `{contract_digest(clauses)}`"
    yield ""


def row(clause: Clause) -> str:
    """One clause."""
    dims = f"`{clause.dims}`" if clause.dims else ""
    audience = ", ".join(sorted(a.value for a in clause.audience))
    return cells((clause.phase, clause.step, f"`{clause.field}`", dims, clause.exposure.value, audience, clause.doc))


def cells(texts: Iterable[str]) -> str:
    """A line of a table."""
    return "|" + "|".join(f" {text} " if text else " " for text in texts) + "|"


def main() -> int:
    """0 if the page is in step."""
    made = page(METHODS)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made, encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == made:
        return 0
    sys.stderr.write("docs/privacy.md is out of step with the registry. Run: .venv/bin/python tools/privacy_page.py\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
