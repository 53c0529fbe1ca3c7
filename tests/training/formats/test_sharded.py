"""Weights in several files with an index: readable by transformers and by us, and never all in memory at once."""

import hashlib
import json
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from threading import local
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from preprocessing.errors import BadInput
from tests.training.corpora import mini_run
from tests.training.formats.test_weights import BERT, GPT2, SHARED
from tests.training.parity import ZERO_PAD, built, hf, loaded, vocabulary, weights
from tests.training.together import run_together
from training.checkpoint import StoredWeights
from training.engines import CheckpointFragment, Fragments, LocalEngine
from training.engines import write as write_fragments
from training.engines.fragments import fragment
from training.formats import (
    build_model,
    describe_model,
    from_transformers,
    load_weights,
    save_weights,
    sharded,
    start,
    to_transformers,
    weight_files,
)
from training.formats.load import load_lazily
from training.formats.sharded import read, read_bytes, write
from training.formats.spec_file import read_json
from training.model_spec import ModelSpec
from training.saver import Saver
from training.specs import Decoder
from training.workers import Workers

EXPORTED = [replace(spec, vocab_size=100) for spec in (BERT, GPT2)]


def test_names_of_files_and_index_are_those_of_transformers(tmp_path: Path) -> None:
    tensors = {name: torch.arange(10.0) + number for number, name in enumerate("abc")}
    files = write(tensors.items(), tmp_path, "model", shard_bytes=90)
    assert [file.name for file in files] == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    first, second = (file.name for file in files)
    assert index == {"metadata": {"total_size": 120}, "weight_map": {"a": first, "b": first, "c": second}}
    found = {name: tensor for file in files for name, tensor in safetensors.torch.load_file(file).items()}
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    assert {name: tensor.tolist() for name, tensor in read(tmp_path, "model").items()} == {
        name: tensor.tolist() for name, tensor in tensors.items()
    }


def test_small_weights_are_one_file_and_older_files_are_removed(tmp_path: Path) -> None:
    tensors = {"a": torch.zeros(10), "b": torch.zeros(0, 3)}
    write(tensors.items(), tmp_path, "model", shard_bytes=1)
    assert len(list(tmp_path.iterdir())) == 3
    write(tensors.items(), tmp_path, "model")
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]
    assert read(tmp_path, "model").keys() == tensors.keys()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool])
def test_every_dtype_is_restored(dtype: torch.dtype, tmp_path: Path) -> None:
    tensor = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype)
    write([("x", tensor), ("scalar", tensor[0, 1])], tmp_path, "model")
    assert torch.equal(read(tmp_path, "model")["x"], tensor)
    assert torch.equal(read(tmp_path, "model")["scalar"], tensor[0, 1])


def test_files_are_copied_without_torch_byte_for_byte(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(3, 5), "b": torch.zeros(0, 3), "c": torch.tensor(1.5).to(torch.bfloat16)}
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    write(tensors.items(), first, "model", {"format": "pt"}, shard_bytes=60)
    assert [name for name, _ in read_bytes(first, "model")] == list(tensors)
    write(read_bytes(first, "model"), second, "model", {"format": "pt"}, shard_bytes=60)
    names = {file.name for file in first.iterdir()}
    assert len(names) == 3  # two files and the index
    assert {file.name: file.read_bytes() for file in second.iterdir()} == {
        name: (first / name).read_bytes() for name in names
    }


def test_a_damaged_file_is_not_copied(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    write([("a", torch.zeros(3))], tmp_path, "model")
    whole = file.read_bytes()
    for content in (b"", whole[:-1], whole[:20], (2).to_bytes(8, "little") + b"[]", b"short"):
        file.write_bytes(content)
        with pytest.raises(BadInput, match=r"model\.safetensors: not a safetensors file \(.*\); .* again$"):
            list(read_bytes(tmp_path, "model"))


def test_tensors_are_consumed_one_by_one_and_at_most_one_file_is_in_memory(tmp_path: Path) -> None:
    alive: list[int] = []

    def made() -> Iterator[tuple[str, Tensor]]:
        for number in range(20):
            done = len(list(tmp_path.glob(".model-*.unfinished")))
            alive.append(number - done * 3)  # a file has three tensors
            yield str(number), torch.zeros(10)

    write(made(), tmp_path, "model", shard_bytes=120)
    assert max(alive) <= 3


@pytest.mark.parametrize("spec", [BERT, GPT2, SHARED])
def test_weights_in_several_files_are_restored_bit_for_bit(spec: ModelSpec, tmp_path: Path) -> None:
    model = built(spec)
    save_weights(((name, tensor) for name, tensor in weights(model).items()), spec, tmp_path, shard_bytes=20_000)
    assert len(list(tmp_path.glob("weights-*.safetensors"))) > 1
    found_spec, found = load_weights(tmp_path)
    assert found_spec == spec
    assert found.keys() == weights(model).keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in weights(model).items())


