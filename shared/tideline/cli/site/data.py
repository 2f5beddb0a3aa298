"""Commands that check, deal and make sites' data before agents read them. They send nothing."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from tideline.cli.guard import DONE, REFUSED, output, print_json
from tideline.cli.options import Json, Options, grouped, settings_options
from tideline.client.output import clean, counted
from tideline.core.errors import ConfigRefused, Refused
from tideline.core.settings import Plain, plain, read
from tideline.engine.model.experiment import DealData

if TYPE_CHECKING:
    from tideline.core.asked.world import World
    from tideline.core.run import Role
    from tideline.learning.formats.inspection import DomainReport, FolderReport
    from tideline.learning.partition.deals import Hands
    from tideline.learning.partition.folders import Rule, Sites

app = typer.Typer(help="Check a site's data before an agent reads them.", no_args_is_help=True, rich_markup_mode=None)
KINDS = {".npz": "arrays", ".npy": "arrays", ".csv": "table", ".parquet": "table", "images": "images", "python": "python"}
KINDS |= {"dicom": "DICOM", "nifti": "NIfTI", "audio": "audio"}
BARE = ("model", "dtype")  # words of a world that need no quotes
UNGUESSED = "Give the run's world: --world FILE; or name the column of the classes: label in transforms.toml"
RECORD = "deal.json"
SHOWN = 10  # names and classes in the text; the JSON has all
UNEVEN = (
    "A run brings them to one scale (normalise: shared in its world), unless its world says otherwise",
    "The world says normalise: none, and networks learn next to nothing from the small ones: leave normalise out, or bring all"
    " columns to one scale",
)


class Counts(TypedDict):
    """Rows of a domain at a site."""

    training: int
    bare: int
    held_out: int


class DealtSite(TypedDict):
    """A site's folder, role and rows by domain."""

    folder: str
    role: str
    domains: dict[str, Counts]


