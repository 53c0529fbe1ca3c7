"""Recipe keys beside the names that `transformers` and Megatron-LM have for them.

The loader answers those names ("optimizer.lr is not a key; here it is optimizer.learning_rate"), and the
README's glossary is this table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Term:
    """A key of a recipe, or with `cluster.` in front of a cluster file, and what others call it."""

    key: str
    means: str
    transformers: tuple[str, ...] = ()  # configurations, TrainingArguments, data collators
    megatron: tuple[str, ...] = ()  # arguments of Megatron-LM, fairseq and the reference scripts, without dashes
    note: str = ""  # where the values differ, and not only the names


TERMS: Final = (
    Term("data.corpus", "text", ("dataset_name", "train_file"), ("data_path", "input_file")),
    Term("data.tokenizer", "tokenizer", ("tokenizer", "tokenizer_name"), ("tokenizer_model",)),
    Term("data.tokenizer.kind", "tokenizer class", ("tokenizer_class",), ("tokenizer_type",)),
    Term("data.tokenizer.vocab_size", "vocabulary size", ("vocab_size",), ("padded_vocab_size",)),
    Term("data.tokenizer.lowercase", "lower-casing", ("do_lower_case",), ()),
    Term("data.tokenizer.strip_accents", "text without accents", ("strip_accents",), ()),
    Term("data.tokenizer.path", "vocabulary file", ("vocab_file", "tokenizer_file"), ("merge_file",)),
    Term("data.packing", "packing", ("packing", "group_texts"), ()),
    Term("data.packing.short_seq_prob", "share of short rows", ("short_seq_probability",), ("short_seq_prob",)),
    Term("masking", "masking", ("masking", "data_collator"), ()),
    Term(
        "masking.rate",
        "masking rate",
        ("mlm_probability", "mask_time_prob", "noise_density"),
        ("masked_lm_prob", "mask_prob"),
    ),
    Term("masking.max_predictions_per_seq", "most masked tokens of a row", (), ("max_predictions_per_seq",)),
    Term("masking.mean_noise_span_length", "mean span length", ("mean_noise_span_length", "mask_time_length"), ()),
    Term("objective", "corruption", ("corruption",), ()),
    Term("objective.mask_replace_prob", "share replaced by [MASK]", ("mask_replace_prob",)),
    Term(
        "objective.random_replace_prob",
        "share replaced by random tokens",
        ("random_replace_prob",),
        ("random_token_prob",),
    ),
    Term("data.static_masks", "static masking, number of copies", (), ("dupe_factor",)),
    Term("losses", "losses", ("loss_type", "loss_function"), ("criterion",)),
    Term("model", "model", ("model", "model_type", "config"), ("architecture",)),
    Term("model.num_hidden_layers", "number of layers", ("num_hidden_layers", "n_layer", "n_layers"), ("num_layers",)),
    Term("model.hidden_size", "hidden size", ("hidden_size", "n_embd", "d_model", "dim"), ("encoder_embed_dim",)),
    Term(
        "model.num_attention_heads",
        "attention heads",
        ("num_attention_heads", "n_head", "num_heads"),
        ("attention_heads",),
    ),
    Term("model.head_dim", "size of an attention head", ("d_kv", "head_dim", "d_head"), ("kv_channels",)),
    Term(
        "model.intermediate_size",
        "feed-forward size",
        ("intermediate_size", "n_inner", "d_ff", "d_inner"),
        ("ffn_hidden_size",),
    ),
    Term("model.embedding_size", "embedding size", ("embedding_size", "d_embed"), ()),
    Term("model.activation", "activation", ("hidden_act", "activation_function", "dense_act_fn"), ("activation_fn",)),
    Term("model.norm_position", "pre- or post-norm", ("do_layer_norm_before",), ("normalize_before",), "pre or post"),
    Term("model.norm_eps", "epsilon of the norms", ("layer_norm_eps", "layer_norm_epsilon"), ("layernorm_epsilon",)),
    Term(
        "model.hidden_dropout", "dropout", ("hidden_dropout_prob", "resid_pdrop", "dropout_rate"), ("hidden_dropout",)
    ),
    Term("model.attention_dropout", "attention dropout", ("attention_probs_dropout_prob", "attn_pdrop"), ()),
    Term("model.init_std", "deviation of the initial weights", ("initializer_range", "init_std"), ("init_method_std",)),
    Term("model.type_vocab_size", "token types", ("type_vocab_size",), ("num_tokentypes",)),
    Term(
        "model.position_embedding", "position embeddings", ("position_embedding_type",), ("position_embeddings_type",)
    ),
    Term(
        "model.position_embedding.max_position_embeddings",
        "number of position embeddings",
        ("max_position_embeddings", "n_positions", "n_ctx"),
        ("max_positions",),
    ),
    Term("model.position_embedding.offset", "first row of the position embeddings"),
    Term("model.position_embedding.init_method", "how the position embeddings begin"),
    Term("model.position_embedding.init_std", "deviation of the initial position embeddings"),
    Term("model.position_embedding.mem_len", "states of earlier tokens", ("mem_len",)),
    Term("model.position_embedding.reuse_len", "tokens that the memory keeps", ("reuse_len",)),
    Term("model.position_embedding.clamp_len", "largest relative distance", ("clamp_len",)),
    Term("model.position_embedding.same_length", "same attention length for all tokens", ("same_length",)),
    Term("model.position_embedding.eval_mem_len", "memory in evaluations"),
    Term("model.position_embedding.eval_clamp_len", "largest distance in evaluations"),
    Term(
        "model.position_embedding.num_buckets",
        "buckets of relative distances",
        ("relative_attention_num_buckets",),
    ),
    Term(
        "model.position_embedding.max_distance",
        "distance of the last bucket",
        ("relative_attention_max_distance",),
    ),
    Term(
        "model.attention_window.size",
        "sliding attention window",
        ("attention_window", "sliding_window"),
        ("window_size",),
    ),
    Term("model.attention_window.global_tokens", "tokens with global attention", ("global_attention",)),
    Term(
        "model.token_embedding.cutoffs", "clusters of an adaptive softmax", ("cutoffs",), ("adaptive_softmax_cutoff",)
    ),
    Term("model.token_embedding.div_val", "how much narrower each cluster is", ("div_val",)),
    Term("optimizer", "optimizer", ("optimizer",), ()),
    Term("optimizer.kind", "optimizer class", ("optim_type", "optimizer_type"), ("optimizer_name",)),
    Term("optimizer.learning_rate", "learning rate", ("learning_rate",), ("lr",)),
    Term(
        "optimizer.warmup_steps",
        "warm-up steps",
        ("warmup_steps", "num_warmup_steps"),
        ("lr_warmup_iters", "warmup_updates"),
    ),
    Term("optimizer.lr_schedule", "learning rate schedule", ("lr_scheduler_type", "scheduler"), ("lr_decay_style",)),
    Term(
        "optimizer.min_lr_ratio",
        "lowest learning rate",
        ("min_lr_ratio", "min_lr_rate"),
        ("min_lr",),
        "as a share of the peak",
    ),
    Term("optimizer.lr_decay_steps", "step at which the decay ends", ("num_training_steps",), ("lr_decay_iters",)),
    Term("optimizer.weight_decay", "weight decay", ("weight_decay",), ()),
    Term(
        "optimizer.max_grad_norm",
        "gradient clipping by norm",
        ("max_grad_norm", "gradient_clipping"),
        ("clip_grad", "clip_norm"),
    ),
    Term("optimizer.beta1", "Adam's beta 1", ("adam_beta1",), ()),
    Term("optimizer.beta2", "Adam's beta 2", ("adam_beta2",), ()),
    Term("optimizer.eps", "Adam's epsilon", ("adam_epsilon",), ("adam_eps",)),
    Term("phases", "training length", ("num_train_epochs",), ("epochs",), "in steps, not epochs"),
    Term(
        "phases.0.seq_length",
        "sequence length",
        ("max_seq_length", "block_size", "max_length"),
        ("seq_length", "tokens_per_sample"),
    ),
    Term("phases.0.global_batch_size", "global batch size", ("train_batch_size",), ("global_batch_size", "batch_size")),
    Term("phases.0.steps", "training steps", ("max_steps",), ("train_iters", "max_update")),
    Term(
        "init_checkpoint", "weights to begin with", ("model_name_or_path", "resume_from"), ("init_checkpoint", "load")
    ),
    Term("eval_tasks", "downstream tasks", ("eval_tasks", "task_name"), ("tasks",)),
    Term(
        "cluster.engine.micro_batch_tokens",
        "tokens of a micro-batch",
        ("per_device_train_batch_size", "gradient_accumulation_steps"),
        ("micro_batch_size", "max_tokens"),
        "in tokens, not rows; accumulation follows from it",
    ),
    Term("cluster.engine.precision", "precision", ("bf16", "fp16", "torch_dtype"), ("params_dtype",)),
    Term(
        "cluster.engine.zero_stage", "ZeRO stage", ("zero_stage", "zero_optimization"), ("use_distributed_optimizer",)
    ),
    Term(
        "cluster.engine.tensor_parallel_size",
        "tensor parallelism",
        ("tp_size", "tensor_parallel_size", "autotp_size"),
        ("tensor_model_parallel_size",),
    ),
    Term(
        "cluster.engine.pipeline_parallel_size",
        "pipeline parallelism",
        ("pp_size", "pipeline_parallel_size"),
        ("pipeline_model_parallel_size",),
        "stages of 1F1B, without interleaving",
    ),
    Term(
        "cluster.engine.sequence_parallel_size",
        "sequence parallelism (Ulysses)",
        ("sequence_parallel_size", "sp_size"),
        ("context_parallel_size",),
    ),
    Term("cluster.engine.torch_compile", "torch.compile", ("torch_compile",), ()),
    Term(
        "cluster.engine.activation_checkpointing",
        "activation checkpointing",
        ("gradient_checkpointing",),
        ("recompute_granularity", "recompute_activations"),
    ),
    Term("cluster.engine.offload_optimizer", "optimiser offload", ("offload_optimizer_device",), ("cpu_offload",)),
    Term("cluster.engine.offload_param", "parameter offload", ("offload_param_device",), ("cpu_offload_params",)),
    Term("cluster.engine.dataloader_num_workers", "loader processes", ("dataloader_num_workers",), ("num_workers",)),
    Term(
        "cluster.num_workers", "data-parallel workers", ("nproc_per_node", "num_processes"), ("world_size", "num_gpus")
    ),
    Term("cluster.log_every", "steps between points of the metrics", ("logging_steps",), ("log_interval",)),
    Term("cluster.eval_every", "steps between evaluations", ("eval_steps",), ("eval_interval", "validate_interval")),
    Term("cluster.save_every", "steps between checkpoints", ("save_steps",), ("save_interval",)),
    Term("corpus.sources.path", "a file, a folder, or a pattern with *"),
    Term("corpus.sources.paths", "files of the same lines, one for each language"),
    Term("corpus.sources.text_key", "the column or key that has the text"),
    Term("corpus.sources.document_unit", "what a document is"),
    Term("cluster.keep_checkpoints", "checkpoints that are kept", ("save_total_limit",), ("keep_last_epochs",)),
)

BY_NAME: Final[Mapping[str, Term]] = {
    name: term
    for term in TERMS
    for name in (*term.transformers, *term.megatron)
    if name != term.key.rpartition(".")[2]  # the same word: nothing to answer
}

KINDS: Final[Mapping[str, tuple[str, ...]]] = {  # what others call a part -> its `kind`, in whichever union has one
    "mlm": ("masked_tokens",),
    "masked_lm": ("masked_tokens", "mlm"),
    "clm": ("next_token", "causal_lm"),
    "lm": ("next_token", "causal_lm"),
    "causal_lm": ("next_token",),
    "seq2seq_lm": ("next_token",),
    "plm": ("permutation_lm",),
    "nsp": ("sentence_pair", "segment_pair"),
    "sop": ("sentence_pair", "segment_pair"),
    "next_sentence": ("sentence_pair", "segment_pair"),
    "sbo": ("span_boundary",),
    "rtd": ("replaced_token_detection",),
    "electra": ("replaced_token_detection", "generator_discriminator"),
    "wwm": ("whole_word",),
    "whole_words": ("whole_word",),
    "span_corruption": ("random_spans",),
    "gsg": ("gap_sentence_generation",),
    "infilling": ("denoising",),
    "text_infilling": ("denoising",),
    "full_sentences": ("contiguous",),
    "doc_sentences": ("contiguous",),
    "packed": ("contiguous",),
    "bert": ("encoder",),
    "gpt": ("decoder",),
    "t5": ("encoder_decoder",),
    "seq2seq": ("encoder_decoder",),
    "xlnet": ("two_stream",),
    "adam": ("adamw",),
    "bpe": ("byte_level_bpe",),
    "bbpe": ("byte_level_bpe",),
    "sentencepiece": ("unigram",),
    "absolute": ("learned",),
    "sinus": ("sinusoidal",),
    "fixed": ("sinusoidal",),
}

ABSENT: Final[Mapping[str, str]] = {  # names of others for which there is no key, and what to do
    "warmup_ratio": "the warm-up is a number of steps here: optimizer.warmup_steps",
}


def key_of(name: str) -> str:
    """The key that others call so, or "".

    >>> key_of("lr"), key_of("n_embd"), key_of("colour")
    ('optimizer.learning_rate', 'model.hidden_size', '')
    """
    return BY_NAME[name].key if name in BY_NAME else ""


def markdown() -> str:
    """The glossary of the README: a line for each key."""
    lines = ["| key | what it is | transformers | Megatron, reference scripts |", "|---|---|---|---|"]
    for term in TERMS:
        if not (term.transformers or term.megatron):
            continue
        others = (", ".join(f"`{name}`" for name in names) for names in (term.transformers, term.megatron))
        lines.append(f"| `{term.key}` | {term.means} | {' | '.join(others)} |")
    return "\n".join(lines)
