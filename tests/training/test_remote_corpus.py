"""Training on shards of a slow store: batches equal those of the local corpus, for any workers and processes."""

import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from preprocessing import object_store
from preprocessing.errors import BadInput
from preprocessing.manifest import Manifest
from preprocessing.masking import NoMasking
from preprocessing.objectives import CausalLM
from preprocessing.packing import Contiguous
from preprocessing.remote_corpus import link_corpus
from preprocessing.schema import Batch
from preprocessing.shard_cache import CacheSettings, ShardCache
from tests.remote_stores import ThrottledStore, count_bytes, sharded_corpus, upload
from tests.training.corpora import mini_run, resampled
from training.data import Loader, count_tokens_in_use, open_loader, open_validation, prefetch
from training.run import Run
from training.specs import EngineSettings, Phase

ADDRESS, GIGABYTE = "throttled://corpus", 1e9
GPT = {"packing": Contiguous(unit="token"), "masking": NoMasking(), "objective": CausalLM()}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sharded_corpus(tmp_path_factory.mktemp("corpus") / "local", 6, 10, num_validation=2)


@pytest.fixture
def runs(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Run, Run]]:
    """The same run on the local corpus and on its link, with windows of one shard."""
    ThrottledStore.reset()
    upload(corpus, ADDRESS)
    monkeypatch.setattr(object_store, "time", SimpleNamespace(sleep=lambda seconds: None))
    link_corpus(ADDRESS, tmp_path / "link")
    phases = (Phase(seq_length=32, global_batch_size=8, steps=12), Phase(seq_length=48, global_batch_size=9, steps=20))
    local = resampled(mini_run(corpus, tmp_path / "run", phases=phases), **GPT, shuffle_window_shards=1)
    engine = EngineSettings(shard_cache_dir=str(tmp_path / "cache"))
    yield local, replace(local, corpus=str(tmp_path / "link"), engine=engine)
    ThrottledStore.reset()


def are_same(one: list[Batch], other: list[Batch]) -> bool:
    return len(one) == len(other) and all(
        a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
        for a, b in zip(one, other, strict=True)
    )


def fit_cache(run: Run, loader: Loader) -> Run:
    """The run with the smallest cache that the loader accepts."""
    gb = (
        max(
            loader.rows_by_length[phase.seq_length].require_room(count_tokens_in_use(run, phase, loader.world), 10**9)
            for phase in run.phases
        )
        / GIGABYTE
        + 1e-12
    )
    return replace(run, engine=replace(run.engine, shard_cache_gb=gb))


@pytest.mark.parametrize("world", [1, 2])
def test_each_step_is_that_of_the_local_corpus_in_the_smallest_cache(runs: tuple[Run, Run], world: int) -> None:
    local, remote = runs
    remote = fit_cache(remote, open_loader(remote, 0, world))
    total = sum(info.bytes for info in Manifest.load(local.corpus).shards if info.split == "train")
    assert remote.engine.shard_cache.limit_bytes < total
    folder, sizes = remote.engine.shard_cache.directory, list[int]()
    ThrottledStore.before_read = lambda name: sizes.append(count_bytes(folder))
    pairs = [(open_loader(local, rank, world), open_loader(remote, rank, world)) for rank in range(world)]
    for step in range(local.steps):
        for of_local, of_remote in pairs:
            assert are_same(of_local.at(step), of_remote.at(step))
    assert sizes
    assert max(sizes) <= remote.engine.shard_cache.limit_bytes


def test_fixed_shapes_are_chosen_in_the_smallest_cache(runs: tuple[Run, Run]) -> None:
    """The sample of sequences once needed all shards at once, and waited ten minutes for room."""
    local, remote = runs
    remote = fit_cache(remote, open_loader(remote, 0, 1))
    local, remote = (replace(run, engine=replace(run.engine, padding="fixed")) for run in (local, remote))
    assert open_loader(remote, 0, 1).shapes == open_loader(local, 0, 1).shapes != {}


def test_a_dataset_that_nobody_uses_needs_no_room(runs: tuple[Run, Run]) -> None:
    _, remote = runs
    loader = open_loader(remote, 0, 1)
    loader.at(0)
    opened = loader.rows_by_length[32]._windows._opened
    assert opened._needed
    del loader
    gc.collect()
    assert not any(opened._needed.values())


def test_a_smaller_cache_is_refused_before_the_first_step(runs: tuple[Run, Run]) -> None:
    _, remote = runs
    fits = fit_cache(remote, open_loader(remote, 0, 1))
    with pytest.raises(BadInput, match=r"set engine.shard_cache_gb to [\d.e-]+ or more$"):
        open_loader(replace(fits, engine=replace(fits.engine, shard_cache_gb=fits.engine.shard_cache_gb * 0.99)), 0, 1)
    with pytest.raises(BadInput, match="but training reads from"):  # validation needs room, too
        open_loader(replace(fits, eval_every=5), 0, 1)
    whole = resampled(fits, shuffle_window_shards=0)
    with pytest.raises(BadInput, match=r"or set data.shuffle_window_shards$"):
        open_loader(whole, 0, 1)


