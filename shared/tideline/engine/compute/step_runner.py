"""A client's step in numbers: decode, run, encode. The same code inline and in a trainer process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch

from tideline.archive.checks import LAX, MOST, Rules
from tideline.archive.errors import PartDamaged, PartMissing
from tideline.archive.parts import Parts
from tideline.archive.reader import decode, files_of
from tideline.archive.readings import Orders
from tideline.archive.watching import watching
from tideline.archive.writer import encode
from tideline.core.algorithm import MEDIANS, NORMALISE, AnyAlgorithm, Methods
from tideline.core.asked.computing import Precision
from tideline.core.asked.normalise import Place
from tideline.core.asked.scoring import Prior, Selection
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, ContractRefused, DataRefused, FederationError, Malformed, MemoryLost, StepFailed
from tideline.core.handle import Handle, Maker
from tideline.core.notes import COARSE_SCALE
from tideline.core.phase import AnyPhase
from tideline.core.privacy import Contract, contract_digest
from tideline.core.record import Nothing, Record, Weights, holds_rows
from tideline.core.rows import NO_AUGMENT, Augment, Rows
from tideline.core.run import Digest, Role, RunId
from tideline.core.settings import Settings
from tideline.core.step import AnyStep, Data, Fetch, Outcome, Site, View
from tideline.engine.compute.configured import Configured, configured
from tideline.engine.compute.features import Encoder
from tideline.engine.compute.forgetting import without_rows
from tideline.engine.compute.initial_weights import read_base
from tideline.engine.compute.kept_data import KeptData, bytes_of
from tideline.engine.compute.limits import check_base, check_rows, clipped, tells
from tideline.engine.compute.opened import Opened, augmented_site, encoded_site, filled_site, normalised_site, uncached_in
from tideline.engine.compute.private.metering import able, in_private, meter_of
from tideline.engine.compute.private.pricing import price
from tideline.engine.compute.turns.reproducible import reproducible
from tideline.engine.compute.wire.sending import sending, unsent_after
from tideline.engine.model.brief import Brief
from tideline.engine.model.orders import Files
from tideline.engine.model.runs import JOIN
from tideline.engine.ports.site import NO_LIMITS, Done, Job, OpenSiteData, SiteData
from tideline.learning.around.medians import medians_in
from tideline.learning.in_world import statistics_in
from tideline.learning.loading.augmented import check_augment
from tideline.learning.loading.workers import reading_ahead
from tideline.learning.local_training import patience_of
from tideline.learning.normalising import Statistics, check_place, digest_of
from tideline.learning.private.units import check_units, protected
from tideline.learning.rows.filled import Medians
from tideline.learning.scoring.kept_outputs import Outputs
from tideline.nets import of_features, played
from tideline.nets.computing import computing_at
from tideline.nets.fingerprint import print_of

P = ParamSpec("P")
T = TypeVar("T")
ORDERS = Orders()
Asked = tuple[Record, Rules]
ROOM = "Lower config.batch, write computing: {precision: bfloat16}, or have more memory for the process (--gpu-memory)"
NO_KERNEL = "does not have a deterministic implementation"  # torch's words
LOG = "See the agent's own log at that site for the details; a simulation logs them itself"


@dataclass(frozen=True)
class Base:
    """The file of a run's frozen weights, with how many threads they compute, and in which precision. The same file of another
    run is the same.
    """

    digest: Digest
    threads: int
    run: RunId = field(compare=False)
    precision: Precision = Precision.FLOAT32


def base_of(job: Job) -> Base | None:
    precision = job.brief.computing.precision if job.brief.computing else Precision.FLOAT32
    return None if job.brief.base is None else Base(job.brief.base, job.brief.threads, job.run, precision)


# How data are seen; the fourth: a digest of shared statistics, and shared medians.
Seen = tuple[World, Role, Base | None, tuple[str | None, tuple[float, ...] | None], Augment]


class StepRunner:
    """Runs jobs over a site's parts and data. Satisfies the port Pool.

    features: the folder where those that a frozen encoder makes of the data are kept. workers: threads that read rows ahead of a
    step; None: as many as fit this process. seen: a digest of what lies at the data's place, for steps that are charged.
    """

    def __init__(
        self,
        methods: Methods,
        parts_of: Callable[[RunId], Parts],
        open_site_data: OpenSiteData,
        device: str = "cpu",
        features: Path | None = None,
        workers: int | None = None,
        seen: str = "",
    ) -> None:
        self._seen = seen
        self.methods, self.parts_of, self.device = methods, parts_of, device
        self._open, self._features, self._workers = open_site_data, features, workers
        self._raw: KeptData[tuple[World, Role], SiteData] = KeptData(bytes_of)
        self._opened: KeptData[Seen, Opened] = KeptData(lambda each: bytes_of(each.site_data))

    def run(self, job: Job, tick: Callable[[float], None]) -> Done:
        """One step, as the run says to compute. Raises FederationError; any other error of a step becomes StepFailed, without its
        words; PartDamaged where a file did not stay whole while the step worked: nothing of it counts.
        """
        if job.prices:
            return Done((), (), price=price(self.method(job), job, placed, partial(able, self.methods), self._seen))
        if job.seen and job.seen != self._seen:
            raise DataRefused("The site's data changed while the step was about to begin", "Resume the run: it is priced anew")
        with watching(), reading_ahead(self._workers), computing_at(job.brief.computing, self.device) as now:
            done = self.ran(job, tick)
        computed = now.computed if job.brief.computing and job.cursor == JOIN else None
        return replace(done, computed=computed, events=(*done.events, *now.events)) if computed or now.events else done

    def method(self, job: Job) -> Configured:
        """The job's method with its settings."""
        brief = job.brief
        with owners_code():
            asked = brief.scoring, brief.world, brief.wire, brief.privacy, brief.secure_sums
            return configured(self.methods, brief.method, brief.config, *asked)

    def ran(self, job: Job, tick: Callable[[float], None]) -> Done:
        """The step."""
        method = self.method(job)
        algorithm, config = method.algorithm, method.config
        agree_on_contract(method, job.brief)
        agree_on_memory(algorithm, job.brief)
        world, role, base = self.seen_world(job.brief.world, base_of(job)), job.brief.role, base_of(job)
        phase = None if job.cursor == JOIN else placed(method, job)
        step = phase.step if phase else None
        asked = None if step is None else self.asked(method, world, step, job)
        # Measured before any encoder, or as they were read.
        raw = step is not None and step.name == NORMALISE and job.brief.world.scaling.at is Place.INPUTS
        by, medians = (None, None) if asked is None else (statistics_in(asked[0]), medians_in(asked[0]))
        check_augment(job.brief.augment, job.brief.world, of_features(world), algorithm)
        encoder_base = base if of_features(world) and not raw else None
        if step is not None and step.name == MEDIANS:
            opened = Opened(self.raw(job.brief.world, role))
        else:
            opened = self.opened(job.brief.world, role, encoder_base, by, medians, job.brief.augment)
        if job.limits != NO_LIMITS:
            check_base(job.limits, job.brief)
            if tells(step, role) or job.limits.delta:
                rows = self.rows(opened.site_data, View.TRAIN, role)
                check_rows(job.limits, config, rows.count, tells(step, role), protected(rows, job.brief.privacy))
        with reproducible(job.seed, job.brief.threads, self.device) as rng:
            data, validation = self.seen(opened.site_data, step.view if step else View.TRAIN, job.brief, config)
            check_units(data, job.brief.privacy)
            fetch, meter = self.fetching(method, world, job), meter_of(job, tick)
            site = Site(
                config=config,
                world=world,
                me=job.client,
                role=role,
                data=data,
                round=job.round,
                rng=rng,
                device=self.device,
                fetch=fetch,
                tick=meter.alive if meter else tick,
                transfers=job.transfers,
                validation=validation,
                training=self.unlabelled(opened.site_data, step, job.brief),
                outputs=partial(self.outputs, job),
                normalised_by=opened.normalised_by,
                filled_by=medians,
                least_per_class=job.limits.per_class,
                least_rows=job.limits.rows,
                private=meter,
                noise_key=bytes.fromhex(job.noise),
            )
            if phase is None or step is None or asked is None:
                joined = self.join(algorithm, job, site, method.contract)
                return replace(joined, uncached=0 if site.private else uncached_in(opened.site_data))
            memory = self.memory(algorithm, job, site, opened.site_data)
            done = self.step(method, step, job, site, asked, memory, Maker(job.client, phase.name, job.round))
        ends = job.cursor == len(method.plan) - 1
        return replace(self.forget_rows(algorithm, job, done) if ends and holds_rows(algorithm.memory) else done, ends=ends)

    def join(self, algorithm: AnyAlgorithm, job: Job, site: Site[Settings], clauses: Contract) -> Done:
        """Before the first phase: the first memory, whether there are labels, and contract and network as this site has them."""
        memory = guarded("prepare", algorithm.prepare, site.config, site)
        kept = encode(memory, self.parts_of(job.run), LAX).files
        return Done((), kept, labelled=site.data.labelled, contract=clauses, network=print_of(job.brief.world))

    def asked(self, method: Configured, world: World, step: AnyStep, job: Job) -> Asked:
        """The order's message, and what the reply to it is held to."""
        assert job.message is not None
        sizes = guarded("sizes", method.algorithm.dims, method.config, world)
        return ORDERS.read(step.takes, job.message, self.parts_of(job.run), sizes, method.packing)

    def step(
        self,
        method: Configured,
        step: AnyStep,
        job: Job,
        site: Site[Settings],
        asked: Asked,
        memory: Record,
        maker: Maker,
    ) -> Done:
        (order, rules), parts = asked, self.parts_of(job.run)
        clips = bool(job.limits.clip and job.brief.intent.weights is not None)
        outcome: Outcome[Record, Record] = guarded(step.name, step.run, order, memory, site)
        if site.private:
            outcome = in_private(step, outcome, site.private, site.config)
        metrics = guarded(step.name, declared, step, outcome, method.algorithm.memory)
        if clips:
            outcome = replace(outcome, message=clipped(outcome.message, order, job.limits.clip))
        if method.wire.delta:  # the step may have written to its order: differences are to what was sent
            rules = self.asked(method, site.world, step, job)[1]
        # What is added of an earlier message would make an update longer than its owner allows.
        packing = sending(rules.packing, job, step.name, parts, feedback=not clips)
        message = guarded(step.name, encode, outcome.message, parts, replace(rules, maker=maker, packing=packing))
        if outcome.memory is memory and job.memory is not None:
            kept = self.kept_files(job.memory, parts)
        else:
            kept = guarded(step.name, encode, outcome.memory, parts, LAX).files
        outputs = () if outcome.outputs is None else guarded(step.name, encode, outcome.outputs, parts, LAX).files
        handles = tuple(replace(each.bare(), to=each.to) for each in message.handles)
        unsent, events = unsent_after(packing, parts), (COARSE_SCALE,) if packing and packing.coarse else ()
        return Done(message.files, kept, metrics, handles=handles, outputs=outputs, unsent=unsent, events=events)

    def forget_rows(self, algorithm: AnyAlgorithm, job: Job, done: Done) -> Done:
        """The last step, whose memory, and that of the best scoring, are rid of the site's rows: nothing reads them any more."""
        parts = self.parts_of(job.run)

        def rid(root: Digest) -> Files:
            try:
                memory: Record = decode(algorithm.memory, root, parts, LAX, sure=True)
            except PartMissing as cause:
                raise memory_lost(cause) from cause
            return guarded("forgetting", encode, without_rows(memory), parts, LAX).files

        return replace(done, memory=rid(done.memory[0][0]), rowless=True, best=rid(job.best) if job.best else ())

    def fetching(self, method: Configured, world: World, job: Job) -> Fetch:
        """What opens the order's handles for a step. The values' files lie here: they were fetched before the step began."""

        def fetch(handle: Handle[T], like: Record | None = None) -> T:
            if handle.kind is None:
                raise StepFailed("The step fetches a handle that is none of its order's", "Fetch what the order names")
            sizes, packing = method.algorithm.dims(method.config, world), method.packing and method.packing.reply
            rules = Rules(sizes, () if like is None else (like,), most=MOST, packing=packing)
            try:
                value: T = decode(handle.kind, Digest(handle.digest), self.parts_of(job.run), rules)
            except Malformed as error:
                # Its context, too: by its digest a value that was damaged here is fetched once more.
                context = {**error.context, "holder": handle.holder}
                raise type(error)(f"The value that {handle.holder} sealed: {error.what}", error.todo, **context) from error
            return value

        return fetch

    def memory(self, algorithm: AnyAlgorithm, job: Job, site: Site[Settings], site_data: SiteData) -> Record:
        """The site's memory. A method that keeps none settles again wherever its memory is gone.

        What was prepared at the join, of rows that were not normalised or filled yet, is prepared again.
        """
        kept = self.kept_memory(algorithm, job)
        if kept is None:
            first: Record = guarded("prepare", algorithm.prepare, site.config, site)
            return first
        known = (site.normalised_by is None or statistics_in(kept) is not None) and (
            site.filled_by is None or medians_in(kept) is not None
        )
        if algorithm.memory is Nothing or known:
            return kept
        data, _ = self.seen(site_data, View.TRAIN, job.brief, site.config)
        again: Record = guarded("prepare", algorithm.prepare, site.config, replace(site, data=data))
        return again

    def kept_memory(self, algorithm: AnyAlgorithm, job: Job) -> Record | None:
        if job.memory is None:
            return None
        if algorithm.memory is Nothing:
            return Nothing()
        try:
            kept: Record = decode(algorithm.memory, job.memory, self.parts_of(job.run), LAX, sure=True)
            return kept
        except PartMissing as cause:
            raise memory_lost(cause) from cause

    def kept_files(self, memory: Digest, parts: Parts) -> Files:
        """The files of a memory that a step left as it was. Raises MemoryLost."""
        try:
            return files_of(memory, parts)
        except PartMissing as cause:
            raise memory_lost(cause) from cause

    def seen(self, site_data: SiteData, view: View, brief: Brief, config: Settings) -> tuple[Data, Data | None]:
        """A step's rows, and those for validation where it has a use for them: to score, or to stop training early by labels.

        Where they are used, nobody trains on them.
        """
        role, selects = brief.role, brief.scoring.selection is not Selection.NONE
        if view is not View.TRAIN:
            scored = view is View.HELD_OUT and selects
            return self.rows(site_data, view, role), self.rows(site_data, View.VALIDATION, role) if scored else None
        held = self.rows(site_data, View.VALIDATION, role) if role is not Role.TARGET and patience_of(config) else None
        stops = held is not None and held.labelled and len(held) > 0
        return self.rows(site_data, View.LEARN if selects or stops else view, role), held if stops else None

    def unlabelled(self, site_data: SiteData, step: AnyStep | None, brief: Brief) -> Rows | None:
        """The training rows of a target that is scored and keeps what is predicted, or corrects it by them."""
        scored, scoring = step is not None and step.view is View.HELD_OUT, brief.scoring
        used = scoring.outputs or scoring.prior is Prior.EM
        if not scored or not used or brief.role is not Role.TARGET:
            return None
        return self.rows(site_data, View.TRAIN, brief.role).x

    def outputs(self, job: Job, run: RunId) -> Record | None:
        """What another run keeps of its predictions here; None where it keeps nothing. Raises MemoryLost where that is gone."""
        if run not in job.outputs:
            return None
        try:
            kept: Outputs = decode(Outputs, job.outputs[run], self.parts_of(job.run), LAX, sure=True)
            return kept
        except PartMissing as cause:
            what = f"What the run {run} predicted here is no longer whole: {cause.what}"
            raise MemoryLost(what, "Restore the agent's home directory, or begin the rehearsal again") from cause

    def rows(self, site_data: SiteData, view: View, role: Role) -> Data:
        return masked(guarded("that reads the data", site_data.view, view, role), view, role)

    def opened(
        self,
        world: World,
        role: Role,
        base: Base | None = None,
        by: Statistics | None = None,
        medians: Medians | None = None,
        augment: Augment = NO_AUGMENT,
    ) -> Opened:
        """The site's data for a world, read once as long as there is room (`kept_data`).

        by, medians: what the run's sites share, once it is known. augment: what is done to rows to train on, before all else that
        is done to them.
        """

        def make() -> Opened:
            changed = Opened(augmented_site(self.raw(world, role), augment))
            opened = guarded("that fills missing cells", filled_site, changed, world, role, medians)
            if world.scaling.at is Place.INPUTS:
                opened = guarded("that normalises the data", normalised_site, opened, world, role, by)
            if base is not None:
                encoder = self.encoder(world, base)
                opened = replace(opened, site_data=guarded("that encodes the data", encoded_site, opened.site_data, encoder))
            if world.scaling.at is Place.FEATURES:
                check_place(world)
                opened = guarded("that normalises the data", normalised_site, opened, world, role, by)
            self._raw.fit()
            return opened

        shared = None if by is None else digest_of(by), None if medians is None else tuple(medians.values.tolist())
        return self._opened.of((world, role, base, shared, augment), make)

    def raw(self, world: World, role: Role) -> SiteData:
        """The data as they are read, whatever they are normalised by."""
        plain = replace(world, normalise=None)
        return self._raw.of((plain, role), lambda: guarded("that opens the data", self._open, plain, role))

    def seen_world(self, world: World, base: Base | None) -> World:
        """The world as a method sees it, over the frozen tensors of that file."""
        return played(world) if base is None else played(world, partial(self.frozen_weights, world, base), base.digest)

    def encoder(self, world: World, base: Base) -> Encoder:
        """The frozen encoder of a run's network. Raises as `frozen_weights` does."""
        weights = self.frozen_weights(world, base)
        return Encoder(
            world=world,
            weights=weights,
            device=self.device,
            threads=base.threads,
            base=base.digest,
            folder=self._features,
            precision=base.precision,
        )

    def frozen_weights(self, world: World, base: Base) -> Weights:
        """The tensors of the file that has the frozen ones. Raises MemoryLost where it is gone, PartDamaged where it is not as it
        came.
        """
        parts = self.parts_of(base.run)
        try:
            return read_base(parts, world, base.digest)
        except PartDamaged:
            raise  # they came with the order, and are fetched again
        except PartMissing as cause:
            what = "The frozen weights of the run are no longer whole at this site"
            raise MemoryLost(what, "Restore the agent's home directory, or begin the run again") from cause


