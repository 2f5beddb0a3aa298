"""The life of an order at a site: remember or work, commit memory with reply, deliver. Loads no torch."""

from __future__ import annotations

import functools
import secrets
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias, TypeVar

from tideline.archive.digests import check_digest
from tideline.archive.errors import DigestMismatch, PartDamaged, PartMissing, TooLarge
from tideline.archive.layout import parse
from tideline.archive.parts import MAX_PART_BYTES, Parts
from tideline.core import errors
from tideline.core.asked.private import KEY_BYTES
from tideline.core.run import ClientId, Digest, RunId
from tideline.core.settings import EMPTY, Plain, plain
from tideline.core.step import Moved, Transfers, no_tick
from tideline.engine.epsilon.witness import CHARGES
from tideline.engine.model.access.spending import Spent
from tideline.engine.model.brief import DISTRUST, Brief, brief_in
from tideline.engine.model.joins import COMPUTED, LABELLED, NETWORK, own_abilities
from tideline.engine.model.orders import Failure, Files, Hold, Order, Receipt, Reply
from tideline.engine.model.runs import JOIN
from tideline.engine.model.said.stages import Timetable
from tideline.engine.peers.peer_keys import MemoryPins, PeerKeys, fresh
from tideline.engine.peers.relay import seals
from tideline.engine.peers.sealing import ciphers, complete, plaintexts, seal, signed_since, unseal, vouched
from tideline.engine.ports.site import Done, Head, Job, Link, Pool, Vault
from tideline.engine.process.measuring import spent_in
from tideline.engine.site.admission import check_run
from tideline.engine.site.charging import NOT_CHARGED, Charged, charged_with, noise_key, noisy
from tideline.engine.site.owner import Owner
from tideline.engine.site.remembered import best_of, members
from tideline.engine.site.sizes import field_sizes
from tideline.engine.site.summing import SiteSums, around, summed
from tideline.secure.rounds.notebook import Notebook

TRIES = 3  # that a step has, where what it reads does not stay whole here
KEPT_RUNS = 64  # of which it is remembered how long the last reply took to send
# What happens to an order: begun and worked, around its step; cut, a transfer; damaged, what lay here; failed; and the verdict
# on its reply.
Log = Callable[[str, Order, errors.FederationError | None], None]
T = TypeVar("T")
Work: TypeAlias = Generator[Job, Done, T]  # with the step left to the caller


@functools.cache
def once_random() -> bytes:
    """The secret of agents that are given none: as long as their process."""
    return secrets.token_bytes(KEY_BYTES)


