"""A run's result as what stands on top of its page, and as the lineage of its models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import cast

from tideline import __version__
from tideline.client.answers import RunLine, RunResult
from tideline.client.output import clean
from tideline.core.privacy import contract_digest, from_json
from tideline.core.settings import Plain
from tideline.report.verdict_rows import sentences_of
from tideline.tracking.numbers import plain_name
from tideline.tracking.pages import Card

LONGEST, LONGEST_NAME = 500, 200  # characters of a value and of a name that every tracker takes
ASKED = ("config", "world", "sample", "augment", "computing", "wire")
SINGLE = ("method", "seed", "prior", "weights")


def short(text: str) -> str:
    """A text from elsewhere on one line, harmless to a terminal and in its direction, and not too long."""
    line = " ".join(clean(text).split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def card_of(result: RunResult, line: RunLine) -> Card:
    return Card(
        run=line["id"],
        name=short(line["name"]) or line["id"],
        created=line["created"],
        parent=line["parent"],
        parameters=parameters_of(result),
        tags=tags_of(result, line),
    )


def parameters_of(result: RunResult) -> dict[str, str]:
    """What was asked for, by dotted names."""
    found = {name: text_of(cast(Plain, result.get(name))) for name in SINGLE if result.get(name) is not None}
    for section in ASKED:
        found |= dict(flat(section, cast(Plain, result.get(section))))
    roles: defaultdict[str, list[str]] = defaultdict(list)
    for client in result["clients"]:
        roles[client["role"]].append(client["name"])
    return found | {f"roster.{role}": short(", ".join(sorted(names))) for role, names in sorted(roles.items())}


def flat(path: str, value: Plain) -> Iterator[tuple[str, str]]:
    """Nested settings by their dotted paths; lists as one text."""
    if isinstance(value, Mapping):
        for name, each in sorted(value.items()):
            yield from flat(f"{path}.{name}", each)
    elif value is not None:
        yield ".".join(map(plain_name, path.split(".")))[:LONGEST_NAME], text_of(value)


def text_of(value: Plain) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return short(", ".join(text_of(each) for each in value))
    return short(str(value))


def tags_of(result: RunResult, line: RunLine) -> dict[str, str]:
    """What is known of a run so far. Which version of tideline has written it is known from the first write on."""
    tags = {
        "tideline.run": line["id"],
        "tideline.project": line.get("project", "default"),
        "tideline.status": result["status"],
        "tideline.cause": short(result["cause"]),  # empty again once a stalled run goes on
        "tideline.contract": contract_of(result),
        "tideline.version": __version__,
    }
    tags |= {"tideline.parent": line["parent"]} if line["parent"] else {}
    tags |= {"tideline.state_digest": result["state_digest"]} if result["state_digest"] else {}
    if harmed := negative_transfer(result):
        tags["tideline.negative_transfer"] = harmed
    if result.get("verdict"):
        tags["tideline.verdict"] = short("; ".join(sentences_of(result)))
    return tags


def negative_transfer(result: RunResult) -> str:
    """Targets that ended below the model that was not adapted; `none`; empty where it is not known of any."""
    targets = [each for each in result["clients"] if each["role"] == "target"]
    pairs = [(each["name"], each["accuracy"], each["source_only"]) for each in targets]
    known = [(name, after, before) for name, after, before in pairs if after is not None and before is not None]
    harmed = [name for name, after, before in known if after < before]
    return short(", ".join(harmed)) if harmed else "none" if known else ""


def contract_of(result: RunResult) -> str:
    """The digest of what the run lets leave its sites."""
    return str(contract_digest(from_json(cast("list[dict[str, Plain]]", result["contract"]))))


def lineage_of(result: RunResult, site: str) -> dict[str, str]:
    """Where a model comes from: the run, its state, its contract, and what each site said of its data."""
    rows = {each["name"]: each["samples"] for each in result["clients"]}
    lineage = {
        "tideline.run": result["run"],
        "tideline.method": result["method"],
        "tideline.seed": str(result["seed"]),
        "tideline.state_digest": result["state_digest"] or "",
        "tideline.contract": contract_of(result),
        "tideline.fingerprint": short(result["fingerprint"]),
        "tideline.sites": short(", ".join(f"{name} ({'?' if n is None else n} rows)" for name, n in sorted(rows.items()))),
        "tideline.version": __version__,
    }
    data = [f"{each['name']} {each['data']}" for each in result["clients"] if each.get("data")]
    lineage |= {"tideline.data": short(", ".join(sorted(data)))} if data else {}
    lineage |= {"tideline.site": site} if site else {}
    lineage |= {"tideline.weights": str(result["weights"])} if result.get("weights") else {}
    spent = [value for each in result["clients"] if (value := each.get("epsilon")) is not None]
    return lineage | ({"tideline.epsilon": f"{max(spent):.6g}"} if spent else {})


def contract_words(result: RunResult) -> str:
    """The contract in words, one clause a line."""
    lines: dict[str, None] = {}
    for clause in from_json(cast("list[dict[str, Plain]]", result["contract"])):
        lines[f"- {short(clause.phase)}: {short(clause.sentence())}"] = None
    head = f"# What left the sites of run {result['run']}\n\nDigest of the contract: {contract_of(result)}\n"
    return "\n".join([head, *lines, ""])