def memory_lost(cause: PartMissing) -> MemoryLost:
    what = f"This site's memory of the run is no longer whole: {cause.what}"
    return MemoryLost(what, "Restore the agent's home directory, or begin the run again")


def agree_on_memory(algorithm: AnyAlgorithm, brief: Brief) -> None:
    """What a method keeps at sites is known here: who says that it keeps nothing has them forget it. Raises Malformed."""
    if brief.keeps != (algorithm.memory is not Nothing):
        what = f"The order says that {algorithm.name} keeps {'something' if brief.keeps else 'nothing'} at sites, which is not so"
        raise Malformed(what, "The coordinator is of another version, or is not to be trusted")


def placed(method: Configured, job: Job) -> AnyPhase:
    """The phase that a job is of. Raises Malformed for a place that the plan has not, or has by another round, phase or step."""
    # What a site signs says in which exchange it was made, and the agent hides what is summed in it: the site knows by itself.
    at, found = job.cursor, method.plan[job.cursor] if 0 <= job.cursor < len(method.plan) else None
    if not found or (method.rounds[at], found.name, found.step and found.step.name) != (job.round, job.phase, job.step):
        what = f"The order for {job.phase} is of place {at} and round {job.round}, which the run's plan has not"
        raise Malformed(what, "The coordinator is of another version, or is not to be trusted")
    return found


