"""Names of other libraries for the keys and kinds of Sesame. Errors and `sesame keys` translate them."""

from collections.abc import Mapping
from typing import Final

# Our key -> its names in transformers (configurations, TrainingArguments, data collators), Megatron-LM, fairseq and the
# reference scripts. A key of a cluster file begins with `cluster.`.
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "data.corpus": ("dataset_name", "train_file", "data_path", "input_file"),
    "data.tokenizer": ("tokenizer_name", "tokenizer_model"),
    "data.tokenizer.kind": ("tokenizer_class", "tokenizer_type"),
    "data.tokenizer.lowercase": ("do_lower_case",),
    "data.tokenizer.path": ("vocab_file", "tokenizer_file", "merge_file"),
    "data.packing": ("group_texts",),
    "data.packing.short_seq_prob": ("short_seq_probability",),
    "masking": ("data_collator",),
    "masking.rate": ("mlm_probability", "mask_time_prob", "noise_density", "masked_lm_prob", "mask_prob"),
    "masking.mean_noise_span_length": ("mask_time_length",),
    "objective": ("corruption",),
    "objective.random_replace_prob": ("random_token_prob",),
    "data.static_masks": ("dupe_factor",),
    "losses": ("loss_type", "loss_function", "criterion"),
    "model": ("model_type", "config", "architecture"),
    "model.num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "model.hidden_size": ("n_embd", "d_model", "dim", "encoder_embed_dim"),
    "model.num_attention_heads": ("n_head", "num_heads", "attention_heads"),
    "model.head_dim": ("d_kv", "d_head", "kv_channels"),
    "model.intermediate_size": ("n_inner", "d_ff", "d_inner", "ffn_hidden_size"),
    "model.embedding_size": ("d_embed",),
    "model.activation": ("hidden_act", "activation_function", "dense_act_fn", "activation_fn"),
    "model.norm_position": ("do_layer_norm_before", "normalize_before"),
    "model.norm_eps": ("layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon"),
    "model.hidden_dropout": ("hidden_dropout_prob", "resid_pdrop", "dropout_rate"),
    "model.attention_dropout": ("attention_probs_dropout_prob", "attn_pdrop"),
    "model.init_std": ("initializer_range", "init_method_std"),
    "model.type_vocab_size": ("num_tokentypes",),
    "model.position_embedding": ("position_embedding_type", "position_embeddings_type"),
    "model.position_embedding.max_position_embeddings": ("n_positions", "n_ctx", "max_positions"),
    "model.position_embedding.num_buckets": ("relative_attention_num_buckets",),
    "model.position_embedding.max_distance": ("relative_attention_max_distance",),
    "model.attention_window.size": ("attention_window", "sliding_window", "window_size"),
    "model.attention_window.global_tokens": ("global_attention",),
    "model.token_embedding.cutoffs": ("adaptive_softmax_cutoff",),
    "optimizer.kind": ("optim_type", "optimizer_type", "optimizer_name"),
    "optimizer.learning_rate": ("lr",),
    "optimizer.warmup_steps": ("num_warmup_steps", "lr_warmup_iters", "warmup_updates"),
    "optimizer.lr_schedule": ("lr_scheduler_type", "scheduler", "lr_decay_style"),
    "optimizer.min_lr_ratio": ("min_lr_rate", "min_lr"),
    "optimizer.lr_decay_steps": ("num_training_steps", "lr_decay_iters"),
    "optimizer.max_grad_norm": ("gradient_clipping", "clip_grad", "clip_norm"),
    "optimizer.beta1": ("adam_beta1",),
    "optimizer.beta2": ("adam_beta2",),
    "optimizer.eps": ("adam_epsilon", "adam_eps"),
    "phases": ("num_train_epochs", "epochs"),
    "phases.0.seq_length": ("max_seq_length", "block_size", "max_length", "tokens_per_sample"),
    "phases.0.global_batch_size": ("train_batch_size", "batch_size"),
    "phases.0.steps": ("max_steps", "train_iters", "max_update"),
    "init_checkpoint": ("model_name_or_path", "resume_from", "load"),
    "eval_tasks": ("task_name", "tasks"),
    "cluster.engine.micro_batch_tokens": (
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "micro_batch_size",
        "max_tokens",
    ),
    "cluster.engine.precision": ("bf16", "fp16", "torch_dtype", "params_dtype"),
    "cluster.engine.zero_stage": ("zero_optimization", "use_distributed_optimizer"),
    "cluster.engine.tensor_parallel_size": ("tp_size", "autotp_size", "tensor_model_parallel_size"),
    "cluster.engine.pipeline_parallel_size": ("pp_size", "pipeline_model_parallel_size"),
    "cluster.engine.sequence_parallel_size": ("sp_size", "context_parallel_size"),
    "cluster.engine.activation_checkpointing": (
        "gradient_checkpointing",
        "recompute_granularity",
        "recompute_activations",
    ),
    "cluster.engine.offload_optimizer": ("offload_optimizer_device", "cpu_offload"),
    "cluster.engine.offload_param": ("offload_param_device", "cpu_offload_params"),
    "cluster.engine.dataloader_num_workers": ("num_workers",),
    "cluster.num_workers": ("nproc_per_node", "num_processes", "world_size", "num_gpus"),
    "cluster.log_every": ("logging_steps", "log_interval"),
    "cluster.eval_every": ("eval_steps", "eval_interval", "validate_interval"),
    "cluster.save_every": ("save_steps", "save_interval"),
    "cluster.keep_checkpoints": ("save_total_limit", "keep_last_epochs"),
}

