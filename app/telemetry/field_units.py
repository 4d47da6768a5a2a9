"""The unit of every field of telemetry."""

_BY_ENDING = (
    ("_bytes_per_s", "bytes/s"),
    ("_bytes", "bytes"),
    ("_mw", "mW"),
    ("_mj", "mJ"),
    ("_pct", "%"),
    ("_mhz", "MHz"),
    ("_ns", "ns"),
    ("_c", "°C"),
    ("_s", "s"),
)


def field_unit(name: str) -> str:
    """The unit that the name of a field of `Sample` or `SlowSample` carries; "bits" for a mask."""
    return next((unit for ending, unit in _BY_ENDING if name.endswith(ending)), "bits")
