"""An experiment with a `data:` or a `deal:` section, run in this process; its result says each site's true domain."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import cast

from tideline.archive.checks import LAX
from tideline.archive.digests import digest_of
from tideline.archive.reader import decode
from tideline.client.answers import Event, RunResult
from tideline.client.export import export
from tideline.client.output import make_folder, replace_bytes, replace_file, warn
from tideline.client.watching import Watcher
from tideline.core.algorithm import Methods
from tideline.core.asked.scoring import Selection
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DataRefused, NotFound
from tideline.core.privacy import DEFAULT_POLICY, Policy
from tideline.core.run import ClientId, Role, RunId
from tideline.core.settings import Plain, nearest, plain
from tideline.engine.coordinator.result import result_of
from tideline.engine.coordinator.scores import scored_state
from tideline.engine.model.experiment import DealData, Experiment, SiteSource, read_experiment
from tideline.engine.model.runs import Status
from tideline.engine.process.ray_tasks import RAY, Cluster, check_options
from tideline.engine.simulation.federation import Federation, OpenPool, SimSite
from tideline.engine.simulation.homes import Home, Scratch
from tideline.engine.simulation.lasting import Lasting
from tideline.engine.simulation.pools import InlinePool, ProcessPool, check_jobs, cores
from tideline.engine.simulation.ray_pool import RayPool
from tideline.engine.site.rules import FREE, SiteRules
from tideline.experiments.chosen import chosen_for, chosen_model
from tideline.experiments.initial_weights import packed
from tideline.experiments.results import Ended, from_state
from tideline.learning.datasets import digits
from tideline.learning.formats.folder import find, read_folder
from tideline.learning.formats.holdings import Holdings
from tideline.learning.model_file import BEST, Model
from tideline.learning.model_file import packed as packed_model
from tideline.learning.partition.folders import Sites, read_dealt, rule_in, sites_of
from tideline.nets import registry
from tideline.report.maps import last_groups
from tideline.written.files import ExperimentText

JOURNAL = "journal"  # the folder of a simulation's journal, in that of --out
POOLS = ("inline", "processes", RAY)
SETS = {"digits": digits.write_site}
OF_SETS = {"part": 0, "parts": 1, "rows": None}  # keys of a site with a shipped set, and what they are unless said


@dataclass(frozen=True)
class Folder:
    """A site's data, opened when the run's world is known. domain: the only one of the folder that it holds; empty: all."""

    path: Path
    domain: str = ""

    def __call__(self, world: World, role: Role) -> Holdings:
        return read_folder(self.path, world, role, names=(self.domain,) if self.domain else None)

    @property
    def domains(self) -> str:
        return self.domain or ", ".join(find(self.path))

    def absolute(self) -> Folder:
        """The same for a process that works in another folder."""
        return replace(self, path=self.path.absolute())


@dataclass(frozen=True)
class Written(Folder):
    """A shipped set's folder, written where it is opened if it is not there: on another machine than this one."""

    site: SiteSource = field(kw_only=True)

    def __call__(self, world: World, role: Role) -> Holdings:
        if self.path.is_dir():
            return super().__call__(world, role)
        with tempfile.TemporaryDirectory(prefix="tideline-") as scratch:
            write_set(self.site, Path(scratch))
            return read_folder(Path(scratch), world, role)


@dataclass(frozen=True)
class Place:
    """What all simulated sites have in common: what they let out, which runs they let run, and where their steps compute.

    pool: `inline`, `processes` or `ray`; jobs: how many processes, as many as there are cores unless said; of Ray, how many
    steps at once. address, gpus: of Ray alone, see tideline.engine.process.ray_tasks.Cluster.
    """

    policy: Policy = DEFAULT_POLICY
    rules: SiteRules = FREE
    device: str = "cpu"
    pool: str = POOLS[0]
    jobs: int | None = None
    address: str | None = None
    gpus: float = 0.0

    @property
    def open_pool(self) -> OpenPool:
        """Raises ConfigRefused for a pool that there is not, and for settings that it has no use for."""
        if self.pool not in POOLS:
            raise ConfigRefused(f"pool is {self.pool!r}", f"Use one of: {', '.join(POOLS)}", path="pool")
        check_options(self.pool, self.address, self.gpus, self.device)
        if self.pool == RAY:
            return self.open_ray
        if self.pool == "processes":
            return partial(ProcessPool, jobs=cores() if self.jobs is None else self.jobs)
        if self.jobs not in (None, 1):
            todo = "Leave it out, or use the pool processes or ray"
            raise ConfigRefused(f"jobs is {self.jobs}, but the pool inline is this process alone", todo, path="jobs")
        return InlinePool

    @property
    def open_ray(self) -> OpenPool:
        """Raises ConfigRefused for fewer steps at once than one and, of this machine alone, for more than there are cores."""
        if self.address is None and self.jobs is not None:
            check_jobs(self.jobs)
        if self.jobs is not None and self.jobs < 1:
            raise ConfigRefused(f"jobs is {self.jobs}", "Give 1 or more", path="jobs")
        return partial(RayPool, cluster=Cluster(self.address, self.jobs or cores(), self.gpus), jobs=self.jobs)


