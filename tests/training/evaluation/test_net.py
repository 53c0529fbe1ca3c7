"""Models are loaded from finished runs, their exports and directories of transformers; other directories are
refused."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.tokenization import ByteLevelBPE, Template, TokenizerSpec, Unigram, WordPiece, train
from tests.preprocessing.tokenization.test_folder import gpt_1
from tests.training.parity import hf, randomized
from tests.training.parity import loaded as by_transformers
from training.evaluation.eval_result import EvaluatedModel
from training.evaluation.finetune_trial import finetune_task
from training.evaluation.net import net_of, net_of_folder
from training.evaluation.tasks import Classification, TaskItem
from training.finetuning import Tuning
from training.formats import save_weights, to_transformers
from training.losses import MaskedTokens
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import Encoder, LearnedPositions

LEARNED = ["The quick brown fox jumps over the lazy dog.", "Pack my box with five dozen liquor jugs!"] * 20
TEXT = "The quick fox jumps!"
ROBERTA = ByteLevelBPE(vocab_size=320, special_tokens="roberta")
SMALL: Mapping[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
}
BART = {
    f"{side}_{what}": size
    for side in ("encoder", "decoder")
    for what, size in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 32))
}
# model type -> classes of its config and its model, keys of the config, vocabulary
NETS: dict[str, tuple[str, str, Mapping[str, Any], TokenizerSpec | None]] = {
    "bert": ("BertConfig", "BertForPreTraining", SMALL, WordPiece(vocab_size=150)),
    "roberta": (
        "RobertaConfig",
        "RobertaForMaskedLM",
        {**SMALL, "max_position_embeddings": 42, "type_vocab_size": 1, "pad_token_id": 1},
        ROBERTA,
    ),
    "albert": ("AlbertConfig", "AlbertForMaskedLM", {**SMALL, "embedding_size": 8}, Unigram(vocab_size=42)),
    "electra": ("ElectraConfig", "ElectraForPreTraining", {**SMALL, "embedding_size": 8}, WordPiece(vocab_size=150)),
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40},
        ByteLevelBPE(vocab_size=320),
    ),
    "openai-gpt": (
        "OpenAIGPTConfig",
        "OpenAIGPTLMHeadModel",
        {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40},
        None,
    ),
    "t5": (
        "T5Config",
        "T5ForConditionalGeneration",
        {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0},
        Unigram(vocab_size=52, extra_ids=10),
    ),
    "bart": (
        "BartConfig",
        "BartForConditionalGeneration",
        {"d_model": 16, "max_position_embeddings": 40, **BART},
        ROBERTA,
    ),
    "xlnet": (
        "XLNetConfig",
        "XLNetLMHeadModel",
        {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 32},
        Unigram(vocab_size=42),
    ),
}


def saved(model_type: str, folder: Path) -> Any:
    """Save a tiny random model of transformers with its tokenizer."""
    config, net, keys, spec = NETS[model_type]
    if spec is None:
        gpt_1(folder)
        rows = 120
    else:
        vocab = train(spec, LEARNED)
        vocab.save(folder)
        (folder / "specials.json").unlink()  # as in directories of transformers
        about = {"do_lower_case": vocab.normalize("A") == "a"} if model_type in ("bert", "electra") else {}
        (folder / "tokenizer_config.json").write_text(json.dumps(about))
        rows = vocab.size + 3
    oracle = randomized(getattr(hf(), net)(getattr(hf(), config)(**keys, vocab_size=rows)))
    oracle.save_pretrained(folder)
    return oracle


def our_states(net: EvaluatedModel, ids: list[int]) -> Tensor:
    """Our last states [1, S, D] of a sequence; an encoder-decoder reads it on both sides."""
    model = Model(net.spec.model, net.spec.losses, net.spec.vocab_size, seed=0).eval()
    assert net.weights is not None
    unknown = model.load_state_dict(dict(net.weights), strict=False).unexpected_keys
    assert not unknown
    ids_S = torch.tensor([ids])
    batch = {"input_ids": ids_S, "token_type_ids": torch.zeros_like(ids_S), "positions": torch.arange(len(ids))[None]}
    batch |= {"lengths": torch.tensor([len(ids)]), "first_at": torch.tensor([0])}
    with torch.no_grad():
        return model.trunk.states(batch)  # type: ignore[operator, union-attr]


def their_states(oracle: Any, model_type: str, ids: list[int]) -> Tensor:
    ids_S = torch.tensor([ids])
    if model_type == "t5":
        with torch.no_grad():
            source = oracle.encoder(ids_S).last_hidden_state
            return oracle.decoder(ids_S, encoder_hidden_states=source).last_hidden_state
    decoder = {"decoder_input_ids": ids_S} if model_type == "bart" else {}
    memory = {"use_mems": False} if model_type == "xlnet" else {}
    with torch.no_grad():
        return oracle.base_model(input_ids=ids_S, **decoder, **memory).last_hidden_state


@pytest.mark.parametrize("model_type", NETS)
def test_a_directory_of_transformers_is_loaded(model_type: str, tmp_path: Path) -> None:
    oracle = saved(model_type, tmp_path)
    net = net_of(tmp_path)
    ids = net.vocab.encode(TEXT)
    assert len(ids) > 4
    mine, other = our_states(net, ids), their_states(oracle, model_type, ids)
    torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-4)
    assert float(mine.std()) > 0.01


@pytest.mark.parametrize("model_type", NETS)
def test_any_loaded_model_is_fine_tuned(model_type: str, tmp_path: Path) -> None:
    """OpenAI's GPT has no token to append to a sequence, and uses the format of GPT-1."""
    saved(model_type, tmp_path)
    task = Classification(text="a", label="b", labels=("no", "yes"))
    items = [TaskItem(f"{i}", (LEARNED[i % 2],), i % 2) for i in range(4)]
    tuning = Tuning(batch_size=2, max_steps=2, input_format="gpt1" if model_type == "openai-gpt" else "own")
    found = finetune_task(net_of(tmp_path), task, {"train": items, "dev": items}, tuning, length=24)
    assert len(found.losses) == 2
    assert len(found.predictions["dev"]) == 4


