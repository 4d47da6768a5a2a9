"""The user's function of a custom workload, for every framework: its call, its batches, and its errors by line."""

import contextlib
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

from workloads.custom.definitions import SOURCE
from workloads.custom.source import check_keras, check_modules, find_function, load_module
from workloads.errors import (
    CustomWorkloadError,
    RefusedError,
    describe_error,
    error_location,
    file_name,
    function_location,
)
from workloads.protocol import RunSpec, Source


class UserFunction:
    """The function that defines a custom workload, with the variant's values for its parameters.

    `location` is its file's name and first line, for sentences.
    """

    def __init__(self, spec: RunSpec, source: Source | None) -> None:
        """Run the file; raises `CustomWorkloadError` and whatever the file raises."""
        if source is None:
            raise RefusedError(f"The file of {spec.workload} did not come with the order to run it.")
        if spec.variant[SOURCE] != source.sha256:
            raise CustomWorkloadError(f"{file_name(source.path)}: The file is not the one this run is of.")
        self._function = find_function(spec.workload.rpartition(":")[2], load_module(source), source)
        self._variant = spec.variant
        self._source = source
        self._shapes: list[tuple[int, ...]] = []
        self.location = function_location(self._function)

    def call(self, model_type: type, model_name: str) -> tuple[Any, Any, Callable[[int], Any], Any]:
        """Return model (of that type), loss, batch and optimizer; None means no optimizer."""
        signature = inspect.signature(self._function)
        values = OrderedDict((name, self._variant[name]) for name in signature.parameters)
        arguments = inspect.BoundArguments(signature, values)
        with self.attribute_errors():
            result = self._function(*arguments.args, **arguments.kwargs)
        check_keras(self._source)
        check_modules(self._source)
        if not isinstance(result, tuple) or len(result) not in (3, 4):
            raise CustomWorkloadError(
                f"{self.location}: the function returns {type(result).__name__}, and should return "
                "(model, loss, batch), or (model, loss, batch, optimizer)."
            )
        model, loss, batch, *more = result
        if not isinstance(model, model_type):
            raise CustomWorkloadError(
                f"{self.location}: the first value it returns is {type(model).__name__}, no {model_name}."
            )
        if not callable(batch):
            raise CustomWorkloadError(f"{self.location}: the third value it returns is not a function batch(step).")
        return model, loss, batch, more[0] if more else None

    def check_batch(self, tensors: Sequence[Any], index: int) -> None:
        """Raise `TypeError` or `ValueError` for a batch whose tensors are not `batch_size` long, or not as before."""
        size = int(self._variant["batch_size"])
        shapes = [tuple(tensor.shape) for tensor in tensors]
        for shape in shapes:
            if not shape:
                raise TypeError("batch returns single values; convert its lists with numpy.array(...)")
            if shape[0] != size:
                raise ValueError(f"batch returns an array of shape {shape} where batch_size is {size}")
        self._shapes = self._shapes or shapes
        if shapes != self._shapes:
            sizes, first_sizes = (", ".join(map(str, group)) for group in (shapes, self._shapes))
            raise ValueError(
                f"batch returns {sizes} at step {index} and returned {first_sizes} before; all must be equal"
            )

    def locate(self, function: Any) -> str:
        """Return the line of the user's file at which a function begins; for other functions, the workload's line."""
        inner = inspect.unwrap(getattr(function, "__func__", function))
        is_own = isinstance(inner, FunctionType) and inner.__code__.co_filename == self._source.path
        return function_location(inner) if is_own else self.location

    @contextlib.contextmanager
    def attribute_errors(self) -> Iterator[None]:
        try:
            yield
        except SystemExit as error:
            raise CustomWorkloadError(f"{error_location(error, self._source)}: the file ends the program.") from error
        except BaseException as error:
            location = error_location(error, self._source)
            # As they are, a StopIteration would end the loop over the batches, of which there would be fewer, and what
            # is no Exception the worker.
            is_passed = isinstance(error, Exception) and not isinstance(error, StopIteration)
            if isinstance(error, CustomWorkloadError) or (is_passed and ":" in location):
                raise
            location = location if ":" in location else self.location
            raise CustomWorkloadError(f"{location}: {describe_error(error)}") from error


def batch_parts(values: Any, *forms: str) -> tuple[Any, ...]:
    """Return the result of a user's `batch`; raises `TypeError` unless it is a tuple of a form such as `(x, y)`."""
    if isinstance(values, tuple) and len(values) in {form.count(",") + 1 for form in forms}:
        return values
    value_type = f"a tuple of {len(values)}" if isinstance(values, tuple) else type(values).__name__
    raise TypeError(f"batch returns {value_type}, and should give {' or '.join(forms)}")
