"""Make docs/privacy.md from the registry, or check that the committed page is what it makes: privacy_page.py [--check]."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tideline.algorithms import METHODS
from tideline.core.algorithm import Algorithm, Methods, contract, resolve
from tideline.core.asked.scoring import Scoring
from tideline.core.notes import KINDS
from tideline.core.privacy import DEFAULT_POLICY, Audience, Clause, Contract, Exposure, contract_digest
from tideline.learning.rehearsal import rehearsal
from tideline.learning.rehearsal.settings import Rehearsing

PAGE = Path(__file__).resolve().parent.parent / "docs" / "privacy.md"
MEANINGS = {
    Exposure.MASKED: "keys, sealed shares and signatures of [secure sums](secure-sums.md); of rows they tell nothing",
    Exposure.METRIC: "a number that describes a step, such as a loss or an accuracy",
    Exposure.COUNT: "the number of rows, in all or by class",
    Exposure.WEIGHTS: "parameters of a network that was trained on the data",
    Exposure.STATISTIC: "sums, means or other summaries over rows",
    Exposure.SYNTHETIC: "synthetic points that represent the data",
    Exposure.FEATURES: "what a network computes from single rows",
    Exposure.SAMPLES: "the rows themselves",
}
HEAD = """\
# What leaves a site

<!-- Made by tools/privacy_page.py: change that file, then run it. -->

Data stay at a site. Only [central](methods/central.md), a reference method, sends rows, and only where the owners allow it.
A site sends only what is declared: every field of a reply states what it exposes and whom it may reach. The list of these
declarations is a method's **contract**. It is derived from the types of the method's replies and never written by hand.

