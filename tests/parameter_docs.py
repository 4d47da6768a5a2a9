"""The tables of docs/parameters.md, made from the catalog: `python -m tests.parameter_docs` writes them anew."""

from pathlib import Path

from workloads.catalog import WORKLOADS, Parameter
from workloads.protocol import Value

PAGE = Path(__file__).parents[1] / "docs" / "parameters.md"

_HEAD = """# Parameters

Look up every parameter of the built-in workloads with its values and defaults. The form and the command line take the
same ones: `-s name=value`. A second default is the one on the CPU (`gpus=0`).

```
python -m app run lstm -s units=256 -s precision=bfloat16
```

This page is generated from the catalog of workloads.
"""


def page() -> str:
    """Return the text of the page."""
    shown = [workload for workload in WORKLOADS if not workload.hidden]
    shared = [one for one in shown[0].parameters if all(one in workload.parameters for workload in shown)]
    parts = [_HEAD]
    for workload in shown:
        rows = [one for one in workload.parameters if one not in shared]
        parts.append(f"## {workload.title}: `{workload.name}`\n\n{workload.help}\n\n{_table(rows)}")
    return "\n".join([*parts, f"## All workloads\n\n{_table(shared)}"])


def _table(parameters: list[Parameter]) -> str:
    rows = [f"| `{one.name}` | {_values(one)} | {_default(one)} | {one.help} |" for one in parameters]
    return "\n".join(["| parameter | values | default | meaning |", "| --- | --- | --- | --- |", *rows, ""])


def _values(parameter: Parameter) -> str:
    if parameter.kind == "choice":
        return " ".join(f"`{choice.value}`" for choice in parameter.choices)
    if parameter.limits:
        low, high = parameter.limits
        return f"{low:,.10g} to {high:,.10g} {parameter.unit}".rstrip()
    return {"switch": "`true` `false`", "text": "text", "path": "path"}[parameter.kind]


def _default(parameter: Parameter) -> str:
    defaults = [parameter.default, *([] if parameter.cpu_default is None else [parameter.cpu_default])]
    return ", ".join(f"`{_text(value)}`" for value in defaults if value != "") or parameter.unset


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    _main()
