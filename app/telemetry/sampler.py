"""The sampler: a process of its own, so that its rate depends on neither the window nor the training loop.

    python -m app.telemetry.sampler HZ

writes one JSON object a line on stdout: an `Inventory`, then `Sample`s and `DeviceLost`s; reads `Follow` lines on stdin
and ends when stdin closes.
"""

import os
import queue
import sys
import threading
import time
from typing import BinaryIO

import msgspec

from app.telemetry.inventory import Sources, open_sources
from app.telemetry.source import Follow, SamplerMessage


def main() -> None:
    """Samples until stdin closes."""
    period_ns = int(1e9 / float(sys.argv[1]))
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    orders: queue.SimpleQueue[Follow | None] = queue.SimpleQueue()
    threading.Thread(target=_read_orders, args=(sys.stdin.buffer, orders), daemon=True).start()
    sources = open_sources()
    try:
        _write(out, [sources.inventory])
        _sample(sources, out, orders, period_ns)
    except BrokenPipeError:
        pass  # the program that asked is gone
    finally:
        sources.close()


def _sample(sources: Sources, out: BinaryIO, orders: "queue.SimpleQueue[Follow | None]", period_ns: int) -> None:
    next_ns = time.monotonic_ns()
    while True:
        _write(out, [*(sources.nvml.read() if sources.nvml else ()), *sources.host.read()])
        # A tick that comes too late is left out, never made up for: samples are never closer than the period.
        next_ns = max(next_ns + period_ns, time.monotonic_ns())
        while (left_ns := next_ns - time.monotonic_ns()) > 0:
            try:
                order = orders.get(timeout=left_ns / 1e9)
            except queue.Empty:
                break
            if order is None:
                return
            sources.host.follow(order.pid)


def _write(out: BinaryIO, messages: list[SamplerMessage]) -> None:
    out.write(b"".join(msgspec.json.encode(message) + b"\n" for message in messages))
    out.flush()


def _read_orders(stdin: BinaryIO, orders: "queue.SimpleQueue[Follow | None]") -> None:
    decoder = msgspec.json.Decoder(Follow)
    for line in stdin:
        orders.put(decoder.decode(line))
    orders.put(None)


if __name__ == "__main__":
    main()
