"""One buffer for all columns of a micro-batch, copied once, one micro-batch ahead."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from preprocessing.collate import collate_unpadded
from preprocessing.schema import Batch
from tests.training.batches import random_rows
from training.engines import upload
from training.engines.upload import ON_HOST, Uploader, fill, place_columns, view


def batch_of(*lengths: int) -> Batch:
    return collate_unpadded(random_rows(list(lengths), 50)) | {"slot": np.array(3), "fresh": np.array([True, False])}


class FakeCuda:
    """The streams and events of a device, which record what is asked of them."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def stream(self, *_: Any) -> Any:
        return SimpleNamespace(
            wait_event=lambda event: self.calls.append("wait"),
            __enter__=lambda *_: None,
            __exit__=lambda *_: None,
        )

    def event(self) -> Any:
        return SimpleNamespace(
            record=lambda stream: self.calls.append("copy"), synchronize=lambda: self.calls.append("synchronize")
        )


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """An uploader to a device "cuda" then copies within the host."""
    fake = FakeCuda()

    class Inside:
        def __init__(self, *_: Any) -> None:
            pass

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: Any) -> None:
            pass

    monkeypatch.setattr(upload.torch.cuda, "Stream", fake.stream)
    monkeypatch.setattr(upload.torch.cuda, "Event", fake.event)
    monkeypatch.setattr(upload.torch.cuda, "stream", Inside)
    monkeypatch.setattr(upload.torch.cuda, "current_stream", fake.stream)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda *_: None)
    empty = torch.empty
    monkeypatch.setattr(upload.torch, "empty", lambda *size, pin_memory=False, **keys: empty(*size, **keys))
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *_, **__: self.clone())
    return fake


def test_a_buffer_has_every_column_that_the_device_reads_at_an_aligned_place() -> None:
    batch = batch_of(5, 9)
    columns, size = place_columns(batch)
    buffer = torch.full((size,), 77, dtype=torch.uint8)
    fill(buffer, columns, batch)
    assert {column.name for column in columns} == batch.keys() - ON_HOST
    for column in columns:
        assert column.start % upload.ALIGNED == 0
        assert np.array_equal(view(buffer, column).numpy(), batch[column.name])
        assert view(buffer, column).dtype == torch.from_numpy(batch[column.name]).dtype
    arrays = sum(batch[name].nbytes for name in batch.keys() - ON_HOST)
    assert arrays <= size < arrays + upload.ALIGNED * len(columns)  # bytes that one copy moves


def test_a_step_copies_each_micro_batch_once_and_one_ahead(cuda: FakeCuda) -> None:
    uploader, batches = Uploader(torch.device("cuda")), [batch_of(5, 9), batch_of(4, 4), batch_of(8, 2)]
    order: list[str] = cuda.calls
    for number, batch in enumerate(batches):
        for following in batches[number : number + upload.AHEAD]:
            uploader.begin(following)
        tensors = uploader.take(batch)
        order.append("compute")
        assert all(np.array_equal(tensors[name].numpy(), array) for name, array in batch.items())
        assert tensors.host is batch
    assert order == ["copy", "copy", "wait", "compute", "synchronize", "copy", "wait", "compute", "wait", "compute"]


def test_buffers_are_kept_and_only_grow(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """No allocation that grows: after the longest batch, none is made."""
    uploader, made = Uploader(torch.device("cuda")), list[int]()
    plain = upload.torch.empty
    monkeypatch.setattr(upload.torch, "empty", lambda size, **keys: made.append(size) or plain(size, **keys))
    for lengths in ((30, 30), (30, 30), (5, 5), (20, 30), (30, 30), (8, 9)) * 3:
        uploader.take(batch_of(*lengths))
    assert len(made) == upload.AHEAD


def test_a_batch_that_was_begun_and_given_up_is_forgotten(cuda: FakeCuda) -> None:
    uploader, first, second = Uploader(torch.device("cuda")), batch_of(5, 9), batch_of(4, 4)
    uploader.begin(first)
    uploader.begin(second)
    assert np.array_equal(uploader.take(second)["input_ids"].numpy(), second["input_ids"])
    assert not uploader._started
