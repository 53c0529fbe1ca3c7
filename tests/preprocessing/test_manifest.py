import json
from dataclasses import replace
from pathlib import Path

import pytest

from preprocessing.errors import BadInput
from preprocessing.manifest import FILE_NAME, Count, Ledger, Manifest, MixtureGroupStats, ShardInfo

SHARDS = (
    ShardInfo("train-00000-of-00002.arrow", "train", rows=2, tokens=20, bytes=900, xxh3="aa"),
    ShardInfo("train-00001-of-00002.arrow", "train", rows=3, tokens=30, bytes=950, xxh3="bb"),
    ShardInfo("test-00000-of-00001.arrow", "test", rows=1, tokens=5, bytes=500, xxh3="cc"),
)
MANIFEST = Manifest(
    name="toy",
    spec_hash="spec",
    text_hash="text",
    vocab={"kind": "wordpiece", "size": 9, "hash": "vocab", "specials": {"pad": 0}},
    versions={"pyarrow": "25.0.1"},
    shards=SHARDS,
    ledger=Ledger(Count(7, 700, 55), Count(6, 600, 55), {"empty": Count(1, 100)}),
)


def test_a_manifest_survives_saving_and_loading(tmp_path: Path) -> None:
    MANIFEST.save(tmp_path)
    assert Manifest.load(tmp_path) == MANIFEST


def test_splits_sum_over_their_shards() -> None:
    assert MANIFEST.splits == {
        "train": {"shards": 2, "rows": 5, "tokens": 50},
        "test": {"shards": 1, "rows": 1, "tokens": 5},
    }


def test_the_digest_is_independent_of_path_and_time(tmp_path: Path) -> None:
    MANIFEST.save(tmp_path / "a")
    MANIFEST.save(tmp_path / "b")
    assert Manifest.load(tmp_path / "a").digest == Manifest.load(tmp_path / "b").digest == MANIFEST.digest


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"shards": SHARDS[:2]},
        {"shards": (*SHARDS[:2], replace(SHARDS[2], xxh3="cd"))},
        {"ledger": Ledger(Count(7, 700, 55), Count(6, 600, 55), {"too_long": Count(1, 100)})},
        {"versions": {"pyarrow": "25.0.2"}},
    ],
)
def test_any_change_of_the_manifest_changes_the_digest(change: dict[str, object]) -> None:
    assert replace(MANIFEST, **change).digest != MANIFEST.digest  # type: ignore[arg-type]


def test_a_directory_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"manifest\.json: No such file .*`sesame corpus`"):
        Manifest.load(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff\xfe", b'{"schema_version": 2}', b'{"schema_version": 2, "splits": {}}']
)
def test_a_damaged_manifest_is_a_one_line_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(BadInput, match="is damaged or not a manifest") as error:
        Manifest.load(tmp_path)
    assert "\n" not in str(error.value)


STRANGERS = MixtureGroupStats(weight=1, share=1, documents=1, tokens=1, epochs=1, shards=("other.arrow",))


@pytest.mark.parametrize("change", [{"shards": SHARDS * 2}, {"mixture": {"a": STRANGERS}}, {"vocab": None}])
def test_an_inconsistent_manifest_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    """The checksum is correct. One of these manifests used to be read with a shard twice; others raised a KeyError."""
    replace(MANIFEST, **change).save(tmp_path)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="is damaged or not a manifest"):
        Manifest.load(tmp_path)


def test_another_schema_version_is_refused(tmp_path: Path) -> None:
    value = json.loads(MANIFEST.to_json()) | {"schema_version": 99}
    (tmp_path / FILE_NAME).write_text(json.dumps(value))
    with pytest.raises(BadInput, match="schema version: got 99, expected 2"):
        Manifest.load(tmp_path)


def test_a_ledger_balances_if_every_drop_has_a_reason() -> None:
    ledger = Ledger()
    ledger.see(2, bytes=20)
    ledger.keep(bytes=12)
    assert not ledger.is_balanced()
    ledger.drop("empty", bytes=8)
    assert ledger.is_balanced()


def test_unexplained_is_the_difference_of_seen_kept_and_dropped() -> None:
    assert Ledger(Count(3, 30, 300), Count(1, 10, 100), {"empty": Count(1, 15)}).unexplained == Count(1, 5, 200)


def test_merging_ledgers_is_commutative_and_changes_neither() -> None:
    left = Ledger(Count(2, 20), Count(1, 10), {"empty": Count(1, 10)})
    right = Ledger(Count(3, 30), Count(1, 10), {"too_long": Count(1, 15), "empty": Count(1, 5)})
    merged = Ledger(Count(5, 50), Count(2, 20), {"empty": Count(2, 15), "too_long": Count(1, 15)})
    assert left.merge(right) == right.merge(left) == merged
    assert left.dropped == {"empty": Count(1, 10)}


def test_a_ledger_survives_a_json_round_trip() -> None:
    assert Ledger.from_dict(json.loads(json.dumps(MANIFEST.ledger.to_dict()))) == MANIFEST.ledger


def test_a_manifest_without_shards_is_named(tmp_path: Path) -> None:
    replace(MANIFEST, shards=()).save(tmp_path)
    with pytest.raises(
        BadInput, match=r"manifest\.json: lists no shard, so this is not a corpus; make the corpus again"
    ):
        Manifest.load(tmp_path)
