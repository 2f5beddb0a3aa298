"""dossier.html: the same facts for a person to read and to print. Made of the other parts alone; it loads and runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from tideline.client.output import counted, size
from tideline.core.privacy import Clause, Exposure, from_json
from tideline.dossier.controls import controls
from tideline.dossier.layout import CONTRACT, EGRESS, HEADS, METRICS, POLICIES, PRIVACY, REPLIES, RUN, WHAT
from tideline.dossier.words import number
from tideline.report.meaning import HARMED, OPEN, PAID
from tideline.report.paper.parts import AUDIENCES, document, percent, section, wide_table
from tideline.report.score_rows import TITLES, in_words

MOST_ROWS = 200  # replies on the page; replies.jsonl has all
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
NO_BREAK = "\u00a0"
METRIC = "metrics."
LONGEST_WORD = 24  # characters of a name that no line breaks
SHORT = 16  # characters of a digest in a table
STYLE = """
h1 .tag { display: block; font-weight: 400; }
.note { border-left: 4px solid var(--rule); padding: 0.2rem 0.8rem; margin: 0.8rem 0; }
.note.bad { border-color: var(--bad); }
td { vertical-align: top; } td:first-child { max-width: 14rem; } code { overflow-wrap: anywhere; }
code.one, .one { white-space: nowrap; overflow-wrap: normal; } td:first-child { min-width: 6rem; overflow-wrap: break-word; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 1.2rem; margin: 0.5rem 0; } dt { color: var(--soft); }
dd { margin: 0; min-width: 0; overflow-wrap: anywhere; } pre { overflow-x: auto; border: 1px solid var(--rule); padding: 0.6rem; }
@media print { pre { white-space: pre-wrap; font-size: 8pt; } .note { break-inside: avoid; } td:first-child { max-width: none; }
  th, td, .n { overflow-wrap: break-word; } td.n { white-space: nowrap; } }
"""
TRANSFER = {
    PAID: "adaptation paid",
    HARMED: "negative transfer: adaptation did harm",
    OPEN: "open: chance may explain it",
    "unknown": "cannot be said",
}
LEFT_OUT = "What this file does not show"
LIMITS = (
    "That what left a site reveals nothing about its data. Weights can be tested for rows that they were trained on; only a"
    " private run bounds that.",
    "That a site's agent, or the coordinator, ran the program that its version names. It shows what the coordinator recorded.",
    "The text of a site's policy, where its owner does not let it be told, and its own ledger. Ask the site's owner for both: the"
    " ledger has the same orders and digests.",
    "What became of the model afterwards.",
)


def page(parts: Mapping[str, Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> str:
    """The whole page. parts: by the names of their files; rows: the first replies."""
    run = parts[RUN]
    body = (
        *heading(run),
        controls_section(parts),
        contract(parts[CONTRACT]),
        policies(parts[POLICIES]),
        outgoing(parts[EGRESS]),
        *privacy(parts[PRIVACY]),
        results(parts[METRICS]),
        digests(run, parts[POLICIES]),
        chain(parts[HEADS]),
        replies(rows, parts[EGRESS]["replies"]),
        checking(parts[HEADS]),
    )
    return document(f"Dossier: {visible(run['name'])} ({visible(run['run'])})", "\n".join(filter(None, body)), STYLE, POLICY)


def visible(text: object) -> str:
    """A text from elsewhere, with what would steer how it is read made visible: control characters, marks of direction."""
    return "".join(c if c.isprintable() or c == NO_BREAK else f"\\u{ord(c):04x}" for c in str(text))


def safe(text: object) -> str:
    """The same for HTML, apart from what stands around it."""
    return f"<bdi>{escape(visible(text))}</bdi>"


def when(utc: str | None) -> str:
    return "–" if utc is None else escape(visible(utc).replace("T", " ").replace("Z", " UTC"))


def bytes_of(count: int) -> str:
    """Bytes with their unit, on one line."""
    return size(count).replace(" ", NO_BREAK)


def moment_of(utc: str | None) -> str:
    """The same in a column that says UTC at its top."""
    return when(utc).removesuffix(" UTC")


def code(text: object, most: int | None = None) -> str:
    if text in (None, ""):
        return "–"
    shown = visible(text)
    shown = shown if most is None or len(shown) <= most else f"{shown[:most]}…"
    return f"<code>{escape(shown)}</code>" if len(shown) > LONGEST_WORD else f"<code class='one'>{escape(shown)}</code>"


def row(*cells: str, kind: str = "") -> str:
    """A row of a table. A cell that begins with a tab holds a number."""
    made = (f"<td class='n'>{cell[1:]}</td>" if cell.startswith("\t") else f"<td>{cell}</td>" for cell in cells)
    return f"<tr class='{escape(kind)}'>{''.join(made)}</tr>"


def table(heads: Iterable[str], lines: Iterable[str]) -> str:
    """A table. A head that begins with a tab stands over numbers."""
    return wide_table([(head[1:], "n") if head.startswith("\t") else (head, "") for head in heads], lines)


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names with what they have, which is HTML."""
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{value}</dd>" for name, value in pairs) + "</dl>"


