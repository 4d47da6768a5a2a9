"""What the Run screen shows: the run's events folded into curves, phases, progress and the outcome in words."""

from dataclasses import dataclass

from app.records import Outcome, RunEnded, RunEvent, RunStarted
from app.samples import Device, DeviceLost, Inventory, Processes, Sample
from app.telemetry.recording import TraceStarted
from app.viewmodels import units
from app.viewmodels.beside import RunTab, run_tabs
from app.viewmodels.course import FIELDS, Course
from app.viewmodels.course_panels import training_panels, with_allocator
from app.viewmodels.evidence import EvidenceView
from app.viewmodels.naming import short_name
from app.viewmodels.panels import Panel, device_panels, gpus_among, with_throttles
from app.viewmodels.plotted import Band, Moment
from app.viewmodels.progress import outcome_words
from app.viewmodels.run_facts import summary_line
from app.viewmodels.throttling import Throttling
from app.viewmodels.time_view import Frame, TimeView, WindowName
from app.viewmodels.tracks import Tracks, device_label
from workloads.protocol import RunSpec

_IDLE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Where the run stands, in words. `tone` is a role of the style: good, warning, bad or heading."""

    title: str
    tone: str = "heading"
    detail: str = ""
    name: str = ""
    fraction: float | None = None
    left: str = ""
    has_log: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """Everything the live view shows; times in seconds after `origin_s` of the monotonic clock.

    `held` names a view that stands still and is empty for one that follows; `growing` is false once a run has ended;
    `apart` is a panel for each GPU, which is no choice with fewer than two of them (`several`). `evidence` is what an
    ended run left. `runs` are those that go on at the same time, empty where there is only one, and `run` is the
    number of the one shown.
    """

    runs: tuple[RunTab, ...]
    run: int | None
    origin_s: float
    window_s: tuple[float, float]
    window: WindowName
    held: str
    growing: bool
    several: bool
    apart: bool
    panels: tuple[Panel, ...]
    bands: tuple[Band, ...]
    moments: tuple[Moment, ...]
    status: Status
    number: str
    unit: str
    spread: str
    facts: str
    evidence: EvidenceView | None = None

    def reading(self, time: float) -> str:
        """What else is known of a time on the axis: when it is, the phase, what held a GPU back."""
        minutes, seconds = divmod(abs(time), 60.0)
        words = [f"{'−' if time < 0 else ''}{int(minutes)}:{seconds:04.1f}"]
        words += [band.name for band in self.bands if band.start <= time < band.end]
        t_s = time + self.origin_s
        throttles = dict.fromkeys(
            f"{device_label(device)} held back: {throttle.words}"
            for panel in self.panels
            for throttle, device in panel.throttles
            if throttle.start_s <= t_s <= throttle.end_s
        )
        return "  ·  ".join([*words, *throttles])


_READY = Status(
    title="Ready to run",
    detail="Choose a variant at the left, then press Run (Ctrl+R). Below is what the machine does now.",
)
_COMING = Status(title="The first run is to begin", detail="The queue below says what it waits for.")


class LiveModel:
    """Folds events in their order. Before a run it shows the last minute of telemetry, after one it keeps that run.

    Of several runs at once it shows one, the newest once that has ended, and keeps what the others tell.
    """

    def __init__(self) -> None:
        self._inventory: Inventory | None = None
        self._idle = Tracks(brief=True)
        self._idle_throttling = Throttling()
        self._view = TimeView()
        self._apart = False
        self._coming = False
        self._course = Course()
        self._courses = [self._course]
        self._tabs: tuple[RunTab, ...] = ()
        self._chosen = False

    def request(self, spec: RunSpec) -> None:
        """A run was asked for: until its first event the screen says that it starts."""
        self._show_alone(Course(requested=spec))

    def withdraw(self) -> None:
        """The run asked for could not even begin."""
        self._show_alone(Course())

    def expect(self, coming: bool) -> None:
        """Whether the queue makes runs now, for which nobody presses Run; when it makes none any more, none goes on."""
        self._coming = coming
        if coming:
            for course in self._courses:
                course.beside = False
            return
        self._courses = [course for course in self._courses if not course.running]
        self._tabs = run_tabs(self._courses)
        if self._course.running:
            self.withdraw()

    @property
    def log(self) -> str:
        """The traceback and the worker's own words, for reading."""
        return self._course.log

    def show_run(self, run: int) -> None:
        """Show another one of the runs that go on, or that went on beside them."""
        course = self._of(run)
        if course is not None:
            self._show(course)
            self._chosen = True

    def follow(self, window: WindowName | None = None) -> None:
        """Follow what is new, in the same window or another one."""
        self._view.follow(window)

    def hold_or_follow(self) -> None:
        """Hold the view where it is, or follow again."""
        if self._view.held:
            self._view.follow()
        else:
            self._view.hold(self._frame())

    def zoom(self, factor: float, at: float) -> None:
        """Show `factor` times as long a stretch around a time on the axis, and hold it."""
        self._view.zoom(self._frame(), factor, at)

    def pan(self, by: float) -> None:
        """Move along the axis by so many seconds, and hold that."""
        self._view.pan(self._frame(), by)

    def show_apart(self, apart: bool) -> None:
        """A panel for each GPU, or one for all of them."""
        self._apart = apart

    def handle(self, event: RunEvent | Inventory | TraceStarted | Processes, run: int | None = None) -> None:
        """Take one event: that of a run is of the one with that number, without one of the only run there is."""
        match event:
            case Inventory():
                self._inventory = event
            case Sample():
                self._take_sample(event)
            case DeviceLost():
                self._take_loss_of_device(event)
            case RunStarted() | TraceStarted():
                self._begin(Course(event), alone=run is None)
            case Processes():
                pass
            case _:
                self._take(event, run)

    def state(self) -> LiveState:
        """Everything to show now."""
        frame = self._frame()
        number, spread = self._course.headline
        return LiveState(
            runs=self._tabs,
            run=self._course.number,
            origin_s=frame.origin_s,
            window_s=(frame.start, frame.end),
            window=self._view.window,
            held=("Paused" if self._course.ended is None else "Part of the run") if self._view.held else "",
            growing=self._course.ended is None,
            several=len(gpus_among(self._devices)) > 1,
            apart=self._apart,
            panels=self._panels(frame),
            bands=self._course.phases.bands(frame.origin_s, self._now_s),
            moments=tuple(Moment(words, t_s - frame.origin_s) for words, t_s in self._course.moments),
            status=self._status(),
            number=number,
            unit=units.rate_unit(self._course.example) if number else "",
            spread=spread,
            facts=summary_line(self._course.ended.summary, self._course.example) if self._course.ended else "",
            evidence=self._course.evidence_view,
        )

    def _take_sample(self, sample: Sample) -> None:
        self._idle.add(sample, FIELDS)
        self._idle_throttling.add(sample)
        for course in self._courses:
            course.take(sample)

    def _take_loss_of_device(self, event: DeviceLost) -> None:
        devices = self._inventory.devices if self._inventory else ()
        name = next((device_label(d) for d in devices if d.device == event.device), event.device)
        for course in self._courses:
            course.lose(name, event)

    def _take(self, event: RunEvent, run: int | None) -> None:
        course = self._of(run)
        if course is None:
            return
        course.take(event)
        if isinstance(event, RunEnded):
            self._tabs = run_tabs(self._courses)
            going = [other for other in self._courses if other.running]
            if course is self._course and going and not self._view.held:
                self._show(max(going, key=lambda other: other.begun_s))

    def _begin(self, new: Course, *, alone: bool) -> None:
        """A run begins; those that go on beside it are kept, and the one shown stays where someone looks at it."""
        kept = [] if alone else [course for course in self._courses if course.stays_beside(new)]
        going = [course for course in kept if course.running]
        for course in (*going, *([new] if going else [])):
            course.beside = True
        self._courses = sorted((*kept, new), key=lambda course: course.place)
        self._tabs = run_tabs(self._courses)
        if self._course not in going and not (self._course in kept and (self._chosen or self._view.held)):
            self._show(new)

    def _of(self, run: int | None) -> Course | None:
        """The run of that number, where it is still known."""
        if run is None:
            return self._course
        return next((course for course in self._courses if course.number == run), None)

    def _show(self, course: Course) -> None:
        self._course, self._chosen = course, False
        self._view.follow()

    def _show_alone(self, course: Course) -> None:
        self._courses, self._tabs = [course], ()
        self._show(course)

    @property
    def _now_s(self) -> float:
        return (self._idle.now_s or 0.0) if self._course.started is None else self._course.now_s

    @property
    def _devices(self) -> tuple[Device, ...]:
        if self._course.started is not None:
            return self._course.started.devices
        return self._inventory.devices if self._inventory else ()

    def _frame(self) -> Frame:
        course = self._course
        if course.started is None:
            return self._view.recent(self._now_s, _IDLE_S)
        return self._view.of_run(course.started.t_ns / 1e9, self._now_s, ended=course.ended is not None)

    def _panels(self, frame: Frame) -> tuple[Panel, ...]:
        course = self._course
        tracks, throttling = (
            (course.tracks, course.throttling) if course.started else (self._idle, self._idle_throttling)
        )
        cpu_count = self._inventory.machine.cpu_count if self._inventory else 1
        panels = device_panels(self._devices, tracks, cpu_count, apart=self._apart)
        held_back = throttling.between(frame.origin_s + frame.start, frame.origin_s + frame.end)
        devices = {device.device: device for device in self._devices}
        throttles = [(each, devices[each.device]) for each in held_back if each.device in devices]
        shown = (with_allocator(with_throttles(panel, throttles), course) for panel in panels)
        return (*shown, *training_panels(course))

    def _status(self) -> Status:
        if isinstance(self._course.started, TraceStarted):
            return Status(title="Recorded telemetry", detail=" ".join(self._course.lost))
        if self._course.spec is None:
            return _COMING if self._coming else _READY
        name = short_name(self._course.spec)
        if self._course.ended is not None:
            return self._final_status(self._course.ended.outcome, name)
        phase = self._course.phases
        return Status(
            title="Waiting" if self._course.waiting else phase.title,
            detail=" ".join([self._course.waiting, *self._course.lost]).strip(),
            name=name,
            fraction=phase.fraction,
            left=phase.left_words(self._course.spec),
        )

    def _final_status(self, outcome: Outcome, name: str) -> Status:
        title, tone = outcome_words(outcome)
        detail = " ".join([outcome.reason or "", *self._course.lost]).strip()
        return Status(title=title, tone=tone, detail=detail, name=name, has_log=bool(self.log))
