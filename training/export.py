"""Weights to files and back: our own folders, and folders that plain `transformers` loads.

Both hold safetensors and JSON only, so nothing is unpickled. The JSON that makes a folder valid is written last, and
the tied token table is one tensor in either. Weights go by our names, as in `Model.state_dict()`.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.files import write_atomic
from preprocessing.knob import part
from preprocessing.vocab import Vocab
from training.model import Model, ModelSpec
from training.spec import Decoder, Encoder, Loss, MaskedTokens, NextToken, PairLabel, Trunk

Weights = Mapping[str, Tensor]
Names = Mapping[str, list[str]]

# Our modules and theirs. * is the number of the block; where they have several, ours is theirs stacked.
BERT: Names = {
    "trunk.tokens": ["bert.embeddings.word_embeddings"],
    "trunk.positions": ["bert.embeddings.position_embeddings"],
    "trunk.segments": ["bert.embeddings.token_type_embeddings"],
    "trunk.embedding_norm": ["bert.embeddings.LayerNorm"],
    "trunk.blocks.*.attention.qkv": [f"bert.encoder.layer.*.attention.self.{x}" for x in ("query", "key", "value")],
    "trunk.blocks.*.attention.out": ["bert.encoder.layer.*.attention.output.dense"],
    "trunk.blocks.*.attention_norm": ["bert.encoder.layer.*.attention.output.LayerNorm"],
    "trunk.blocks.*.feed_forward.up": ["bert.encoder.layer.*.intermediate.dense"],
    "trunk.blocks.*.feed_forward.down": ["bert.encoder.layer.*.output.dense"],
    "trunk.blocks.*.feed_forward_norm": ["bert.encoder.layer.*.output.LayerNorm"],
    "heads.masked_tokens": ["cls.predictions"],
    "heads.masked_tokens.transform": ["cls.predictions.transform.dense"],
    "heads.masked_tokens.norm": ["cls.predictions.transform.LayerNorm"],
    "heads.pair_label.pooler": ["bert.pooler.dense"],
    "heads.pair_label.classify": ["cls.seq_relationship"],
}
ROBERTA: Names = {
    **{
        ours: [name.replace("bert.", "roberta.", 1) for name in theirs]
        for ours, theirs in BERT.items()
        if ours.startswith("trunk.")
    },
    "heads.masked_tokens": ["lm_head"],
    "heads.masked_tokens.transform": ["lm_head.dense"],
    "heads.masked_tokens.norm": ["lm_head.layer_norm"],
}
GPT2: Names = {
    "trunk.tokens": ["transformer.wte"],
    "trunk.positions": ["transformer.wpe"],
    "trunk.blocks.*.attention_norm": ["transformer.h.*.ln_1"],
    "trunk.blocks.*.attention.qkv": ["transformer.h.*.attn.c_attn"],
    "trunk.blocks.*.attention.out": ["transformer.h.*.attn.c_proj"],
    "trunk.blocks.*.feed_forward_norm": ["transformer.h.*.ln_2"],
    "trunk.blocks.*.feed_forward.up": ["transformer.h.*.mlp.c_fc"],
    "trunk.blocks.*.feed_forward.down": ["transformer.h.*.mlp.c_proj"],
    "trunk.final_norm": ["transformer.ln_f"],
}
FAMILIES = {"bert": BERT, "roberta": ROBERTA, "gpt2": GPT2}
CONV1D = ("c_attn.weight", "c_proj.weight", "c_fc.weight")  # GPT-2 keeps these with the input axis first

# Our knobs and the keys of their config.json.
ENCODER_KEYS = {
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "inner": "intermediate_size",
    "norm_eps": "layer_norm_eps",
    "max_positions": "max_position_embeddings",
    "segments": "type_vocab_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "init_std": "initializer_range",
}
DECODER_KEYS = {
    "layers": "n_layer",
    "width": "n_embd",
    "heads": "n_head",
    "inner": "n_inner",
    "norm_eps": "layer_norm_epsilon",
    "max_positions": "n_positions",
    "activation": "activation_function",
    "dropout": "resid_pdrop",
    "attention_dropout": "attn_pdrop",
    "init_std": "initializer_range",
}
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}
BUILT_IN = {  # what their classes can do and ours do not
    "tie_word_embeddings": True,
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
}


def save_weights(state: Weights, spec: ModelSpec, folder: Path) -> None:
    """Write `weights.safetensors`, then `spec.json` with the spec and the sha256 of the weights."""
    content = safetensors.torch.save(dict(state))
    write_atomic(folder / "weights.safetensors", content)
    _write_json(folder / "spec.json", {"spec": asdict(spec), "sha256": hashlib.sha256(content).hexdigest()})


def load_weights(folder: Path) -> tuple[ModelSpec, dict[str, Tensor]]:
    """Read what `save_weights` wrote. BadInput where a file is missing, garbled, or not the one that was written."""
    stored = _read_json(folder / "spec.json")
    content = _read(folder / "weights.safetensors")
    try:
        parts, wanted = dict(stored["spec"]), str(stored["sha256"])
        trunk = part(Trunk, parts.pop("trunk"))
        losses = tuple(part(Loss, loss) for loss in parts.pop("losses"))
        spec = ModelSpec(trunk=trunk, losses=losses, **parts)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{folder / 'spec.json'}: not a spec of this version ({error}); export the run again") from None
    found = hashlib.sha256(content).hexdigest()
    if found != wanted:
        raise BadInput(
            f"{folder / 'weights.safetensors'}: sha256 is {found[:12]}, spec.json says {wanted[:12]}: "
            "damaged or exchanged; export the run again"
        )
    return spec, safetensors.torch.load(content)


def to_transformers(state: Weights, spec: ModelSpec, vocab_dir: Path, out: Path) -> None:
    """Write a folder for `from_pretrained`: model.safetensors, the tokenizer's files and config.json.

    An encoder becomes RobertaForMaskedLM where that class computes the same, else the Bert class with its heads; a
    decoder becomes GPT2LMHeadModel. BadInput where transformers has no such net.
    """
    vocab = Vocab.load(vocab_dir)
    if vocab.size > spec.vocab_size:
        sizes = f"{vocab.size} pieces, the net's table {spec.vocab_size} rows"
        raise BadInput(f"{vocab_dir}: has {sizes}; give the vocabulary that the net was trained with")
    family, architecture = _family(spec, vocab.pad)
    tensors: dict[str, Tensor] = {}
    for ours, tensor in state.items():
        if family == "bert" and ours == "trunk.positions.weight":  # it counts from 0: drop the rows that nothing reads
            tensor = tensor[spec.trunk.position_offset :]
        theirs = _their_names(ours, FAMILIES[family])
        for name, piece in zip(theirs, tensor.chunk(len(theirs)), strict=True):
            tensors[name] = (piece.T if name.endswith(CONV1D) else piece).contiguous()
    (out / "config.json").unlink(missing_ok=True)
    write_atomic(out / "model.safetensors", safetensors.torch.save(tensors, metadata={"format": "pt"}))
    vocab.save(out)
    _write_json(out / "tokenizer_config.json", _tokenizer_config(vocab, spec.trunk))
    _write_json(out / "config.json", _config(spec, family, vocab) | {"architectures": [architecture]})


def from_transformers(folder: Path) -> tuple[ModelSpec, dict[str, Tensor]]:
    """Spec and weights of a folder that `save_pretrained` or `to_transformers` wrote; its heads are those with tensors.

    BadInput where the folder does not hold a BERT, RoBERTa or GPT-2 of the kind that we build.
    """
    config, file = _read_json(folder / "config.json"), folder / "model.safetensors"
    try:
        tensors = {_modern(name): tensor for name, tensor in safetensors.torch.load(_read(file)).items()}
    except SafetensorError as error:
        raise BadInput(f"{file}: not a safetensors file ({error}); fetch it again") from None
    spec = _spec(config, tensors, folder / "config.json")
    with torch.device("meta"):
        wanted = Model(spec.trunk, spec.losses, spec.vocab_size, seed=0).state_dict()
    state: dict[str, Tensor] = {}
    for ours, empty in wanted.items():
        theirs = _their_names(ours, FAMILIES[config["model_type"]])
        missing = [name for name in theirs if name not in tensors]
        if missing:
            raise BadInput(f"{file}: has no tensor {missing[0]}, which config.json asks for; fetch both of one model")
        state[ours] = torch.cat([tensors[name].T if name.endswith(CONV1D) else tensors[name] for name in theirs])
        if state[ours].shape != empty.shape:
            found, asked = list(state[ours].shape), list(empty.shape)
            raise BadInput(f"{file}: {theirs[0]} gives {found}, config.json asks for {asked}; fetch both of one model")
    return spec, state


def _family(spec: ModelSpec, pad: int | None) -> tuple[str, str]:
    """Family and class of transformers that compute what `spec` computes."""
    trunk, kinds = spec.trunk, {loss.kind for loss in spec.losses}
    if isinstance(trunk, Decoder) and trunk.norm == "pre" and kinds == {"next_token"}:
        return "gpt2", "GPT2LMHeadModel"
    if isinstance(trunk, Encoder) and trunk.norm == "post" and trunk.segments > 0:
        # RoBERTa's positions begin after the padding id, and its head has gelu built in.
        from_pad = pad is not None and trunk.position_offset == pad + 1
        if from_pad and kinds == {"masked_tokens"} and trunk.activation == "gelu":
            return "roberta", "RobertaForMaskedLM"
        if kinds == {"masked_tokens", "pair_label"}:
            return "bert", "BertForPreTraining"
        if kinds == {"masked_tokens"}:
            return "bert", "BertForMaskedLM"
    raise BadInput(
        f"export: transformers has no {trunk.norm}-norm {trunk.kind} with {trunk.segments} segments and the losses "
        f"{sorted(kinds)}; it has post-norm encoders with segments and masked_tokens (and pair_label), and pre-norm "
        "decoders with next_token"
    )


def _their_names(ours: str, names: Names) -> list[str]:
    """
    >>> _their_names("trunk.blocks.7.attention.out.bias", GPT2)
    ['transformer.h.7.attn.c_proj.bias']
    """
    module, _, leaf = ours.rpartition(".")
    number = "".join(re.findall(r"\d+", module))
    theirs = names[re.sub(r"\d+", "*", module)]
    return [f"{name.replace('*', number)}.{leaf}" for name in theirs]


def _modern(name: str) -> str:
    """The name as transformers writes it today: the hub's BERT has gamma and beta, its GPT-2 no prefix.

    >>> _modern("h.0.ln_1.weight"), _modern("bert.embeddings.LayerNorm.gamma")
    ('transformer.h.0.ln_1.weight', 'bert.embeddings.LayerNorm.weight')
    """
    name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
    return f"transformer.{name}" if name.startswith(("h.", "wte.", "wpe.", "ln_f.")) else name


def _spec(config: Mapping[str, Any], tensors: Weights, where: Path) -> ModelSpec:
    """What a config.json of transformers describes; a key that it leaves out has the same default on both sides."""
    family = config.get("model_type")
    if family not in FAMILIES:
        raise BadInput(f"{where}: model_type is {family!r}, allowed is one of {sorted(FAMILIES)}")
    for key, allowed in BUILT_IN.items():
        if config.get(key, allowed) != allowed:
            raise BadInput(f"{where}: {key} is {config[key]!r}, allowed is {allowed!r}")
    keys = DECODER_KEYS if family == "gpt2" else ENCODER_KEYS
    knobs = {ours: config[theirs] for ours, theirs in keys.items() if config.get(theirs) is not None}
    try:
        if "activation" in knobs:
            knobs["activation"] = ACTIVATIONS[knobs["activation"]]
        if family == "gpt2":
            return ModelSpec(trunk=Decoder(**knobs), losses=(NextToken(),), vocab_size=config["vocab_size"])
        if family == "roberta":
            knobs["position_offset"] = config.get("pad_token_id", 1) + 1
        candidates: list[Loss] = [MaskedTokens(), PairLabel()]
        heads = {ours.split(".")[1] for ours, names in FAMILIES[family].items() if f"{names[0]}.weight" in tensors}
        losses = tuple(loss for loss in candidates if loss.kind in heads)
        return ModelSpec(trunk=Encoder(**knobs), losses=losses, vocab_size=config["vocab_size"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{where}: describes no net that we build ({error})") from None


def _config(spec: ModelSpec, family: str, vocab: Vocab) -> dict[str, Any]:
    """config.json, but for the class."""
    trunk = spec.trunk
    keys = DECODER_KEYS if isinstance(trunk, Decoder) else ENCODER_KEYS
    config = {theirs: getattr(trunk, ours) for ours, theirs in keys.items()} | {
        keys["inner"]: trunk.inner_width,
        keys["max_positions"]: trunk.longest if family == "bert" else trunk.max_positions,
        keys["activation"]: next(theirs for theirs, ours in ACTIVATIONS.items() if ours == trunk.activation),
        "model_type": family,
        "vocab_size": spec.vocab_size,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "pad_token_id": vocab.pad,
        "bos_token_id": vocab.sep if vocab.cls is None else vocab.cls,
        "eos_token_id": vocab.sep,
    }
    return config | ({"embd_pdrop": trunk.dropout} if family == "gpt2" else {})


def _tokenizer_config(vocab: Vocab, trunk: Trunk) -> dict[str, Any]:
    """tokenizer_config.json: whatever tokenizer.json is, with its special tokens by name."""
    ids = {"unk_token": vocab.unk, "cls_token": vocab.cls, "sep_token": vocab.sep, "mask_token": vocab.mask}
    ids |= {"pad_token": vocab.pad, "bos_token": vocab.cls, "eos_token": vocab.sep}
    columns = ["input_ids", *(["token_type_ids"] if trunk.segments > 1 else []), "attention_mask"]
    return {name: vocab.piece(id) for name, id in ids.items() if id is not None} | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": trunk.longest,
        "model_input_names": columns,
    }


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; give a folder with exported weights") from None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(_read(path))
    except ValueError as error:
        raise BadInput(f"{path}: not JSON ({error}); export again") from None
    if not isinstance(content, dict):
        raise BadInput(f"{path}: holds no JSON object; export again")
    return content


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_atomic(path, (json.dumps(content, indent=2, sort_keys=True) + "\n").encode())