def heading(run: Mapping[str, Any]) -> Iterator[str]:
    """What it is about, as of when, and whether it is all."""
    yield f"<h1><span class='tag'>Dossier of a federated run</span>{safe(run['name'] or run['run'])}</h1>"
    sites = counted(len(run["roster"]), "site")
    yield f"<p class='lead'>{safe(run['method'])} at {sites}: {escape(run['status'])}.</p>"
    done = run["exchanges"]
    if not run["finished"]:
        words = f"This run has not ended. It is {escape(run['status'])}; {done['closed']} of {done['of']} exchanges are closed."
        yield f"<p class='note bad'><b>{words}</b> Ask for the dossier again when it has ended: what follows will change.</p>"
    if run["cause"]:
        yield f"<p class='note bad'>{safe(run['cause'])}</p>"
    as_of = run["as_of"]
    yield facts(
        (
            ("Run", code(run["run"])),
            ("Project", safe(run["project"])),
            ("Asked by", safe(run["asked_by"]) if run["asked_by"] else "–"),
            ("Created", when(run["created"])),
            ("Ended", when(run["ended"])),
            ("State as of", f"{when(as_of['utc'])}, entry {as_of['entry'] or '–'} of the coordinator's audit log"),
            ("Made by", f"the coordinator, tideline {safe(run['made_by']['tideline'])}"),
        )
    )
    yield "".join(f"<p class='facts'>{safe(note)}</p>" for note in run["notes"])
    others = [*([run["belongs_to"]] if run["belongs_to"] else []), *run["has_runs"]]
    if others:
        words = "Other runs belong with this one, and have dossiers of their own"
        yield f"<p class='facts'>{words}: {', '.join(map(code, others))}.</p>"


def controls_section(parts: Mapping[str, Mapping[str, Any]]) -> str:
    """Each control with what this run shows of it."""
    note = "What governs that a model, or anything else, leaves a site. The last column names the file that shows it."
    heads = ("control", "what it says", "what this run shows", "file")
    lines = (
        row(f"<b>{escape(each.name)}</b>", escape(each.rule), escape(visible(each.shown)), code(each.file))
        for each in controls(parts)
    )
    limits = "".join(f"<li>{escape(each)}</li>" for each in LIMITS)
    return section("Controls of what leaves", note, table(heads, lines), f"<h3>{LEFT_OUT}</h3><ul>{limits}</ul>")


def contract(part: Mapping[str, Any]) -> str:
    """What may leave, by phase: a row for each field."""
    note = "Nothing else can leave in a message: what is not listed has no way into one. Exposures, from least to most:"
    note += f" {', '.join(Exposure)}."
    lines = clause_rows(from_json(part["clauses"]))
    beyond = part["beyond_the_default_policy"]
    more = (
        "<p class='facts'>All of it is within what a site lets out by default.</p>"
        if not beyond
        else "<p class='note bad'>More than a site lets out by default; its owner has to allow it:</p><ul>"
        + "".join(f"<li>{safe(each)}</li>" for each in beyond)
        + "</ul>"
    )
    heads = ("phase", "field", "size", "exposure", "goes to", "what it is")
    return section("The contract", note, table(heads, lines), more, facts([("Digest", code(part["digest"]))]))


