"""The messages between the program and its driver on the head node of a Ray cluster, which opens an agent for each run.

A line that begins with a digit is an agent's: its number, a space, and the line as that agent gets or says it. Every
other line is a message of this file as a JSON object: orders on the driver's stdin, reports on its stdout. All agents
end when the driver's stdin closes.
"""

from typing import Annotated

import msgspec

from app.samples import Inventory
from workloads.protocol import TAG

Number = Annotated[int, msgspec.Meta(ge=0)]
"""Chosen by the program: it counts the agents."""


class OpenAgent(msgspec.Struct, frozen=True, kw_only=True, tag="open_agent", tag_field=TAG):
    """Start an agent on a node; answered by `AgentPlaced` or `AgentClosed`, and `AgentWaits` until then.

    Attributes:
        number: The new agent.
        gpus: How many GPUs it gets, of one node; 0 sees none.
        cpus: How many processors Ray counts as used by it.
        nodes: Ids of the nodes it may be on, the preferred one first.
    """

    number: Number
    gpus: int
    cpus: float
    nodes: tuple[str, ...]


class CloseAgent(msgspec.Struct, frozen=True, tag="close_agent", tag_field=TAG):
    """End an agent and everything it started; answered by `AgentClosed`."""

    agent: Number


DriverOrder = OpenAgent | CloseAgent


class DriverHello(msgspec.Struct, frozen=True, kw_only=True, tag="driver_hello", tag_field=TAG):
    """The driver's first report: it is connected to the cluster."""

    ray: str
    python: str
    host: str


class DriverFailed(msgspec.Struct, frozen=True, tag="driver_failed", tag_field=TAG):
    """The driver's last report: why it ends, in one sentence for the user."""

    reason: str


class RayNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the cluster.

    Attributes:
        node: Its id.
        name: Its host's name, with a part of its id where several nodes have that name.
        gpus: How many GPUs Ray may give away there, and `free_gpus` how many of them nobody has.
        cpus: The same for processors, and `free_cpus`.
        inventory: What its sampler finds there; None until it is known.
        problem: Why that is not known, in one sentence.
        has_reporter: Whether Ray's reporter runs there, which reads the GPUs and processes every few seconds.
    """

    node: str
    name: str
    gpus: int
    free_gpus: float
    cpus: float
    free_cpus: float
    inventory: Inventory | None = None
    problem: str | None = None
    has_reporter: bool = False


class RayNodes(msgspec.Struct, frozen=True, tag="ray_nodes", tag_field=TAG):
    """All nodes that are alive; comes again when anything changes."""

    nodes: tuple[RayNode, ...]


class AgentWaits(msgspec.Struct, frozen=True, kw_only=True, tag="agent_waits", tag_field=TAG):
    """What an agent waits for, in one sentence; comes again when that changes."""

    agent: Number
    missing: str


class AgentPlaced(msgspec.Struct, frozen=True, kw_only=True, tag="agent_placed", tag_field=TAG):
    """An agent was started on a node; its lines follow. `devices` are its GPUs, by UUID."""

    agent: Number
    node: str
    devices: tuple[str, ...]


class AgentClosed(msgspec.Struct, frozen=True, kw_only=True, tag="agent_closed", tag_field=TAG):
    """The last report on an agent: why it ended or never began, in one sentence."""

    agent: Number
    reason: str


DriverReport = DriverHello | DriverFailed | RayNodes | AgentWaits | AgentPlaced | AgentClosed
