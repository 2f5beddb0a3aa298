"""The numeric worker: all of the coordinator's arithmetic, in a process of its own, one turn at a time.

Torch's global generator is not safe across threads, and both ports must answer while it computes. What draws no
numbers has a lane of its own beside the turns: a reply is checked, and an experiment read, while another run's round is closed.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from tideline.core.errors import Cancelled, ConfigRefused, FederationError, StepFailed, StorageFull, Unreachable
from tideline.core.run import RunSpec
from tideline.core.settings import Plain, plain
from tideline.engine.ports.compute import (
    BeginRequest,
    CheckRequest,
    CloseRequest,
    Draft,
    DraftRequest,
    MethodFacts,
    MethodSummary,
    NextRound,
)
from tideline.engine.process.environment import DATABASE, without_secrets
from tideline.engine.process.pipe import (
    BEGIN,
    CHECK,
    CLOSE,
    DESCRIBE,
    DRAFT,
    METHODS,
    Call,
    Child,
    ChildDied,
    Tick,
    TookTooLong,
    answered,
    serve,
)
from tideline.engine.process.resources import give_back

T = TypeVar("T")

TRIES = 3
TURNS = frozenset({BEGIN.name, CLOSE.name})  # calls that hold a model
OF_RUNS = TURNS | {CHECK.name}  # calls for runs that have begun
QUERIES, QUERY = frozenset({METHODS.name, DESCRIBE.name, DRAFT.name, CHECK.name}), "query"
QUERY_SECONDS = 1800.0  # that a query may take: a reply of a hundred gigabytes is read in less
SILENT_SECONDS = 300.0  # without a sign of life: the worker is stopped, or something holds its interpreter for good


class ShuttingDown(BaseException):
    """The coordinator is ending: whatever waits for numbers lets go. No Exception, so that no run is ended for it."""


class ProcessCompute:
    """The port Compute, answered by a child process. A call whose process died is made again: calls have no effect but parts.

    `place` is what the store of parts is opened with. Every user of the machine may read it; keys are in the environment.
    silence: without a sign of life, and patience: for a look, in seconds; then the worker is ended.
    """

    def __init__(
        self,
        place: tuple[str, Path, float],
        methods: str,
        networks: tuple[str, ...] = (),
        silence: float = SILENT_SECONDS,
        patience: float = QUERY_SECONDS,
    ) -> None:
        self._closed, self._patience = False, patience
        command = [sys.executable, "-m", "tideline_server.worker", *map(str, place), methods, *networks]
        self._child = Child(command, without_secrets(os.environ, *DATABASE), silence)

    @property
    def pid(self) -> int | None:
        return self._child.pid

    def start(self) -> None:
        """Start ahead of the first call: loading torch takes seconds."""
        self._child.start()

    def lives(self) -> bool:
        """Whether the worker runs. One that died is started again: no call may come that would, as no work is sent here."""
        if self.pid is not None:
            return True
        with suppress(Cancelled, OSError):
            self.start()
        return False

    def methods(self) -> tuple[MethodSummary, ...]:
        return self._query(METHODS)

    def describe(self, method: str, preset: str | None = None, secure_sums: bool = False) -> MethodFacts:
        return self._query(DESCRIBE, method=method, preset=preset, secure_sums=secure_sums)

    def draft(self, asked: DraftRequest) -> Draft:
        return self._query(DRAFT, asked=plain(asked))

    def check(self, asked: CheckRequest) -> None:
        self._query(CHECK, asked=plain(asked))

    def begin(self, asked: BeginRequest) -> NextRound:
        return self._turn(BEGIN, asked.spec, plain(asked))

    def close(self, asked: CloseRequest) -> NextRound:
        return self._turn(CLOSE, asked.spec, plain(asked))

    def _query(self, call: Call[T], **payload: Plain) -> T:
        """A call that draws no numbers. Raises Unreachable for one that takes too long."""
        try:
            return self._called(call, payload, QUERY, self._patience)
        except TookTooLong as error:
            raise Unreachable(f"{error.what}, and the worker was ended", "It is started and tried again") from None

    def _turn(self, call: Call[T], spec: RunSpec, asked: Plain) -> T:
        """A call that holds a model, which may take as long as its run waits for a site. Raises StepFailed for a longer one."""
        give_back()  # what the streams used is not needed while the worker holds a model
        try:
            return self._called(call, {"asked": asked}, "", spec.waiting.deadline)
        except TookTooLong as error:
            raise StepFailed(f"{error.what}, which is the run's own deadline", "Give it a longer one") from None

    def _called(self, call: Call[T], payload: Mapping[str, Plain], lane: str, limit: float) -> T:
        """A call's result. One whose process died is made again. Raises what it raised, and TookTooLong."""
        for left in reversed(range(TRIES)):
            try:
                return call.result(self._child.call(call.name, payload, lane=lane, limit=limit))
            except OSError as cause:  # no memory or no process to be had: the machine's trouble, not the run's
                raise Unreachable(f"The numeric worker cannot be started: {cause.strerror}", "It is tried again") from cause
            except (ChildDied, Cancelled):
                if self._closed:
                    raise ShuttingDown from None
                if not left:
                    raise
        raise AssertionError("unreachable")

    def end(self) -> None:
        self._closed = True
        self._child.close()


def machines(error: BaseException) -> FederationError | None:
    """What is the machine's trouble and not the run's, as such: it is tried again. None for all else."""
    if isinstance(error, OSError):
        if error.errno == errno.ENOSPC:
            return StorageFull(f"The coordinator's disk: {error.strerror}", "Look at it; it is tried again")
        return Unreachable(f"The coordinator's machine: {error.strerror or type(error).__name__}", "It is tried again")
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "allocate memory" in str(error)):  # torch's
        return Unreachable("The coordinator has not enough memory", "Give it more, or end other runs; it is tried again")
    return None


def held_up(broken: ConfigRefused) -> Unreachable:
    """What runs that have begun are told of an operator's code that cannot be loaded: it ends none of them."""
    return Unreachable(broken.what, f"{broken.todo}; the run goes on once the coordinator can load it")


def main() -> None:
    """The worker's process: PARTS HOME CACHE METHODS NETWORK..."""
    import torch

    from tideline.core.algorithm import load_methods
    from tideline.engine.compute.inline import InlineCompute
    from tideline.nets import registry
    from tideline_server.parts import open_parts

    torch.set_num_threads(1)  # outside a turn there are only checks; a second thread would spin for longer than it helps
    where, home, cache, methods, *networks = sys.argv[1:]

    parts, broken = open_parts(where, Path(home), float(cache)), None
    try:
        registry.use(networks)
        compute = InlineCompute(parts, load_methods(methods))
    except ConfigRefused as error:  # is the answer to every call
        broken = error

    def handle(name: str, payload: Mapping[str, Plain], tick: Tick) -> Mapping[str, Plain]:
        if broken is not None:
            raise held_up(broken) if name in OF_RUNS else broken
        try:
            return answered(compute, name, payload)
        except FederationError:
            raise
        except Exception as error:
            ours = machines(error)
            if ours is None:
                raise
            raise ours from error
        finally:
            if name in TURNS:  # and the other way round while the replies come in
                give_back()

    serve(handle, {QUERY: QUERIES})


if __name__ == "__main__":
    main()