class Agent:
    """One site. `handle` may be called again for the same order at any time: the work is done once.

    peer_keys: its keys, and what it knows of its peers'; without them it makes new ones. watch: a clock that never goes back, by
    which transfers are measured. owner: who says what may run here, and keeps the ledger. hours: whether the coordinator is told
    what steps took, where the pool measures it, and when they began. secret: the key of 32 bytes that all noise of private runs
    comes from; it never leaves the site, and with another one the same order would be answered with other noise. notebook, masks:
    of its secure sums.
    """

    def __init__(
        self,
        name: ClientId,
        link: Link,
        vault: Vault,
        pool: Pool,
        owner: Owner | None = None,
        log: Log | None = None,
        peer_keys: PeerKeys | None = None,
        watch: Callable[[], float] = time.monotonic,
        hours: bool = False,
        secret: Callable[[], bytes] = once_random,
        notebook: Notebook | None = None,
        masks: bool = True,
    ) -> None:
        self.name, self.link, self.vault, self.pool = name, link, vault, pool
        self.peer_keys, self.watch = peer_keys or new_peer_keys(), watch
        self._sent: dict[RunId, Moved] = {}
        self._times = Timetable()
        self.owner, self.log, self.hours, self.secret = owner or Owner(), log or silent, hours, secret
        self.sums = SiteSums(name, self.peer_keys, notebook, masks)

    def handle(self, order: Order, tick: Callable[[float], None] = no_tick) -> Receipt | None:
        """Answer an order. None if it was withdrawn or has ended. Raises Unreachable only if the link gives up."""
        return driven(self.work(order), lambda job: self.pool.run(job, tick))

    def holds(self, order: Order) -> Hold | None:
        """Why an order is to wait here; None for one that can be handled, if only to be refused."""
        try:
            brief = brief_in(order)
            self.owner.allow(self.name, brief)
            self.owner.permit(brief.contract, brief)
            check_run(self.owner.said(brief).rules, brief)
            return self.owner.holds(order, brief)
        except errors.FederationError:
            return None

    def work(self, order: Order) -> Work[Receipt | None]:
        """`handle`, with the step left to the caller: gives its job, if there is one to do, and is sent what is done, or thrown
        why it is not.
        """
        try:
            head = yield from self.ready(order)
            try:
                return self.answer(order, head)
            except PartDamaged as error:
                self.log("damaged", order, error)
                return self.answer(order, (yield from self.ready(order, worked_again(order, error))))
        except (errors.Cancelled, errors.Stale):
            return None
        except errors.Unreachable:
            raise
        except errors.FederationError as error:
            return self.fail(order, error)
        finally:
            self._times.forget(order.id)

    def answer(self, order: Order, head: Head) -> Receipt:
        """Send the reply of a head. Raises PartDamaged for one that did not stay whole here."""
        if head.rowless:  # before anybody knows of the reply: an order that was not answered is given again
            self.vault.collect(order.run, (*order.files, *ciphers(order.sealed), *plaintexts(order.sealed)))
        spent = None if head.spent is None or not self.hours else replace(head.spent, order=head.order)
        brief, facts = brief_in(order), head.facts
        if order.cursor == JOIN and self.owner.charges(brief):  # as it is now: a join may be answered again much later
            facts = {**facts, CHARGES: self.owner.ledger.charges()}
        disclosed = self.owner.disclosed(order, brief)
        reply = Reply(order.id, head.reply, head.metrics, facts, sealed=head.sealed, spent=spent, disclosed=disclosed)
        self.owner.replies(order, brief, (*reply.files, *ciphers(reply.sealed)), self.sizes(order, brief, reply), disclosed)
        return self.deliver(order, replace(reply, ledger=self.owner.ledger.tip()))

    def sizes(self, order: Order, brief: Brief, reply: Reply) -> list[list[Plain]]:
        """The bytes of each field of a reply; none where its root is gone, which is found when it is sent. Raises PartDamaged."""
        if not reply.files:
            return []
        try:
            header = parse(self.vault.parts(order.run).view(reply.files[0][0]))
        except PartDamaged:
            raise
        except PartMissing:
            return []
        named = [each.field for each in brief.contract if (each.phase, each.step) == (order.phase, order.step)]
        return field_sizes(header, named, reply.sealed)

    def ready(self, order: Order, again: bool = False) -> Work[Head]:
        """The vault's head with the reply to an order that the owner allows: remembered, or worked out now.

        again: what is remembered of it is of no use any more.
        """
        brief = brief_in(order)
        check_files(order, brief.base)
        self.owner.check(self.name, order, brief)
        head = self.vault.head(order.run)
        if not again and head is not None and head.cursor == order.cursor and head.asked in (None, order.files):
            return replace(head, sealed=signed_since(order.run, head.sealed, self.peer_keys))
        self.sums.hold(order.run, brief)
        self.consistent(head, order, brief.keeps)
        pays = self.owner.charges(brief) and not around(order)
        charged = (yield from self.charged(order, brief)) if pays else NOT_CHARGED
        self.owner.begins(order, brief)
        outputs = self.outputs(brief)
        kept = [file for files in outputs.values() for file in files]
        self.vault.collect(order.run, (*order.files, *ciphers(order.sealed), *plaintexts(order.sealed), *kept))
        self.vault.note(order.run, order.brief)
        peers = members(order, brief, head)
        if seals(brief.contract):
            self.peer_keys.trust(brief.peers)
        best = best_of(head, brief)
        if around(order):
            done = self.exchanged(order, brief, head)
        else:
            done = self.hidden(order, brief, head, (yield from self.worked(order, brief, head, outputs, charged)))
        self._times.ends(order.id, self.watch())
        self.log("worked", order, None)
        for event in done.events:
            self.log(event, order, None)
        facts = self.guard(order, done, brief)
        sealed = seal(order.run, brief.peers, done.handles, self.vault.parts(order.run), self.peer_keys)
        made = Head(
            order=order.id,
            cursor=order.cursor,
            memory=done.memory,
            reply=done.message,
            metrics=done.metrics,
            facts=facts,
            asked=order.files,
            sealed=sealed,
            peers=peers,
            own=plaintexts(sealed) or (head.own if head else ()),
            best=replace(best, memory=done.best) if best and done.best else best,
            outputs=done.outputs or (head.outputs if head else ()),
            rowless=done.rowless,
            unsent=() if done.ends else done.unsent or (head.unsent if head else ()),
            spent=done.spent,
            sum_state=() if done.ends else done.sum_state or (head.sum_state if head else ()),
        )
        self.vault.commit(order.run, made)
        if done.ends and brief.secure_sums:
            self.sums.notebook.close(order.run)
        return made

    def exchanged(self, order: Order, brief: Brief, head: Head | None) -> Done:
        """An exchange of keys, shares or signatures around a secure sum, which no trainer sees. Memory stays as it is."""
        self.have_files(order, brief)
        self.log("begun", order, None)
        state, least = head.sum_state if head else (), self.owner.said(brief).rules.least
        made = self.sums.answer(order, brief, state, self.vault.parts(order.run), least)
        return Done(message=made.reply, memory=head.memory if head else (), sum_state=made.state)

    def hidden(self, order: Order, brief: Brief, head: Head | None, done: Done) -> Done:
        """What a step has made, with the values masked that nobody is to see."""
        if order.cursor == JOIN or not summed(order, brief):
            return done
        parts, least = self.vault.parts(order.run), self.owner.said(brief).rules.least
        made = self.sums.hide(order, brief, head.sum_state if head else (), done.message, parts, least)
        return replace(done, message=made.reply, sum_state=made.state)

    def have_files(self, order: Order, brief: Brief) -> None:
        """Have all files of an order here, whole."""
        for left in reversed(range(TRIES)):
            try:
                self.bring(order, order.files)
                self.whole(order, brief)
                return
            except PartDamaged as error:
                if not left:
                    raise
                self.log("damaged", order, error)

    def charged(self, order: Order, brief: Brief) -> Work[Charged]:
        """Have the order priced by this site's own code, and its price written down. Raises BudgetExceeded.

        Noise and place follow from the data as well: the same noise on other rows would show by how much they differ.
        """
        asked = Job(
            run=order.run,
            client=self.name,
            cursor=order.cursor,
            round=order.round,
            brief=replace(brief, peers=EMPTY) if brief.peers else brief,
            seed=order.seed,
            message=None,
            memory=None,
            prices=True,
            phase=order.phase,
            step=order.step,
        )
        price = (yield asked).price
        assert price is not None, "it was asked for"
        found = charged_with(noise_key(self.secret(), order, brief), price.seen)
        self.owner.spends(order, brief, price, found.place)
        return found

    def worked(
        self, order: Order, brief: Brief, head: Head | None, outputs: Mapping[RunId, Files], charged: Charged
    ) -> Work[Done]:
        """The step, once all that it reads is here. What of the order does not stay whole here is fetched again."""
        self._times.fetches(order.id, self.watch())
        for left in reversed(range(TRIES)):
            try:
                self.bring(order, order.files)
                self.whole(order, brief)
                for run, files in outputs.items():
                    self.copy(files, self.vault.parts(run), self.vault.parts(order.run))
                fetched = self.open(order, brief)
                self._times.begins(order.id, self.watch())
                self.log("begun", order, None)
                job = self.job(order, brief, head, outputs, Transfers(fetched, self._sent.get(order.run, Moved())))
                if charged != NOT_CHARGED and order.cursor != JOIN:
                    job = replace(job, noise=charged.noise, seen=charged.seen)
                best = best_of(head, brief)
                return (yield replace(job, best=best.memory[0][0] if best and best.memory else None))
            except PartDamaged as error:
                fetched_files = {digest for digest, _ in (*order.files, *plaintexts(order.sealed))}
                if not left or error.context.get("digest") not in fetched_files:
                    raise
                self.log("damaged", order, error)
        raise AssertionError("the last try raises")

    def consistent(self, head: Head | None, order: Order, keeps: bool) -> None:
        """The memory must be that of the last accepted reply. A method that keeps none does not mind."""
        last = head.cursor if head else JOIN - 1
        if last < order.after and keeps:
            what = f"This site's memory of the run ends at exchange {last}; the coordinator has its reply of {order.after}"
            raise errors.MemoryLost(what, "Restore the agent's home directory, or begin the run again")
        if last >= order.cursor:
            if keeps:
                answered = "This site has answered exchange {} when something else was asked there; its memory is past it"
                raise ahead(order) if last > order.cursor else ahead(order, answered)
            self.link.fetch(order, (), self.vault.parts(order.run))  # Stale, unless a coordinator that was restored asks again

    def bring(self, order: Order, files: Files) -> None:
        """Fetch those of an order's files that this site lacks: of its message the root first, then the parts that it names.

        What came damaged is asked for again: what an earlier try left here may have been spoilt, and the coordinator looks at
        its own copy only then.
        """
        parts, left = self.vault.parts(order.run), TRIES
        while lacking := tuple(file for file in files if not parts.has(file[0])):
            resumed = any(parts.arrived(digest) for digest, _ in lacking)
            try:
                self.link.fetch(order, lacking, parts)
            except DigestMismatch as error:
                left -= 0 if resumed else 1
                if not left:
                    raise
                self.log("cut", order, error)

    def whole(self, order: Order, brief: Brief) -> None:
        """The order names every part that its root names, and brings every value of a peer; beside them the run's base alone."""
        own = [digest for digest, _ in order.files if digest != brief.base]
        if not own:
            return
        root = self.vault.parts(order.run).view(own[0])
        listed = set(own[1:])
        named = {Digest(digest) for digest, _ in parse(root).parts}
        if lacking := sorted(named - listed):
            raise PartMissing(f"The order's root names part {lacking[0][:12]}, which the order does not offer")
        if more := sorted(listed - named):
            raise errors.Malformed(f"The order offers part {more[0][:12]}, which its root does not name", DISTRUST)
        complete(order, root)

    def open(self, order: Order, brief: Brief) -> dict[ClientId, Moved]:
        """Fetch and open the values of peers, one after the other; what the fetching took. Their sealed files are not kept."""
        parts, took = self.vault.parts(order.run), dict[ClientId, Moved]()
        known = self.peer_keys.trust(brief.peers) if order.sealed else {}
        for envelope in order.sealed:
            key, holder = vouched(order, envelope, self.name, self.peer_keys, known), envelope.handle.holder
            if not parts.has(Digest(envelope.handle.digest)):
                began = self.watch()
                self.bring(order, ciphers([envelope]))
                took[holder] = took.get(holder, Moved()) + Moved(envelope.bytes, self.watch() - began)
                unseal(order, envelope, key, parts)
                parts.drop(envelope.cipher)
        return took

    def outputs(self, brief: Brief) -> dict[RunId, Files]:
        """The files of what the run's children predicted here."""
        heads = {run: self.vault.head(run) for run in brief.children}
        return {run: head.outputs for run, head in heads.items() if head is not None and head.outputs}

    def copy(self, files: Files, of: Parts, into: Parts) -> None:
        """Have one run's files beside another's, whose steps see their own alone. Raises MemoryLost where they are gone."""
        for digest, _ in files:
            if not into.has(digest):
                try:
                    into.put([of.view(digest)])
                except PartMissing as cause:
                    what = f"What a run of this rehearsal predicted here is no longer whole: {cause.what}"
                    todo = "Restore the agent's home directory, or begin the rehearsal again"
                    raise errors.MemoryLost(what, todo) from cause

    def job(self, order: Order, brief: Brief, head: Head | None, outputs: Mapping[RunId, Files], transfers: Transfers) -> Job:
        message = order.files[0][0] if order.files and order.cursor != JOIN else None
        memory = head.memory[0][0] if head and head.cursor >= order.after else None
        alone = replace(brief, peers=EMPTY) if brief.peers else brief  # whom a site seals for is no business of a step
        return Job(
            run=order.run,
            client=self.name,
            cursor=order.cursor,
            round=order.round,
            brief=alone,
            seed=order.seed,
            message=message,
            memory=memory,
            transfers=transfers,
            outputs={run: files[0][0] for run, files in outputs.items()},
            limits=self.owner.limits(brief),
            # Not what the reply itself left out, where it is worked out again; nor what an old copy of the home says.
            unsent=head.unsent[0][0] if head and head.unsent and order.after <= head.cursor < order.cursor else None,
            noise=noise_key(self.secret(), order, brief) if order.cursor != JOIN and noisy(brief) else "",
            phase=order.phase,
            step=order.step,
        )

    def guard(self, order: Order, done: Done, brief: Brief) -> Mapping[str, Plain]:
        """At the join: the contract, as this site derives it, against the owner's policy. Gives the facts that may be told."""
        if order.cursor != JOIN:
            return EMPTY
        assert done.contract is not None, "a join gives the contract"
        self.owner.permit(done.contract, brief)
        network = {} if done.network is None else {NETWORK: plain(done.network)}
        computed = {} if done.computed is None else {COMPUTED: plain(done.computed)}
        return {LABELLED: bool(done.labelled), **network, **computed, **own_abilities(brief)}

    def deliver(self, order: Order, reply: Reply) -> Receipt:
        """Report until the agent service lacks nothing; push what it lacks."""
        while True:
            receipt = self.link.report(order, self.timed(reply))
            if receipt.verdict != "missing":
                self.log(receipt.verdict, order, None)
                return receipt
            # If the round closes meanwhile, the answer to the next report is that it is late.
            with suppress(errors.Stale):
                self.push(order, reply, receipt.missing)

    def push(self, order: Order, reply: Reply, missing: Sequence[tuple[Digest, int]]) -> None:
        """Send some of the reply's own files; nothing else that lies here can be asked for."""
        sizes = dict((*reply.files, *ciphers(reply.sealed)))
        for digest, _ in missing:
            if digest not in sizes:
                raise errors.NotFound(f"The reply to order {order.id[:8]} names no part {digest[:12]}")
        began, arrivals = self.watch(), tuple((d, sizes[d], offset) for d, offset in missing)
        try:
            self.link.push(order, arrivals, self.vault.parts(order.run))
            moved = Moved(sum(size - offset for _, size, offset in arrivals), self.watch() - began)
            self._sent = dict([*self._sent.items(), (order.run, moved)][-KEPT_RUNS:])
        except PartDamaged:
            raise
        except PartMissing:
            raise ahead(order) from None
        except errors.Unreachable as error:
            self.log("cut", order, error)  # the next report waits the outage out and says where to go on
        except DigestMismatch as error:
            for digest, _ in missing:
                self.vault.parts(order.run).view(digest)  # it was sent as it lay here; PartDamaged tells that it was to blame
            if not any(offset for _, offset in missing):
                raise
            self.log("cut", order, error)  # what an earlier try left there was spoilt, and is forgotten now

    def timed(self, reply: Reply) -> Reply:
        """A reply as it is sent now, with when its step began, if the coordinator is told such."""
        return replace(reply, stages=self._times.stages(reply.order, self.watch())) if self.hours else reply

    def fail(self, order: Order, error: errors.FederationError) -> Receipt:
        self._times.ends(order.id, self.watch())
        self.log("failed", order, error)
        self.owner.refuses(order, error)
        failure = Failure(error.kind, str(error))
        spent = spent_in(error) or Spent() if self.hours else None  # before a step ran, nothing
        reply = Reply(order.id, failure=failure, ledger=self.owner.ledger.tip(), spent=spent)
        return self.link.report(order, self.timed(reply))