@dataclass
class DealtTable:
    """A folder whose domains are dealt. It is read once for all sites, when a world is known; a refusal is remembered."""

    path: Path
    sites: Sites
    world: World | None = None
    read: Mapping[str, Holdings] | DataRefused = field(default_factory=dict)

    def holdings(self, site: str, world: World) -> Holdings:
        """What a site holds. Raises DataRefused."""
        if self.world != world:
            self.world, self.read = world, {}  # those of another world are let go before
            try:
                self.read = read_dealt(self.path, world, self.sites.hands, self.sites.roles)
            except DataRefused as error:
                self.read = error
        if isinstance(self.read, DataRefused):
            raise self.read
        return self.read[site]


@dataclass(frozen=True)
class DealtSite:
    table: DealtTable
    name: str

    def __call__(self, world: World, role: Role) -> Holdings:
        """Its rows; the roster has given it the role that they were dealt for."""
        return self.table.holdings(self.name, world)

    def absolute(self) -> DealtSite:
        """The same for a process that works in another folder; so are the other sites of its table."""
        self.table.path = self.table.path.absolute()
        return self

    @property
    def role(self) -> Role:
        return self.table.sites.roles[self.name]

    @property
    def domains(self) -> str:
        hands = self.table.sites.hands[self.name]
        return ", ".join(name for name in find(self.table.path) if name in hands)


Opened = Folder | DealtSite
HERE = Place()


def simulate_text(text: ExperimentText, methods: Methods, out: Path | None = None, place: Place = HERE) -> RunResult:
    """Run an experiment, its sites at one place; its result. `out` takes result.json and, of a completed run, the state.

    It takes the simulation's journal, too, until it ends: begun again after it was killed, it goes on from the last round.
    """
    with text.located():
        experiment = read_experiment(text.value)
        check_sites(experiment)
        dealt = None if experiment.deal is None else dealt_sites(experiment.deal, text)
        roster = roster_of(experiment, dealt)
    if out is not None:
        make_folder(out)
    # Roles stand in `data`, or follow from `deal`; what the run service reports of the roster has their place.
    mirrored = {"roster": text.place("data" if dealt is None else "deal")}
    mirrored |= {f"roster.{name}": text.place(f"data.{name}" if dealt is None else "deal") for name in roster}
    placed = ExperimentText(text.name, {**text.value, "roster": roster}, {**mirrored, **text.places})
    with tempfile.TemporaryDirectory(prefix="tideline-") as scratch:
        with placed.located():
            named = {n: folder_of(n, site, text, Path(scratch) / n) for n, site in experiment.data.items()}
            folders: dict[str, Opened] = {**named, **(dealt or {})}
        if place.pool == RAY:
            folders = {n: folder.absolute() for n, folder in folders.items()}
        sites = {name: SimSite(f, place.policy, place.rules) for name, f in folders.items()}
        own = [folder.folder for folder in experiment.data.values()] + ([experiment.deal.folder] if experiment.deal else [])
        read = {name: printed(text.folder(name, "data")) for name in own if name}
        about = {**placed.value, "data files": read, "methods": [list(each) for each in methods]}
        about |= {"networks": list(registry.places())} if registry.places() else {}
        with contextlib.closing(home_in(out, Path(scratch), about, place, placed)) as home:
            made = Federation(methods=methods, sites=sites, home=home, device=place.device, open_pool=place.open_pool)
            with contextlib.closing(made) as federation:
                result = play(federation, placed, {n: folder.domains for n, folder in folders.items()}, out, methods)
            if isinstance(home, Lasting):
                home.remove()
            return result


