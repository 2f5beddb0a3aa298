"""What an owner lets be told of policy and data: nothing by default; of the policy the section that applies, without names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.dossier.stage import contents, lines, made, part, played, verified
from tideline.algorithms import METHODS
from tideline.core.algorithm import contract, resolve
from tideline.core.asked.scoring import Scoring
from tideline.core.errors import ConfigRefused
from tideline.core.privacy import TO_BOTH, TO_COORDINATOR, TO_PEERS, TO_SUM, Clause, Exposure
from tideline.dossier.layout import PAGE, POLICIES, REPLIES
from tideline.engine.model.runs import JOIN
from tideline.engine.model.said.disclosed import MOST_POLICY, Disclosed, disclosed_in
from tideline.engine.site.in_short import WORDS, in_short, named, readers
from tideline_agent.home.disclosing.policy_and_data import CACHE, Disclosing, data_digest
from tideline_agent.policy_file import policy_digest, policy_in

BEFORE = "6221301ca18460cbe8b2f8b4639886e9de887e6c5ca9c203bbfbacf1ca23dc85"
POLICY = """
# written by dr. smith
[disclose]
policy = true
data = true
[runs]
users = ["alice", "bob"]
projects = ["cardio", "retina"]
approve = "new"
[bounds]
"*rate" = 0.5
[least]
rows = 30
[projects.cardio.runs]
approve = "always"
[projects.cardio.disclose]
data = false
[projects.retina.least]
rows = 90
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "clinic").mkdir(parents=True)
    (folder / "clinic" / "x.npy").write_bytes(b"rows")
    (folder / "clinic" / "y.npy").write_bytes(b"labels")
    return folder


def disclosing(text: str, data: Path) -> Disclosing:
    home = data.parent / "home"
    home.mkdir(exist_ok=True)
    return Disclosing(policy_in(Path("policy.toml"), text), data, home)


def test_nothing_is_told_by_default(data: Path) -> None:
    """Nor is any file read for it."""
    for text in ("", "[runs]\napprove = 'new'\n", "[disclose]\npolicy = false\n"):
        said = disclosing(text, data)
        assert said("default") is None and not (said.home / CACHE).exists()


def test_the_section_that_applies(data: Path) -> None:
    """With its own lines in the place of the same ones, no comment, and neither users, projects nor another project's lines."""
    said = disclosing(POLICY, data)
    found = said("cardio")
    assert found is not None and found.data == "" and found.digest == policy_digest(said.policy)
    assert found.policy.splitlines() == [
        *("[runs]", "# users: some are named, and not told", "# projects: some are named, and not told", 'approve = "always"'),
        *("[bounds]", '"*rate" = 0.5', "[least]", "rows = 30", "[disclose]", "policy = true", "data = false"),
    ]
    other = said("default")
    assert other is not None and 'approve = "new"' in other.policy and other.data.startswith("b3-")
    for each in (found, other):
        assert not [word for word in ("alice", "bob", "retina", "cardio", "smith", "90") if word in each.policy]


def test_a_policy_without_it_has_the_digest_that_it_had() -> None:
    """Ledgers tell policies by their digests."""
    before, same = (policy_in(Path("p"), text) for text in ("[runs]\napprove = 'new'\n", "[runs]\napprove = 'new'\n[disclose]\n"))
    assert policy_digest(before) == policy_digest(same)
    assert policy_digest(before) == BEFORE, "as version 0.2.0 makes it"
    with pytest.raises(ConfigRefused, match=r"disclose\.polcy"):
        policy_in(Path("p"), "[disclose]\npolcy = true\n")


def test_a_digest_of_data(data: Path, tmp_path: Path) -> None:
    """Of names and bytes of all files; worked out again once a file looks otherwise; and none where there is nothing to read."""
    home = tmp_path / "home"
    home.mkdir()
    first = data_digest(data, home)
    assert first == data_digest(data, home) and first.startswith("b3-")
    (data / "clinic" / "x.npy").write_bytes(b"rowz!")
    second = data_digest(data, home)
    (data / "clinic" / "x.npy").rename(data / "clinic" / "z.npy")
    assert len({first, second, data_digest(data, home)}) == 3
    (home / CACHE).write_text("nonsense")
    assert data_digest(data, home).startswith("b3-") and data_digest(Path("python:module:name"), home) == ""