`tideline contract NAME` shows a method's contract, from the code that is installed where you type it. The tables below are
for each method's default settings. A run whose rows are normalised by `shared` statistics, the default for
vectors, begins with one exchange more: each labelled site tells its number of rows, as COUNT, and the mean and
spread of each number or channel, as STATISTIC ([normalisation](normalisation.md)). Where missing cells of columns are filled by
medians, each labelled site tells of each such column its median, as STATISTIC, and the number of known cells, as COUNT, if there
are enough of them ([medians](normalisation.md#medians-for-missing-cells)). With `prior: em` each labelled site tells
how many of its training rows are of each class, as COUNT; targets get the shares of all of them together, and send nothing for
it ([label shift](label-shift.md)). In a run whose weights travel in [fewer bytes](wire.md) each clause says in which form; they
expose what they did.

## Where it is checked

"""
CHECKS = (
    ("a method is imported", "each field of each reply has an exposure and an audience", "the method does not load"),
    (
        "a site joins, and at every order",
        "the coordinator's contract is compared with the owner's policy, before any work",
        "the site answers `ContractRefused`",
    ),
    (
        "a site joins, and at every order",
        "the site derives the contract from its own code and compares the digests",
        "the site answers `ContractRefused`",
    ),
    (
        "a reply is written",
        "it has only declared fields, of the declared types and dims, and only declared, finite metrics",
        "the step fails at the site and its message stays there",
    ),
    (
        "a reply is read",
        "the coordinator checks the same again before it records the reply",
        "the reply is refused and recorded as failed",
    ),
)
WORDS = """\
An agent pushes only the files of its own reply, and can fetch only what an open order of its own names. A value for `peers`
alone travels sealed: the coordinator passes it on and cannot read it ([peers.md](peers.md)).

## Exposures and the default policy

Exposures are listed from the least revealing to the most. The default policy is what a site lets out if its owner gives no
`--policy` file ([site-policy.md](site-policy.md) shows one).

"""
TAIL = """\
## What else a coordinator learns

These are not part of a contract, because they are not part of a method:

- When a site enrols: its name, its public keys, the roles that its owner allows, the version of Tideline; and, unless its owner
  forbids notes, the name of the GPU or the processor that it computes on.
- When it joins a run: whether its training rows have labels, yes or no. If the run says how to compute, or in which form weights
  travel: on which kind of device it computes, and which forms its agent knows.
- In a rehearsal, sites learn something of each other: the orders of the run that compares name all sites that play the
  target, and those of each other run the site that plays in it.
- While it works: that it is alive and how far its step is; and, unless its owner forbids them,
  [notes about its work](#what-an-agent-reports-about-its-work).
- With each reply, unless its owner forbids notes: how many seconds its step took of accelerators and of processors, and how
  many of these it could use ([hours](projects.md#hours)), and how long ago it began to fetch, to compute and to send. Who knows
  the network can guess from it how many rows there are.
- With its answer to a join, if its owner wants that:
  [lines of its policy, and a digest of its data](site-policy.md#what-you-disclose).
- With each reply, and when it connects: how many entries its ledger has, and the hash (SHA-256) of the last. When it
  connects, also the hash of one earlier entry, and whether its owner goes on without one that is gone. No entry leaves.
- When an order fails: the kind of error and its sentence. Of an error that Tideline did not foresee only the type is sent,
  because its words may hold data; they are in the agent's own log. Sentences about data name the domain's file or folder.
  They may name a class, a label, a size, or a column by its number or as the owner's settings do. They hold no image file's
  name, no cell, no range of values, no column's name as it is in the file, and no words of the library that read it.
- Sizes and times of transfers, and the digest of each file. For a value that is sealed for other sites, also who made it
  and when, the digest and size of its content, and for whom it is.
- When an agent rotates its keys: the old keys' signature of the new ones. The coordinator passes it to the run's other
  sites together with the keys.

## What an agent reports about its work

While an agent works it sends notes to its coordinator, so that anyone who watches a run sees why it waits. A note can hold
only this: the order that it belongs to, one of the kinds below, and the numbers and names in braces. `error` is the name of
an error's class without any of its words; `device` is, for example, `cuda:0`. Both ends refuse any other note.

To switch notes off, use `--no-notes`, or `notes = ["coordinator"]` below `[forbid]` in the policy file. [logs.md](logs.md)
describes how they are shown.

NOTES

## Where memory stays

What a step keeps is the site's **memory**. The agent writes it to its home (`HOME/runs/RUN/`), and the next step of the
same run reads it; so does a restarted agent. It is in no message, so it has no clause. Only the agent's own account can
read that folder. Beside it lies what rounding left out of packed weights, which is added to the next ones.

A memory that needs the site's rows for all of a run declares them as SAMPLES; of the built-in methods that is
[feddadil](methods/feddadil.md)'s alone. They are gone from the memory, from that of the best round and from the disk once the
site has answered the run's last exchange. What `tideline site export` writes needs none of them. A site that was not asked
then, or whose run was cancelled, failed or stalled, still has them until `tideline site forget` deletes the run.

## How much of an image can be reconstructed

We attacked [fada](methods/fada.md), which can train its domain identifiers on either half gradients (the default) or the
features of a mini-batch, clipped and noised (`critic: features`). The attacker has G as the site uses it, every setting,
and 4000 rows of its own of the same kind. It trains a network that turns messages back into images
(`benchmarks/inversion.py`; USPS, `fada_small`). An error of 1 is that of the mean image. *Blind* is what the same network
reaches if it is shown nothing, so the difference is what the message gives away.

| message | rows in it | error | blind | given away |
| --- | --- | --- | --- | --- |
| features, no noise | each alone | 0.50 | 1.00 | 0.50 |
| features, noise 0.1 | each alone | 0.61 | 1.00 | 0.39 |
| features, noise 0.5 | each alone | 0.94 | 1.00 | 0.06 |
| features, noise 1 (the default) | each alone | 1.01 | 1.00 | none found |
| half of a gradient | 16 | 0.63 | 0.69 | 0.06 |
| half of a gradient | 32 | 0.57 | 0.60 | 0.04 |

![Images of a site, and what an attacker makes of each kind of message](images/inversion.png)

In the picture, the first row of each three shows what the site had, the second what the attack made of the message, the
third what the same attack makes of nothing.

- Features without noise give single images back.
- A guess at a whole batch is shown beside the images that it fits best, so it resembles them whatever it is. From a gradient
  over 16 rows or more the attacker gets little that it does not know anyway.
- Fewer rows, a batch that is sent again and again, or a cleverer attack may give more. These are the attacks that we tried,
  and not a proof.

## What attacks find in private runs

[Private runs](differential-privacy.md) bound what anybody can learn of a row. These attacks show what the bound is worth:
each has the weights before and after a site's training, and every setting, and lacks the key of its noise alone
(`benchmarks/attacks.py --data DIR`).

| attack | epsilon 1 | 4 | 8 | no noise |
| --- | --- | --- | --- | --- |
| members found, 1 % of others taken for one; digits, `mlp` | 0.9 % | 1.3 % | 2.0 % | 4.2 % |
| the same; a linear head on features of a frozen encoder | 1.0 % | 1.2 % | 2.3 % | 13.0 % |
| one row, read from the update of one step | 0 % | 0 % | 0 % | 100 % |
| eight rows, the same | 0 % | 0 % | 0 % | 51 % |
| rows read by weights that are made to count them, of 200 | 0 | 0 | 0 | 10 |
| epsilon that 1,000 canaries prove | 0.03 | 0.5 | 0.9 | 4.5 |

- *Members* are found by likelihood ratios with 16 shadow models (LiRA), 30 epochs on about 500 rows; 1 % is chance.
- *Canaries* are rows that nothing resembles, each in or out by a coin; guesses of them prove an epsilon with 95 %. One
  above the claim would refute it.
- These are the attacks that we tried, and not a proof. The proof is the accountant's.

## What is not claimed

- What is declared can reveal something about the data. Weights can be inverted, or tested for whether a row was among those
  trained on. Synthetic points (atoms) can come close to rows. A sum over few rows is nearly those rows. The contract says
  what leaves, not that it is harmless.
- Nothing is clipped and no noise is added, except in [private runs](differential-privacy.md) and for features (`fada` with
  `critic: features`). Unless a run has [secure sums](secure-sums.md), the coordinator sees each site's reply as it is.
- An audience says to whom a method hands a single site's value. What a method makes of all values, such as a mean, may go
  to every member. The mean of a single reply is that reply: a round with one reply hands its value on.
- An audience is about sites and the coordinator, not about users. Every user with a key of the coordinator can read the
  results of its runs, and the final state of those that have completed. Only keys with the role admin can read
  [tables for admins](result.md#tables-for-admins), and the final state of runs that have such tables.
- Files are not encrypted where they are stored. In transit they are, if the ports use TLS.
- The code that is installed at a site is trusted: a method can read what its step is given. Owners choose what they
  install.
"""


def page(methods: Methods) -> str:
    """The whole page."""
    found = [resolve(methods, name) for name, _ in methods]
    checks = ["| when | what | if it fails |", "|---|---|---|", *(cells(each) for each in CHECKS), ""]
    methods_told = ["## Method by method", "", *(text for a in found for text in method(a))]
    tail = TAIL.replace("NOTES", "\n".join(notes()))
    told = [*methods_told, *rehearsals()]
    return "\n".join([HEAD + checks[0], *checks[1:], WORDS + "\n".join([*exposures(), "", *told, tail])])


def rehearsals() -> Iterator[str]:
    """The clauses of the run that compares candidates, one of which is run at targets, too."""
    clauses = contract(rehearsal, Rehearsing(candidates=("no adaptation", "another"), at_targets=("one", "two")), Scoring())
    yield "## Rehearsals"
    yield ""
    yield "The runs of [a rehearsal](rehearsal.md) have the contracts of their methods, above. What a target's last scoring"
    yield "predicts stays in its agent's home, and the run that compares lets this leave:"
    yield ""
    yield from clauses_and_claims(rehearsal, clauses)


def notes() -> Iterator[str]:
    """A line for each kind of note."""
    yield "| kind | level | when | sentence |"
    yield "|---|---|---|---|"
    for name, kind in KINDS.items():
        yield cells((f"`{name}`", kind.level.value, kind.when, re.sub(r"\{(\w+)[^}]*\}", r"`{\1}`", kind.sentence)))


def exposures() -> Iterator[str]:
    """A line for each exposure, with what the default policy says of it."""
    yield "| exposure | what it is | may leave by default for |"
    yield "|---|---|---|"
    for exposure in Exposure:
        allowed = [f"`{a.value}`" for a in Audience if (exposure, a) in DEFAULT_POLICY]
        yield f"| `{exposure.value}` | {MEANINGS[exposure]} | {', '.join(allowed) or 'nobody'} |"


def method(algorithm: Algorithm) -> Iterator[str]:
    """A method's clauses."""
    clauses = contract(algorithm, algorithm.config(), Scoring())
    yield f"### {algorithm.name}"
    yield ""
    yield f"{algorithm.summary}. [Its page](methods/{algorithm.name}.md)."
    yield ""
    yield from clauses_and_claims(algorithm, clauses)


def clauses_and_claims(algorithm: Algorithm, clauses: Contract) -> Iterator[str]:
    """A table of clauses, and what is claimed beyond them."""
    yield "| phase | step | field | dims | exposure | audience | what it is |"
    yield "|---|---|---|---|---|---|---|"
    yield from map(row, clauses)
    yield ""
    if algorithm.claims:
        yield "What is claimed beyond the contract, and what is not:"
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
