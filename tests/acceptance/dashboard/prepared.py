"""A home whose ledger has many replies and hostile names, and its owner's page, without an agent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services import free_port
from tests.site.test_admission import asking
from tideline.core.asked.world import plain_world
from tideline.core.privacy import Audience, Clause, Exposure, to_json
from tideline.core.run import OrderId, RunId
from tideline.core.settings import Plain
from tideline.engine.ports.site import Head
from tideline_agent.home.held import HELD
from tideline_agent.home.ledger import FileLedger
from tideline_agent.home.words import never
from tideline_agent.page.serving import serve_page
from tideline_agent.page.work import Work
from tideline_agent.settings import AgentSettings
from tideline_agent.vault import FolderVault

HOSTILE = (
    *("<img src=x onerror=window.hurt=1>", "</script><script>window.hurt=1</script>", "javascript:window.hurt=1"),
    *("\u202egpj.exe\u202c", "${window.hurt=1} {{window.hurt=1}}", "\x1b[31mred\x1b]0;title\x07", "a" * 200),
)
REPLIES = 450


def clause(doc: str) -> Clause:
    return Clause("train", "fit", "model", "weights", Exposure.WEIGHTS, frozenset({Audience.COORDINATOR}), doc)


def brief_with(hostile: str) -> dict[str, Plain]:
    """A run by somebody with such a name, with such a setting, and such words of its method, as an order says it."""
    brief = asking(by=hostile, config={"rate": 0.1, hostile: hostile}, contract=(clause(hostile),))
    return {
        "method": brief.method,
        "config": dict(brief.config),
        "world": plain_world(brief.world),
        "threads": 1,
        "keeps": False,
        "contract": to_json(brief.contract),
        "role": "source",
        "version": "0",
        "intent": brief.intent.plain(),
    }


def hold(home: Path, run: str, brief: dict[str, Plain]) -> None:
    """A record of a run that waits, as an agent writes it."""
    (home / HELD).mkdir(exist_ok=True)
    (home / HELD / f"{run}.json").write_text(json.dumps({"run": run, "why": "approval", "since": 1.7e9, "brief": brief}))


def fill(home: Path) -> None:
    """Entries of 450 replies by fields and bytes; the last ones have hostile names."""
    home.mkdir()
    ledger = FileLedger(home)
    fields: list[Plain] = [["model", "weights", "coordinator"], ["rows", "count", "coordinator"]]
    for number in range(REPLIES):
        word = HOSTILE[number - REPLIES] if number >= REPLIES - len(HOSTILE) else ""
        digest = f"b3-{number:064x}"
        ledger.record(
            "reply",
            run=word or f"{number // 20:012x}",
            order=f"o{number}",
            files=[[digest, 5000], [f"b3-{number + 10**6:064x}", 1_200_000]],
            bytes=1_205_000,
            step=f"{word or 'train'}/fit",
            round=number,
            fields=[*fields, [word, word, word]] if word else fields,
            sizes=[["model", 1_200_000, f"b3-{number + 10**6:064x}"], ["rows", 3, ""]],
        )
    never(home, "fada")


@contextmanager
def served(home: Path) -> Iterator[str]:
    port = free_port()
    settings = AgentSettings(coordinator="", data=home, roles=(), name="hospital-b", home=home, page=f"127.0.0.1:{port}")
    work = Work(run=HOSTILE[0], phase=HOSTILE[1], step=HOSTILE[3], round=3, progress=0.4, since=1.7e9)
    with serve_page(settings, ("127.0.0.1", port), lambda: [work]) as link:
        yield link


def work(home: Path, run: str, method: str, metric: str) -> None:
    """A run that has worked here, with the metrics of its last answer."""
    vault = FolderVault(home / "runs")
    vault.parts(RunId(run))  # its folder
    vault.note(RunId(run), {"method": method, "role": "source"})
    vault.commit(RunId(run), Head(OrderId("o"), 0, (), (), {metric: 0.5}, {}))
