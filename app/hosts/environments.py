"""The environments of another host, which its agent lists, makes and removes there as this program does here."""

from concurrent.futures import wait
from pathlib import Path

from app.agent_protocol import CancelJob, EnvironmentsManaged, ManageEnvironments, Progressed
from app.environments.known import find_uv, system_name
from app.environments.records import Action, EnvironmentAnswer, EnvironmentRequest, Report
from app.environments.steps import CancelledError
from app.errors import UserError
from app.hosts.link import Link
from app.hosts.remote_jobs import ScratchFiles
from app.hosts.routes import LinkLostError, RunReport

_LOOK_S = 0.2


class RemoteEnvironments:
    """What `manage_environments` does, on the host of a link; errors begin with the host's name."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._files = ScratchFiles(link)

    def __call__(self, action: Action, request: EnvironmentRequest, report: Report) -> EnvironmentAnswer:
        """Do what `action` says; raises `UserError`."""
        uv = self._send_uv(report) if action in ("offer", "add") else ""
        try:
            return self._follow(ManageEnvironments(self._link.number(), action, request, uv), report)
        except LinkLostError:
            raise
        except (UserError, OSError) as error:
            raise UserError(f"{self._link.name}: {error}") from error

    def _send_uv(self, report: Report) -> str:
        """Return the name of this program's uv there; "" where the host has one, or cannot run this one."""
        order = ManageEnvironments(self._link.number(), "list", EnvironmentRequest())
        if self._follow(order, report).lacks_uv != system_name():
            return ""

        def watch() -> None:
            if not report(f"Sending uv to {self._link.name} …"):
                raise CancelledError("Sending uv was stopped.")

        return self._files.send(Path(find_uv()), watch)

    def _follow(self, order: ManageEnvironments, report: Report) -> EnvironmentAnswer:
        lines = [""]

        def take(report: RunReport) -> None:
            if isinstance(report, Progressed):
                lines[0] = report.text

        self._link.routes.listen_run(order.number, take)
        answer, is_cancelled = self._link.order(order.number, order), False
        while not wait([answer], _LOOK_S).done:
            if not is_cancelled and not report(lines[0]):
                self._link.send(CancelJob(order.number))
                is_cancelled = True
        self._link.routes.forget_run(order.number)
        managed = answer.result()
        if not isinstance(managed, EnvironmentsManaged):
            raise LinkLostError(f"The agent on {self._link.name} answered something else; update both programs.")
        return managed.answer
