"""A rank other than 0, in its own process: rank 0 starts `python workloads/entry.py workloads.pytorch.rank`.

The first line on its stdin is the order, each further line what rank 0 does at that moment; the end of stdin ends it.
It writes to stdout its state after a trace, or how it failed.
"""

import os
import sys
import traceback
from pathlib import Path
from typing import BinaryIO

import msgspec

from workloads.catalog import is_custom
from workloads.cifar10 import stored_data
from workloads.control import claim_stdout, set_parent_death_signal
from workloads.errors import outcome_of
from workloads.protocol import encode
from workloads.pytorch.backend import PytorchBackend
from workloads.pytorch.custom import build_custom_step
from workloads.pytorch.gradients import parted_step
from workloads.pytorch.ranks import Group, RankOrder, mean_over_ranks, trace_rank
from workloads.pytorch.steps import Step, build_step, configure, fetch


def _follow(orders: BinaryIO, step: Step, group: Group, answers: BinaryIO) -> None:
    """Do what rank 0 does, until its lines end."""
    for line in orders:
        word, *arguments = line.decode().rstrip("\n").split(" ", 2)
        match word:
            case "step":
                result = step()
            case "mean":
                fetch(mean_over_ranks(result))
            case "differentiate":
                result = step.differentiate_next()
            case "halve":
                step.halve_scale()
            case "test":
                result = step.count_correct()
            case "statistics":
                for statistic in step.statistics():
                    mean_over_ranks(statistic)
            case "reuse":
                step.reuse_batches(arguments == ["1"])
            case "trace":
                try:
                    trace_rank(step, group, int(arguments[0]), Path(arguments[1]))
                except Exception:  # noqa: BLE001 - a profiler's failure must not cost the run
                    traceback.print_exc(file=sys.stderr)
                answers.write(encode(step.state()))
                answers.flush()


def main() -> None:
    """Compute with rank 0, then exit without PyTorch's teardown, which may wait for other ranks."""
    answers, orders = claim_stdout(), sys.stdin.buffer
    os.register_at_fork(after_in_child=answers.close)  # otherwise rank 0 would also wait for a user's forked processes
    order = msgspec.json.decode(orders.readline(), type=RankOrder)
    if set_parent_death_signal() != order.parent:
        return
    group = Group.of(order)
    try:
        device = configure(order.spec.variant, order.share.rank)
        step: Step
        if order.gradients is not None:
            step, *_ = parted_step(order.gradients, device, group.share)
        elif is_custom(order.spec.workload):
            step = build_custom_step(order.spec, order.source, device, group.share)
        else:
            step = build_step(order.spec, device, group.share, stored_data(order.spec.variant))
        group.connect(step.device)
        step.join()
        _follow(orders, step, group, answers)
    except Exception as error:  # noqa: BLE001 - the process's edge: rank 0 reports it as its own end
        traceback.print_exc(file=sys.stderr)
        cause = PytorchBackend().explain_error(error)
        answers.write(encode(outcome_of(error, order.spec.variant, None, order.source, cause)))
        answers.flush()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
