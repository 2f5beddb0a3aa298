"""The bare stream to compare with: a grpc.aio server and clients that pass raw bytes each way and look at none of them."""

from __future__ import annotations

import asyncio
import multiprocessing as mp
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import grpc.aio

CHUNK = 1 << 20
OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0))


async def serve(port: Any, size: int) -> None:
    """Give `size` bytes to whoever asks, and swallow what is sent."""
    chunk = bytes(CHUNK)

    async def down(request: bytes, context: Any) -> AsyncIterator[bytes]:
        for at in range(0, size, CHUNK):
            yield chunk[: min(CHUNK, size - at)]

    async def up(chunks: AsyncIterator[bytes], context: Any) -> bytes:
        async for _ in chunks:
            continue
        return b""

    server = grpc.aio.server(options=OPTIONS)
    handlers = {"Down": grpc.unary_stream_rpc_method_handler(down), "Up": grpc.stream_unary_rpc_method_handler(up)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("raw", handlers),))
    port.value = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await server.wait_for_termination()


def serve_process(port: Any, size: int) -> None:
    """The server's process."""
    asyncio.run(serve(port, size))


def client_process(port: int, size: int, rounds: int, barrier: Any) -> None:
    """One client's process."""
    asyncio.run(client(port, size, rounds, barrier))


async def client(port: int, size: int, rounds: int, barrier: Any) -> None:
    """One client: in each round everything down, then everything up."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
        down, up = channel.unary_stream("/raw/Down"), channel.stream_unary("/raw/Up")
        chunk = bytes(CHUNK)
        for _ in range(rounds):
            barrier.wait()
            async for _chunk in down(b""):
                continue
            await up(chunks(chunk, size))
            barrier.wait()


def chunks(chunk: bytes, size: int) -> Iterator[bytes]:
    """The bytes to send."""
    for at in range(0, size, CHUNK):
        yield chunk[: min(CHUNK, size - at)]


def raw_rounds(size: int, n: int, rounds: int) -> list[float]:
    """Seconds of each round: n clients at once, `size` bytes each way for each of them."""
    spawn = mp.get_context("spawn")
    port, barrier = spawn.Value("i", 0), spawn.Barrier(n + 1)
    server = spawn.Process(target=serve_process, args=(port, size), daemon=True)
    server.start()
    while not port.value:
        time.sleep(0.01)
    clients = [spawn.Process(target=client_process, args=(port.value, size, rounds, barrier), daemon=True) for _ in range(n)]
    for client in clients:
        client.start()
    seconds = [one_round(barrier) for _ in range(rounds)]
    for process in clients:
        process.join(30)
    server.kill()
    server.join()
    return seconds


def one_round(barrier: Any) -> float:
    """From everybody ready to everybody done."""
    barrier.wait(120)
    began = time.perf_counter()
    barrier.wait(600)
    return time.perf_counter() - began