def test_validation_reads_the_store_too(runs: tuple[Run, Run]) -> None:
    local, remote = (replace(run, eval_every=5) for run in runs)
    one, other = open_validation(local, 0, 1), open_validation(remote, 0, 1)
    assert one is not None
    assert other is not None
    assert are_same(one.batches(48, range(20)), other.batches(48, range(20)))


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["gpt", "bert"])
def test_compiled_batches_are_those_of_numpy(runs: tuple[Run, Run], sampling: str) -> None:
    local, remote = runs
    if sampling == "bert":
        bert = mini_run(Path(local.corpus), Path(local.folder)).sampling
        local, remote = (replace(run, sampling=bert) for run in runs)
    one, other = open_loader(local, 0, 1), open_loader(remote, 0, 1)
    for length, rows in other.rows_by_length.items():
        rows.load_kernels(one.rows_by_length[length].count(0) // 2)
        assert rows._kernels
        rows.batch(rows.addresses(0, 1))
    if sampling == "gpt":  # the others draw partners from all shards, which have few documents
        copies = remote.engine.shard_cache.directory.glob("*.arrow")
        assert len([path for path in copies if not path.name.startswith(".")]) < 6
    assert all(are_same(one.at(step), other.at(step)) for step in range(local.steps))
    assert not any(kernels._has_failed for rows in other.rows_by_length.values() for kernels in rows._kernels)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_processes_of_the_data_loader_share_the_cache(runs: tuple[Run, Run]) -> None:
    local, remote = runs
    loader = open_loader(local, 0, 1)
    one = [loader.at(step) for step in range(local.steps)]
    remote = replace(remote, engine=replace(remote.engine, dataloader_num_workers=2))
    helped = open_loader(fit_cache(remote, open_loader(remote, 0, 1)), 0, 1)
    helped.at(0)  # the parent has mapped a window before it forks
    made = list(prefetch(helped, 0, local.steps))
    assert all(are_same(batches, one[step]) for step, batches in made)
    assert len(made) == local.steps


CHILD = """
import sys, time, json
from pathlib import Path
from preprocessing.shard_cache import CacheSettings
from preprocessing.shards import TokenStore
import tests.remote_stores as stores
import fsspec

class Disk(stores.ThrottledStore):
    protocol = "slowdisk"
    def cat_file(self, path, start=None, end=None, **kwargs):
        name = path.rpartition("/")[2]
        with open(LOG, "a") as log:
            log.write(name + "\\n")
        if STALL and name.startswith("train") :
            print("stalled", flush=True)
            time.sleep(600)
        return Path(CORPUS, path.partition("corpus/")[2]).read_bytes()[start:end]
    def find(self, path, **kwargs):
        top = Path(CORPUS, path.partition("corpus/")[2])
        return [f"{path}/{one.name}" for one in top.iterdir()]

CORPUS, CACHE, LOG, STALL = sys.argv[1:4] + [sys.argv[4] == "stall"]
fsspec.register_implementation("slowdisk", Disk, clobber=True)
store = TokenStore.open("slowdisk://corpus", "train", cache=CacheSettings(CACHE))
print(json.dumps([int(shard.ids_T.sum()) for shard in store.shards]), flush=True)
"""


def start_child(corpus: Path, cache: Path, log: Path, mode: str) -> "subprocess.Popen[str]":
    words = [sys.executable, "-c", CHILD, str(corpus), str(cache), str(log), mode]
    root = Path(__file__).parent.parent.parent
    environment = os.environ | {"PYTHONPATH": str(root)}
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment, cwd=root)


@pytest.mark.slow
def test_a_killed_process_leaves_nothing_that_stops_the_next_two(corpus: Path, tmp_path: Path) -> None:
    cache, log = tmp_path / "cache", tmp_path / "log"
    killed = start_child(corpus, cache, log, "stall")
    assert killed.stdout is not None
    assert killed.stdout.readline() == "stalled\n"
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert [path for path in cache.iterdir() if path.name.startswith(".tmp-")]
    log.unlink()
    both = [start_child(corpus, cache, log, "go on") for _ in range(2)]
    sums = [json.loads(child.communicate(timeout=120)[0]) for child in both]
    shards = [info for info in Manifest.load(corpus).shards if info.split == "train"]
    assert sums[0] == sums[1]
    assert len(sums[0]) == len(shards)
    reads = [name for name in log.read_text().split("\n") if name.startswith("train")]
    assert sorted(reads) == sorted(info.name for info in shards)  # each was fetched once, by one of both
    assert not [path for path in cache.iterdir() if path.name.startswith(".tmp-")]


SIZE, NUM_FILES, ROOM = 20_000, 12, 5


def map_at_random(folder: Path, seed: int, dies: bool) -> None:
    """Map 80 random files one after the other, and check them. With `dies`, end in the middle of a download."""
    random, files = np.random.default_rng(seed), ShardCache(CacheSettings(str(folder), ROOM * SIZE))
    for turn in range(80):
        number = int(random.integers(NUM_FILES))

        def write(handle: int, number: int = number, turn: int = turn) -> None:
            os.pwrite(handle, bytes([number]) * (SIZE // 2), 0)
            if dies and turn > 20:
                os._exit(9)
            os.pwrite(handle, bytes([number]) * (SIZE // 2), SIZE // 2)

        assert files.map(f"{number}.arrow", SIZE, write)[:] == bytes([number]) * SIZE


@pytest.mark.slow
def test_processes_that_are_killed_never_exceed_the_limit(tmp_path: Path) -> None:
    forks = multiprocessing.get_context("fork")
    folder = tmp_path / "cache"
    folder.mkdir()
    workers = [forks.Process(target=map_at_random, args=(folder, seed, seed % 2 == 1)) for seed in range(6)]
    files, most = ShardCache(CacheSettings(str(folder), ROOM * SIZE)), 0
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        with files._lock():  # no file is renamed while they are counted
            most = max(most, files.count_bytes())
    assert [worker.exitcode for worker in workers] == [0, 9] * 3
    assert SIZE < most <= ROOM * SIZE