def clause_rows(clauses: Iterable[Clause]) -> Iterator[str]:
    """A row for each field, and one for all numbers of a step that are of one kind and go to the same places."""
    found: dict[tuple[str, ...], list[str]] = {}
    for clause in clauses:
        to = " and ".join(AUDIENCES[each.value] for each in sorted(clause.audience))
        what = "; ".join(filter(None, (clause.doc, clause.private, f"in the form {clause.wire}" if clause.wire else "")))
        number = clause.field.startswith(METRIC)
        alike = (
            place_of(clause.phase, clause.step),
            clause.dims,
            clause.exposure.value,
            to,
            what,
            "" if number else clause.field,
        )
        found.setdefault(alike, []).append(clause.field.removeprefix(METRIC))
    for (place, dims, exposure, to, what, _), names in found.items():
        yield row(place, ", ".join(map(code, names)), safe(dims), escape(exposure), escape(to), safe(what))


def place_of(phase: str, step: str) -> str:
    """Where in the plan: the phase, and its step where that has another name."""
    return safe(phase) if phase == step else f"{safe(phase)} / {safe(step)}"


def policies(part: Mapping[str, Any]) -> str:
    """What each site said of the contract."""
    heads = ("site", "role", "contract", "when (UTC)", "labels", "refusals", "the site's ledger, as last told")
    lines = (policy_row(site) for site in part["sites"])
    return section("The sites' policies", escape(part["meaning"]), table(heads, lines), *map(disclosed, part["sites"]))


def disclosed(site: Mapping[str, Any]) -> str:
    """A site's policy, as far as it was told."""
    found = site["disclosed"]
    if not found or not found["digest"]:
        return ""
    text = "\n".join(map(visible, found["policy"].split("\n"))) or "# nothing: the built-in policy"
    head = f"<h3>Policy of {safe(site['site'])}, as told</h3>"
    return f"{head}<pre>{escape(text)}</pre><p class='facts'>Digest of the whole policy: {code(found['digest'])}</p>"


def policy_row(site: Mapping[str, Any]) -> str:
    agent = site["agent"]
    ledger = agent["ledger"] if agent else None
    known = "–" if not ledger or not ledger["entries"] else f"entry {ledger['entries']}, {code(ledger['hash'], SHORT)}"
    if ledger and ledger["shown_to_lack_it"]:
        known += " <b class='bad'>which the site no longer shows</b>"
    refusals = "<br>".join(f"{safe(each['what'])} ({when(each['at'])})" for each in site["refusals"]) or "none"
    if site["approval_awaited"]:
        refusals += f"<br>its owner's approval was awaited from {when(site['approval_awaited'])}"
    labels = {True: "yes", False: "no", None: "–"}[site["labels"]]
    kind = "target" if site["role"] == "target" else ""
    cells = (
        safe(site["site"]),
        escape(site["role"]),
        escape(site["contract"]),
        f"<span class='one'>{moment_of(site['answered'])}</span>",
        labels,
        refusals,
        known,
    )
    return row(*cells, kind=kind)


def outgoing(part: Mapping[str, Any]) -> str:
    """What left each site, a row for each of its phases."""
    note = "Each answer to an order, by site and phase. Bytes are those of the files; what travelled counts repeats, too. A join"
    note += " has no file: it says whether the site has labels, and how it computes if the run asks for that."
    heads = ("site", "phase", "\treplies", "\tbytes", "from, to (UTC)", "fields, by exposure")
    lines = (line for site in part["sites"] for line in site_lines(site))
    return section("What left each site", note, table(heads, lines))


def site_lines(site: Mapping[str, Any]) -> Iterator[str]:
    kind = "target" if site["role"] == "target" else ""
    if not site["phases"]:
        yield row(safe(site["site"]), "nothing", "\t0", "\t0", "–", "–", kind=kind)
    for i, of in enumerate(site["phases"]):
        name = safe(site["site"]) if i == 0 else ""
        fields = fields_by_exposure(of["fields"]) or (
            "facts: " + ", ".join(map(code, sorted(site["facts"]))) if site["facts"] else "–"
        )
        counts = (f"\t{of['replies']:,}", f"\t{bytes_of(of['bytes'])}")
        span = "<br>".join(dict.fromkeys(f"<span class='one'>{moment_of(of[end])}</span>" for end in ("first_utc", "last_utc")))
        yield row(name, place_of(of["phase"], of["step"]), *counts, span, fields, kind=kind)
    if len(site["phases"]) > 1:
        outcomes = ", ".join(f"{n} {word}" for word, n in site["outcomes"].items())
        sealed = (
            f"; {counted(site['sealed_for_other_sites'], 'value')} sealed for other sites"
            if site["sealed_for_other_sites"]
            else ""
        )
        words = f"{escape(outcomes)}; {bytes_of(site['bytes_up'])} travelled{sealed}"
        yield row("", "<b>all</b>", f"\t<b>{site['replies']:,}</b>", f"\t<b>{bytes_of(site['bytes'])}</b>", "", words, kind=kind)


