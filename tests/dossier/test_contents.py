"""What a dossier says: the contract, the sites' answers, what left, epsilon, metrics, digests, and the log's entries."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.dossier.stage import OTHER, OURS, ROSTER, contents, lines, made, part, played, verified
from tests.synthetic import FEATURES, NAMES, experiment, opener, sites
from tideline.algorithms import METHODS
from tideline.core.errors import ChainBroken, Refused
from tideline.core.privacy import Audience, Exposure, contract_digest, from_json
from tideline.core.run import ClientId, RunId
from tideline.dossier.layout import AUDIT, CONTRACT, EGRESS, HEADS, METRICS, PAGE, POLICIES, PRIVACY, REPLIES, RUN
from tideline.engine.audit.log import About, AuditEvent, Tip
from tideline.engine.model.accounts import Standing
from tideline.engine.model.orders import OrderStatus
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.engine.simulation.journal import MemoryJournal


@pytest.fixture(scope="module")
def ended() -> tuple[Federation, RunId]:
    """A run that has completed; for looking."""
    return played()


@pytest.fixture(scope="module")
def dossier(ended: tuple[Federation, RunId]) -> bytes:
    federation, run = ended
    return made(federation.journal, run)


def test_equal_state_gives_equal_bytes(ended: tuple[Federation, RunId], dossier: bytes) -> None:
    """However often and whenever it is asked for; another head of the log, another time or another key give others."""
    federation, run = ended
    federation.clock.advance(3600.0)
    assert made(federation.journal, run) == dossier
    at = federation.journal.audit()[-1].at
    assert made(federation.journal, run, at=at) == dossier
    assert made(federation.journal, run, at=at + 1) != dossier
    assert made(federation.journal, run, OTHER) != dossier


def test_it_is_good_and_says_of_what(ended: tuple[Federation, RunId], dossier: bytes) -> None:
    """Which run, whose key, how many entries; trusted by the fingerprint alone."""
    federation, run = ended
    found = verified(dossier, OURS.fingerprint)
    assert (found.run["run"], found.signer, found.trusted) == (run, OURS.fingerprint, True)
    assert not verified(dossier).trusted
    log = federation.journal.audit()
    assert found.heads["head"]["hash"] == log[-1].hash and found.heads["begins"]["hash"] == log[0].hash
    assert found.heads["whole"] and found.heads["archived"] is None
    about = [entry.seq for entry in log if entry.run == run]
    key = next(entry.seq for entry in log if entry.kind == "signer_introduced")
    assert [each["seq"] for each in lines(dossier, AUDIT)] == sorted([*about, key])


def test_replies_are_those_of_the_journal(ended: tuple[Federation, RunId], dossier: bytes) -> None:
    """Each answered order once, with its files and metrics; totals add up, and the contract names what left."""
    federation, run = ended
    orders = {order.id: order for order in federation.journal.orders(run) if order.answered is not None}
    rows = {row["order"]: row for row in lines(dossier, REPLIES)}
    assert rows.keys() == orders.keys() and len(rows) > len(ROSTER)
    for name, row in rows.items():
        order = orders[name]  # type: ignore[index]
        assert row["files"] == [list(each) for each in order.reply] and row["metrics"] == dict(order.metrics)
        assert (row["site"], row["outcome"], row["bytes"]) == (order.client, "accepted", sum(s for _, s in order.reply))
    egress = part(dossier, EGRESS)
    assert egress["replies"] == len(rows)
    assert sum(site["bytes"] for site in egress["sites"]) == sum(row["bytes"] for row in rows.values())
    anna = next(site for site in egress["sites"] if site["site"] == "anna")
    train = next(each for each in anna["phases"] if each["phase"] == "train")
    assert ["model", "weights", "coordinator"] in train["fields"] and train["first_utc"] == "2024-10-04T00:00:00Z"


def test_the_contract_in_words_and_as_data(dossier: bytes) -> None:
    """The clauses have the digest that sites agreed to, and a sentence each."""
    told = part(dossier, CONTRACT)
    clauses = from_json(told["clauses"])
    assert told["digest"] == told["digest_of_these_clauses"] == contract_digest(clauses)
    assert told["in_words"] == [clause.sentence() for clause in clauses] and told["beyond_the_default_policy"] == []


def test_what_sites_said(dossier: bytes) -> None:
    """All took the contract; who has labels said so; the agent is known by the fingerprint of its keys."""
    told = {site["site"]: site for site in part(dossier, POLICIES)["sites"]}
    assert {name: site["contract"] for name, site in told.items()} == dict.fromkeys(ROSTER, "accepted")
    assert (told["anna"]["labels"], told["anna"]["refusals"]) == (True, [])
    assert told["anna"]["agent"]["tideline"] == "simulated" and len(told["anna"]["agent"]["keys"].replace(" ", "")) == 32


def test_an_owner_who_says_no() -> None:
    """The refusal stands there in its words, and nothing left that site but that."""
    nothing = frozenset({(Exposure.METRIC, Audience.COORDINATOR)})
    there = {**sites(), "bert": SimSite(opener(1), policy=nothing)}
    federation, run = played({**experiment("fedavg", ROSTER), "waiting": {"target_replies": 2, "deadline": 5}}, there)
    content = made(federation.journal, run)
    bert = next(site for site in part(content, POLICIES)["sites"] if site["site"] == "bert")
    assert bert["contract"] == "declined or failed" and bert["refusals"][0]["kind"] == "ContractRefused"
    assert "policy forbids" in bert["refusals"][0]["what"]
    out = next(site for site in part(content, EGRESS)["sites"] if site["site"] == "bert")
    assert (out["outcomes"], out["bytes"]) == ({"failed": 1}, 0)
    assert "policy forbids" in contents(content)[PAGE].decode()
    verified(content)


def test_a_site_of_other_projects_is_told_as_one_that_is_not_there() -> None:
    """A run may name any site: of one that does not serve its project there is nothing, not even that it is known."""
    federation = Federation(METHODS, sites())
    federation.journal.assign(ClientId("bert"), ("retina",), 1.0)
    told = []
    for name in ("bert", "zoe"):
        run = federation.start(experiment("fedavg", {"anna": "source", name: "source"}))
        (site,) = (each for each in part(made(federation.journal, run), POLICIES)["sites"] if each["site"] == name)
        told.append({key: value for key, value in site.items() if key != "site"})
    assert told[0] == told[1] and told[0]["agent"] is None
    assert federation.journal.client("bert").standing is Standing.APPROVED  # type: ignore[union-attr]


def test_metrics_have_intervals_and_a_verdict(dossier: bytes) -> None:
    told = part(dossier, METRICS)
    carl = next(site for site in told["sites"] if site["name"] == "carl")
    assert carl["transfer"]["verdict"] in ("paid", "harmed", "open")
    assert carl["transfer"]["low"] <= carl["transfer"]["value"] <= carl["transfer"]["high"]
    assert next(site for site in told["sites"] if site["name"] == "anna")["transfer"] is None
    score = told["scores"]["carl"]["accuracy"]
    assert score["low"] <= score["value"] <= score["high"] and told["in_words"]


def test_a_private_run_has_an_epsilon_for_each_site() -> None:
    """By what it was asked for: that of the whole run, less for who is scored alone, none before anybody is asked."""
    privacy = {"rows": 20, "noise": 2.0, "delta": 1e-3, "rate": 0.5}
    asked = {**experiment("fedavg", ROSTER), "world": dict(FEATURES), "privacy": privacy}
    federation, run = played(asked)
    content = made(federation.journal, run)
    told, row = part(content, PRIVACY), federation.journal.run(run)
    assert row is not None and told["private"] and told["epsilon"] == row.spec.epsilon and told["delta"] == 1e-3
    of = {site["site"]: site["epsilon"] for site in told["sites"]}
    assert row.spec.epsilon is not None and of["anna"] == of["bert"] == row.spec.epsilon > of["carl"] > 0
    assert f"epsilon {row.spec.epsilon:.4g} at delta 0.001" in contents(content)[PAGE].decode()
    waiting = Federation(METHODS, sites())
    early = part(made(waiting.journal, waiting.start(asked)), PRIVACY)
    assert {site["epsilon"] for site in early["sites"]} == {0.0} and early["epsilon"] == row.spec.epsilon


def test_a_run_without_privacy_promises_nothing(dossier: bytes) -> None:
    told = part(dossier, PRIVACY)
    assert (told["private"], told["epsilon"], told["sites"]) == (False, None, [])
    assert "makes no promise of differential privacy" in contents(dossier)[PAGE].decode()


def test_a_run_that_has_not_ended_says_so() -> None:
    """In its data, on its page and to who verifies it; also where nothing was answered yet."""
    federation = Federation(METHODS, sites())
    run = federation.start(experiment("fedavg", ROSTER))
    content = made(federation.journal, run)
    assert part(content, RUN)["finished"] is verified(content).run["finished"] is False
    assert "This run has not ended" in contents(content)[PAGE].decode()
    assert contents(content)[REPLIES] == b"" and part(content, EGRESS)["sites"][0]["phases"] == []
    federation.run_service.cancel(run)
    content = made(federation.journal, run)
    assert part(content, RUN)["finished"] and "This run has not ended" not in contents(content)[PAGE].decode()
    assert {site["contract"] for site in part(content, POLICIES)["sites"]} == {"withdrawn before an answer"}


def test_fifty_sites() -> None:
    names = tuple(f"site-{i:02d}" for i in range(50))
    there = {name: SimSite(opener(i % 3)) for i, name in enumerate(names)}
    federation, run = played(
        experiment("fedavg", {name: "target" if i % 10 == 9 else "source" for i, name in enumerate(names)}), there
    )
    content = made(federation.journal, run)
    found = verified(content, OURS.fingerprint)
    assert found.replies == len(lines(content, REPLIES)) > 200
    assert [site["site"] for site in part(content, EGRESS)["sites"]] == list(names)
    page = contents(content)[PAGE].decode()
    assert f"The first 200 of {found.replies:,}" in page and all(f"<bdi>{name}</bdi>" in page for name in names)
    assert len(page) < 400_000 and len(content) < 2_000_000


def test_late_and_failed_answers_are_rows_too(ended: tuple[Federation, RunId]) -> None:
    federation, run = ended
    journal = federation.journal
    assert isinstance(journal, MemoryJournal)
    order = next(o for o in journal.orders(run) if o.reply)
    for status, outcome in ((OrderStatus.EXPIRED, "late"), (OrderStatus.FAILED, "failed")):
        changed = Rewritten(journal, {order.id: replace(order, status=status)})
        row = next(row for row in lines(made(changed, run), REPLIES) if row["order"] == order.id)  # type: ignore[arg-type]
        assert row["outcome"] == outcome and row["files"]


class Rewritten:
    """A journal, some of whose orders are others."""

    def __init__(self, journal: MemoryJournal, orders: dict[Any, Any]) -> None:
        self._journal, self._orders = journal, orders

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def orders(self, *of: Any) -> tuple[Any, ...]:
        return tuple(self._orders.get(order.id, order) for order in self._journal.orders(*of))


class Moving:
    """A journal in whose log a run goes on each time that it is read, some times."""

    def __init__(self, journal: MemoryJournal, run: RunId, times: int) -> None:
        self._journal, self._run, self.left = journal, run, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def missed(self, run: RunId) -> Any:
        if self.left:
            self.left -= 1
            self._journal.record([AuditEvent("run_resumed", self._journal.audit()[-1].at, run=self._run)])
        return self._journal.missed(run)


def test_a_run_that_moves_on_is_read_again() -> None:
    federation, run = played()
    journal = federation.journal
    assert isinstance(journal, MemoryJournal)
    content = made(Moving(journal, run, 4), run)  # type: ignore[arg-type]
    assert verified(content).heads["head"]["seq"] == journal.audit_tip().seq
    with pytest.raises(Refused, match="went on each time"):
        made(Moving(journal, run, 99), run)  # type: ignore[arg-type]


def test_a_log_that_was_changed_is_not_signed() -> None:
    """The first entry that does not fit is named, be it the run's own or the one before it."""
    federation, run = played()
    log = federation.journal._chain()  # type: ignore[attr-defined]
    own = next(i for i, entry in enumerate(log) if entry.kind == "round_closed")
    for at in (own, own - 1):
        good = log[at]
        log[at] = replace(good, by="mallory", hash=good.hash if at == own else "0" * 64)
        with pytest.raises(ChainBroken) as broken:
            made(federation.journal, run)
        assert broken.value.context["entry"] in (good.seq, good.seq + 1)
        log[at] = good
    verified(made(federation.journal, run))


