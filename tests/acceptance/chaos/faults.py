"""What can happen to a federation. Each fault happens and is over within seconds; it tells what it did."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import psutil
import redis

from tests.acceptance.chaos.world import COORDINATORS, SITES, World, filled

Fault = Callable[[World, random.Random], str]
EVERY: list[Fault] = []
LONGEST_PAUSE = 2.0  # seconds that something is away
STOP_SECONDS = 10.0  # in which a process ends that is asked to


def fault(done: Fault) -> Fault:
    """Add a fault to those that are drawn from."""
    EVERY.append(done)
    return done


def pause(world: World, seconds: float) -> None:
    until = time.monotonic() + seconds
    world.until(lambda: time.monotonic() >= until, "a moment")


def some_time(dice: random.Random) -> float:
    return dice.uniform(0.0, LONGEST_PAUSE)


@fault
def kill_a_coordinator(world: World, dice: random.Random) -> str:
    """The other takes its runs, or it comes back before."""
    name, away = dice.choice(COORDINATORS), some_time(dice)
    world.kill(name)
    pause(world, away)
    world.again(name)
    return f"coordinator {name} killed, away for {away:.1f} s"


@fault
def kill_both_coordinators(world: World, dice: random.Random) -> str:
    """Nobody conducts until one is back."""
    away = some_time(dice)
    for name in COORDINATORS:
        world.kill(name)
    pause(world, away)
    for name in dice.sample(COORDINATORS, 2):
        world.again(name)
    return f"both coordinators killed, away for {away:.1f} s"


@fault
def freeze_a_coordinator(world: World, dice: random.Random) -> str:
    """Beyond its lease: the other takes over, and what the frozen one writes afterwards is refused."""
    name, frozen = dice.choice(COORDINATORS), world.lease * dice.uniform(1.5, 2.5)
    world.signal(name, signal.SIGSTOP)
    pause(world, frozen)
    world.signal(name, signal.SIGCONT)
    return f"coordinator {name} frozen for {frozen:.1f} s"


@fault
def kill_an_agent(world: World, dice: random.Random) -> str:
    name, away = dice.choice(sorted(SITES)), some_time(dice)
    world.kill(name)
    pause(world, away)
    world.again(name)
    return f"agent {name} killed, away for {away:.1f} s"


@fault
def freeze_an_agent(world: World, dice: random.Random) -> str:
    """Nobody misses it for so short a time."""
    name, frozen = dice.choice(sorted(SITES)), some_time(dice)
    world.signal(name, signal.SIGSTOP)
    pause(world, frozen)
    world.signal(name, signal.SIGCONT)
    return f"agent {name} frozen for {frozen:.1f} s"


@fault
def kill_a_child(world: World, dice: random.Random) -> str:
    """The trainers of an agent, or the numeric worker of a coordinator."""
    name = dice.choice((*COORDINATORS, *sorted(SITES)))
    children = world.children(name)
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    return f"{len(children)} children of {name} killed"


@fault
def kill_postgres(world: World, dice: random.Random) -> str:
    """With all its connections. What was committed is there afterwards."""
    away = some_time(dice)
    world.postgres.kill()
    pause(world, away)
    world.postgres.start()
    return f"Postgres killed, away for {away:.1f} s"


@fault
def kill_redis(world: World, dice: random.Random) -> str:
    """Rings are lost; everybody looks for himself."""
    away = some_time(dice)
    world.redis.kill()
    pause(world, away)
    world.redis.start()
    return f"Redis killed, away for {away:.1f} s"


@fault
def flush_redis(world: World, dice: random.Random) -> str:
    with redis.Redis.from_url(world.redis.url) as line:
        line.flushall()
    return "Redis flushed"


@fault
def cut_the_lines(world: World, dice: random.Random) -> str:
    """All connections of agents to a coordinator, in the middle of a message."""
    name, after = dice.choice(COORDINATORS), dice.randrange(200_000)
    world.wires[name].cut(after)
    return f"lines to {name} cut after {after} bytes"


@fault
def cut_the_bulk_lane(world: World, dice: random.Random) -> str:
    """Parts that agents are sending over it, in the middle; those on their way to them end there, too."""
    after = dice.randrange(300_000)
    world.lane_wire.cut(after)
    return f"bulk lane cut after {after} bytes"


@fault
def fill_the_disk(world: World, dice: random.Random) -> str:
    """That of the parts: no reply and no state has room, until there is some again."""
    if world.disk is None:
        return "no disk to fill"
    away = some_time(dice)
    with filled(world.disk):
        pause(world, away)
    return f"disk of parts full for {away:.1f} s"


@fault
def stop_a_process(world: World, dice: random.Random) -> str:
    """SIGTERM at any moment of it: it ends in time and in order, with what it started."""
    name, away = dice.choice((*COORDINATORS, *sorted(SITES))), some_time(dice)
    children = world.children(name)
    world.signal(name, signal.SIGTERM)
    assert world.running[name].wait(STOP_SECONDS) == 0, f"{name} did not end in order"
    assert psutil.wait_procs(children, STOP_SECONDS)[1] == [], f"children of {name} have outlived it"
    pause(world, away)
    world.again(name)
    return f"{name} stopped, away for {away:.1f} s"
