"""`python -m tests.reliability [NAME]`: kill, flood and outlast the program, and count what was lost or left.

Without a name all are made; `soak` takes a quarter of an hour for its 1,000 runs, the kills about four seconds each.
"""

import sys

from benchmarks.harness import main
from tests.reliability import flood, resume, soak

if __name__ == "__main__":
    sys.exit(
        main("python -m tests.reliability", {"resume": resume.measure, "flood": flood.measure, "soak": soak.measure})
    )
