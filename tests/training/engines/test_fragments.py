"""Checkpoint files: written by any number of workers, read in any slices, and readable by the safetensors library."""

import hashlib
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from preprocessing.errors import BadInput
from training.engines import fragments as fragments_module
from training.engines.fragments import CheckpointFragment, Fragments, TensorSlice, fragment, memory_in, whole, write
from training.engines.local_shards import load_buffers

SHAPE = (12, 6)
WHOLE = torch.arange(72.0)


def written(folder: Path, *parts: CheckpointFragment) -> Fragments:
    files = [folder / f"rank-{rank:05d}.safetensors" for rank in range(len(parts))]
    for part, file in zip(parts, files, strict=True):
        write(part, file)
    return Fragments(files)


def pieces(*bounds: int) -> list[CheckpointFragment]:
    """Workers that each hold the elements between two bounds."""
    return [
        CheckpointFragment({fragment("net", "weight", start): WHOLE[start:stop]}, {"net": SHAPE})
        for start, stop in pairwise(bounds)
    ]


@pytest.mark.parametrize("bounds", [(0, 72), (0, 36, 72), (0, 1, 24, 70, 72)])
def test_every_slice_is_found_for_any_writer(tmp_path: Path, bounds: tuple[int, ...]) -> None:
    fragments = written(tmp_path, *pieces(*bounds))
    assert torch.equal(fragments.full("net"), WHOLE.view(SHAPE))
    for start in range(72):
        for stop in range(start, 73):
            out = torch.empty(stop - start)
            fragments.fill("net", "weight", out, start)
            assert torch.equal(out, WHOLE[start:stop])


def test_a_worker_that_finds_everything_in_the_first_file_opens_no_other(tmp_path: Path) -> None:
    fragments = written(tmp_path, *pieces(0, 36, 72))
    fragments.files[1].unlink()
    out = torch.empty(36)
    fragments.fill("net", "weight", out)
    assert torch.equal(out, WHOLE[:36])


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the opened files, in this order."""
    files, open_it = list[str](), fragments_module._open_file

    def noted(file: Path) -> Any:
        files.append(file.name)
        return open_it(file)

    monkeypatch.setattr(fragments_module, "_open_file", noted)
    return files


def names_of(*ranks: int) -> list[str]:
    return [f"rank-{rank:05d}.safetensors" for rank in ranks]


def write_many(folder: Path, workers: int) -> tuple[list[Path], Path]:
    """Write the files of `workers` workers, each with a slice of two parameters and their moments, and the index."""
    bounds = [round(72 * rank / workers) for rank in range(workers + 1)]
    files = []
    with (folder / "index").open("w") as index:
        for rank, (start, stop) in enumerate(pairwise(bounds)):
            keys = [fragment(name, state, start) for name in ("a", "b") for state in ("weight", "exp_avg")]
            part = CheckpointFragment(
                dict.fromkeys(keys, WHOLE[start:stop]), {"a": SHAPE, "b": SHAPE}, {"a": {"step": 3}}
            )
            files.append(folder / names_of(rank)[0])
            write(part, files[-1])
            index.write(part.line(files[-1].name) + "\n")
    return files, folder / "index"


def read_slice(fragments: Fragments, start: int, count: int) -> None:
    """Read one slice of every state."""
    for name in ("a", "b"):
        assert fragments.numbers(name) == ({"step": 3} if name == "a" else {})
        assert fragments.shape(name) == SHAPE
        for state in ("weight", *fragments.states(name)):
            out = torch.empty(count)
            fragments.fill(name, state, out, start)
            assert torch.equal(out, WHOLE[start : start + count])


def test_in_the_same_layout_a_worker_opens_only_its_own_file(tmp_path: Path, opened: list[str]) -> None:
    files, index = write_many(tmp_path, 36)
    read_slice(Fragments(files, files[20], index), 40, 2)
    assert opened == names_of(20)


def test_in_another_layout_a_worker_opens_only_the_files_it_needs(tmp_path: Path, opened: list[str]) -> None:
    files, index = write_many(tmp_path, 36)
    read_slice(Fragments(files, None, index), 40, 7)
    assert opened == names_of(20, 21, 22, 23)


def test_a_closed_file_is_reopened_only_for_its_tensors(
    tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file used to be reopened for the length of each of its fragments, whenever another header was read."""
    monkeypatch.setattr(fragments_module, "OPEN_FILES", 4)
    files, _ = write_many(tmp_path, 36)
    read_slice(Fragments(files), 40, 2)
    assert opened == names_of(*range(36), 20)