def driven(work: Work[T], run: Callable[[Job], Done]) -> T:
    """What comes of some work, its step run here and now."""
    try:
        job = next(work)
        while True:
            try:
                done = run(job)
            except errors.FederationError as error:
                job = work.throw(error)
            else:
                job = work.send(done)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def worked_again(order: Order, error: PartDamaged) -> bool:
    """Whether a reply that did not stay whole may be worked out once more: it gives the same bytes. Raises MemoryLost.

    The memory that it was made of is gone, where there was any.
    """
    if not brief_in(order).keeps:
        return True
    what = f"This site's reply to the exchange is no longer whole: {error.what}"
    raise errors.MemoryLost(what, "Restore the agent's home directory, or begin the run again")


def silent(what: str, order: Order, error: errors.FederationError | None) -> None:
    """The log of an agent that has none."""


def new_peer_keys() -> PeerKeys:
    own = fresh()
    return PeerKeys(lambda: own, MemoryPins())


def check_files(order: Order, base: Digest | None) -> None:
    """Raises Malformed for names or sizes of files that no coordinator of ours gives: nothing is looked for then."""
    if base is not None and base not in dict(order.files):
        raise errors.Malformed(f"Order {order.id[:8]} does not bring the frozen weights that it names", DISTRUST)
    for digest, size in (*order.files, *ciphers(order.sealed), *plaintexts(order.sealed)):
        check_digest(digest)
        if not 0 < size <= MAX_PART_BYTES:
            raise TooLarge(f"Order {order.id[:8]} names a part of {size} bytes; the limit is {MAX_PART_BYTES}", DISTRUST)


def ahead(
    order: Order, what: str = "This site's memory is past exchange {} and the reply to it is no longer kept"
) -> errors.MemoryAhead:
    """The error for a vault that has moved on without the reply that is asked for."""
    todo = "Restore the agent's home directory, or begin the run again"
    return errors.MemoryAhead(what.format(order.cursor), todo)


def collect(parts: Parts, head: Head | None, files: Files) -> None:
    """Forget the parts of a run that neither its head nor the order at hand names."""
    live = {digest for digest, _ in files}
    if head is not None:
        live |= {digest for digest, _ in (*head.stays, *head.reply, *ciphers(head.sealed), *head.own)}
    for digest in parts.digests():
        if digest not in live:
            parts.drop(digest)
