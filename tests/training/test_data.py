import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from preprocessing import tokenization
from preprocessing.errors import BadInput
from preprocessing.manifest import Manifest, MixtureGroupStats
from preprocessing.masking import NoMasking
from preprocessing.objectives import Denoising
from preprocessing.packing import Contiguous, Stream
from preprocessing.schema import Batch
from tests.training.corpora import gpt, mini_run, resampled
from training.batch_shapes import _sample_sizes, choose_shapes
from training.data import num_micro, open_loader, open_validation, prefetch
from training.run import EPOCHS, Run
from training.specs import EngineSettings, Phase


@pytest.fixture
def run(corpus: Path, tmp_path: Path) -> Run:
    return mini_run(corpus, tmp_path)


def rows(batches: list[Batch]) -> list[list[int]]:
    """The tokens of each sequence of unpadded micro-batches."""
    cut = [np.split(batch["input_ids"], batch["first_at"][1:]) for batch in batches]
    return [row.tolist() for batch in cut for row in batch]


def same(one: list[Batch], other: list[Batch]) -> bool:
    return len(one) == len(other) and all(
        a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
        for a, b in zip(one, other, strict=True)
    )


def test_the_batch_of_a_step_does_not_depend_on_the_order_of_access(run: Run) -> None:
    forward, backward = open_loader(run, 0, 1), open_loader(run, 0, 1)
    first = [forward.at(step) for step in range(6)]
    again = [backward.at(step) for step in reversed(range(6))][::-1]
    assert all(same(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("world", [1, 2, 3, 9])
def test_workers_together_have_the_sequences_of_one_worker(run: Run, world: int) -> None:
    shares = [open_loader(run, rank, world).at(4) for rank in range(world)]
    assert [row for share in shares for row in rows(share)] == rows(open_loader(run, 0, 1).at(4))


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more processes than the machine has cores
def test_batches_do_not_depend_on_the_number_of_data_loader_processes(run: Run, workers: int) -> None:
    alone = open_loader(run, 0, 1)
    helped = replace(alone, machine=EngineSettings(dataloader_num_workers=workers))
    made = list(prefetch(helped, 3, 9))
    assert [step for step, _ in made] == [3, 4, 5, 6, 7, 8]
    assert all(same(batches, alone.at(step)) for step, batches in made)


@pytest.mark.parametrize("micro_tokens", [1, 48, 100, 200, 10_000])
def test_micro_batches_together_equal_the_batch(run: Run, micro_tokens: int) -> None:
    split = replace(open_loader(run, 0, 1), machine=EngineSettings(micro_batch_tokens=micro_tokens))
    assert rows(split.at(7)) == rows(open_loader(run, 0, 1).at(7))


def test_a_micro_batch_has_at_most_the_requested_tokens(run: Run) -> None:
    batches = replace(open_loader(run, 0, 1), machine=EngineSettings(micro_batch_tokens=100)).at(0)
    assert [len(batch["lengths"]) for batch in batches] == [1, 2, 2, 2, 2]


def test_every_worker_has_the_same_number_of_nonempty_micro_batches() -> None:
    for num_rows in range(1, 40):
        for world in range(1, num_rows + 1):
            for micro_rows in (1, 2, 3, 100):
                count = num_micro(num_rows, micro_rows, world)
                fewest, most = num_rows // world, -(-num_rows // world)
                assert 1 <= count <= fewest
                assert -(-most // count) <= max(micro_rows, 2)


def test_padded_and_unpadded_batches_have_the_same_targets(run: Run) -> None:
    flat = open_loader(run, 0, 1)
    (padded,) = replace(flat, machine=EngineSettings(padding="padded")).at(2)
    (unpadded,) = flat.at(2)
    assert padded["input_ids"].shape == (9, 48)
    assert np.array_equal(padded["targets"], unpadded["targets"])


def test_a_phase_of_the_same_length_continues_the_order_and_another_length_starts_a_new_order(run: Run) -> None:
    whole = open_loader(replace(run, phases=(Phase(seq_length=48, global_batch_size=3, steps=6),)), 0, 1)
    phases = (
        Phase(seq_length=48, global_batch_size=3, steps=2),
        Phase(seq_length=24, global_batch_size=5, steps=2),
        Phase(seq_length=48, global_batch_size=6, steps=2),
    )
    loader = open_loader(replace(run, phases=phases), 0, 1)
    assert rows(loader.at(0)) + rows(loader.at(1)) == rows(whole.at(0)) + rows(whole.at(1))
    assert rows(loader.at(4)) + rows(loader.at(5)) == [row for step in range(2, 6) for row in rows(whole.at(step))]
    assert [loader.phase_of(step).global_batch_size for step in range(6)] == [3, 3, 5, 5, 6, 6]
    assert max(len(row) for row in rows(loader.at(2))) <= 24


def test_batches_counted_in_tokens_read_every_sequence_once(run: Run) -> None:
    filled = replace(run, phases=(Phase(seq_length=48, global_batch_size=4, steps=400, batch_unit="token"),))
    loader, order = open_loader(filled, 0, 1), open_loader(run, 0, 1).rows_by_length[48]
    read = [rows(loader.at(step)) for step in range(400)]
    num_rows = sum(len(batch) for batch in read)
    assert num_rows > order.count(0) + order.count(1)  # more than two epochs
    assert [row for batch in read for row in batch] == [
        order.row(*order.at(position))["input_ids"].tolist() for position in range(num_rows)
    ]
    text = np.cumsum([sum(len(row) - 3 for row in batch) for batch in read])  # pairs have three special tokens each
    assert np.abs(text - 4 * 48 * np.arange(1, 401)).max() < 48
    assert len({len(batch) for batch in read}) > 1


@pytest.mark.parametrize("world", [2, 3])
def test_workers_share_a_batch_counted_in_tokens(run: Run, world: int) -> None:
    filled = replace(run, phases=(Phase(seq_length=48, global_batch_size=4, steps=9, batch_unit="token"),))
    parts = [open_loader(filled, rank, world).at(7) for rank in range(world)]
    assert [row for part in parts for row in rows(part)] == rows(open_loader(filled, 0, 1).at(7))


def test_a_step_after_the_last_raises_index_error(run: Run) -> None:
    with pytest.raises(IndexError):
        open_loader(run, 0, 1).at(20)


def test_a_table_that_is_too_small_for_the_vocabulary_is_refused(run: Run) -> None:
    with pytest.raises(
        BadInput, match=r"has 467 tokens, but the token table has 400 rows; set data\.tokenizer\.vocab_size to 467"
    ):
        open_loader(replace(run, vocab_size=400), 0, 1)


def test_a_vocabulary_that_differs_from_that_of_the_corpus_is_refused(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.corpus, tmp_path / "corpus")
    pieces = [f"[{role}]" for role in ("PAD", "UNK", "CLS", "SEP", "MASK")] + [chr(97 + i) for i in range(20)]
    (tmp_path / "pieces.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    tokenization.train(tokenization.WordPiece(vocab_size=25, path=str(tmp_path / "pieces.txt")), ()).save(
        tmp_path / "corpus" / "vocab"
    )
    with pytest.raises(BadInput, match="as in the corpus"):
        open_loader(replace(run, corpus=str(tmp_path / "corpus")), 0, 1)


def test_a_damaged_shard_is_refused(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.corpus, tmp_path / "corpus")
    shard = tmp_path / "corpus" / "train-00000-of-00001.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(BadInput, match=r"train-00000-of-00001\.arrow: is damaged"):
        open_loader(replace(run, corpus=str(tmp_path / "corpus")), 0, 1)


def test_more_workers_than_sequences_are_refused(run: Run) -> None:
    with pytest.raises(BadInput, match="10 workers cannot share a batch of 9 sequences; use at most 9"):
        open_loader(run, 0, 10)


def test_a_run_without_evaluation_opens_no_validation_split(run: Run) -> None:
    assert open_validation(run, 0, 1) is None
    assert open_validation(replace(run, eval_every=5), 0, 1) is not None


# Sequences that continue each other.


@pytest.fixture
def streaming(run: Run) -> Run:
    return replace(resampled(gpt(run), packing=Stream()), phases=(Phase(seq_length=16, global_batch_size=6, steps=12),))


def ragged(batch: Batch) -> list[list[int]]:
    return rows([batch])


@pytest.mark.parametrize("micro_tokens", [16, 32, 10_000])
def test_each_sequence_continues_that_of_the_previous_step(streaming: Run, micro_tokens: int) -> None:
    loader = replace(open_loader(streaming, 0, 1), machine=EngineSettings(micro_batch_tokens=micro_tokens))
    before = loader.at(0)
    assert [int(batch["slot"]) for batch in before] == list(range(len(before)))
    assert all(batch["fresh"].all() for batch in before)
    for step in range(1, 12):
        batches = loader.at(step)
        for last, batch in zip(before, batches, strict=True):
            assert batch["slot"] == last["slot"]
            targets = np.split(last["targets"], len(last["lengths"]))
            for target, row, fresh in zip(targets, ragged(batch), batch["fresh"], strict=True):
                assert not fresh
                assert target[-1] == row[0]
        before = batches


@pytest.mark.parametrize("world", [2, 3, 6])
def test_workers_together_have_the_streams_of_one_worker(streaming: Run, world: int) -> None:
    for step in (0, 5):
        shares = [open_loader(streaming, rank, world).at(step) for rank in range(world)]
        assert [row for share in shares for row in rows(share)] == rows(open_loader(streaming, 0, 1).at(step))


def test_memory_is_cleared_only_if_a_phase_changes_the_batch_size(streaming: Run) -> None:
    phases = tuple(Phase(seq_length=16, global_batch_size=batch, steps=2) for batch in (3, 3, 6, 3))
    loader = open_loader(replace(streaming, phases=phases), 0, 1)
    fresh = [bool(loader.at(step)[0]["fresh"].all()) for step in range(8)]
    assert fresh == [True, False, False, False, True, False, True, False]
    whole = open_loader(replace(streaming, phases=(Phase(seq_length=16, global_batch_size=3, steps=6),)), 0, 1)
    assert [rows(loader.at(step)) for step in (0, 1, 2, 3, 6, 7)] == [rows(whole.at(step)) for step in range(6)]


@pytest.mark.parametrize("world", [1, 2])
def test_evaluation_streams_use_negative_slots(streaming: Run, world: int) -> None:
    loader = open_loader(streaming, 0, world)
    batches = loader.batches(16, range(64))
    assert [int(batch["slot"]) for batch in batches] == [-1] * len(batches)
    assert [bool(batch["fresh"].all()) for batch in batches] == [True] + [False] * (len(batches) - 1)
    assert sum(len(batch["lengths"]) for batch in batches) == 64 // world
    for before, after in pairwise(batches):
        targets = np.split(before["targets"], len(before["lengths"]))
        assert [target[-1] for target in targets] == [row[0] for row in ragged(after)]


def test_shuffled_sequences_have_no_slot(run: Run) -> None:
    assert not {"slot", "fresh"} & open_loader(run, 0, 1).at(0)[0].keys()


def test_micro_batches_also_count_source_tokens(run: Run) -> None:
    bart = resampled(
        run,
        packing=Contiguous(unit="sentence"),
        masking=NoMasking(),
        objective=Denoising(noise_types=("sentence_permutation", "text_infilling")),
    )
    batches = replace(open_loader(bart, 0, 1), machine=EngineSettings(micro_batch_tokens=200)).at(0)
    assert [len(batch["lengths"]) for batch in batches] == [1, 2, 2, 2, 2]  # 48 target tokens and 48 source tokens
    assert all(len(batch["input_ids"]) + len(batch["source_input_ids"]) <= 200 for batch in batches)
    (padded,) = replace(open_loader(bart, 0, 1), machine=EngineSettings(padding="padded")).at(0)
    assert padded["input_ids"].shape[1] == padded["lengths"].max()


# Mixtures and phases


@pytest.fixture
def curriculum(corpus: Path, tmp_path: Path) -> Run:
    """A run on a corpus of two groups, whose phases have different weights."""
    groups = as_mixture(corpus, tmp_path / "mixed")
    phases = (
        Phase(seq_length=48, global_batch_size=9, steps=8),
        Phase(seq_length=24, global_batch_size=6, steps=3, mixture={"a": 1}),
        Phase(seq_length=48, global_batch_size=9, steps=6, mixture={"a": 1, "b": 3}),
        Phase(seq_length=48, global_batch_size=7, steps=5, mixture={"b": 1}),
    )
    return replace(mini_run(groups, tmp_path), phases=phases)


def as_mixture(corpus: Path, folder: Path) -> Path:
    """A copy of a corpus with its training shard in two groups, of weights 3 and 1."""
    shutil.copytree(corpus, folder)
    manifest = Manifest.load(folder)
    one = next(info for info in manifest.shards if info.split == "train")
    other = replace(one, name="train-00001-of-00002.arrow")
    shutil.copy(folder / one.name, folder / other.name)
    groups = {
        name: MixtureGroupStats(
            weight=weight, share=weight / 4, documents=info.rows, tokens=info.tokens, epochs=1.0, shards=(info.name,)
        )
        for name, weight, info in (("a", 3.0, one), ("b", 1.0, other))
    }
    replace(manifest, mixture=groups, shards=(*manifest.shards, other)).save(folder)
    return folder


def groups_at(run: Run, step: int) -> list[int]:
    """The group of each sequence of a step."""
    loader = open_loader(run, 0, 1)
    phase, first = loader.place_of(step)
    addresses = loader.rows_by_length[phase.seq_length].addresses(first, first + phase.global_batch_size)
    return [sample % 2 for _, sample in addresses]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_curriculum_has_the_same_sequences_for_any_number_of_workers_and_after_any_restart(
    curriculum: Run, world: int
) -> None:
    whole = open_loader(curriculum, 0, 1)
    expected = [rows(whole.at(step)) for step in range(curriculum.steps)]
    for start in (0, 7, 8, 11, 16, 17, 21):
        shares = [open_loader(curriculum, rank, world) for rank in range(world)]
        for step in range(start, min(start + 2, curriculum.steps)):
            assert [row for share in shares for row in rows(share.at(step))] == expected[step]


def test_weights_change_exactly_at_the_boundary_of_a_phase(curriculum: Run) -> None:
    share = [np.mean(groups_at(curriculum, step)) for step in range(curriculum.steps)]
    assert share[7] == pytest.approx(0.25, abs=0.15)
    assert share[8:11] == [0, 0, 0]
    assert np.mean(share[11:17]) == pytest.approx(0.75, abs=0.06)
    assert share[17:] == [1, 1, 1, 1, 1]


def test_a_group_continues_in_the_next_phase_of_the_same_length(curriculum: Run) -> None:
    loader = open_loader(curriculum, 0, 1)
    dataset = loader.rows_by_length[48]
    mine = [at for at in dataset.addresses(0, 8 * 9 + 6 * 9 + 5 * 7) if at[1] % 2]
    orders = replace(dataset, blends=())
    assert mine == [at for at in orders.addresses(0, 8 * len(mine)) if at[1] % 2][: len(mine)]
    read = [row for step in (*range(8), *range(11, 22)) for row in rows(loader.at(step))]
    assert len(read) == 8 * 9 + 6 * 9 + 5 * 7


def test_shapes_are_chosen_from_sequences_of_all_blends(curriculum: Run) -> None:
    rows_by_length = open_loader(curriculum, 0, 1).rows_by_length
    starts = [blend.start for blend in rows_by_length[48].blends]
    assert starts == [0, 72, 126]
    for dataset, expected in (
        (rows_by_length[48], [(start, start + 30) for start in starts]),
        (replace(rows_by_length[48], blends=()), [(0, 90)]),
    ):
        sizes = _sample_sizes(dataset, 90, at_once=9)
        lengths = [dataset.batch_at(*one)["lengths"] for one in expected]
        assert np.array_equal(sizes.tokens, np.concatenate(lengths))
        assert sizes.targets.sum() > 0
    assert choose_shapes(curriculum.phases, rows_by_length, 200).keys() == {24, 48}


def test_a_phase_with_an_unknown_group_is_refused(curriculum: Run, run: Run) -> None:
    phases = (Phase(seq_length=48, global_batch_size=9, steps=8, mixture={"c": 1}),)
    with pytest.raises(BadInput, match=r"invalid phases\.0\.mixture: got c, expected a group of the corpus \(a, b\)"):
        open_loader(replace(curriculum, phases=phases), 0, 1)
    with pytest.raises(BadInput, match=r"invalid phases\.0\.mixture: got .* because the corpus has no groups"):
        open_loader(replace(run, phases=phases), 0, 1)


def test_validation_has_no_weights(curriculum: Run) -> None:
    loader = open_validation(replace(curriculum, eval_every=1), 0, 1)
    assert loader is not None
    assert all(not dataset.blends for dataset in loader.rows_by_length.values())


@pytest.mark.parametrize("world", [1, 3])
def test_only_the_first_worker_writes_the_sizes_of_epochs(run: Run, world: int) -> None:
    Path(run.folder).mkdir(parents=True, exist_ok=True)
    for rank in reversed(range(world)):
        open_loader(run, rank, world).at(0)
        assert (Path(run.folder) / EPOCHS).is_file() == (rank == 0)
