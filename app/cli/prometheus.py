"""`watch --prometheus`: the newest reading of each device for a Prometheus server.

A metric for each row of the field table, by the row's name with its unit, and labels that say which device.
https://prometheus.io/docs/instrumenting/writing_exporters/
"""

import contextlib
from collections.abc import Iterator

import msgspec
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.cli.terminal import say
from app.report.documents import TelemetryMessage
from app.values.fields import FIELDS, Sample, SlowSample
from app.values.samples import HOST, Device, DeviceLost, Inventory
from workloads.catalog import UsageError

_LABELS = ("device", "name", "uuid")


class TelemetryMetrics(Collector):
    """The newest values of each device that answers.

    `take` is called on one thread and `collect` on the server's; each replaces or reads a whole dictionary.
    """

    def __init__(self) -> None:
        self._devices: dict[str, Device] = {}
        self._values: dict[str, dict[str, float | None]] = {}

    def take(self, message: TelemetryMessage | Inventory) -> None:
        if isinstance(message, Inventory):
            self._devices = {device.device: device for device in message.devices}
        elif isinstance(message, DeviceLost):
            self._values = {device: values for device, values in self._values.items() if device != message.device}
        elif isinstance(message, Sample | SlowSample):
            new = {name: value for name, value in msgspec.structs.asdict(message).items() if name in FIELDS}
            self._values = {**self._values, message.device: {**self._values.get(message.device, {}), **new}}

    def collect(self) -> Iterator[Metric]:
        devices, values = self._devices, self._values
        for name, field in FIELDS.items():
            family = CounterMetricFamily if field.kind == "counter" else GaugeMetricFamily
            metric = family(f"variantscope_{name}", f"{field.label}: {field.meaning}", labels=_LABELS)
            for device, reading in values.items():
                if (value := reading.get(name)) is not None and (card := devices.get(device)) is not None:
                    number = "host" if device == HOST else str(card.index)
                    metric.add_metric([number, card.name, device], value)
            if metric.samples:
                yield metric


@contextlib.contextmanager
def served(address: str) -> Iterator[TelemetryMetrics]:
    """Serve metrics at `[ADDRESS:]PORT` while the block runs.

    Raises:
        UsageError: The address is none, or another program has its port.
    """
    interface, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit() and 0 <= int(port) < 65536):
        raise UsageError(f"--prometheus takes a port, or ADDRESS:PORT, such as 9400; this is {address}.")
    metrics, registry = TelemetryMetrics(), CollectorRegistry()
    registry.register(metrics)
    interface = interface.strip("[]") or "127.0.0.1"
    try:
        server, thread = start_http_server(int(port), interface, registry)
    except OSError as error:
        raise UsageError(f"Port {port} of {interface} is not free for --prometheus ({error.strerror}).") from error
    host, port_number = server.server_address[:2]
    say(f"Serving http://{host!s}:{port_number}/metrics until Ctrl-C.")
    try:
        yield metrics
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
