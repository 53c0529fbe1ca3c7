"""Files of a checkpoint: written by any workers, read in any pieces, by the library of the format as well."""

import hashlib
import math
from itertools import pairwise
from pathlib import Path

import pytest
import safetensors.torch
import torch

from preprocessing.errors import BadInput
from training.engines.fragments import Cut, Fragments, Part, fragment, memory_in, whole, write

SHAPE = (12, 6)
WHOLE = torch.arange(72.0)


def written(folder: Path, *parts: Part) -> Fragments:
    files = [folder / f"rank-{rank:05d}.safetensors" for rank in range(len(parts))]
    for part, file in zip(parts, files, strict=True):
        write(part, file)
    return Fragments(files)


def pieces(*bounds: int) -> list[Part]:
    """Workers that have the elements between two bounds each."""
    return [
        Part({fragment("net", "weight", start): WHOLE[start:stop]}, {"net": SHAPE}) for start, stop in pairwise(bounds)
    ]


@pytest.mark.parametrize("bounds", [(0, 72), (0, 36, 72), (0, 1, 24, 70, 72)])
def test_every_stretch_is_found_whoever_wrote_it(tmp_path: Path, bounds: tuple[int, ...]) -> None:
    fragments = written(tmp_path, *pieces(*bounds))
    assert torch.equal(fragments.full("net"), WHOLE.view(SHAPE))
    for start in range(72):
        for stop in range(start, 73):
            out = torch.empty(stop - start)
            fragments.fill("net", "weight", out, start)
            assert torch.equal(out, WHOLE[start:stop])


def test_a_worker_that_finds_all_in_the_first_file_reads_no_other(tmp_path: Path) -> None:
    fragments = written(tmp_path, *pieces(0, 36, 72))
    fragments.files[1].unlink()
    out = torch.empty(36)
    fragments.fill("net", "weight", out)
    assert torch.equal(out, WHOLE[:36])


def test_elements_that_nobody_wrote_are_one_line(tmp_path: Path) -> None:
    fragments = written(tmp_path, *pieces(0, 36), *pieces(40, 72))
    with pytest.raises(BadInput, match="lacks elements of weight of net; take an older checkpoint"):
        fragments.full("net")
    with pytest.raises(BadInput, match="has no head, which this run wants"):
        fragments.full("head")


CUTS = {  # of two tensor-parallel workers
    "rows": (Cut(0, ((0, 6),)), Cut(0, ((6, 12),))),
    "columns": (Cut(1, ((0, 3),)), Cut(1, ((3, 6),))),
    "heads of a fused matrix": (Cut(0, ((0, 2), (4, 6), (8, 10))), Cut(0, ((2, 4), (6, 8), (10, 12)))),
}


def sliced(cut: Cut) -> torch.Tensor:
    """The elements of a slice, by torch's own indexing."""
    index = torch.cat([torch.arange(start, stop) for start, stop in cut.pieces])
    return WHOLE.view(SHAPE).index_select(cut.dimension, index).flatten()


@pytest.mark.parametrize("theirs", CUTS)
def test_slices_of_tensor_parallel_workers_make_the_whole_and_other_slices(tmp_path: Path, theirs: str) -> None:
    parts = [
        Part({fragment("net", "weight", start): sliced(cut)[start:stop]}, {"net": SHAPE}, cuts={"net": cut})
        for cut in CUTS[theirs]
        for start, stop in ((0, 17), (17, 36))  # ZeRO cuts the slices once more
    ]
    fragments = written(tmp_path, *parts)
    assert torch.equal(fragments.full("net"), WHOLE.view(SHAPE))
    for ours in CUTS.values():
        for cut in ours:
            out = torch.empty(20)
            fragments.fill("net", "weight", out, 9, cut)
            assert torch.equal(out, sliced(cut)[9:29])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool])
def test_the_library_of_the_format_reads_the_same(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {"a|buffer": torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype), "b|weight|7": torch.zeros(0, dtype=dtype)}
    tensors["c|buffer"] = torch.tensor(1).to(dtype)
    seal = write(Part(tensors), tmp_path / "file")
    found = safetensors.torch.load_file(tmp_path / "file")
    assert {key: (value.dtype, value.shape, value.tolist()) for key, value in found.items()} == {
        key: (dtype, value.shape, value.tolist()) for key, value in tensors.items()
    }
    content = (tmp_path / "file").read_bytes()
    assert (seal.bytes, seal.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_numbers_and_what_is_of_a_whole_parameter_are_found_in_any_file(tmp_path: Path) -> None:
    first, second = pieces(0, 36, 72)
    first.numbers["net"] = {"step": 3}
    second.tensors[whole("net", "row.0")] = torch.ones(12)
    second.tensors[whole("memory", "states.0")] = torch.ones(2, 3)
    fragments = written(tmp_path, first, second)
    assert fragments.states("net") == set()  # the first file tells of it, and no other is read
    assert fragments.of_whole("net", "row.0").tolist() == [1.0] * 12
    assert fragments.numbers("net") == {"step": 3}
    assert memory_in(fragments.files[0]) == {}
    assert memory_in(fragments.files[1])["states.0"].tolist() == [[1.0] * 3] * 2
    assert math.prod(fragments.shape("net")) == 72
