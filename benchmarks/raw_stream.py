"""The bare stream to compare with: a grpc.aio server and clients that pass raw bytes each way and look at none of them.

Under TLS, if it is given a folder with a certificate (`coordinator.pem`, `coordinator.key`, `ca.pem`).
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

Child = subprocess.Popen[str]
CHUNK = 1 << 20
OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0))


async def serve(size: int, tls: str = "") -> None:
    """Give `size` bytes to whoever asks, and swallow what is sent. Prints its port."""
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
    port = server.add_secure_port("127.0.0.1:0", shown(Path(tls))) if tls else server.add_insecure_port("127.0.0.1:0")
    await server.start()
    say(port)
    await server.wait_for_termination()


def shown(folder: Path) -> grpc.ServerCredentials:
    """What the server shows."""
    return grpc.ssl_server_credentials([((folder / "coordinator.key").read_bytes(), (folder / "coordinator.pem").read_bytes())])


def line_to(port: int, tls: str) -> grpc.aio.Channel:
    """A client's line."""
    address = f"127.0.0.1:{port}"
    if not tls:
        return grpc.aio.insecure_channel(address, options=OPTIONS)
    believed = grpc.ssl_channel_credentials((Path(tls) / "ca.pem").read_bytes())
    return grpc.aio.secure_channel(address, believed, options=OPTIONS)


async def client(port: int, size: int, rounds: int, tls: str = "") -> None:
    """One client: a line, and in each round, once a line has come, everything down, then everything up, then a line."""
    async with line_to(port, tls) as channel:
        down, up = channel.unary_stream("/raw/Down"), channel.stream_unary("/raw/Up")
        chunk = bytes(CHUNK)
        await channel.channel_ready()
        say("ready")
        for _ in range(rounds):
            sys.stdin.readline()
            async for _chunk in down(b""):
                continue
            await up(chunks(chunk, size))
            say("done")


def chunks(chunk: bytes, size: int) -> Iterator[bytes]:
    """The bytes to send."""
    for at in range(0, size, CHUNK):
        yield chunk[: min(CHUNK, size - at)]


def say(word: object) -> None:
    """A line for the parent."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def raw_rounds(size: int, n: int, rounds: int, tls: Path | None = None) -> list[float]:
    """Seconds of each round: n clients at once, `size` bytes each way for each of them. tls: a folder with a certificate."""
    folder = () if tls is None else (tls,)
    with child("serve", size, *folder) as server:
        port = int(heard(server))
        with ExitStack() as stack:
            clients = [stack.enter_context(child("client", port, size, rounds, *folder)) for _ in range(n)]
            for process in clients:
                heard(process)
            seconds = [one_round(clients) for _ in range(rounds)]
        server.kill()
    return seconds


def child(*words: object) -> Child:
    """This file as a process of its own, that reads and writes lines."""
    command = [sys.executable, __file__, *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


def heard(process: Child) -> str:
    """The next line of a process."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        sys.exit(f"The bare stream's process {process.pid} ended too early")
    return line


def one_round(clients: list[Child]) -> float:
    """From the word to begin to everybody done."""
    began = time.perf_counter()
    for process in clients:
        assert process.stdin is not None
        process.stdin.write("go\n")
    for process in clients:
        heard(process)
    return time.perf_counter() - began


if __name__ == "__main__":
    kind, *words = sys.argv[1:]
    numbers, folder = [int(word) for word in words if word.isdigit()], "".join(word for word in words if not word.isdigit())
    asyncio.run(serve(numbers[0], folder) if kind == "serve" else client(numbers[0], numbers[1], numbers[2], folder))
