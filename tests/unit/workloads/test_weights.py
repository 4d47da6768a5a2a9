"""The weights file: what is written comes back, and every wrong file is told with the mistake and the remedy."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from workloads.catalog import Machine, complete
from workloads.protocol import RunSpec, Value
from workloads.recurrent import weight_shapes
from workloads.recurrent_layers import config_of
from workloads.weights import Reference, SavedWeights, WeightsError, read, write

AGAIN = "run the variant again with -s save_weights=true"


def spec_of(workload: str = "lstm", **given: Value) -> RunSpec:
    sizes = {"gpus": 0, "units": 3, "features": 2, "timesteps": 4, "layers": 2, "bidirectional": True}
    return complete(workload, {**sizes, **given}, Machine())


def saved(spec: RunSpec, *, lengths: bool = False) -> SavedWeights:
    random = np.random.default_rng(1)
    return SavedWeights(
        spec=spec,
        weights={
            name: random.normal(size=shape).astype(np.float32)
            for name, shape in weight_shapes(config_of(spec.workload, spec.variant)).items()
        },
        reference=Reference(
            inputs=random.normal(size=(5, 4, 2)).astype(np.float32),
            lengths=np.array([4, 2, 3, 4, 2]) if lengths else None,
        ),
        outputs=random.normal(size=(5, 1)).astype(np.float32),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "weights" / "run.npz"


@pytest.mark.parametrize("lengths", [False, True])
def test_what_is_written_comes_back_in_order(path: Path, lengths: bool) -> None:
    before = saved(spec_of(), lengths=lengths)
    write(before, path)
    after = read(path, spec_of())
    assert after.spec == before.spec
    assert list(after.weights) == list(before.weights)
    for name, value in before.weights.items():
        np.testing.assert_array_equal(after.weights[name], value)
    np.testing.assert_array_equal(after.reference.inputs, before.reference.inputs)
    np.testing.assert_array_equal(after.outputs, before.outputs)
    assert (after.reference.lengths is not None) == lengths
    assert [file.name for file in path.parent.iterdir()] == ["run.npz"], "nothing half-written is left"


def test_names_are_layer_direction_and_keras_s_own() -> None:
    names = list(weight_shapes(config_of("lstm", spec_of().variant)).items())
    assert names[:4] == [
        ("layer0/forward/kernel", (2, 12)),
        ("layer0/forward/recurrent_kernel", (3, 12)),
        ("layer0/forward/bias", (12,)),
        ("layer0/backward/kernel", (2, 12)),
    ]
    assert dict(names)["layer1/backward/kernel"] == (6, 12)
    assert names[-2:] == [("head/kernel", (6, 1)), ("head/bias", (1,))]


def test_a_disk_in_trouble_leaves_the_file_before_it(path: Path) -> None:
    write(saved(spec_of()), path)
    before = path.read_bytes()
    (path.parent / "run.npz.part").mkdir()
    with pytest.raises(OSError, match="directory"):
        write(saved(spec_of()), path)
    assert path.read_bytes() == before


def test_a_file_that_is_gone_says_how_to_find_it_or_make_it_anew(path: Path) -> None:
    with pytest.raises(WeightsError, match=f"no saved weights at .*moved or deleted.*--weights PATH, or {AGAIN}"):
        read(path, spec_of())


def test_a_file_cut_short_anywhere_is_damaged(path: Path) -> None:
    write(saved(spec_of()), path)
    whole = path.read_bytes()
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        with pytest.raises(WeightsError, match=f"is damaged, or no .npz file.*Use a copy of it, or {AGAIN}"):
            read(path, spec_of())


def test_a_bit_that_flipped_in_a_weight_is_noticed(path: Path) -> None:
    write(saved(spec_of()), path)
    whole = bytearray(path.read_bytes())
    at = bytes(whole).index(saved(spec_of()).weights["layer0/forward/kernel"].tobytes())
    whole[at] ^= 1
    path.write_bytes(whole)
    with pytest.raises(WeightsError, match="is damaged"):
        read(path, spec_of())


def test_a_single_array_has_no_header(tmp_path: Path) -> None:
    path = tmp_path / "buffer.npy"
    np.save(path, np.zeros(4608))
    with pytest.raises(WeightsError, match="not written by this program: it has no header, but nothing"):
        read(path, spec_of())


def test_a_foreign_file_is_told_by_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "keras.npz"
    np.savez(path, kernel=np.zeros((2, 12)), bias=np.zeros(12))
    with pytest.raises(WeightsError, match="not written by this program: it has no header, but kernel, bias"):
        read(path, spec_of())
    np.savez(path, header=np.array(f'{{"x": {"[" * 100_000}{"]" * 100_000}}}'))
    with pytest.raises(WeightsError, match="not written by this program"):
        read(path, spec_of())


def test_a_file_of_another_run_names_the_sizes_that_differ(path: Path) -> None:
    write(saved(spec_of()), path)
    with pytest.raises(WeightsError, match="holds weights of layers=2, units=3, and the run has layers=1, units=8"):
        read(path, spec_of(units=8, layers=1))


def test_a_file_that_says_nothing_of_outputs_is_of_the_last_ones(path: Path) -> None:
    spec = spec_of()
    older = {name: value for name, value in spec.variant.items() if name != "outputs"}
    write(saved(RunSpec(workload="lstm", variant=older)), path)
    assert read(path, spec).outputs.shape == (5, 1)
    with pytest.raises(WeightsError, match="holds weights of outputs=last, and the run has outputs=all"):
        read(path, spec_of(outputs="all"))


def test_a_weight_that_is_missing_or_misshapen_is_named(path: Path) -> None:
    whole = saved(spec_of())
    fewer = {name: value for name, value in whole.weights.items() if name != "layer1/forward/bias"}
    write(replace(whole, weights=fewer), path)
    with pytest.raises(WeightsError, match=f"lacks layer1/forward/bias; {AGAIN}"):
        read(path, spec_of())
    turned = {name: value.T for name, value in whole.weights.items()}
    write(replace(whole, weights=turned), path)
    with pytest.raises(WeightsError, match=r"layer0/forward/kernel in .* has the shape \(12, 2\), not \(2, 12\)"):
        read(path, spec_of())


def test_a_reference_with_time_first_or_for_other_outputs_is_named(path: Path) -> None:
    whole = saved(spec_of(), lengths=True)
    time_first = replace(whole.reference, inputs=whole.reference.inputs.swapaxes(0, 1))
    fewer = replace(whole.reference, lengths=np.array([4, 2]))
    for changed, words in (
        (replace(whole, reference=time_first), r"sequences in .* \(4, 5, 2\), not \(5, 4, 2\)"),
        (replace(whole, outputs=np.zeros((5, 4, 1), np.float32)), r"outputs in .* \(5, 4, 1\), not \(5, 1\)"),
        (replace(whole, reference=fewer), r"lengths in .* \(2,\), not \(5,\)"),
    ):
        write(changed, path)
        with pytest.raises(WeightsError, match=f"reference/{words}; {AGAIN}"):
            read(path, spec_of())


def test_a_newer_file_asks_for_a_newer_program(path: Path) -> None:
    write(saved(spec_of()), path)
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays["header"] = np.array(str(arrays["header"]).replace('"version":1', '"version":2'))
    np.savez(path, allow_pickle=False, **arrays)
    with pytest.raises(WeightsError, match=r"version 2, and this program reads .* up to version 1: update the program"):
        read(path, spec_of())