def fields_by_exposure(fields: Iterable[tuple[str, str, str]]) -> str:
    """The fields of a step's replies: by exposure, and by whom they may reach."""
    found: dict[tuple[str, str], list[str]] = {}
    for field, exposure, to in fields:
        found.setdefault((exposure, to), []).append(field.removeprefix(METRIC))
    lines = ((f"{exposure} to {AUDIENCES.get(to, to)}", names) for (exposure, to), names in found.items())
    return "<br>".join(f"{escape(words)}: {', '.join(map(code, names))}" for words, names in lines)


def privacy(part: Mapping[str, Any]) -> Iterator[str]:
    """Epsilon of each site."""
    if not part["private"]:
        yield section("Differential privacy", escape(part["meaning"]))
        return
    asked = part["asked"]
    said = f"epsilon {number(part['epsilon'])} at delta {part['delta']:g}, with noise {number(asked['noise'])},"
    said += f" clip {asked['clip']:g}, rate {asked['rate']:g}, for about {asked['rows']} rows a site"
    lines = (row(safe(each["site"]), f"\t{each['steps']:,}", f"\t{number(each['epsilon'])}") for each in part["sites"])
    yield section(
        "Differential privacy",
        f"Each row of a site is protected: {escape(said)}. {escape(part['meaning'][:1].upper() + part['meaning'][1:])}."
        " What another run learns of the same rows comes on top.",
        table(("site", "\tsteps answered", "\tepsilon at most"), lines),
    )


def results(part: Mapping[str, Any]) -> str:
    """Scores with intervals, and whether adaptation paid."""
    scores = part["scores"] or {}
    names = [name for name in TITLES if any(name in of for of in scores.values())]
    plain = () if "accuracy" in names else ("\taccuracy",)
    heads = ("site", "role", *(f"\t{TITLES[name]}" for name in names), *plain, "\tsource-only", "against source-only")
    lines = (score_row(each, scores.get(each["name"], {}), names) for each in part["sites"])
    words = "".join(
        f"<p class='note {'bad' if 'bad' in each['kind'] else ''}'>{safe(each['sentence'])}</p>" for each in part["in_words"]
    )
    note = (
        "On held-out rows, from the last scoring, with 95\u00a0% intervals. Source-only is the model of the labelled sites alone."
    )
    return section("Results, and whether adaptation did harm", note, words, table(heads, lines))


def score_row(site: Mapping[str, Any], scores: Mapping[str, Any], names: Sequence[str]) -> str:
    transfer, verdict = site["transfer"], "–"
    if transfer is not None:
        verdict = TRANSFER[transfer["verdict"]]
        if "low" in transfer:
            verdict += f" ({100 * transfer['value']:+.1f} points, {100 * transfer['low']:+.1f} to {100 * transfer['high']:+.1f})"
    # An interval stands below its score, so that five of them fit a page.
    cells = ["\t" + escape(in_words(scores.get(name))).replace(" (", "<br>(") for name in names]
    numbers = [f"\t{percent(site[name])}" for name in ("accuracy", "source_only") if name not in names]
    kind = "target" if site["role"] == "target" else ""
    return row(safe(site["name"]), escape(site["role"]), *cells, *numbers, escape(verdict), kind=kind)


