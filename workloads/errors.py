"""How a run can end other than completed, said by the code that notices; each message is one plain sentence."""


class RefusedError(Exception):
    """The variant cannot run here."""


class OutOfMemoryError(Exception):
    """A device or the host has not enough memory."""


class TrainingError(Exception):
    """Training itself went wrong (a loss that is not finite), with nothing wrong in the program."""


class OwnWorkloadError(Exception):
    """A user's own file is not as its interface has it; the message begins with the file and the line."""
