"""`python -m benchmarks [NAME]`: the program's own cost, each figure with a baseline of the same run.

Without a name all are made. The checkout's environment has what they need once `python3 start.py test` has run.
"""

import sys

from benchmarks import answer, compare, database, estimates, link, quick, sampler, why, window, worker
from benchmarks.harness import main

if __name__ == "__main__":
    sys.exit(
        main(
            "python -m benchmarks",
            {
                "start": window.measure_start,
                "worker": worker.measure,
                "sampler": sampler.measure,
                "link": link.measure,
                "frame": window.measure_frames,
                "use": window.measure_use,
                "compare": compare.measure,
                "answer": answer.measure,
                "database": database.measure,
                "why": why.measure,
                "quick": quick.measure,
                "estimates": estimates.measure,
            },
        )
    )