def printed(folder: Path) -> dict[str, list[int]]:
    """By which a folder's files are known again: their sizes in bytes, and when they were changed."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): [path.stat().st_size, path.stat().st_mtime_ns] for path in files}


def home_in(out: Path | None, scratch: Path, about: Mapping[str, object], place: Place, text: ExperimentText) -> Home:
    """Where a simulation keeps what it needs to go on: beneath `out`, if it is given. Raises ConfigRefused.

    Without it everything is in memory, unless a part of the sites is asked: what the others remember lies on disk then.
    """
    if out is None and "sample" not in text.value:
        return Scratch()
    whole = {**about, "policy": sorted(" to ".join(each) for each in place.policy), "device": place.device}
    whole |= {} if place.rules == FREE else {"rules": plain(place.rules)}
    with text.located():
        home = Lasting((out or scratch) / JOURNAL, cast("Mapping[str, Plain]", whole))
    if out is not None and home.rounds:
        warn(f"Going on with the simulation that {out} holds; remove {out / JOURNAL} to begin again")
    return home


def play(
    federation: Federation,
    text: ExperimentText,
    domains: Mapping[str, str],
    out: Path | None,
    methods: Methods,
    quiet: bool = False,
) -> RunResult:
    """Start, watch to the end, and write what is asked for. domains: of each site, where it is known."""
    begun = time.monotonic()
    with text.located():
        run = run_in(federation, text)
    with Watcher(quiet=quiet) as watcher:
        watcher.show(seen(federation, run))
        federation.run(run, lambda event: watcher.event(cast("Event", plain(event))))
        watcher.show(seen(federation, run))
    result = cast("RunResult", result_of(federation.journal, run, federation.clock.now(), history=True))
    # The simulation's clock stands still between deadlines; you want to know how long you waited.
    result["seconds"] = time.monotonic() - begun
    fill_in(result, domains)
    if out is not None:
        write(federation, run, result, out, methods)
    return result


def run_in(federation: Federation, text: ExperimentText) -> RunId:
    """The run that a journal has, or a new one. Raises ConfigRefused, also for a run that began from other weights."""
    for known in map(federation.run_service.find, federation.journal.run_ids()):
        if known.parent is None:
            ours = None if text.weights_file is None else digest_of(packed(text, text.weights_file))
            if ours != known.spec.initial_weights:
                raise ConfigRefused("The simulation in --out began from other weights", "Name another folder", path="weights")
            return known.id
    return federation.start(with_initial_weights(text, federation).value)


def seen(federation: Federation, run: RunId) -> RunResult:
    """A run as the watcher sees it."""
    row, result = federation.run_service.find(run), result_of(federation.journal, run, federation.clock.now())
    return cast("RunResult", {**result, "plan_length": len(row.plan), "cursor": row.cursor})


def with_initial_weights(text: ExperimentText, federation: Federation) -> ExperimentText:
    """The experiment once its file of weights, if it names one, is in the federation. Raises ConfigRefused."""
    if text.weights_file is not None:
        return text.with_weights(federation.bring(packed(text, text.weights_file)))
    if text.value.get("weights"):
        what = "weights names a file by its digest, and a simulation has none that were uploaded"
        raise ConfigRefused(what, "Name the file itself", path="weights")
    return text


def check_sites(experiment: Experiment) -> None:
    """Raises ConfigRefused unless one of `data` and `deal` says which sites there are."""
    if experiment.data and experiment.deal:
        what = "data and deal both say which sites there are"
        raise ConfigRefused(what, "Leave one of the two out", path="deal")
    if not experiment.data and not experiment.deal:
        todo = "A simulation needs data: {SITE: {role: source, dataset: digits, ...}}, or deal: {folder: DIR, leave_out: ...}"
        raise ConfigRefused("data is missing", todo, path="data")


def roster_of(experiment: Experiment, dealt: Mapping[str, DealtSite] | None = None) -> dict[str, str]:
    """Who takes part: the sites of `data` or `deal`, in their roles. Raises ConfigRefused where something else is said, too."""
    sites: Mapping[str, SiteSource | DealtSite] = experiment.data if dealt is None else dealt
    roster = {name: site.role.value for name, site in sites.items()}
    named = "data" if dealt is None else "deal"
    check_best_names(experiment, roster, named)
    if experiment.select:
        raise ConfigRefused("select has no meaning in a simulation", f"Leave it out; {named} names the sites", path="select")
    if experiment.roster and {n: r.value for n, r in experiment.roster.items()} != roster:
        raise ConfigRefused(f"roster differs from the sites and roles of {named}", "Leave it out of simulations", path="roster")
    return roster


def check_best_names(experiment: Experiment, sites: Iterable[str], named: str) -> None:
    """Raises ConfigRefused for a site whose model's file would have another's name. named: what says which sites there are."""
    taken = [name for name in sites if name == "best" or name.startswith("best-")]
    if taken and experiment.selection is not Selection.NONE:
        what = f"{named}.{taken[0]}: its model's file would have the name of a best round's"
        raise ConfigRefused(what, "Name the site otherwise in a simulation that selects", path=f"{named}.{taken[0]}")


def folder_of(name: str, site: SiteSource, text: ExperimentText, scratch: Path) -> Folder:
    """A site's folder: as it is named, seen from the experiment's file, or written from a shipped set."""
    place = f"data.{name}"
    if bool(site.folder) == bool(site.dataset):
        raise ConfigRefused(f"{place} needs either folder or dataset", "Give one of the two", path=place)
    if site.folder:
        return domain_of(place, site, text.folder(site.folder, f"{place}.folder"))
    if site.dataset not in SETS:
        raise ConfigRefused(f"{place}.dataset is {site.dataset!r}", f"Use one of: {', '.join(SETS)}", path=f"{place}.dataset")
    try:
        write_set(site, scratch)
    except ConfigRefused as error:
        wrong = f"{place}.{error.context.get('path', '')}"
        raise ConfigRefused(f"{place}: {error.what}", error.todo, path=wrong) from None
    return Written(scratch, site=site)


def domain_of(place: str, site: SiteSource, folder: Path) -> Folder:
    """A folder, or one domain of it. Raises ConfigRefused for a domain that it has not, and for keys of shipped sets."""
    odd = [key for key, unset in OF_SETS.items() if getattr(site, key) != unset]
    if odd:
        what = f"{place}.{odd[0]} is for shipped sets, and {place} names a folder"
        raise ConfigRefused(what, f"Leave {odd[0]} out, or deal the folder's rows: deal", path=f"{place}.{odd[0]}")
    if site.domain and site.domain not in (there := find(folder)):
        what = f"{place}.domain is {site.domain!r}, which {folder} has not"
        todo = f"Use one of: {', '.join(there)}{nearest(site.domain, list(there))}"
        raise ConfigRefused(what, todo, path=f"{place}.domain")
    return Folder(folder, site.domain)


def write_set(site: SiteSource, folder: Path) -> None:
    """Write a site's rows of a shipped set. Raises ConfigRefused for a part that the set has not."""
    SETS[site.dataset](folder, site.domain, site.part, site.parts, site.rows)


