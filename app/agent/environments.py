"""The environments of this host, as the program orders them made, listed and removed."""

import queue
import threading

from app.environments.records import (
    Environment,
    EnvironmentOffer,
    EnvironmentProgress,
    EnvironmentRequest,
    Environments,
    EnvironmentsListed,
    EnvironmentStep,
    FollowEnvironment,
    ListEnvironments,
    MakeEnvironment,
    RemoveEnvironment,
)
from app.errors import UserError

_STEP_S = 0.3
"""How long the answer to an order waits for news."""

Order = MakeEnvironment | FollowEnvironment | ListEnvironments | RemoveEnvironment


class AgentEnvironments:
    """Follows the orders about environments; those that are being made have the numbers of their orders.

    Thread: any; an answer may take a while.
    """

    def __init__(self) -> None:
        self._makings: dict[int, _Making] = {}

    def follow(self, order: Order) -> EnvironmentStep | EnvironmentsListed:
        """Do what an order says; raises `UserError`."""
        from app.environments.managed import LOCAL_ENVIRONMENTS  # here, for an agent starts sooner without it

        match order:
            case MakeEnvironment(number=number, request=request):
                self._makings[number] = _Making(LOCAL_ENVIRONMENTS, request)
                return self._step(number, number)
            case FollowEnvironment(making=making):
                if making not in self._makings:
                    raise UserError("That environment is not being made any more; `env list` shows what there is.")
                self._makings[making].answer(go_on=order.go_on)
                return self._step(order.number, making)
            case RemoveEnvironment(name=name):
                LOCAL_ENVIRONMENTS.remove(name)
        return EnvironmentsListed(number=order.number, environments=tuple(LOCAL_ENVIRONMENTS.list()))

    def _step(self, number: int, making: int) -> EnvironmentStep:
        """Return what is new, and forget what is over; raises what its making did."""
        match self._makings[making].news():
            case Environment() as made:
                del self._makings[making]
                return EnvironmentStep(number=number, made=made)
            case Exception() as error:
                del self._makings[making]
                raise error
            case EnvironmentOffer() as offer:
                return EnvironmentStep(number=number, offer=offer)
            case progress:
                return EnvironmentStep(number=number, progress=progress)


class _Making:
    """One environment that is being made, on a thread of its own."""

    def __init__(self, environments: Environments, request: EnvironmentRequest) -> None:
        self._environments = environments
        self._request = request
        self._ends: queue.SimpleQueue[Environment | EnvironmentOffer | Exception] = queue.SimpleQueue()
        self._last: EnvironmentProgress | None = None
        self._offered = False
        self._answered = threading.Event()
        self._cancelled = threading.Event()
        threading.Thread(target=self._make, name=f"make {request.name}", daemon=True).start()

    def news(self) -> Environment | EnvironmentOffer | EnvironmentProgress | Exception | None:
        """Return an offer or the end, else, after a moment, the progress."""
        try:
            news = self._ends.get(timeout=_STEP_S)
        except queue.Empty:
            return self._last
        self._offered = isinstance(news, EnvironmentOffer)
        return self._last if self._offered and self._cancelled.is_set() else news

    def answer(self, *, go_on: bool) -> None:
        """Go on, also with what was offered; or end it.

        An offer that waits to be fetched is not answered yet: what goes on then goes on with the progress seen before.
        """
        if not go_on:
            self._cancelled.set()
        if self._offered or not go_on:
            self._answered.set()

    def confirm(self, offer: EnvironmentOffer) -> bool:
        """Offer it to the program, and wait for its answer; an end of the program ends the wait with the process."""
        self._ends.put(offer)
        self._answered.wait()
        return not self._cancelled.is_set()

    def progress(self, progress: EnvironmentProgress) -> None:
        """Keep it for the next that asks."""
        self._last = progress

    def is_cancelled(self) -> bool:
        """Return whether the program has ended it."""
        return self._cancelled.is_set()

    def _make(self) -> None:
        try:
            self._ends.put(self._environments.make(self._request, self))
        except Exception as error:  # noqa: BLE001 - the thread that asks next raises it
            self._ends.put(error)
