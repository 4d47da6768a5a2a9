"""One run from its spec to its outcome: it waits for an idle machine, a host executes it, and its events are stored."""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from app.crash import write_report
from app.errors import UserError
from app.grants import Consent, refuse, require, source_grant, variant_grants
from app.log import run_number
from app.paths import weights_path
from app.runs.custom import modules_text, stored_source
from app.runs.host import Host, RunOrder, WorkerTimeouts
from app.runs.leases import Lease
from app.runs.maker import RunMaker
from app.runs.sinks import Sink, StoreSink, stored_calibration
from app.storage.files import disk_space
from app.storage.store import RunStore, Store
from app.values.environment_keys import CUSTOM_MODULES_KEY, CUSTOM_PATH_KEY, CUSTOM_SOURCE_KEY
from app.values.events import Outcome
from app.values.records import StoredRun
from workloads.catalog import is_script
from workloads.protocol import PROTOCOL_VERSION, RunSpec, Source, Start

_REPORTED_LINES = 100
"""How many last lines of a run's log go into a crash report."""


def _no_other_host(word: str) -> Host:
    raise UserError(f"Runs on {word} cannot be started from here.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServices:
    """What every run needs: its database, its host, and time limits for its worker.

    `open_host` reaches another host by the user's name for it; it may take a while, and raises `UserError`. `consent`
    is called, on the thread that starts something, for what was never allowed here.
    """

    database: Path
    host: Host
    open_host: Callable[[str], Host] = _no_other_host
    consent: Consent = refuse
    timeouts: WorkerTimeouts = field(default_factory=WorkerTimeouts)

    def on(self, word: str) -> "RunServices":
        """Return the services of another host; "" keeps the current one. Raises `UserError` if it cannot be reached."""
        return replace(self, host=self.open_host(word)) if word else self

    def admit(self, specs: Iterable[RunSpec], consent: Consent | None = None) -> None:
        """Check the grants of variants (`app.grants`), with one question for all; every start goes through this.

        Variants that the host refuses are left out. `consent` replaces the services' own if the user typed the values.

        Raises:
            UserError: A Python, packages or a text is not allowed.
        """
        possible = [spec for spec in specs if self.host.refusal(spec) is None]
        named = (grant for spec in possible for grant in variant_grants(spec.variant, self.host.name))
        sources = ((stored_source(spec, self.database), spec.variant) for spec in possible)
        texts = (source_grant(source, variant) for source, variant in sources if source)
        require((*named, *texts), consent or self.consent)


@dataclass(eq=False)
class RunSession:
    """One execution of one variant in one fresh worker, stored.

    Attributes:
        spec: What to run, complete.
        services: Its database and its host.
        sinks: Get every event, in order.
        purpose: Its purpose, unless it runs for its own sake.
        environment: Facts about its environment before it starts, stored with it.
        lease: Its devices, which the caller releases; None to lease them here.
        idle_wait_s: The longest wait for another machine to be idle; on this one the caller waits.

    Thread: `run` blocks its thread, once; `stop` any. Sinks are called on the thread of `run`.
    """

    spec: RunSpec
    services: RunServices
    sinks: Sequence[Sink] = ()
    purpose: str | None = field(default=None, kw_only=True)
    environment: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    lease: Lease | None = field(default=None, kw_only=True)
    idle_wait_s: float | None = field(default=None, kw_only=True)
    _stop_requested: bool = field(default=False, init=False)
    # Two references, each set once and read once, because a signal handler may stop the run at any moment.
    _maker: RunMaker | None = field(default=None, init=False)
    _sink: StoreSink | None = field(default=None, init=False)

    @property
    def number(self) -> int | None:
        """Return its number in the database; None until it has started."""
        return self._sink.run if self._sink else None

    @property
    def stored(self) -> StoredRun | None:
        """Return the run as stored, once it has ended; None if its end could not be stored."""
        return self._sink.stored if self._sink else None

    def stop(self) -> None:
        """Ask the run to end; returns immediately."""
        self._stop_requested = True
        if (maker := self._maker) is not None:
            maker.stop()

    def run_anyway(self) -> None:
        """Start although others use the devices that it waits for; returns immediately."""
        if (maker := self._maker) is not None:
            maker.run_anyway()

    def run(self) -> Outcome:
        """Execute the run, and return its outcome after storing it.

        Raises:
            UserError: It cannot run, for example for lack of disk space, or could not be stored completely. That says
                nothing about the variant.
        """
        if refusal := disk_space(self.services.database).refusal:
            raise UserError(refusal)
        numbered = run_number.set(None)
        try:
            return self._run()
        finally:
            run_number.reset(numbered)

    def _run(self) -> Outcome:
        services = self.services
        services.host.inventory()
        services.admit([self.spec])
        uid = uuid.uuid4().hex
        source = stored_source(self.spec, services.database)
        with RunStore.open(services.database) as store:
            sink = self._sink = StoreSink(store, self.sinks, is_live=True)
            order = RunOrder(
                start=start_order(self.spec, source, weights_path(services.database, uid).absolute()),
                uid=uid,
                purpose=self.purpose,
                environment={**source_info(source), **self.environment},
                idle_wait_s=self.idle_wait_s,
                timeouts=services.timeouts,
            )
            calibration = partial(needs_calibration, store, self.spec)
            self._maker = RunMaker(order, services.host, sink.handle, needs_calibration=calibration, lease=self.lease)
            if self._stop_requested:
                self._maker.stop()
            self._maker.run()
        if sink.failure is not None:
            raise sink.failure
        assert sink.ended is not None, "the maker has ended the run"
        outcome = sink.ended.outcome
        if outcome.name == "crashed" and sink.stored is not None:
            lines = "\n".join(line.text for line in sink.stored.log[-_REPORTED_LINES:])
            write_report(f"Run {sink.run} crashed: {outcome.reason}", f"End of the run's log:\n{lines}")
        return outcome


def source_info(source: Source | None) -> dict[str, str]:
    """Return the file of a custom workload and the user's modules that it imports, for its run's environment."""
    if source is None:
        return {}
    modules = {CUSTOM_MODULES_KEY: modules_text(source)} if source.modules else {}
    return {CUSTOM_PATH_KEY: source.path, CUSTOM_SOURCE_KEY: source.text, **modules}


def start_order(spec: RunSpec, source: Source | None, weights: Path) -> Start:
    """Return a worker's order, except for its devices; `weights` is the path for saving its weights, if requested."""
    variant = spec.variant
    # A calibration uses the program's own libraries, and on the CPU all threads.
    uses_defaults = not any(map(variant.get, ("cpu_threads", "interpreter", "packages")))
    return Start(
        protocol=PROTOCOL_VERSION,
        spec=spec,
        weights_path=str(weights) if variant.get("save_weights", False) else None,
        calibrate=variant.get("evidence", "off") != "off" and uses_defaults and not is_script(spec.workload),
        source=source,
    )


def needs_calibration(store: Store, spec: RunSpec, host: Host, devices: Sequence[str]) -> bool:
    return stored_calibration(store, spec, devices, host.name) is None
