"""Print the kernels of a profiler's trace: `python -m workloads.tensorflow.evidence FILE.xplane.pb [STEPS]`."""

import sys
from pathlib import Path

from workloads.tensorflow.evidence.xplane import read


def main() -> None:
    """Print a trace's table: microseconds, count, class, tensor cores, name."""
    data = Path(sys.argv[1]).read_bytes()
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    trace = read(data, steps, gpu=True)
    if not trace.devices:
        trace = read(data, steps, gpu=False)
    lines = [f"{trace.devices} device(s), span {trace.span_ns / 1e3:.1f} us, busy {trace.busy_ns / 1e3:.1f} us"]
    for kernel in trace.kernels:
        cores = {True: "tensor", False: "cuda", None: "-"}[kernel.tensor_cores]
        lines.append(f"{kernel.time_ns / 1e3:12.1f} {kernel.count:8} {kernel.kind:13} {cores:7} {kernel.name}")
    lines += [f"xla: {op.type} {op.dtype} {op.layout} exact={op.exact} {op.loop} {op.name}" for op in trace.programs]
    sys.stdout.write("\n".join((*lines, *trace.notes)) + "\n")


if __name__ == "__main__":
    main()
