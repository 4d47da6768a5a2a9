"""Jobs on another host, and the files that go there and come back."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from app.agent_protocol import FILE_PIECE_BYTES, FilePart, JobDone, ReadFile, RemoveFile, StartJob, WriteFile
from app.errors import UserError, read_error, write_error
from app.hosts.link import Link
from app.paths import open_private
from app.runs.host import calibrated_device
from app.runs.jobs import JobCrashedError, JobError, Kind
from app.runs.launcher import Said
from workloads.job_protocol import ComputeGradients, ExportModel, JobFailed, JobRequest, TryWeights
from workloads.protocol import Calibration


class ScratchFiles:
    """The agent's own folder for files, which is gone with the agent.

    Thread: any.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        # By path here: time and size of the copy, and its name there. Written by threads of jobs, each with paths of
        # its own.
        self._copies: dict[Path, tuple[int, int, str]] = {}

    def new_name(self) -> str:
        """Return a name that no file there has."""
        return f"{self._link.number()}.npz"

    def send(self, path: Path, watch: Callable[[], None] = lambda: None) -> str:
        """Return the name of a copy of this file there; one that is there already is not sent again.

        `watch` is called before each piece; what it raises ends the copy.

        Raises:
            UserError: It cannot be read here, or not be written there.
        """
        try:
            status = path.stat()
            modified_ns, size, name = self._copies.get(path, (0, 0, ""))
            if (modified_ns, size) != (status.st_mtime_ns, status.st_size):
                name = self.new_name()
                self._copy_there(path, name, watch)
                self.remember(path, name)
            return name
        except FileNotFoundError as error:
            raise read_error(path, error) from error

    def remove(self, name: str) -> None:
        """Remove a file there; returns at once."""
        self._link.send(RemoveFile(number=self._link.number(), name=name))

    def remember(self, path: Path, name: str) -> None:
        """Note that a file there is a copy of this one; the copy that it replaces is removed."""
        _, _, former = self._copies.get(path, (0, 0, ""))
        status = path.stat()
        self._copies[path] = (status.st_mtime_ns, status.st_size, name)
        if former:
            self.remove(former)

    def _copy_there(self, path: Path, name: str, watch: Callable[[], None]) -> None:
        offset = 0
        with path.open("rb") as file:
            while (data := file.read(FILE_PIECE_BYTES)) or not offset:
                watch()
                self._ask(WriteFile(number=self._link.number(), name=name, offset=offset, data=data))
                offset += len(data)
                if not data:
                    return

    def fetch(self, name: str, path: Path) -> None:
        """Copy a file from there to this path, whole or not at all.

        Raises:
            UserError: It cannot be read there, or not be written here.
        """
        part = path.with_name(f"{path.name}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(part, "wb", opener=open_private) as file:
                size = 1
                while file.tell() < size:
                    piece = self._ask(ReadFile(number=self._link.number(), name=name, offset=file.tell()))
                    if not piece.data and file.tell() < piece.size:
                        raise UserError(f"{self._link.name} sent {path.name} incompletely; try again.")
                    file.write(piece.data)
                    size = piece.size
            part.replace(path)
        except OSError as error:
            raise write_error(path, error) from error
        finally:
            part.unlink(missing_ok=True)

    def _ask(self, order: ReadFile | WriteFile) -> FilePart:
        try:
            return self._link.ask(order, FilePart)
        except OSError as error:
            raise UserError(f"{self._link.name}: {error}; free space there, or look at its permissions.") from error


def with_host(message: Said, host: str) -> Said:
    """Return what a worker or a job of a host said, with the host in what would be stored as this machine's."""
    if not isinstance(message, Calibration):
        return message
    return msgspec.structs.replace(message, device=calibrated_device(message.device, host))


class RemoteJobs:
    """Runs jobs in processes of a host, as `app.runs.jobs.run_job` does on this machine.

    Thread: any; a call blocks its thread.
    """

    def __init__(self, link: Link, files: ScratchFiles) -> None:
        self._link = link
        self._files = files

    def __call__(
        self, request: JobRequest, result_type: type[Kind], is_overdue: Callable[[], bool] | None = None, /
    ) -> Kind:
        """Run a job there, with the files that it reads, and bring those here that it writes.

        The paths of the request are of this machine. `is_overdue` is called several times a second; None for no limit.

        Raises:
            JobError: The job failed.
            TimeoutError: It was overdue; its process is gone.
            UserError: The link is lost, or a file cannot be copied.
        """
        there, written = self._with_files(request)
        job = StartJob(number=self._link.number(), request=there)
        result = with_host(self._link.ask(job, JobDone, is_overdue).result, self._link.name)
        if isinstance(result, JobFailed):
            raise JobError(result.reason)
        if not isinstance(result, result_type):
            raise JobCrashedError("The process that did this broke the protocol: it answered something else.")
        for name, path in written:
            self._files.fetch(name, path)
            self._files.remember(path, name)  # the next job may begin with what this one has found
        return result

    def _with_files(self, request: JobRequest) -> tuple[JobRequest, list[tuple[str, Path]]]:
        """Return the job with names of files there, and the name there and the path here of each that it writes."""
        match request:
            case TryWeights(weights_path=weights):
                return msgspec.structs.replace(request, weights_path=self._files.send(Path(weights))), []
            case ComputeGradients(path=path, start_path=start):
                name, begun = self._files.new_name(), None if start is None else self._files.send(Path(start))
                return msgspec.structs.replace(request, path=name, start_path=begun), [(name, Path(path))]
            case ExportModel():
                raise UserError("Models are exported on this machine only; leave the host out.")
            case _:
                return request, []
