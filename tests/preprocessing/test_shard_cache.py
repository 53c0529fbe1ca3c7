"""Shards of a slow, unreliable store: the rows are those of the local corpus, and the cache never exceeds its limit."""

import errno
import itertools
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from preprocessing import arrow_layout, object_store, remote_shard, rng, shard_cache, shard_windows
from preprocessing.arrow_layout import locate_columns
from preprocessing.errors import BadInput, ResourceError
from preprocessing.manifest import Manifest, MixtureGroupStats, ShardInfo
from preprocessing.masking import NoMasking, TokenMasking
from preprocessing.objectives import CausalLM, MaskedLM
from preprocessing.packing import Contiguous, ParallelSentences, SegmentPair, StreamPair
from preprocessing.remote_corpus import REMOTE, is_remote_corpus, link_corpus
from preprocessing.remote_shard import StoredShard
from preprocessing.rows import ExampleDataset
from preprocessing.sampling import ExampleSpec
from preprocessing.schema import Batch
from preprocessing.shard_cache import CacheSettings, ShardCache, write_at_start
from preprocessing.shards import Shard, TokenStore, write_shard
from preprocessing.tokenization import Vocab
from preprocessing.windowed_order import order_shards
from tests.remote_stores import ThrottledStore, count_bytes, sharded_corpus, upload

LENGTH, ADDRESS, NUM_SHARDS = 64, "throttled://corpus", 6
GPT = ExampleSpec(packing=Contiguous(unit="token"), masking=NoMasking(), objective=CausalLM())
ROBERTA = ExampleSpec(packing=Contiguous(unit="sentence"), masking=NoMasking(), objective=CausalLM())
XLNET = replace(GPT, packing=StreamPair(reuse_len=16), objective=CausalLM())
XLM = replace(GPT, packing=ParallelSentences(languages=("mini_world",), translation_ratio=0))
BERT = ExampleSpec(packing=SegmentPair(negatives="random"), masking=TokenMasking(), objective=MaskedLM())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sharded_corpus(tmp_path_factory.mktemp("corpus") / "local", NUM_SHARDS, 10)


@pytest.fixture(autouse=True)
def store(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[ThrottledStore]]:
    ThrottledStore.reset()
    upload(corpus, ADDRESS)
    monkeypatch.setattr(object_store, "time", SimpleNamespace(sleep=lambda seconds: None))
    monkeypatch.setattr(arrow_layout, "_HEAD", 1536)  # shards are small
    yield ThrottledStore
    ThrottledStore.reset()


def open_rows(folder: Path | str, cache: CacheSettings, sampling: ExampleSpec = GPT) -> ExampleDataset:
    opened = TokenStore.open(folder, "train", cache=cache)
    return ExampleDataset(opened, Vocab.load(opened.vocab_dir), sampling, LENGTH)


def are_same(one: Batch, other: Batch) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def infos(corpus: Path) -> list[ShardInfo]:
    return [info for info in Manifest.load(corpus).shards if info.split == "train"]


def disk_bytes(cache: CacheSettings) -> int:
    return count_bytes(cache.directory)


def cached(cache: CacheSettings) -> set[str]:
    return {path.stem for path in cache.directory.glob("*.arrow") if not path.name.startswith(".")}


@pytest.mark.parametrize("sampling", [GPT, ROBERTA, BERT, XLNET, XLM], ids=["gpt", "roberta", "bert", "xlnet", "xlm"])
def test_batches_are_those_of_the_local_corpus(corpus: Path, tmp_path: Path, sampling: ExampleSpec) -> None:
    cache = CacheSettings(str(tmp_path / "cache"))
    local, remote = open_rows(corpus, cache, sampling), open_rows(ADDRESS, cache, sampling)
    assert local.count(0) == remote.count(0)
    for start in (0, 40, local.count(0) - 3):  # the last one continues in the next epoch
        assert are_same(local.batch_at(start, start + 8), remote.batch_at(start, start + 8))


