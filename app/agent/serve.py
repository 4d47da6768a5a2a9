"""The process of an agent: reads orders from stdin for as long as the program is there, then ends everything."""

import logging
import os
import platform
import select
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import msgspec

from app import units
from app.agent.agent import Agent
from app.agent.guard import end_everything, print_error
from app.agent.processes import Outbox
from app.agent_protocol import AGENT_PROTOCOL, LOST_S, AgentHello, Order
from app.errors import bug_message
from app.log import configure_child
from app.storage.owner import boot_id, host_id
from app.telemetry.sampler_process import claim_output
from workloads.catalog import FRAMEWORKS, lacks_framework
from workloads.protocol import MOST_MESSAGE_BYTES, ProtocolError, decode

_STDIN = 0
_CHUNK_BYTES = 65_536
_decoder: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)


def serve(scratch: Path, guard: int) -> int:
    """Follow the orders on stdin until the program is gone, and end everything; return the exit status.

    The folder `scratch` is empty, and is removed at the end. The file `guard` closes when the guard is gone.
    """
    os.set_blocking(1, True)
    outbox = Outbox(claim_output())
    _configure_log()
    agent = Agent(scratch, outbox)
    outbox.answer(_hello(scratch))
    complaint = _follow_all(agent, guard)
    agent.close()
    if complaint:
        print_error(f"The agent on {platform.node()} ends: {complaint}")
    end_everything(scratch)
    return 1 if complaint else 0


def _follow_all(agent: Agent, guard: int) -> str:
    """Follow orders until stdin closes; return "", or why they end before."""
    try:
        for order in read_orders(_STDIN, guard):
            agent.follow(order)
    except ProtocolError as error:
        return f"what it was told is {error}."
    except TimeoutError:
        quiet = units.exactly(LOST_S, "s")
        return f"the program sent nothing for {quiet}, so the link is cut or the program is suspended."
    except ChildProcessError:
        return "its guard, the process that it was started as, was killed."
    except Exception as error:  # noqa: BLE001 - the edge of the process: whatever happens, nothing is left here
        traceback.print_exc()
        return bug_message(error)
    return ""


def _hello(scratch: Path) -> AgentHello:
    return AgentHello(
        protocol=AGENT_PROTOCOL,
        pid=os.getpid(),
        t_ns=time.monotonic_ns(),
        utc_ns=time.time_ns(),
        host_id=host_id(),
        boot_id=boot_id(),
        python=platform.python_version(),
        scratch=str(scratch),
        frameworks=tuple(key for key, framework in FRAMEWORKS.items() if not lacks_framework("", framework)),
    )


def _configure_log() -> None:
    """Log to the file of a program on this same machine, else nowhere: stderr is for what ends the agent."""
    configure_child()
    logging.getLogger("variantscope").addHandler(logging.NullHandler())


def read_orders(stdin: int, guard: int, lost_s: float = LOST_S) -> Iterator[Order]:
    """Yield the orders until stdin closes.

    The file `guard` closes when the guard is gone. The program is lost after `lost_s` seconds in which nothing came.

    Raises:
        ProtocolError: Something else came; its text ends a sentence.
        TimeoutError: Nothing came for too long.
        ChildProcessError: The guard is gone.
    """
    poll = select.poll()
    poll.register(stdin, select.POLLIN)
    poll.register(guard, 0)
    rest = b""
    heard_s = time.monotonic()
    while True:
        ready = poll.poll(max(0.0, heard_s + lost_s - time.monotonic()) * 1e3)
        if not ready:
            raise TimeoutError
        if any(file == guard for file, _ in ready):
            raise ChildProcessError
        data = os.read(stdin, _CHUNK_BYTES)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) >= MOST_MESSAGE_BYTES:
            lines.append(rest)  # too long: decoding says so
        for line in lines:
            yield decode(_decoder, line, "an order")
        heard_s = time.monotonic()
