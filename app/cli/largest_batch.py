"""`run --largest-batch`: short runs of one variant until the largest batch that fits is known."""

from argparse import Namespace

from app.analysis.largest_batch import bounds_of
from app.cli.services import interrupts
from app.cli.terminal import ProgressSink, print_json
from app.report.largest_batch import largest_batch_document
from app.runs.largest_batch import LargestBatchSession
from app.runs.session import RunServices
from app.runs.sinks import Sink
from app.viewmodels.largest_batch import largest_batch_words
from workloads.protocol import RunSpec


def find_largest_batch(spec: RunSpec, services: RunServices, chosen: Namespace) -> int:
    """Searches, with each try's progress on stderr, and prints the answer; 0 when there is one."""
    bounds = bounds_of(spec, chosen.batch_limit, chosen.batch_step)
    session = LargestBatchSession(spec, bounds, services, _told)
    with interrupts(session.stop):
        found = session.run()
    if chosen.json:
        print_json(largest_batch_document(spec, found))
    else:
        print(largest_batch_words(found))
    return 0 if found.ending in ("found", "limit") else 1


def _told(number: int, batch_size: int) -> tuple[Sink, ...]:
    return (ProgressSink(f"[try {number}, batch {batch_size:,}] "),)