def test_windows_never_exceed_the_limit_and_fetch_each_shard_once_an_epoch(
    corpus: Path, tmp_path: Path, store: type[ThrottledStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = replace(GPT, shuffle_window_shards=2)
    free = CacheSettings(str(tmp_path / "cache"))
    limit = open_rows(ADDRESS, free, windows).require_room(4 * LENGTH, 10**9)
    cache = replace(free, limit_bytes=limit)
    assert limit < sum(info.bytes for info in infos(corpus))
    local, remote = open_rows(corpus, cache, windows), open_rows(ADDRESS, cache, windows)
    sizes = list[int]()
    store.before_read = lambda name: sizes.append(disk_bytes(cache))
    of_epoch, names = local.count(0), [info.name for info in infos(corpus)]
    monkeypatch.setattr(remote._windows._opened, "prefetch", lambda files: None)  # which takes part is up to the clock
    assert remote.count(0) == of_epoch
    assert not store.downloads[names[0]]  # a plan needs the starts only
    for epoch in range(2):
        before = store.downloads.copy()
        for start in range(epoch * of_epoch, (epoch + 1) * of_epoch, 4):
            stop = min(start + 4, (epoch + 1) * of_epoch)
            assert are_same(local.batch_at(start, stop), remote.batch_at(start, stop))
        of_each = [store.downloads[name] - before[name] for name in names]
        assert max(of_each) == 1
        assert sum(of_each) >= NUM_SHARDS - 4  # the cache has room for two windows of two shards
    assert sizes
    assert max(sizes) <= limit
    assert remote._windows._opened.files.count_bytes() == disk_bytes(cache) <= limit


def test_each_group_of_a_mixture_has_its_own_windows(corpus: Path, tmp_path: Path) -> None:
    names = [info.name for info in infos(corpus)]
    groups = {
        name: MixtureGroupStats(weight=weight, share=weight / 3, documents=1, tokens=1, epochs=1, shards=tuple(shards))
        for name, weight, shards in (("a", 1, names[:3]), ("b", 2, names[3:]))
    }
    shutil.copytree(corpus, tmp_path / "mixture")
    replace(Manifest.load(corpus), mixture=groups).save(tmp_path / "mixture")
    upload(tmp_path / "mixture", "throttled://mixture")
    cache, windows = CacheSettings(str(tmp_path / "cache")), replace(GPT, shuffle_window_shards=1)
    local = open_rows(tmp_path / "mixture", cache, windows)
    limit = open_rows("throttled://mixture", cache, windows).require_room(8 * LENGTH, 10**9)
    remote = open_rows("throttled://mixture", replace(cache, limit_bytes=limit), windows)
    for start in range(0, 3 * local.count(0), 8):
        assert are_same(local.batch_at(start, start + 8), remote.batch_at(start, start + 8))
    assert disk_bytes(cache) <= limit


def test_the_next_window_is_fetched_in_the_background(
    corpus: Path, tmp_path: Path, store: type[ThrottledStore]
) -> None:
    cache, windows = CacheSettings(str(tmp_path / "cache")), replace(GPT, shuffle_window_shards=2)
    remote = open_rows(ADDRESS, cache, windows)
    in_order = [infos(corpus)[k].xxh3 for k in order_shards(NUM_SHARDS, rng.key(0, "order"), 0)]
    remote.batch_at(0, 4)
    for thread in threading.enumerate():
        if thread.name == "shard cache":
            thread.join()
    assert cached(cache) == set(in_order[:4])
    store.forget()
    remote.batch_at(*[remote.count(0) // 3 + 20 + i for i in (0, 4)])  # of the second window
    assert not any(store.num_bytes[info.name] for info in infos(corpus) if info.xxh3 in in_order[:4])


def test_a_resumed_run_fetches_only_its_window(corpus: Path, tmp_path: Path, store: type[ThrottledStore]) -> None:
    cache, windows = CacheSettings(str(tmp_path / "cache")), replace(GPT, shuffle_window_shards=1)
    local, remote = open_rows(corpus, cache, windows), open_rows(ADDRESS, cache, windows)
    start = local.count(0) // 2
    shards = {local.store.shards.index(local._plans.lines[0][k]) for k in window_lines(local, start, 4)}
    remote._windows._opened.prefetch = lambda files: None  # type: ignore[method-assign]
    assert are_same(local.batch_at(start, start + 4), remote.batch_at(start, start + 4))
    assert cached(cache) == {infos(corpus)[k].xxh3 for k in shards}
    assert len(shards) <= 2


def window_lines(rows: ExampleDataset, start: int, count: int) -> set[int]:
    end_K = rows._plans.epoch(0, 0).end_K
    return {int(np.searchsorted(end_K, rows.at(p)[1], side="right")) for p in range(start, start + count)}


def test_too_small_a_cache_is_refused_with_the_size_that_is_needed(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = open_rows(ADDRESS, CacheSettings(str(tmp_path / "cache")))
    total = sum(info.bytes for info in infos(corpus))
    with pytest.raises(BadInput, match=r"set engine.shard_cache_gb to .* or more, or set data.shuffle_window_shards$"):
        rows.require_room(LENGTH, total)
    rows = open_rows(ADDRESS, CacheSettings(str(tmp_path / "cache")), replace(GPT, shuffle_window_shards=1))
    assert rows.require_room(LENGTH, total) < total / 2
    monkeypatch.setattr(shard_windows.resource, "getrlimit", lambda which: (257, 4096))
    with pytest.raises(
        BadInput, match=r"reads from 2 shards at a time, but a process may open 257 files; .*`ulimit -n 258`"
    ):
        rows.require_room(LENGTH, 10**9)
    size = infos(corpus)[0].bytes
    small = open_rows(ADDRESS, CacheSettings(str(tmp_path / "small"), size - 100))
    with pytest.raises(BadInput, match=r"the shard cache may hold .*; set engine.shard_cache_gb to more"):
        _ = small.store.shards[0].ids_T
    assert not list((tmp_path / "small").glob("*.arrow"))


def test_a_damaged_download_is_repeated_once(
    corpus: Path, tmp_path: Path, store: type[ThrottledStore], caplog: pytest.LogCaptureFixture
) -> None:
    cache, name = CacheSettings(str(tmp_path / "cache")), infos(corpus)[0].name
    shard = TokenStore.open(ADDRESS, "train", cache=cache).shards[0]
    store.damage[name] = 1
    assert np.array_equal(shard.ids_T, Shard(corpus / name).ids_T)
    assert "wrong bytes arrived" in caplog.text
    shard = TokenStore.open(ADDRESS, "train", cache=replace(cache, folder=str(tmp_path / "other"))).shards[0]
    store.damage[name] = 2
    with pytest.raises(BadInput, match=rf"{name}: is damaged: got xxh3 \w+ twice, expected {infos(corpus)[0].xxh3}; "):
        _ = shard.ids_T
    assert [path.name for path in (tmp_path / "other").iterdir() if path.is_file()] == [".lock"]


def test_starts_with_wrong_bytes_are_noticed(corpus: Path, tmp_path: Path, store: type[ThrottledStore]) -> None:
    cache, info = CacheSettings(str(tmp_path / "cache")), infos(corpus)[0]
    right_N1 = Shard(corpus / info.name).offset_N1
    store.damage[info.name] = 3  # of these reads, two are of metadata
    assert np.array_equal(TokenStore.open(ADDRESS, "train", cache=cache).shards[0].offset_N1, right_N1)
    store.damage[info.name] = 100
    with pytest.raises(BadInput, match=r"cannot read it as a shard \(a document does not begin with a sentence\)"):
        _ = TokenStore.open(ADDRESS, "train", cache=cache).shards[0].sentence_at_M
    store.damage[info.name] = 0
    path = cache.directory / f"{info.xxh3}.sentences"
    right = TokenStore.open(corpus, "train").shards[0].sentence_start_bits.copy()
    right[len(right) // 2] ^= 255
    path.write_bytes(right[: -(-info.tokens // 8)].tobytes())
    shard = TokenStore.open(ADDRESS, "train", cache=cache).shards[0]
    assert len(shard.sentence_at_M)
    with pytest.raises(BadInput, match=r"wrong sentence starts before; they are removed, so repeat the command"):
        _ = shard.ids_T
    assert not path.exists()
    again = TokenStore.open(ADDRESS, "train", cache=cache).shards[0]
    assert np.array_equal(again.sentence_at_M, Shard(corpus / info.name).sentence_at_M)
    assert len(again.ids_T)


def test_requests_are_repeated_until_the_store_answers(
    corpus: Path, tmp_path: Path, store: type[ThrottledStore], caplog: pytest.LogCaptureFixture
) -> None:
    cache, info = CacheSettings(str(tmp_path / "cache")), infos(corpus)[0]
    store.failures = [ConnectionResetError("reset by peer"), OSError("503 Slow Down"), TimeoutError()] * 2
    shard = TokenStore.open(ADDRESS, "train", cache=cache).shards[0]
    assert np.array_equal(shard.ids_T, Shard(corpus / info.name).ids_T)
    assert "the store does not answer" in caplog.text
    store.failures = [OSError("503 Slow Down")] * 7
    with pytest.raises(ResourceError, match=r"the store failed 7 times \(503 Slow Down\); check the network"):
        TokenStore.open(ADDRESS, "train", cache=cache)
    store.forget()
    with pytest.raises(BadInput, match=r"^throttled://nothing/manifest.json: no such file; check the URL"):
        TokenStore.open("throttled://nothing", "train", cache=cache)
    assert store.requests["manifest.json"] == 1


def test_a_user_who_waits_reads_how_far_it_is(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seconds = itertools.count(0, 4)
    monkeypatch.setattr(remote_shard, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    monkeypatch.setattr(object_store, "BLOCK", 1000)
    cache, info = CacheSettings(str(tmp_path / "cache")), infos(corpus)[0]
    assert len(TokenStore.open(ADDRESS, "train", cache=cache).shards[0].ids_T)
    assert caplog.messages == [f"fetching {info.name}: 0 of 0 MB"]  # after eight of the seconds, not after four
    caplog.clear()
    StoredShard(info, f"{ADDRESS}/{info.name}").write(os.open(tmp_path / "copy", os.O_RDWR | os.O_CREAT), quiet=True)
    assert not caplog.messages


def test_a_file_that_a_killed_process_left_is_removed(corpus: Path, tmp_path: Path) -> None:
    cache, (info, other, *_) = CacheSettings(str(tmp_path / "cache")), infos(corpus)
    cache.directory.mkdir()
    (cache.directory / f".tmp-{info.xxh3}.arrow").write_bytes(b"half")
    (cache.directory / f".tmp-{other.xxh3}.arrow").write_bytes(bytes(1000))
    shard = TokenStore.open(ADDRESS, "train", cache=cache).shards[0]
    assert np.array_equal(shard.ids_T, Shard(corpus / info.name).ids_T)
    assert {path.name for path in cache.directory.iterdir() if path.is_file()} == {".lock", f"{info.xxh3}.arrow"}


def test_two_readers_share_one_download(corpus: Path, tmp_path: Path, store: type[ThrottledStore]) -> None:
    files, info = ShardCache(CacheSettings(str(tmp_path / "cache"))), infos(corpus)[0]
    stored, began, goes_on, done = StoredShard(info, f"{ADDRESS}/{info.name}"), *(threading.Event() for _ in range(3))

    def hold(name: str) -> None:
        began.set()
        goes_on.wait()

    def read() -> None:
        files.map(stored.cached_name, stored.num_bytes, lambda handle: stored.write(handle, quiet=True))

    def read_second() -> None:
        read()
        done.set()

    store.before_read = hold
    threads = [threading.Thread(target=read), threading.Thread(target=read_second)]
    threads[0].start()
    began.wait()
    assert not files.fetch(stored.cached_name, stored.num_bytes, pytest.fail, wait=False)  # someone else fetches it
    threads[1].start()
    assert not done.is_set()
    goes_on.set()
    for thread in threads:
        thread.join()
    assert done.is_set()
    assert store.requests[info.name] == 1


def test_the_least_recently_used_file_makes_room_unless_it_is_mapped(tmp_path: Path) -> None:
    files = ShardCache(CacheSettings(str(tmp_path / "cache"), 300))

    def read(name: str) -> bytes:
        return files.map(f"{name}.arrow", 100, lambda handle: write_at_start(handle, [name.encode() * 100]))[:1]

    def names() -> str:
        return "".join(sorted(path.stem for path in files.folder.glob("*.arrow")))

    assert [read(name) for name in "abca"] == [b"a", b"b", b"c", b"a"]
    assert read("d") == b"d"
    assert names() == "acd"
    held = files.map("c.arrow", 100, pytest.fail)
    view = np.frombuffer(held, np.uint8)
    del held  # the view keeps the mapping, and the mapping the lock
    assert read("e") == b"e"
    assert read("f") == b"f"
    assert names() == "cef"
    assert not files.fetch("big.arrow", 250, pytest.fail, wait=False)
    assert files.count_bytes() <= 300
    assert view[0] == ord("c")
    del view
    assert files.fetch("big.arrow", 250, lambda handle: write_at_start(handle, [bytes(250)]))
    assert names() == "big"


def test_files_in_use_by_others_are_waited_for_and_then_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ShardCache(CacheSettings(str(tmp_path / "cache"), 150))
    held = files.map("a.arrow", 100, lambda handle: None)
    polls = list[float]()
    monkeypatch.setattr(shard_cache, "_MAX_POLLS", 50)
    monkeypatch.setattr(shard_cache, "time", SimpleNamespace(sleep=polls.append))
    with pytest.raises(ResourceError, match=r"processes use all of it; set engine.shard_cache_gb to more"):
        files.fetch("b.arrow", 100, pytest.fail)
    assert len(polls) == 50
    assert len(held) == 100


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ShardCache(CacheSettings(str(tmp_path / "cache")))
    files.fetch("old.arrow", 100, lambda handle: None)

    def refuse(handle: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(BadInput, match=r"no space left on the disk for a.arrow .*; free some, or set engine.shard_"):
        files.fetch("a.arrow", 100, pytest.fail)
    assert [path.name for path in files.folder.iterdir()] == [".lock"]  # old files were removed to make room


def test_a_full_disk_gets_room_from_own_mappings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, held = ShardCache(CacheSettings(str(tmp_path))), [True]

    def allocate(handle: int, size: int) -> None:
        if held:
            raise OSError(errno.ENOSPC, "No space left on device")

    def make_room() -> bool:
        return bool(held and held.pop())

    monkeypatch.setattr(shard_cache, "_allocate", allocate)
    assert cache.fetch("a.arrow", 3, lambda handle: write_at_start(handle, [b"abc"]), make_room=make_room)
    assert (tmp_path / "a.arrow").read_bytes() == b"abc"


def test_a_failed_request_does_not_make_a_corpus_a_text(corpus: Path, store: type[ThrottledStore]) -> None:
    store.failures = [OSError("connection reset")]
    assert is_remote_corpus(ADDRESS)
    assert not is_remote_corpus("throttled://nothing")


def test_a_link_holds_everything_except_shards(corpus: Path, tmp_path: Path) -> None:
    manifest = link_corpus(ADDRESS, tmp_path / "link")
    assert manifest == Manifest.load(corpus) == Manifest.load(tmp_path / "link")
    assert not list((tmp_path / "link").glob("*.arrow"))
    assert (tmp_path / "link" / REMOTE).is_file()
    opened = TokenStore.open(tmp_path / "link", "train", cache=CacheSettings(str(tmp_path / "cache")))
    assert opened.is_remote
    assert Vocab.load(opened.vocab_dir, wanted=manifest.vocab["hash"])
    assert is_remote_corpus(ADDRESS)
    assert not is_remote_corpus("throttled://other")
    with pytest.raises(BadInput, match=r"https://\*\*\*@host/c: contains a login; give credentials in the environment"):
        link_corpus("https://me:secret@host/c", tmp_path / "other")


def test_a_changed_copy_stops_the_run(corpus: Path, tmp_path: Path) -> None:
    cache = CacheSettings(str(tmp_path / "cache"))
    opened = TokenStore.open(ADDRESS, "train", cache=cache)
    assert len(opened.shards[0].ids_T)
    opened.require_unchanged()
    path = cache.directory / f"{infos(corpus)[0].xxh3}.arrow"
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(600)
        file.write(b"\xff\xff")
    with pytest.raises(BadInput, match="has changed while it was read"):
        opened.require_unchanged()


def test_the_starts_are_found_after_a_long_list_of_sources(tmp_path: Path) -> None:
    num, path = 4000, tmp_path / "train-00000-of-00001.arrow"
    ones = [np.array([True, False, True])] * num
    sources = [f"a long name of a file, number {number}" for number in range(num)]
    info = write_shard(path, [np.arange(3)] * num, ones, ones, sources, [bytes(16)] * num, vocab_size=9)
    content, spans = path.read_bytes(), list[int]()

    def read(start: int, stop: int) -> bytes:
        spans.append(stop - start)
        return content[start:stop]

    layout, shard = locate_columns(len(content), read), Shard(path)
    assert len(spans) > 2
    assert not layout.has_units
    assert np.array_equal(np.frombuffer(content[slice(*layout.offsets)], np.int32), shard.offset_N1)
    bits = np.unpackbits(np.frombuffer(content[slice(*layout.sentences)], np.uint8), bitorder="little")
    assert np.array_equal(np.flatnonzero(bits[: info.tokens]), shard.sentence_at_M)
    with pytest.raises(ValueError, match=r".+"):
        locate_columns(1000, lambda start, stop: bytes(stop - start))