# The same for task files: names in transformers' TrainingArguments and examples, and in lm-eval. NAME stands
# for the name of a grid, and SPLIT for that of a split.
_TASK_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "name": ("task_name", "dataset_name", "task_alias"),
    "max_seq_length": ("max_length", "model_max_length", "block_size"),
    "files": ("data_files", "dataset_path", "train_file", "validation_file", "test_file"),
    "files.SPLIT.paths": ("path", "file", "filename"),
    "files.SPLIT.columns": ("column_mapping", "rename_columns"),
    "score_splits": ("test_split", "validation_split", "eval_split"),
    "task.kind": ("task_type", "problem_type", "output_type"),
    "task.text": ("sentence1_key", "text_column", "text_column_name"),
    "task.text_pair": ("sentence2_key",),
    "task.label": ("label_column", "label_column_name"),
    "task.labels": ("label_list", "id2label"),
    "task.choices": ("doc_to_choice",),
    "task.metrics": ("metric", "metric_list", "metric_name", "metric_for_best_model"),
    "task.squad_version": ("version_2_with_negative",),
    "grids.NAME.learning_rates": ("learning_rate", "lr"),
    "grids.NAME.batch_sizes": ("per_device_train_batch_size", "train_batch_size", "batch_size"),
    "grids.NAME.epochs": ("num_train_epochs", "num_epochs"),
    "grids.NAME.warmup_steps": ("warmup_ratio", "num_warmup_steps", "warmup_proportion"),
    "grids.NAME.lr_schedule": ("lr_scheduler_type",),
    "grids.NAME.min_lr_ratio": ("min_lr_rate",),
    "grids.NAME.optimizer": ("optim",),
    "grids.NAME.beta2": ("adam_beta2",),
    "grids.NAME.eps": ("adam_epsilon",),
    "grids.NAME.max_grad_norm": ("clip_norm", "gradient_clipping"),
    "grids.NAME.layerwise_lr_decay": ("layerwise_learning_rate_decay",),
    "grids.NAME.dropout": ("hidden_dropout_prob", "dropout_rate", "classifier_dropout"),
}

KEYS: Final[Mapping[str, str]] = {name: key for key, names in _NAMES.items() for name in names}
"""Name elsewhere -> our key of a recipe or a cluster file."""

TASK_KEYS: Final[Mapping[str, str]] = {name: key for key, names in _TASK_NAMES.items() for name in names}
"""Name elsewhere -> our key of a task file."""

# Our key -> how its values differ from those of other libraries.
NOTES: Final[Mapping[str, str]] = {
    "model.norm_position": "pre or post",
    "optimizer.min_lr_ratio": "as a fraction of the peak",
    "phases": "in steps instead of epochs",
    "grids.NAME.warmup_steps": "below 1 a fraction of all steps",
    "cluster.engine.micro_batch_tokens": "in tokens instead of sequences; gradient accumulation follows from it",
    "cluster.engine.pipeline_parallel_size": "stages of 1F1B, without interleaving",
}

# Name elsewhere -> our kinds; errors suggest the first one that the key allows.
KINDS: Final[Mapping[str, tuple[str, ...]]] = {
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
    "parquet": ("table",),
    "arrow": ("table",),
    "feather": ("table",),
    "datasets": ("table",),
    "json_lines": ("jsonl",),
    "jsonlines": ("jsonl",),
    "ndjson": ("jsonl",),
    "tsv": ("csv",),
    "txt": ("text",),
    "plain": ("text",),
    "lines": ("text",),
    "htm": ("html",),
    "tei": ("xml",),
    "wet": ("warc",),
    "common_crawl": ("warc",),
    "wikipedia": ("wiki_dump",),
}

# Name elsewhere without a key in Sesame -> what to use instead.
ABSENT: Final[Mapping[str, str]] = {
    "warmup_ratio": "a number of steps, optimizer.warmup_steps",
}


def names(file: str = "") -> Mapping[str, str]:
    """Names of other libraries with our keys of one kind of file; {} for corpus files.

    `file` is the first step of the file's paths in `sesame keys`: "", cluster, corpus or task.
    """
    return {"task": TASK_KEYS, "corpus": {}}.get(file, KEYS)


def key_of(name: str, file: str = "") -> str:
    """Our key for a name of another library in such a file, or "".

    >>> key_of("lr"), key_of("n_embd"), key_of("colour"), key_of("lr", "task")
    ('optimizer.learning_rate', 'model.hidden_size', '', 'grids.NAME.learning_rates')
    """
    return names(file).get(name, "")