def masked(data: Data, view: View, role: Role) -> Data:
    """A target's training and validation labels are absent, even where its reader forgot to hide them.

    Raises DataRefused for rows with files or objects behind them that labels could be read from.
    """
    if view is View.HELD_OUT or role is not Role.TARGET:
        return data
    if not all(rows.plain for rows in (data.x, data.bare) if rows is not None):
        what = "The training rows of a target are read from files or objects that may hold labels"
        raise DataRefused(what, "Pour them into memory or a scratch file first: tideline.learning.rows.scratch.poured")
    return replace(data, y=None)


@contextmanager
def owners_code() -> Iterator[None]:
    """What goes wrong where code of the site's owner is loaded is told without its words: they may name what lies here."""
    try:
        yield
    except ConfigRefused as error:
        cause = error.__cause__
        if cause is None or isinstance(cause, FederationError):
            raise
        what = f"A method or network that this site adds cannot be loaded: {type(cause).__name__}"
        raise StepFailed(what, LOG) from error


def guarded(name: str, run: Callable[P, T], *args: P.args, **given: P.kwargs) -> T:
    """Run a method's own code. A foreign error's words may hold data, so only its type is reported."""
    try:
        return run(*args, **given)
    except FederationError:
        raise
    except torch.OutOfMemoryError as cause:
        raise StepFailed(f"The step {name} found no room in the device's memory", ROOM, error=type(cause).__name__) from cause
    except Exception as cause:
        if isinstance(cause, RuntimeError) and NO_KERNEL in str(cause):
            what = f"The step {name} has a layer that gives no equal bytes on this device, and computing.deterministic is yes"
            raise StepFailed(what, "Write deterministic: auto, or use another network", error=type(cause).__name__) from cause
        what = f"The step {name} raised {type(cause).__name__}"
        raise StepFailed(what, LOG, error=type(cause).__name__) from cause