def test_one_flipped_bit_in_one_of_several_files_is_detected(tmp_path: Path) -> None:
    save_weights(weights(built(BERT)), BERT, tmp_path, shard_bytes=20_000)
    file = max(tmp_path.glob("weights-*.safetensors"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(BadInput, match="damaged or replaced"):
        load_weights(tmp_path)


@pytest.mark.parametrize("spec", EXPORTED)
def test_transformers_reads_an_export_in_several_files(spec: ModelSpec, tmp_path: Path) -> None:
    model, folder = built(spec), tmp_path / "export"
    to_transformers(weights(model), spec, vocabulary(ZERO_PAD, tmp_path / "vocab"), folder, shard_bytes=20_000)
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    oracle = loaded(folder)
    found = from_transformers(folder)[1]
    assert all(torch.equal(found[name], tensor) for name, tensor in weights(model).items())
    ids = torch.randint(0, 40, (2, 7))
    assert torch.isfinite(oracle(ids)[0]).all()


def test_an_export_converts_one_layer_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from training.formats.format import Format

    asked: list[int] = []
    theirs = Format.theirs

    def counted(format: Format, state: Any, spec: ModelSpec) -> dict[str, Tensor]:
        asked.append(len({name.split(".")[2] for name in state if ".blocks." in name}))
        return theirs(format, state, spec)

    monkeypatch.setattr(Format, "theirs", counted)
    to_transformers(
        weights(built(EXPORTED[1])), EXPORTED[1], vocabulary(ZERO_PAD, tmp_path / "vocab"), tmp_path / "export"
    )
    assert sorted(asked) == [0, 1, 1]


def test_a_run_starts_from_a_directory_of_transformers_with_several_files(corpus: Path, tmp_path: Path) -> None:
    run = mini_run(corpus, tmp_path / "run")
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    config = hf().BertConfig(vocab_size=run.vocab_size, max_position_embeddings=48, **size)
    hf().BertForPreTraining(config).save_pretrained(tmp_path / "theirs", max_shard_size="40KB")
    assert (tmp_path / "theirs" / "model.safetensors.index.json").is_file()
    spec, wanted = from_transformers(tmp_path / "theirs")
    run = mini_run(corpus, tmp_path / "run", model=spec.model, init_checkpoint=str(tmp_path / "theirs"))
    for name, weight in build_model(run).named_parameters():
        assert torch.equal(weight, wanted[name]), name
    assert {name: get().tolist() for name, get in describe_model(run).given.items()} == {
        name: weight.tolist() for name, weight in wanted.items()
    }


@pytest.mark.parametrize("spec", EXPORTED)
def test_lazily_loaded_tensors_equal_those_loaded_at_once(spec: ModelSpec, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    to_transformers(weights(built(spec)), spec, vocabulary(ZERO_PAD, tmp_path / "vocab"), folder)
    found, wanted = load_lazily(folder)[1], from_transformers(folder)[1]
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name](), tensor) for name, tensor in wanted.items())


@pytest.mark.parametrize("content", ["{", "[]", '{"weight_map": 3}'])
def test_a_garbled_index_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(BadInput, match="invalid safetensors index"):
        read(tmp_path, "model")


def test_a_missing_file_of_the_index_is_refused(tmp_path: Path) -> None:
    files = write([("a", torch.zeros(9)), ("b", torch.zeros(9))], tmp_path, "model", shard_bytes=1)
    list(files)[1].unlink()
    with pytest.raises(BadInput, match=r"model-00002-of-00002.safetensors: No such file"):
        read(tmp_path, "model")


