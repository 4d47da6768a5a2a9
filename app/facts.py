"""Names of facts in a run's environment that the program itself adds and reads again."""

OTHERS_ON_GPU = "others_on_gpu"
"""The fact in a run's environment that says who else used its GPUs; absent where nobody was seen."""

GPUS_USED = "gpus_used"
"""The fact that names the GPUs that a run used."""

BESIDE = "beside"
"""The fact that names the other GPUs on which runs of the same experiment went on meanwhile; absent where none did."""

GATE = "gate"
"""The fact that says how long an experiment waited before the run, and for what in vain."""

HOST_LOAD_PCT = "host_load_pct"
"""The fact that says the load of all processors just before the run."""

THROTTLED_PCT = "throttled_pct"
"""The fact that says for how much of its measured part the run was throttled; absent where it was not."""

OWN_SOURCE = "own_source"
"""The whole text of the file that a user's own workload is in: so it travels with its runs."""

OWN_PATH = "own_path"
"""Where that file lay."""

OF_ONE_RUN = frozenset({OTHERS_ON_GPU, BESIDE, GATE, HOST_LOAD_PCT, THROTTLED_PCT, OWN_SOURCE, OWN_PATH})
"""Facts of one run and not of its machine: that they differ between runs is no difference of environments."""