def digests(run: Mapping[str, Any], sites: Mapping[str, Any]) -> str:
    """What the run was of, by digest, and the versions of all that took part."""
    names = {"experiment": "Experiment", "contract": "Contract", "state": "Final state", "initial_weights": "Initial weights"}
    pairs = [(words, code(run["digests"][name])) for name, words in names.items()]
    pairs += [("Equal bytes depend on", safe(run["software"]) if run["software"] else "–"), ("Data", safe(run["data"]))]
    lines = (
        row(
            safe(each["site"]),
            safe(each["agent"]["tideline"]),
            code(each["agent"]["keys"]),
            escape(each["agent"]["standing"]),
            code(each["disclosed"]["data"] if each["disclosed"] else ""),
        )
        for each in sites["sites"]
        if each["agent"]
    )
    agents = table(
        ("site", "tideline, as last heard", "fingerprint of its keys", "standing", "digest of its data, as told"), lines
    )
    return section("Digests and software", "What else would have to be equal for the same result.", facts(pairs), agents)


def chain(part: Mapping[str, Any]) -> str:
    """The heads of the audit log's chain."""
    note = "The coordinator's audit log is a chain of hashes. The excerpt has each entry about this run, with the hash before it."
    names = {
        "begins": "The log begins with",
        "archived": "The last archived entry",
        "excerpt_first": "The excerpt begins with",
        "excerpt_last": "The excerpt ends with",
        "head": "The log ended with",
    }
    lines = (
        row(words, f"\t{part[name]['seq']:,}", when(part[name].get("utc")), code(part[name]["hash"]))
        for name, words in names.items()
        if part[name]
    )
    return section("The audit log", note, archive_words(part), table(("", "\tentry", "when", "hash"), lines))


def archive_words(part: Mapping[str, Any]) -> str:
    """What became of entries that have left the log's database."""
    archived = part["archived"]
    if archived and archived.get("read"):
        words = f"Entries up to {archived['seq']:,} have left the log's database. They were read from the archive's files, whose"
        return f"<p class='facts'>{words} chain was held to the entry that the database goes on from.</p>"
    if part["whole"]:
        return ""
    why = f" The archive was not read: {escape(visible(archived['why']))}." if archived and archived.get("why") else ""
    return f"<p class='note bad'>The run's first entries are in the log's archive, and not in this excerpt.{why}</p>"


def replies(rows: Sequence[Mapping[str, Any]], count: int) -> str:
    """The first replies, one by one."""
    more = count - len(rows)
    note = (
        f"The first {len(rows):,} of {count:,}; <code>{REPLIES}</code> has all."
        if more > 0
        else f"All of them; also in <code>{REPLIES}</code>."
    )
    heads = ("when (UTC)", "site", "phase, round", "order", "\tbytes", "first file", "outcome")
    lines = (
        row(
            f"<span class='one'>{moment_of(each['utc'])}</span>",
            safe(each["site"]),
            f"{safe(each['phase'])}, {each['round']}",
            code(each["order"], SHORT),
            f"\t{bytes_of(each['bytes'])}",
            code(each["files"][0][0] if each["files"] else None, SHORT),
            escape(visible(each["outcome"]) + (f": {visible(each['failure']['kind'])}" if "failure" in each else "")),
        )
        for each in rows
    )
    return section("Each reply", note, table(heads, lines))


def checking(part: Mapping[str, Any]) -> str:
    """How to check the file, with and without Tideline."""
    files = "".join(row(code(name), escape(words)) for name, words in WHAT.items())
    head = part["head"]
    seen = f" It should list entry {head['seq']} with the hash <code>{escape(head['hash'][:SHORT])}…</code>." if head else ""
    return (
        section(
            "Checking this file",
            "This page proves nothing by itself: check the archive that it came in. You need the fingerprint of the coordinator's"
            " key, which its admin gave you by another way than this file.",
            "<pre>tideline dossier verify FILE.zip --signer FINGERPRINT</pre>",
            "<p class='facts'>Without Tideline, in the unpacked folder; the last command prints the fingerprint:</p>",
            "<pre>sha256sum -c SHA256SUMS\n"
            "openssl pkeyutl -verify -rawin -pubin -inkey signer.pem -in SHA256SUMS -sigfile SHA256SUMS.sig\n"
            "openssl pkey -pubin -in signer.pem -outform DER | sha256sum</pre>",
            f"<p class='facts'>An admin can compare the log: <code>tideline audit export --out log.jsonl</code>.{seen}</p>",
        )
        + f"<h3>The files</h3>{table(('file', 'what it has'), [files])}"
    )