@app.command("check")
def check(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DATA...", help="The data folder or python:MODULE:NAME of `tideline agent --data`; or several."),
    ],
    role: Annotated[
        str | None, typer.Option(help="source, target or peer. [default: source if there are labels, or else target]")
    ] = None,
    world: Annotated[
        Path | None, typer.Option(metavar="FILE", help="An experiment, or only its world. [default: one that fits]")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what an agent would read in a data folder, or of a function, and what it would refuse. Nothing is sent.

    Of several folders it proposes a world that fits all of them.
    """
    wanted, given = role_of(role), None if world is None else world_of(world)  # before torch is loaded
    reports, common = inspected(folders, given, wanted)
    usable = all(report.usable for report in reports)
    if as_json:
        each = [as_plain(report) for report in reports]
        print_json(each[0] if len(each) == 1 else {"usable": usable, "world": plain_of(common), "folders": each})
    else:
        for report in reports:
            show_report(report)
        if common is not None:
            typer.echo(f"\nA world that fits all of them:{as_yaml(plain_of(common), labelled=True)}")
    raise typer.Exit(DONE if usable else REFUSED)


def inspected(folders: list[Path], given: World | None, role: Role | None) -> tuple[list[FolderReport], World | None]:
    """Each folder as part of a world: of the given one, or of one that fits it; several by one that fits all, which is told."""
    from tideline.learning.formats.columns.several import common_world
    from tideline.learning.formats.inspection import inspect
    from tideline.learning.sites.inspection import inspect_python
    from tideline.learning.sites.named import place_in

    def each(world: World | None) -> list[FolderReport]:
        places = [(folder, place_in(folder)) for folder in folders]
        return [inspect(folder, world, role) if place is None else inspect_python(place, world, role) for folder, place in places]

    if given is not None or len(folders) == 1:
        return each(given), None
    common = common_world(each(None))
    return each(common), common


def plain_of(world: World | None) -> dict[str, Plain]:
    from tideline.core.asked.world import plain_world

    return {} if world is None else plain_world(world)


@app.command("deal")
@grouped([each for each in settings_options(DealData) if each.name not in ("folder", "rule")], dict)
def deal(
    options: Options,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A data folder with all domains, each row labelled.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to make the sites' folders.")],
    rule: Annotated[str, typer.Option(help="leave-out: no client has one domain. dirichlet: some have no labels.")] = "leave-out",
    as_json: Json = False,
) -> None:
    """Deal the domains of one folder to the folders of sites, by one of two rules. Nothing is sent."""
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items() if value is not None}
    facts, dealt = write_deal(folder, out, rule, given)
    if as_json:
        print_json(facts)
    else:
        show_deal(dealt, out)


@app.command("sample")
def sample(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write it; created if it is missing.")],
    domain: Annotated[str, typer.Option(help="Its style: mnist, usps, optdigits or coloured.")],
    part: Annotated[str, typer.Option(metavar="I/N", help="The I-th of N disjoint parts.")] = "1/1",
    no_labels: Annotated[bool, typer.Option("--no-labels", help="Write no labels, not even those for scoring.")] = False,
    as_json: Json = False,
) -> None:
    """Write a data folder of real handwritten digits, to try a site with. Nothing is downloaded."""
    at, parts = part_of(part)

    from tideline.learning.datasets import digits

    try:
        written = digits.write_site(folder, domain, at, parts, labels=not no_labels)
    except OSError as cause:
        raise Refused(f"Cannot write to {folder}: {cause.strerror}", "Give another folder, or make room") from None
    text = f"{folder}: {domain}, {written['samples']} samples for training, {written['held_out']} held out"
    output({"folder": str(folder), "domain": domain, **written}, as_json, text)


def part_of(text: str) -> tuple[int, int]:
    """`2/3` as (1, 3). Raises ConfigRefused."""
    match = re.fullmatch(r"([1-9]\d{0,5})/([1-9]\d{0,5})", text)
    if match is None or int(match[1]) > int(match[2]):
        raise ConfigRefused(f"--part is {text!r}", "Write it as I/N with I from 1 to N, such as 2/3", path="part")
    return int(match[1]) - 1, int(match[2])


def role_of(role: str | None) -> Role | None:
    from tideline.core.run import Role

    return None if role is None else Role(read(Role, role, "--role"))


def world_of(path: Path) -> World:
    """The world of an experiment, or of a file that is only a world. Raises ConfigRefused with the line."""
    from tideline.core.asked.world import world_in
    from tideline.written.files import ExperimentText, read_file

    text = read_file(path)
    if not {"world", "method"} & set(text.value):
        text = ExperimentText(text.name, {"world": text.value}, {f"world.{key}": at for key, at in text.places.items()})
    with text.located():
        return world_in(text.value.get("world", {}))


def as_plain(report: FolderReport) -> dict[str, object]:
    facts = dict(plain(vars(report)))
    domains = [{**plain(vars(domain)), "balance": domain.balance} for domain in report.domains]
    return {"usable": report.usable, **facts, "domains": domains}


def show_report(report: FolderReport) -> None:
    from tideline.cli.tables import show, table, word
    from tideline.learning.formats.surveys import OWNERS

    typer.echo(f"{clean(report.folder)}, read as a {report.role} would be\n")
    columns = ("domain", "kind", "samples", "train", "validation", "test", "classes", "balance", "shape", "values", "unreadable")
    show(table("", columns, map(row, report.domains), right=(2, 3, 4, 5, 6, 7, 10)))
    for domain in report.domains:
        show_details(domain, scaled=(report.world or {}).get("normalise") != "none")
    if report.ignored:
        typer.echo(f"\nNot read: {names(report.ignored)}")
    if report.world is not None and not report.given:
        labelled = any(domain.labelled for domain in report.domains)
        typer.echo(f"\nA world that fits:{as_yaml(report.world, labelled)}")
        show_left(report)
    if report.unguessed:
        typer.echo(f"\nNo world could be guessed: {report.unguessed}.\nWhat to do: {UNGUESSED}")
    for refusal in report.refused:
        typer.echo(f"\nRefused: {clean(str(refusal['what']))}\nWhat to do: {clean(str(refusal['todo']))}")
        for key in OWNERS:
            if key in refusal:
                typer.echo(f"  {key}: {clean(word(refusal[key]))}")
    what = "these data" if any(domain.kind == "python" for domain in report.domains) else "this folder"
    usable = f"An agent can use {what}{', if its labels are classes of the run' * bool(report.unguessed)}."
    typer.echo(f"\n{usable if report.usable else f'An agent would refuse {what}.'}")


def row(domain: DomainReport) -> list[str]:
    from tideline.cli.tables import NOTHING, share

    seen = [c for c in domain.classes if c.train or c.held_out]
    classes = "no labels" if domain.labelled is False else f"{len(seen)} of {len(domain.classes)}" if seen else NOTHING
    content = domain.content
    shapes = NOTHING if content is None else most(content.shapes)
    reach = NOTHING if content is None or content.low is None else f"{content.low:g} to {content.high:g}"
    lost = NOTHING if content is None else str(len(content.unreadable))
    counts = [NOTHING if n is None else str(n) for n in (domain.samples, domain.train, domain.validation, domain.held_out)]
    return [domain.name, KINDS[domain.kind], *counts, classes, share(domain.balance), shapes, reach, lost]


def most(counts: Mapping[str, int]) -> str:
    """The most frequent one, and how many others there are."""
    first = next(iter(counts), "")
    return f"{first} ({len(counts) - 1} others)" if len(counts) > 1 else first


def show_details(domain: DomainReport, scaled: bool) -> None:
    """Print classes, sizes and files of one domain, if more is to say than fits its line. scaled: whether runs normalise."""
    name = clean(domain.name)
    if 0 < len(domain.classes) <= 2 * SHOWN:
        counts = (f"{clean(c.name)} {'?' if c.train is None else c.train}+{c.held_out}" for c in domain.classes)
        typer.echo(f"\n{name}, rows of each class, training + held out: {', '.join(counts)}")
    if domain.units is not None:
        typer.echo(f"\n{name}, its rows belong to: {counted(domain.units, clean(domain.unit))}")
    if domain.bare or domain.unscored:
        training = f"{domain.bare} for training, which only methods that can use them see"
        held_out = f"; {domain.unscored} held out, which are left out" * bool(domain.unscored)
        typer.echo(f"\n{name}, rows without a label: {training}{held_out}")
    if domain.columns:
        show_columns(domain)
    for what, kinds in (("shapes", domain.content.shapes), ("types", domain.content.types)) if domain.content else ():
        if len(kinds) > 1:
            typer.echo(f"\n{name}, {what}: {names([f'{each} ({n})' for each, n in kinds.items()])}")
    if domain.content and domain.content.scales and domain.content.uneven:
        low, high = domain.content.scales
        typer.echo(f"\n{name}, features of other scales: ranges from {low:g} to {high:g}. {UNEVEN[not scaled]}")
    if domain.content and domain.content.unreadable:
        typer.echo(f"\n{name}, cannot be read: {names(domain.content.unreadable)}")
    if domain.ignored:
        typer.echo(f"\n{name}, not read: {names(domain.ignored)}")


def show_columns(domain: DomainReport) -> None:
    """Print what each column holds, for its owner."""
    from tideline.cli.tables import NOTHING, share, show, table

    rows = []
    for column in domain.columns[: 2 * SHOWN]:
        reach = NOTHING if column.low is None else f"{column.low:g} to {column.high:g}"
        rows.append((column.name, column.use, column.kind, names(column.categories) or reach, share(column.missing)))
    more = len(domain.columns) - len(rows)
    title = f"{clean(domain.name)}, columns" + (f"; {more} more are in --json" if more else "")
    typer.echo("")
    show(table(title, ("column", "use", "kind", "values", "missing"), rows, right=(4,)))


def names(given: Collection[str]) -> str:
    more = f" and {len(given) - SHOWN} more" if len(given) > SHOWN else ""
    return ", ".join(clean(each) for each in list(given)[:SHOWN]) + more


def show_left(report: FolderReport) -> None:
    """Print which features of tables are no columns of the world that was found: nothing else would say so."""
    from tideline.core.tables.columns import composed
    from tideline.learning.formats.columns.proposing import FEATURE, FEW

    world = report.world or {}
    listed = world.get("columns", ())
    known = {str(each["name"]) for each in listed if isinstance(each, Mapping)} if isinstance(listed, (list, tuple)) else set()
    features = dict.fromkeys(composed(each.name) for own in report.domains for each in own.columns if each.use == FEATURE)
    left = [name for name in features if name not in known]
    if known and left:
        why = f"A column is proposed if every table has it, as numbers or with 2 to {FEW} categories"
        typer.echo(f"\nNot in this world: {names(left)}. {why}; add others yourself")


def as_yaml(world: Mapping[str, Plain], labelled: bool) -> str:
    """A world to copy into an experiment: on one line, or with a line for each column."""
    keys = (
        "model",
        "columns" if "columns" in world else "inputs",
        *(key for key in ("dtype", "vocabulary") if key in world),
        *(["classes"] if labelled else []),
        *(["class_names"] if labelled and "class_names" in world else []),
    )
    said = {key: in_flow(world[key]) if key not in BARE else str(world[key]) for key in keys if key != "columns"}
    rest = "" if labelled else ", with any number of classes"
    if "columns" not in world:
        return clean(f" world: {{{', '.join(f'{key}: {value}' for key, value in said.items())}}}{rest}")
    columns = [f"    {clean(line)}" for line in in_lines(world["columns"])]
    lines = [f"  {key}: {clean(value)}" for key, value in said.items()]
    return "\n".join([f"{rest}\n\nworld:", lines[0], "  columns:", *columns, *lines[1:]])


def in_lines(columns: Plain) -> Iterator[str]:
    """The columns of a world as people write them, one a line."""
    for each in columns if isinstance(columns, (list, tuple)) else ():
        if isinstance(each, Mapping):
            own = {key: value for key, value in each.items() if key != "name"} or "number"
            short = own["categories"] if isinstance(own, dict) and [*own] == ["categories"] else own
            yield f"{in_flow(each['name'])}: {in_flow(short) if own != 'number' else own}"


def in_flow(value: object) -> str:
    """A value of a world as YAML on one line."""
    return json.dumps(value, ensure_ascii=False)


def rule_of(name: str, given: Options) -> Rule:
    from tideline.core.run import Role
    from tideline.core.settings import nearest
    from tideline.learning.partition.folders import RULES, rule_in

    if name not in RULES:
        what = f"--rule is {name!r}; it should be one of {', '.join(RULES)}"
        raise ConfigRefused(what, f"Use one of them{nearest(name, list(RULES))}", path="rule")
    more = {"role": read(Role, given["role"], "--role")} if "role" in given else {}
    return rule_in(name, {**given, **more})


@contextmanager
def by_option() -> Iterator[None]:
    """Refusals of a setting name the option that it comes from."""
    try:
        yield
    except ConfigRefused as error:
        path = str(error.context.get("path", ""))
        option = "" if path.startswith("--") or path == "rule" else f"--{path.replace('_', '-')}: "
        raise ConfigRefused(f"{option}{error.what}", error.todo, path=path) from None


def write_deal(folder: Path, out: Path, name: str, given: Options) -> tuple[dict[str, object], dict[str, DealtSite]]:
    """Make the folders, all or none; the content of deal.json, and its sites. Raises ConfigRefused, DataRefused, Refused."""
    from tideline.learning.partition.folders import sites_of

    with by_option():
        rule = rule_of(name, given)
        sites = sites_of(folder, rule)
    dealt = dealt_sites(rule, sites)
    facts: dict[str, object] = {"from": str(folder), "rule": name, **plain(rule), "sites": dealt}
    folders = {dealt[site]["folder"]: rows for site, rows in sites.hands.items()}
    taken = [name for name in (*folders, RECORD) if (out / name).exists()]
    if taken:
        raise Refused(f"{out / taken[0]} is there already", "Give another --out, or delete the earlier deal there")
    try:
        fill(folder, out, folders, facts)
    except OSError as cause:
        raise Refused(f"Cannot write to {out}: {cause.strerror}", "Give another --out, or make room") from None
    return facts, dealt


def fill(folder: Path, out: Path, folders: Mapping[str, Hands], facts: dict[str, object]) -> None:
    """Write beside the place, then move into it. Raises DataRefused, OSError."""
    from tideline.learning.partition.folders import write_sites

    out.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".dealing-", dir=out))
    try:
        write_sites(folder, {beside / name: hands for name, hands in folders.items()})
        (beside / RECORD).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        for name in (*folders, RECORD):
            (beside / name).rename(out / name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def dealt_sites(rule: Rule, sites: Sites) -> dict[str, DealtSite]:
    return {
        site: {
            "folder": folder_of(site, rule),
            "role": sites.roles[site].value,
            "domains": {
                domain: {"training": len(hand.train), "bare": len(hand.bare), "held_out": len(hand.held)}
                for domain, hand in own.items()
            },
        }
        for site, own in sites.hands.items()
    }


def folder_of(site: str, rule: Rule) -> str:
    """The name of a site's folder; that of the unseen site has the domain in it."""
    from tideline.learning.partition.deals import UNSEEN, Deal

    return f"{site}-{rule.leave_out}" if site == UNSEEN and isinstance(rule, Deal) else site


def show_deal(dealt: Mapping[str, DealtSite], out: Path) -> None:
    from tideline.cli.tables import show, table

    rows = [
        (site, each["role"], each["folder"], domain, *map(str, (n["training"], n["bare"], n["held_out"])))
        for site, each in dealt.items()
        for domain, n in each["domains"].items()
    ]
    columns = ("site", "role", "folder", "domain", "training", "no label", "held out")
    show(table("", columns, rows, right=(4, 5, 6)))
    roster = ", ".join(f"{site}: {each['role']}" for site, each in dealt.items())
    where = f"Serve each folder in {clean(str(out))} with an agent of the site's name."
    typer.echo(f"\n{where} The experiment's roster: {{{roster}}}")