def test_replicated_state_is_read_from_the_worker_s_own_file(tmp_path: Path, opened: list[str]) -> None:
    """As on ZeRO stage 0."""
    files = [tmp_path / name for name in names_of(0, 1, 2)]
    part = CheckpointFragment(
        {fragment("net", "weight", 0): WHOLE, whole("scale", "buffer"): WHOLE[:1]}, {"net": SHAPE}
    )
    for file in files:
        write(part, file)
    (tmp_path / "index").write_text("".join(part.line(file.name) + "\n" for file in files))
    fragments = Fragments(files, files[1], tmp_path / "index")
    assert fragments.names() == ["net"]  # reads the whole index
    assert fragments.buffers() == ["scale"]
    assert fragments.full("net").shape == SHAPE
    assert fragments.of_whole("scale", "buffer").tolist() == [0.0]
    assert opened == names_of(1)


def test_a_model_without_buffers_reads_no_file_for_them(tmp_path: Path, opened: list[str]) -> None:
    net = nn.Linear(2, 2)
    net.register_buffer("scale", torch.ones(1), persistent=False)
    load_buffers(net, Fragments(write_many(tmp_path, 3)[0]))
    assert opened == []
    net.register_buffer("scale", torch.ones(1))
    write(CheckpointFragment({whole("scale", "buffer"): torch.full((1,), 5.0)}), tmp_path / "buffers")
    load_buffers(net, Fragments([tmp_path / "buffers"]))
    assert net.scale.tolist() == [5.0]


def test_missing_elements_are_refused_in_one_line(tmp_path: Path) -> None:
    fragments = written(tmp_path, *pieces(0, 36), *pieces(40, 72))
    with pytest.raises(BadInput, match="missing elements of weight of net; use an older checkpoint"):
        fragments.full("net")
    with pytest.raises(BadInput, match="without head, a parameter of this model"):
        fragments.full("head")


CUTS = {  # slices of two tensor-parallel workers
    "rows": (TensorSlice(0, ((0, 6),)), TensorSlice(0, ((6, 12),))),
    "columns": (TensorSlice(1, ((0, 3),)), TensorSlice(1, ((3, 6),))),
    "heads of a fused matrix": (TensorSlice(0, ((0, 2), (4, 6), (8, 10))), TensorSlice(0, ((2, 4), (6, 8), (10, 12)))),
}


def sliced(cut: TensorSlice) -> torch.Tensor:
    """The elements of a slice, by torch's own indexing."""
    index = torch.cat([torch.arange(start, stop) for start, stop in cut.pieces])
    return WHOLE.view(SHAPE).index_select(cut.dimension, index).flatten()


@pytest.mark.parametrize("theirs", CUTS)
def test_tensor_parallel_slices_are_combined_and_sliced_again(tmp_path: Path, theirs: str) -> None:
    parts = [
        CheckpointFragment(
            {fragment("net", "weight", start): sliced(cut)[start:stop]}, {"net": SHAPE}, cuts={"net": cut}
        )
        for cut in CUTS[theirs]
        for start, stop in ((0, 17), (17, 36))  # ZeRO splits the slices once more
    ]
    fragments = written(tmp_path, *parts)
    assert torch.equal(fragments.full("net"), WHOLE.view(SHAPE))
    for ours in CUTS.values():
        for cut in ours:
            out = torch.empty(20)
            fragments.fill("net", "weight", out, 9, cut)
            assert torch.equal(out, sliced(cut)[9:29])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool])
def test_the_safetensors_library_reads_the_same_tensors(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {"a|buffer": torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype), "b|weight|7": torch.zeros(0, dtype=dtype)}
    tensors["c|buffer"] = torch.tensor(1).to(dtype)
    seal = write(CheckpointFragment(tensors), tmp_path / "file")
    found = safetensors.torch.load_file(tmp_path / "file")
    assert {key: (value.dtype, value.shape, value.tolist()) for key, value in found.items()} == {
        key: (dtype, value.shape, value.tolist()) for key, value in tensors.items()
    }
    content = (tmp_path / "file").read_bytes()
    assert (seal.bytes, seal.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_numbers_and_whole_parameter_state_are_found_in_any_file(tmp_path: Path) -> None:
    first, second = pieces(0, 36, 72)
    first.numbers["net"] = {"step": 3}
    second.tensors[whole("net", "row.0")] = torch.ones(12)
    second.tensors[whole("memory", "states.0")] = torch.ones(2, 3)
    fragments = written(tmp_path, first, second)
    assert fragments.states("net") == set()  # the first file is sufficient, and no other is read
    assert fragments.of_whole("net", "row.0").tolist() == [1.0] * 12
    assert fragments.numbers("net") == {"step": 3}
    assert memory_in(fragments.files[0]) == {}
    assert memory_in(fragments.files[1])["states.0"].tolist() == [[1.0] * 3] * 2
    assert math.prod(fragments.shape("net")) == 72
