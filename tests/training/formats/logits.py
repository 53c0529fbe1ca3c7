"""Logits of one short sequence, of any model and of its class in transformers."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from training.formats import half
from training.model import Model
from training.specs import GeneratorDiscriminator

IDS = torch.tensor([7, 30, 11, 52, 8, 41, 19, 63, 25])
SOURCE = torch.tensor([12, 33, 9, 58, 21, 45])


def exported_half(model: Model) -> Model:
    """The discriminator as a model of its own; another model unchanged."""
    if not isinstance(model.spec.model, GeneratorDiscriminator):
        return model
    state, spec = half(model.state_dict(), model.spec, "discriminator")
    found = Model(spec.model, spec.losses, spec.vocab_size, seed=0).eval()
    found.load_state_dict(dict(state))
    return found


@torch.no_grad()
def our_logits(model: Model) -> list[Tensor]:
    """The logits of the heads that transformers has, in their order there; without heads, the last states."""
    model = exported_half(model)
    batch = {"input_ids": IDS, "positions": torch.arange(len(IDS)), "lengths": torch.tensor([len(IDS)])}
    batch |= {"token_type_ids": torch.zeros_like(IDS), "first_at": torch.tensor([0])}
    if model.spec.model.reads_source:
        batch |= {"source_input_ids": SOURCE, "source_positions": torch.arange(len(SOURCE))}
        batch["source_lengths"] = torch.tensor([len(SOURCE)])
    heads: Mapping[str, Any] = dict(model.heads.items())
    hidden_TD, logits = model.trunk(batch), list[Tensor]()
    if "masked_tokens" in heads:
        features_TD = heads["masked_tokens"].features(hidden_TD)
        logits.append(F.linear(features_TD, model.trunk.table, heads["masked_tokens"].bias))
    if "next_token" in heads:
        logits.append(F.linear(hidden_TD, model.trunk.table, heads["next_token"].bias))
    if "replaced" in heads and model.spec.model.position_embedding.kind == "disentangled":
        return [hidden_TD]  # DeBERTa's class has no such head
    if "replaced" in heads:
        logits.append(heads["replaced"].logits(hidden_TD))
    if "pair_label" in heads:
        logits.append(heads["pair_label"].logits(hidden_TD[:1]))
    return logits


@torch.no_grad()
def their_logits(oracle: Any) -> list[Tensor]:
    """The logits of a class of transformers for the same sequence, or its states if it has no head."""
    given = {"input_ids": IDS[None]}
    if oracle.config.model_type == "xlm":
        given["langs"] = torch.zeros_like(IDS[None])
    if oracle.config.model_type == "longformer":
        given["global_attention_mask"] = (torch.arange(len(IDS)) == 0).long()[None]
    if oracle.config.is_encoder_decoder:
        given = {"input_ids": SOURCE[None], "decoder_input_ids": IDS[None]}
    output = oracle(**given)
    if type(oracle).__name__ == "DebertaV2Model":
        return [output.last_hidden_state[0]]
    pairs = [output[name] for name in ("sop_logits", "seq_relationship_logits") if name in output]
    return [output["prediction_logits" if pairs else "logits"][0], *pairs]