def declared(step: AnyStep, outcome: Outcome[Record, Record], memory: type[Record]) -> dict[str, float]:
    """The outcome's metrics, if each is declared and finite, and its message and memory are of the declared types."""
    if type(outcome.message) is not step.gives:
        raise StepFailed(f"The step {step.name} gave a {type(outcome.message).__name__}; it declares {step.gives.__name__}")
    if type(outcome.memory) is not memory:
        raise StepFailed(f"The step {step.name} keeps a {type(outcome.memory).__name__}; the method keeps {memory.__name__}")
    metrics = {k: float(v) for k, v in outcome.metrics.items()}
    for name, value in metrics.items():
        if name not in step.metrics:
            raise StepFailed(f"The step {step.name} gave the metric {name!r}, which it does not declare")
        if value != value or value in (float("inf"), float("-inf")):
            raise StepFailed(f"The step {step.name} gave {name} = {value}", "Lower the learning rate, or check the data")
    return metrics


def agree_on_contract(method: Configured, brief: Brief) -> None:
    """The contract as this site's own code derives it is the coordinator's. Nobody can talk a site into more."""
    from tideline import __version__

    ours, theirs = method.contract, brief.contract
    if ours != theirs and contract_digest(ours) != contract_digest(theirs):
        odd = sorted({c.sentence() for c in ours} ^ {c.sentence() for c in theirs})
        raise ContractRefused(
            f"This site (tideline {__version__}) derives another contract for {method.algorithm.name} than the coordinator"
            f" (tideline {brief.version}); they differ in: {'; '.join(odd[:5])}",
            "Install the same version on both ends",
            clauses=odd,
        )