def write(federation: Federation, run: RunId, result: RunResult, out: Path, methods: Methods) -> None:
    """result.json and, of a completed run, state.safetensors and the models that it ended in."""
    if federation.run_service.find(run).status is Status.COMPLETED:
        root, size = federation.journal.rounds(run)[-1].state[0]
        export(lambda digest, _: contextlib.nullcontext(federation.parts.view(digest)), root, size, out / "state.safetensors")
        for name, model in all_models(federation, run, result, methods):
            replace_bytes(out / f"{name}.safetensors", packed_model(model))
    # Last, and whole or not at all: with it everything is there.
    replace_file(out / "result.json", json.dumps(result, indent=2) + "\n")


def all_models(federation: Federation, run: RunId, result: RunResult, methods: Methods) -> Iterator[tuple[str, Model]]:
    """Of a completed run by name: what a rehearsal chose, or else the last models and those of the best round."""
    if result.get("verdict"):
        yield from chosen_models(federation, run, result, methods)
        return
    yield from models_of(federation, run, result, methods)
    yield from best_models(federation, run, result, methods)


def chosen_models(federation: Federation, run: RunId, result: RunResult, methods: Methods) -> Iterator[tuple[str, Model]]:
    """Of a rehearsal what was chosen for each target, as `model-TARGET`; as `model` where there is one target."""
    verdict = result.get("verdict")
    targets = [each["name"] for each in verdict["targets"]] if verdict and verdict["runs"] else []

    def model_in(child: str, target: str) -> Model:
        own = cast("RunResult", result_of(federation.journal, RunId(child), federation.clock.now()))
        models = dict(models_of(federation, RunId(child), own, methods))
        model = models.get(f"model-{target}") or models.get("model")
        if model is None:
            raise NotFound(f"The run {child} ends in no model", "See its method's page")
        return model

    for target in targets:
        with contextlib.suppress(NotFound):
            yield "model" if len(targets) == 1 else f"model-{target}", chosen_model(result, chosen_for(result, target), model_in)


