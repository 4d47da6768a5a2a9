"""The kinds of recurrent layers by workload: each one's sizes and its implementations.

Nothing here needs a framework. Catalog, rules, evidence, weights and tests loop over `RECURRENT_LAYERS`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from workloads import gru, lstm
from workloads.protocol import Variant
from workloads.recurrent import Implementation, RecurrentConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentLayer:
    """One kind of recurrent layer: the sizes of a stack of them, and every implementation.

    Implementations are in the order of the form, the rungs of the ladder in theirs.
    """

    config: type[RecurrentConfig]
    implementations: tuple[Implementation, ...]

    @property
    def ladder(self) -> tuple[str, ...]:
        """Return the rungs of the optimisation ladder, from the first to the last; each adds to the one before."""
        return tuple(implementation.name for implementation in self.implementations if implementation.unrolls)

    def find(self, name: str) -> Implementation:
        """Return the implementation of that name."""
        return next(implementation for implementation in self.implementations if implementation.name == name)


RECURRENT_LAYERS: Mapping[str, RecurrentLayer] = {
    "lstm": RecurrentLayer(config=lstm.LstmConfig, implementations=lstm.IMPLEMENTATIONS),
    "gru": RecurrentLayer(config=gru.GruConfig, implementations=gru.IMPLEMENTATIONS),
}
"""By the name of the workload."""


def config_of(workload: str, variant: Variant) -> RecurrentConfig:
    """Return the part of a variant that its implementation depends on.

    What a variant does not name is at its default: it, or the weights saved with it, are older than the parameter.
    """
    config = RECURRENT_LAYERS[workload].config
    values = {field.name: variant[field.name] for field in fields(config) if field.name in variant}
    return config(**values)  # type: ignore[arg-type] # the catalog has checked every value's type