def test_what_is_too_much_is_not_taken() -> None:
    """A long policy, an escape sequence, a word that turns text around: nothing of it."""
    assert Disclosed.of("", "", "") is None and Disclosed.of("x" * (MOST_POLICY + 1), "", "") is None
    assert Disclosed.of("a\nb", "d", "") == Disclosed("a\nb", "d", "")
    for odd in ("\x1b[2J", "\u202e", "a\rb", "\0"):
        assert Disclosed.of(odd, "", "") is None and Disclosed.of("", odd, "") is None and Disclosed.of("", "", odd) is None
    assert disclosed_in({"disclosed": ["no"]}) is None and disclosed_in({}) is None


def test_a_dossier_has_what_was_told() -> None:
    """Of who tells; of the others it says that nothing was. It stands among what left the site, too, and in its ledger."""
    federation, run = played(disclosing={"anna": Disclosed('[runs]\napprove = "<new>"', "pd", "b3-data")})
    content = made(federation.journal, run)
    sites = {site["site"]: site["disclosed"] for site in part(content, POLICIES)["sites"]}
    assert sites == {
        "anna": {"policy": '[runs]\napprove = "<new>"', "digest": "pd", "data": "b3-data"},
        "bert": None,
        "carl": None,
    }
    text = contents(content)[PAGE].decode()
    assert "Policy of <bdi>anna</bdi>, as told" in text and "approve = &quot;&lt;new&gt;&quot;" in text and "b3-data" in text
    joins = [row for row in lines(content, REPLIES) if row["cursor"] == JOIN]
    assert [row["site"] for row in joins if "disclosed" in row["facts"]] == ["anna"]
    verified(content)


# What an owner reads in short leaves nothing out, and begins with what tells most.
CLAUSE = Clause("train", "fit", "model", "weights", Exposure.WEIGHTS, TO_COORDINATOR, "the model after training")


@pytest.mark.parametrize("name", [name for name, _ in METHODS])
def test_every_field_of_every_method(name: str) -> None:
    """Each is in the line of its kind and its readers, by its words or by its name."""
    method = resolve(METHODS, name)
    agreed = contract(method, method.configure({}, "tiny"), Scoring())
    lines = list(in_short(agreed))
    assert len(lines) == len({(clause.exposure, clause.audience) for clause in agreed})
    for clause in agreed:
        what, tells = WORDS[clause.exposure]
        start = f"{what}, to {readers(clause)} ({tells}): "
        (line,) = [each for each in lines if each.startswith(start)]
        assert named(clause) in line.removeprefix(start).split("; ") or ";" in named(clause)
        assert clause.dims in line


def test_what_tells_most_comes_first() -> None:
    given = [replace(CLAUSE, exposure=each, field=each.value, doc="") for each in Exposure]
    assert [line.split(": ")[1] for line in in_short(given)] == [f"{each.value} (weights)" for each in reversed(Exposure)]


def test_who_gets_it() -> None:
    """Other readers are another line; so is what is made with noise."""
    made = [replace(CLAUSE, audience=each) for each in (TO_COORDINATOR, TO_PEERS, TO_BOTH, TO_SUM)]
    made.append(replace(CLAUSE, private="with noise"))
    made.append(replace(CLAUSE, audience=TO_BOTH | TO_SUM))
    found = sorted(line.removeprefix("weights of models, to ").split(" (")[0] for line in in_short(made))
    assert found == sorted(
        [
            "a sum over sites",
            "the coordinator and other sites, in a sum over sites that may be of one alone",
            "other sites",
            "the coordinator",
            "the coordinator and other sites",
            "the coordinator, with noise",
        ]
    )


def test_each_once() -> None:
    """Of a run and those beside it, what is the same is said once; a score has its name, and what has no words its own."""
    score = replace(CLAUSE, field="metrics.auroc_low", exposure=Exposure.METRIC, doc="one number per reply")
    weights, scores = in_short([CLAUSE, replace(CLAUSE, phase="again"), score, replace(CLAUSE, field="head", doc="")])
    told = "model (weights), the model after training; head (weights)"
    assert weights == f"weights of models, to the coordinator (much about single rows can be read out of them): {told}"
    assert scores.startswith("scores, to the coordinator (they tell how well it went") and scores.endswith(
        ": auroc low (weights)"
    )


def test_words_hide_nothing() -> None:
    """A method's words are whatever a coordinator says: two fields stay two, and no words push out what these tell."""
    loud = replace(CLAUSE, field="loss_of_each_row", dims="n", exposure=Exposure.STATISTIC, doc="means of classes")
    (line,) = in_short([replace(loud, field="means"), loud])
    assert "means (n)" in line and "loss of each row (n)" in line
    (line,) = in_short([replace(CLAUSE, doc=") counts (they tell nothing of rows)" + " " * 5000 + "x")])
    assert line.startswith("weights of models, to the coordinator (much about single rows can be read out of them): model")
    assert len(line) < 400