# Round trip.


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The directory of a finished run, with only the files of the model."""
    vocab = train(WordPiece(vocab_size=150), LEARNED)
    vocab.save(tmp_path / "corpus" / "vocab")
    spec = ModelSpec(
        model=Encoder(
            num_hidden_layers=2,
            hidden_size=16,
            num_attention_heads=2,
            position_embedding=LearnedPositions(max_position_embeddings=40),
        ),
        losses=(MaskedTokens(),),
        vocab_size=vocab.size + 2,
    )
    model = Model(spec.model, spec.losses, spec.vocab_size, seed=4)
    save_weights({name: x.detach() for name, x in model.named_parameters()}, spec, tmp_path / "run" / "weights")
    (tmp_path / "run" / "pretrain.json").write_text(json.dumps({"corpus": str(tmp_path / "corpus")}))
    return tmp_path / "run"


def test_an_exported_run_has_the_same_states_and_ids(run: Path, tmp_path: Path) -> None:
    mine = net_of(run)
    assert mine.weights is not None
    to_transformers(mine.weights, mine.spec, tmp_path / "corpus" / "vocab", tmp_path / "export")
    back = net_of(tmp_path / "export")
    ids = mine.vocab.encode(TEXT)
    assert back.vocab == mine.vocab
    assert Template(back.vocab).row(TEXT, "jugs").ids.tolist() == Template(mine.vocab).row(TEXT, "jugs").ids.tolist()
    assert torch.equal(our_states(back, ids), our_states(mine, ids))
    (tmp_path / "export" / "specials.json").unlink()  # as in a directory from elsewhere
    again = net_of_folder(tmp_path / "export")
    assert again.vocab.encode(TEXT) == ids
    torch.testing.assert_close(their_states(by_transformers(tmp_path / "export"), "bert", ids), our_states(mine, ids))


# Directories that are refused.


def refused(folder: Path) -> str:
    with pytest.raises(BadInput) as error:
        net_of(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_directory_without_a_model_is_refused(tmp_path: Path) -> None:
    assert "no such directory; give a finished run, or a model directory of transformers" in refused(
        tmp_path / "nowhere"
    )
    assert "neither a run (it has no pretrain.json) nor a model directory of transformers (it has no config" in refused(
        tmp_path
    )


def test_an_unfinished_run_is_refused(run: Path) -> None:
    (run / "weights" / "spec.json").unlink()
    assert "the run is not finished and has no weights; resume it with `sesame train`" in refused(run)
    (run / "pretrain.json").write_text("{}")
    assert "no corpus is named; give the directory of a run of this version" in refused(run)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("pytorch_model.bin", "only pickled weights (pytorch_model.bin), which can execute code; convert them with"),
        ("pytorch_model-00001-of-00002.bin", "only pickled weights (pytorch_model-00001-of-00002.bin)"),
        ("model-00001-of-00002.safetensors", "no model.safetensors; give a directory written by save_pretrained"),
        ("nothing", "no model.safetensors; give a directory written by save_pretrained"),
    ],
)
def test_pickled_or_missing_weights_are_refused(name: str, reason: str, tmp_path: Path) -> None:
    saved("bert", tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / name)
    assert reason in refused(tmp_path)


def test_a_directory_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    saved("bert", tmp_path)
    for name in ("tokenizer.json", "vocab.txt"):
        (tmp_path / name).unlink()
    assert "no tokenizer found, expected" in refused(tmp_path)


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    saved("bert", tmp_path)
    larger = train(ByteLevelBPE(vocab_size=330), LEARNED)
    for name, content in larger.files.items():
        if name != "specials.json":
            (tmp_path / name).write_bytes(content)
    rows = table_rows_of(tmp_path)
    assert (
        f"the tokenizer has {larger.size} tokens, but the embedding table has {rows} rows; give the tokenizer"
        in refused(tmp_path)
    )


def table_rows_of(folder: Path) -> int:
    return int(json.loads((folder / "config.json").read_text())["vocab_size"])


def test_an_unsupported_architecture_is_refused(tmp_path: Path) -> None:
    saved("bert", tmp_path)
    about = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**about, "model_type": "distilbert"}))
    assert "invalid model_type: got 'distilbert', expected one of ['albert', 'bart', 'bert'" in refused(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**about, "position_embedding_type": "relative_key"}))
    assert "unsupported model (invalid position_embedding_type: got 'relative_key'" in refused(tmp_path)