def test_weights_are_hashed_while_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashing takes time during which other workers wait."""
    with monkeypatch.context() as patch:
        patch.setattr("hashlib.file_digest", lambda *_: pytest.fail("read again"))
        save_weights(weights(built(BERT)), BERT, tmp_path, shard_bytes=20_000)
    assert load_weights(tmp_path)[0] == BERT


@pytest.mark.parametrize("shard_bytes", [20_000, 10**9])
def test_workers_share_the_hashing(shard_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_weights(weights(built(BERT)), BERT, tmp_path, shard_bytes=shard_bytes)
    files, hashed, digest = weight_files(tmp_path, "weights"), list[str](), hashlib.file_digest

    def noted(file: Any, name: str) -> Any:
        hashed.append(Path(file.name).name)
        return digest(file, name)

    monkeypatch.setattr("hashlib.file_digest", noted)
    for spec, found in run_together(3, lambda workers: load_weights(tmp_path, workers)):
        assert spec == BERT
        assert all(torch.equal(found[name], tensor) for name, tensor in weights(built(BERT)).items())
    assert sorted(hashed) == [file.name for file in files]
    files[-1].write_bytes(b"damaged")
    for error in run_together(3, lambda workers: load_weights(tmp_path, workers)):
        assert "damaged or replaced" in str(error)
    files[-1].unlink()
    for error in run_together(3, lambda workers: load_weights(tmp_path, workers)):
        assert f"{files[-1]}: No such file or directory; give" in str(error)


DEEP = replace(GPT2, model=Decoder(num_hidden_layers=24, hidden_size=96, num_attention_heads=4), vocab_size=100)


def test_an_export_of_a_checkpoint_holds_about_one_layer_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = weights(built(DEEP))
    part = CheckpointFragment(
        {fragment(name, "weight", 0): weight.flatten() for name, weight in state.items()},
        {name: tuple(weight.shape) for name, weight in state.items()},
    )
    write_fragments(part, tmp_path / "file")
    full = Fragments.full
    # tracemalloc records memory of numpy, not of torch
    monkeypatch.setattr(Fragments, "full", lambda self, name: torch.from_numpy(np.array(full(self, name))))
    layer = sum(weight.nbytes for name, weight in state.items() if ".blocks.0." in name)
    stored, vocab = StoredWeights(Fragments([tmp_path / "file"])), vocabulary(ZERO_PAD, tmp_path / "vocab")
    tracemalloc.start()
    try:
        to_transformers(stored, DEEP, vocab, tmp_path / "export", shard_bytes=layer)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(weight.nbytes for weight in state.values()) > 20 * layer
    assert most < 5 * layer
    found = from_transformers(tmp_path / "export")[1]
    assert all(torch.equal(found[name], tensor) for name, tensor in state.items())


def test_names_and_shapes_of_a_checkpoint_are_known_without_reading_tensors(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = mini_run(corpus, tmp_path / "run")
    engine = LocalEngine(build_model(run), run.optimizer, run.engine)
    Saver(engine, tmp_path, {}, asdict(engine.model.spec), keep=1, background=False).save(1, {})
    run = replace(run, init_checkpoint=str(tmp_path / "step-000000001"))
    with monkeypatch.context() as patch:
        patch.setattr(Fragments, "fill", lambda *_: pytest.fail("read"))
        given = describe_model(run).given
    assert all(torch.equal(given[name](), weight) for name, weight in engine.weights())
    assert given.keys() == dict(engine.weights()).keys()


def test_names_and_shapes_of_a_transformers_directory_are_known_without_reading_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each tensor was created twice, once only for its shape."""
    folder, devices, cat = tmp_path / "export", set[str](), torch.cat
    to_transformers(weights(built(EXPORTED[1])), EXPORTED[1], vocabulary(ZERO_PAD, tmp_path / "vocab"), folder)

    def noted(tensors: list[Tensor], *given: Any, **named: Any) -> Tensor:
        devices.update(tensor.device.type for tensor in tensors)
        return cat(tensors, *given, **named)

    monkeypatch.setattr(torch, "cat", noted)
    _, given = load_lazily(folder)
    assert devices == {"meta"}
    assert all(given[name]().shape == given[name].shape for name in given)


@pytest.mark.parametrize("seen", [{0}, {1}])
def test_the_first_worker_decides_whether_a_run_resumes(
    seen: set[int], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a network file system, other workers may not see the checkpoint yet, or may still see one that is deleted."""
    run, here = mini_run(corpus, tmp_path), local()
    monkeypatch.setattr(start, "all_workers", lambda: here.workers)
    monkeypatch.setattr(start.checkpoint, "will_resume", lambda *_: here.workers.rank in seen)

    def replaced(workers: Workers) -> bool:
        here.workers = workers
        return describe_model(run).replaced

    assert run_together(2, replaced) == [0 in seen] * 2


def test_too_many_tensors_and_too_large_headers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write({"a": torch.zeros(1), "b": torch.zeros(1)}.items(), tmp_path, "model", shard_bytes=4)
    with monkeypatch.context() as patch:
        patch.setattr(sharded, "TENSORS", 1)
        with pytest.raises(BadInput, match=r"00002\.safetensors: too many tensors: got 1, expected at most 1"):
            read(tmp_path, "model")
    with monkeypatch.context() as patch:
        patch.setattr(sharded, "HEADER_BYTES", 100)
        with pytest.raises(BadInput, match=r"invalid safetensors index \(more than 100 bytes\)"):
            read(tmp_path, "model")
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write((90_000_000).to_bytes(8, "little"))
        file.truncate(90_000_100)
    with pytest.raises(BadInput, match="header of 90,000,000 bytes, expected at most 16,000,000"):
        read(tmp_path, "model")
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr("training.formats.spec_file.JSON_BYTES", 1)
    with pytest.raises(BadInput, match=r"config.json: too large: got 2 bytes, expected at most 1"):
        read_json(tmp_path / "config.json")


def test_the_heartbeat_is_called_for_each_tensor_and_each_file(tmp_path: Path) -> None:
    beats, state = list[int](), weights(built(BERT))

    def heard(task: Callable[..., Any], *given: Any, **named: Any) -> int:
        beats.clear()
        task(*given, **named, beat=lambda: beats.append(1))
        return len(beats)

    assert heard(save_weights, state, BERT, tmp_path, shard_bytes=20_000) == len(state)
    assert heard(load_weights, tmp_path) == len(weight_files(tmp_path, "weights"))
