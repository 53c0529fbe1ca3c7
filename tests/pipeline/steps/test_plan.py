from pathlib import Path

import numpy as np
import pytest

from pipeline.readers import TextReader, plan_splits
from pipeline.spec import Clean, Corpus, Dedup
from pipeline.steps.clean import Cleaner, clean_split
from pipeline.steps.dedup import addresses, write_first_of_each
from pipeline.steps.plan import assign_shards, folds, plan_shards, text_hash, write_plan

RNG = np.random.default_rng(5)


def _plan(folder: Path, files: dict[str, list[str]], **corpus: object) -> np.ndarray:
    """Return the plan over files with one document per line."""
    groups: dict[int, list[bytes]] = {}
    parts = list[str]()
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
        for split in plan_splits([TextReader(path=str(folder / name), document_unit="line")]):
            parts.append(f"{name}-{len(parts)}.arrow")
            clean_split(split, folder / parts[-1], Cleaner(Clean(min_chars=1)))
            for group, block in addresses(folder / parts[-1], len(parts) - 1):
                groups.setdefault(group, []).append(block)
    spec = Corpus(name="test", **corpus)  # type: ignore[arg-type]
    kept = [write_first_of_each(group, str(folder), spec.dedup.exact) for group in groups.items()]
    write_plan(kept, [], str(folder), spec, [parts])
    return np.load(folder / "plan.npy")


def test_one_of_equal_documents_stays(tmp_path: Path) -> None:
    assert len(_plan(tmp_path, {"a": ["one", "two", "one"], "b": ["two", "three"]})) == 3


def test_the_kept_one_of_equal_documents_is_independent_of_the_file_order(tmp_path: Path) -> None:
    files = {name: ["the same", f"only in {name}"] for name in "abcd"}
    hashes = set()
    for number, order in enumerate(("abcd", "dcba", "cadb")):
        (folder := tmp_path / str(number)).mkdir()
        hashes.add(text_hash(_plan(folder, {name: files[name] for name in order})))
    assert len(hashes) == 1


def test_without_exact_deduplication_all_documents_stay(tmp_path: Path) -> None:
    assert len(_plan(tmp_path, {"a": ["one", "two", "one"]}, dedup=Dedup(exact=False))) == 3


def test_the_text_hash_depends_on_the_source_names(tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
    assert text_hash(_plan(tmp_path / "x", {"a": ["one"]})) != text_hash(_plan(tmp_path / "y", {"b": ["one"]}))


def test_documents_of_a_shard_are_ordered_by_key(tmp_path: Path) -> None:
    plan_N = _plan(
        tmp_path, {"a": [f"document {number}" for number in range(500)]}, validation_ratio=0.1, test_ratio=0.1
    )
    for shard in plan_shards(plan_N):
        high = plan_N["high"][shard.start : shard.stop].astype(np.uint64)
        assert (np.diff(high) > 0).all()


def test_shards_cover_the_plan_without_gaps(tmp_path: Path) -> None:
    plan_N = _plan(
        tmp_path, {"a": [f"document {number}" for number in range(500)]}, validation_ratio=0.1, test_ratio=0.1
    )
    shards = plan_shards(plan_N)
    assert [shard.name.split("-")[0] for shard in shards] == ["train", "validation", "test"]
    assert [shard.start for shard in shards] == [0, *(shard.stop for shard in shards[:-1])]
    assert shards[-1].stop == len(plan_N)


@pytest.mark.parametrize("share", [0.005, 0.1, 0.5])
def test_held_out_splits_have_their_fraction_of_the_documents(share: float) -> None:
    fold_N = folds(RNG.integers(0, 1 << 64, 100_000, dtype=np.uint64), validation=share, test=share / 2)
    found = np.bincount(fold_N, minlength=3) / len(fold_N)
    np.testing.assert_allclose(found, [1 - 1.5 * share, share, share / 2], atol=0.005)


def test_more_text_moves_no_document_to_another_split() -> None:
    hash_N = RNG.integers(0, 1 << 64, 10_000, dtype=np.uint64)
    few, many = folds(hash_N[:5000], 0.05, 0.05), folds(hash_N, 0.05, 0.05)
    np.testing.assert_array_equal(few, many[:5000])


@pytest.mark.parametrize(("num", "held_out"), [(0, 0), (1, 0), (5, 0), (6, 2), (100, 2)])
def test_held_out_splits_of_small_text_have_two_documents_or_none(num: int, held_out: int) -> None:
    fold_N = folds((np.arange(num, dtype=np.uint64) + 1) << np.uint64(57), validation=1e-6, test=1e-6)
    assert np.bincount(fold_N, minlength=3)[1:].tolist() == [held_out, held_out]


def test_a_split_with_ratio_zero_stays_empty() -> None:
    fold_N = folds(RNG.integers(0, 1 << 64, 1000, dtype=np.uint64), validation=0.1, test=0.0)
    assert set(fold_N.tolist()) == {0, 1}


@pytest.mark.parametrize("most_mb", [1, 3, 64])
def test_shards_are_about_equal_in_size_and_keep_the_order(most_mb: int) -> None:
    bytes_N = RNG.integers(1, 20_000, 5000)
    shard_N = assign_shards(bytes_N, most_mb << 20)
    sizes = np.bincount(shard_N, weights=bytes_N)
    assert (np.diff(shard_N) >= 0).all()
    assert sizes.max() - sizes.min() <= 2 * bytes_N.max()
    assert sizes.max() <= (most_mb << 20) + bytes_N.max()


@pytest.mark.parametrize("seed", range(20))
def test_shards_have_at_least_two_documents_of_any_size(seed: int) -> None:
    rng = np.random.default_rng([8, seed])
    bytes_N = (1 << rng.integers(1, 25, size=int(rng.integers(2, 40)))).astype(np.int64)
    sizes = np.bincount(assign_shards(bytes_N, most=1 << 20))
    assert sizes.min() >= 2
    assert sizes.sum() == len(bytes_N)