def models_of(federation: Federation, run: RunId, result: RunResult, methods: Methods) -> Iterator[tuple[str, Model]]:
    """The run's model as `model`, and each site's own as `model-SITE`: those that its method declares."""
    ended = Ended(result, methods, parts=federation.parts)
    state = decode(ended.method.state, federation.journal.rounds(run)[-1].state[0][0], federation.parts, LAX)
    if (model := ended.of_run(state)) is not None:
        yield "model", model
    for site in ended.roles:
        vault = federation.agents[ClientId(site)].vault
        head = vault.head(run)
        memory = decode(ended.method.memory, head.memory[0][0], vault.parts(run), LAX) if head and head.memory else None
        own = None if memory is None else ended.of_memory(memory, site)
        if (model := own or ended.of_site(state, site)) is not None:
            yield f"model-{site}", model


def best_models(federation: Federation, run: RunId, result: RunResult, methods: Methods) -> Iterator[tuple[str, Model]]:
    """The models of the best round of a run that selects, as `model-best` and `model-best-SITE`."""
    best = federation.run_service.find(run).best
    files = () if best is None else scored_state(federation.journal.rounds(run), best)
    if not files:
        return
    ended = Ended(result, methods, BEST, federation.parts)
    state = decode(ended.method.state, files[0][0], federation.parts, LAX)
    if (model := ended.of_run(state)) is not None:
        yield "model-best", from_state(model, files[0][0])
    for site in ended.roles:
        vault = federation.agents[ClientId(site)].vault
        head = vault.head(run)
        kept = head.best.memory if head and head.best and head.best.cursor == best else ()
        own = ended.of_memory(decode(ended.method.memory, kept[0][0], vault.parts(run), LAX), site) if kept else None
        if (model := own or ended.of_site(state, site)) is not None:
            yield f"model-best-{site}", from_state(model, files[0][0])


def dealt_sites(given: DealData, text: ExperimentText) -> dict[str, DealtSite]:
    """The sites of a deal. Raises ConfigRefused, with `context["path"]`, for what cannot be dealt; DataRefused."""
    path = text.folder(given.folder, "deal.folder")
    said = {name: value for name, value in vars(given).items() if name not in ("folder", "rule") and value is not None}
    try:
        table = DealtTable(path, sites_of(path, rule_in(given.rule, said)))
    except ConfigRefused as error:
        raise ConfigRefused(f"deal: {error.what}", error.todo, path=f"deal.{error.context.get('path', '')}") from None
    return {name: DealtSite(table, name) for name in table.sites.hands}


def fill_in(result: RunResult, domains: Mapping[str, str]) -> None:
    """Write each site's domain into a result, and the last grouping's adjusted Rand index, where there are groups."""
    for client in result["clients"]:
        client["domain"] = domains.get(client["name"])
    if result["groups"]:
        result["groups"]["adjusted_rand_index"] = adjusted_rand_index(last_groups(result), domains)


def adjusted_rand_index(groups: Mapping[str, str], domains: Mapping[str, str]) -> float | None:
    """How well groups fit domains, over the sites that have both: 1 the same, about 0 as by chance; None of fewer than two."""
    both = sorted(groups.keys() & domains.keys())
    if len(both) < 2:
        return None
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score([domains[site] for site in both], [groups[site] for site in both]))