def test_others_may_work_meanwhile() -> None:
    """Entries about other runs lie between; each entry is computed from the hash before it."""
    federation = Federation(METHODS, sites(NAMES[:4]))
    runs = [federation.start(experiment("fedavg", ROSTER, name=name)) for name in ("one", "two")]
    for run in runs:
        federation.run(run)
    content = made(federation.journal, runs[0])
    seqs = [each["seq"] for each in lines(content, AUDIT)]
    assert seqs != list(range(seqs[0], seqs[0] + len(seqs))) and verified(content).entries == len(seqs)
    assert {each["run"] for each in lines(content, AUDIT)} == {runs[0]}


def test_entries_in_the_archive_are_missing_and_that_is_said() -> None:
    """The excerpt begins behind them, and replies are held to what is there."""
    federation, run = played()
    journal = federation.journal
    accepted = [entry for entry in journal.audit(about=About(run=run)) if entry.kind == "reply_accepted"]
    last, log = accepted[2], journal.audit()
    archived = next(entry for entry in log if entry.seq == last.seq)
    event = AuditEvent("audit_archived", log[-1].at, details={"first": 1, "last": archived.seq, "hash": archived.hash})
    assert journal.trim_audit(journal.audit_base(), Tip(archived.seq, archived.hash), event)
    content = made(journal, run)
    found = verified(content)
    assert not found.heads["whole"] and found.heads["archived"]["seq"] == archived.seq
    assert "in the log's archive" in contents(content)[PAGE].decode()
    assert len(lines(content, REPLIES)) > found.entries - 10


def test_every_system_can_check_it(dossier: bytes, tmp_path: Path) -> None:
    if not (shutil.which("sha256sum") and shutil.which("openssl")):
        pytest.skip("sha256sum or openssl is not here")
    file = tmp_path / "dossier.zip"
    file.write_bytes(dossier)
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        archive.extractall(tmp_path)

    def shell(line: str) -> str:
        return subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert shell("sha256sum -c SHA256SUMS").count(": OK") == len(contents(dossier)) - 2
    verify = "openssl pkeyutl -verify -rawin -pubin -inkey signer.pem -in SHA256SUMS -sigfile SHA256SUMS.sig"
    assert "Verified Successfully" in shell(verify)
    assert shell("openssl pkey -pubin -in signer.pem -outform DER | sha256sum").split()[0] == OURS.fingerprint
    page = contents(dossier)[PAGE].decode()
    assert verify in page and HEADS in page
