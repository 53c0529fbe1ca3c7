"""Names of other libraries for the keys and kinds of Sesame. Errors and `sesame keys` translate them."""

import re
from collections.abc import Collection, Mapping
from typing import Final

# Our key -> its names in transformers (configurations, TrainingArguments, data collators), Megatron-LM, torchtitan,
# fairseq and the reference scripts. A key of a cluster file begins with `cluster.`.
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "data.corpus": ("dataset_name", "train_file", "data_path", "input_file", "dataset", "dataset_path"),
    "data.tokenizer": ("tokenizer_name", "tokenizer_model"),
    "data.tokenizer.kind": ("tokenizer_class", "tokenizer_type"),
    "data.tokenizer.lowercase": ("do_lower_case",),
    "data.tokenizer.path": ("vocab_file", "tokenizer_file", "merge_file", "tokenizer_path", "hf_assets_path"),
    "data.packing": ("group_texts",),
    "data.packing.short_seq_prob": ("short_seq_probability",),
    "masking": ("data_collator",),
    "masking.rate": ("mlm_probability", "mask_time_prob", "noise_density", "masked_lm_prob", "mask_prob"),
    "masking.mean_noise_span_length": ("mask_time_length",),
    "objective": ("corruption",),
    "objective.random_replace_prob": ("random_token_prob",),
    "data.static_masks": ("dupe_factor",),
    "data.mixture": ("blend", "interleave_probs", "dataset_mixer"),
    "losses": ("loss_type", "loss_function", "criterion"),
    "model": ("model_type", "config", "architecture"),
    "model.num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "model.hidden_size": ("n_embd", "d_model", "dim", "encoder_embed_dim"),
    "model.num_attention_heads": ("n_head", "n_heads", "num_heads", "attention_heads"),
    "model.num_key_value_heads": (
        *("num_query_groups", "num_kv_heads", "n_kv_heads", "gqa", "grouped_query_attention", "group_query_attention"),
        *("mqa", "multi_query", "multi_query_attention"),
    ),
    "model.qk_norm": ("qk_layernorm", "qk_layer_norm"),
    "model.head_dim": ("d_kv", "d_head", "kv_channels"),
    "model.intermediate_size": ("n_inner", "d_ff", "d_inner", "ffn_hidden_size"),
    "model.embedding_size": ("d_embed",),
    "model.activation": ("hidden_act", "activation_function", "dense_act_fn", "activation_fn", "silu"),
    "model.norm_position": ("do_layer_norm_before", "normalize_before"),
    "model.norm_eps": ("layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon", "norm_epsilon", "rms_norm_eps"),
    "model.norm_type": ("rms_norm", "normalization"),
    "model.hidden_dropout": ("hidden_dropout_prob", "resid_pdrop", "dropout_rate", "dropout"),
    "model.attention_dropout": ("attention_probs_dropout_prob", "attn_pdrop"),
    "model.init_std": ("initializer_range", "init_method_std"),
    "model.type_vocab_size": ("num_tokentypes",),
    "model.position_embedding": ("position_embedding_type", "position_embeddings_type"),
    "model.position_embedding.max_position_embeddings": ("n_positions", "n_ctx", "max_positions"),
    "model.position_embedding.rope_theta": ("rope_base", "rotary_base", "rotary_emb_base", "global_rope_theta"),
    "model.position_embedding.partial_rotary_factor": ("rotary_pct", "rotary_percent", "rotary_dim"),
    "model.position_embedding.num_buckets": ("relative_attention_num_buckets",),
    "model.position_embedding.max_distance": ("relative_attention_max_distance",),
    "model.attention_window.size": ("attention_window", "sliding_window", "window_size"),
    "model.attention_window.global_tokens": ("global_attention",),
    "model.token_embedding.cutoffs": ("adaptive_softmax_cutoff",),
    "optimizer.kind": ("optim_type", "optimizer_type", "optimizer_name"),
    "optimizer.learning_rate": ("lr",),
    "optimizer.warmup_steps": (
        "num_warmup_steps",
        "lr_warmup_iters",
        "warmup_updates",
        "lr_scheduler.warmup_steps",
    ),
    "optimizer.lr_schedule": ("lr_scheduler_type", "scheduler", "lr_decay_style", "lr_scheduler.decay_type"),
    "optimizer.min_lr_ratio": ("min_lr_rate", "min_lr", "min_lr_factor", "lr_min"),
    "optimizer.lr_decay_steps": ("num_training_steps", "lr_decay_iters"),
    "optimizer.num_decay_steps": ("lr_wsd_decay_iters", "lr_scheduler.decay_ratio"),
    "optimizer.decay_type": ("lr_wsd_decay_style",),
    "optimizer.max_grad_norm": ("gradient_clipping", "clip_grad", "clip_norm", "max_norm"),
    "optimizer.beta1": ("adam_beta1",),
    "optimizer.beta2": ("adam_beta2",),
    "optimizer.eps": ("adam_epsilon", "adam_eps"),
    "phases.0.epochs": ("num_train_epochs",),
    "phases.0.seq_length": ("max_seq_length", "block_size", "max_length", "tokens_per_sample", "seq_len"),
    "phases.0.global_batch_size": ("train_batch_size", "batch_size", "training.global_batch_size"),
    "phases.0.steps": ("max_steps", "train_iters", "max_update", "training.steps"),
    "init_checkpoint": ("model_name_or_path", "resume_from", "load", "resume_from_checkpoint", "initial_load_path"),
    "eval_tasks": ("task_name", "tasks"),
    "seed": ("training.seed", "debug.seed"),
    "cluster.engine.micro_batch_tokens": (
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "micro_batch_size",
        "local_batch_size",
        "max_tokens",
    ),
    "cluster.engine.precision": ("bf16", "fp16", "torch_dtype", "params_dtype", "mixed_precision_param"),
    "cluster.engine.fp8_recipe": ("fp8", "enable_fp8", "fp8_format", "float8", "quantize.linear.float8.recipe_name"),
    "cluster.engine.zero_stage": (
        "zero_optimization",
        "use_distributed_optimizer",
        "fsdp",
        "data_parallel_shard_degree",
    ),
    "cluster.engine.tensor_parallel_size": (
        "tp_size",
        "autotp_size",
        "tensor_model_parallel_size",
        "tensor_parallel_degree",
    ),
    "cluster.engine.pipeline_parallel_size": (
        "pp_size",
        "pipeline_model_parallel_size",
        "pipeline_parallel_degree",
    ),
    "cluster.engine.sequence_parallel_size": (
        "sp_size",
        "context_parallel_size",
        "context_parallel_degree",
    ),
    "cluster.engine.activation_checkpointing": (
        "gradient_checkpointing",
        "recompute_granularity",
        "recompute_activations",
        "activation_checkpoint.mode",
    ),
    "cluster.engine.offload_optimizer": ("offload_optimizer_device", "cpu_offload"),
    "cluster.engine.offload_param": ("offload_param_device", "cpu_offload_params"),
    "cluster.engine.dataloader_num_workers": ("num_workers",),
    "cluster.num_workers": (
        "nproc_per_node",
        "num_processes",
        "world_size",
        "num_gpus",
        "gpus",
        "nnodes",
        "num_nodes",
        "nodes",
    ),
    "cluster.log_every": ("logging_steps", "log_interval", "log_freq"),
    "cluster.eval_every": ("eval_steps", "eval_interval", "validate_interval", "validation.freq"),
    "cluster.save_every": ("save_steps", "save_interval", "checkpoint.interval"),
    "cluster.keep_best": ("load_best_model_at_end", "save_best"),
    "cluster.early_stopping_patience": ("EarlyStoppingCallback", "patience"),
    "cluster.keep_checkpoints": ("save_total_limit", "keep_last_epochs", "keep_latest_k"),
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
    "data.corpus": "a corpus name or a .yaml file, while --data PATH reads other text",
    "model.norm_position": "pre or post",
    "model.norm_type": "layernorm or rmsnorm",
    "model.position_embedding.partial_rotary_factor": "as a fraction of each head",
    "optimizer.min_lr_ratio": "as a fraction of the peak",
    "grids.NAME.warmup_steps": "below 1 a fraction of all steps",
    "cluster.engine.micro_batch_tokens": "in tokens instead of sequences, without gradient accumulation steps",
    "cluster.engine.pipeline_parallel_size": "stages of 1F1B, without interleaving",
    "cluster.engine.sequence_parallel_size": "Ulysses instead of ring attention",
}

_RESUMES: Final = "weights of a new run, because the same command resumes a stopped run"
_DEVICES: Final = "the number of devices of all nodes"

# Name elsewhere -> how its values differ from those of our key, if the note of the key does not apply to all names.
_NAME_NOTES: Final[Mapping[str, str]] = {
    "load": _RESUMES,
    "resume_from": _RESUMES,
    "resume_from_checkpoint": _RESUMES,
    "initial_load_path": _RESUMES,
    "model_name_or_path": "a directory, not a name on a hub",
    "dataset_name": "not a name on a hub",
    "dataset": "not a name on a hub",
    "nnodes": _DEVICES,
    "num_nodes": _DEVICES,
    "nodes": _DEVICES,
    "nproc_per_node": _DEVICES,
}

# Name elsewhere of a value or a switch -> the value of our key.
_VALUES: Final[Mapping[str, str]] = {
    "fp16": "fp16",
    "bf16": "bf16",
    "use_distributed_optimizer": "1",
    "fsdp": "3",
    "data_parallel_shard_degree": "3",
    "gradient_checkpointing": "full",
    "recompute_activations": "selective",
    "cpu_offload": "cpu",
    "cpu_offload_params": "cpu",
    "do_lower_case": "true",
    **dict.fromkeys(("mqa", "multi_query", "multi_query_attention"), "1"),
    "silu": "silu",
}

# Our key -> the options that set it. The first option that the command has is used.
OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "data.corpus": ("--data",),
    "eval_tasks": ("--tasks",),
    "seed": ("--seed",),
    "cluster.log_every": ("--log-every",),
    "cluster.eval_every": ("--eval-every",),
    "cluster.save_every": ("--save-every",),
    "name": ("--tasks",),
    "files": ("--csv",),
    "max_seq_length": ("--max-seq-length",),
    "grids.NAME.learning_rates": ("--learning-rates",),
    "grids.NAME.batch_sizes": ("--batch-sizes",),
    "grids.NAME.epochs": ("--epochs",),
}

# Name elsewhere without a key in Sesame -> our options. The first option that the command has is used.
OPTION_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "load_best_model_at_end": ("--best",),
    "EarlyStoppingCallback": ("--early-stopping-patience",),
    **dict.fromkeys(("max_steps", "steps", "num_steps", "num_train_steps"), ("--max-steps", "--steps")),
    **dict.fromkeys(("max_length", "max_tokens", "length", "num_tokens", "n_predict"), ("--max-new-tokens",)),
    **dict.fromkeys(("num_samples", "nsamples"), ("--num-return-sequences", "--max-train-samples")),
    **dict.fromkeys(("num_outputs", "best_of", "n"), ("--num-return-sequences",)),
    **dict.fromkeys(("max_samples", "num_examples", "max_examples"), ("--max-train-samples",)),
    **dict.fromkeys(("beam", "beams", "beam_size", "beam_width", "num_beam"), ("--num-beams",)),
    **dict.fromkeys(("temp", "sampling_temperature"), ("--temperature",)),
    **dict.fromkeys(("topk", "sampling_topk"), ("--top-k",)),
    **dict.fromkeys(("topp", "sampling_topp", "nucleus"), ("--top-p",)),
    "repeat_penalty": ("--repetition-penalty",),
    **dict.fromkeys(("prompt", "prompt_file", "prompts_file", "input_file", "file"), ("--prompts",)),
    "seed": ("--sample-index",),
    **dict.fromkeys(("output_file", "out_file"), ("--output",)),
    **dict.fromkeys(("output", "out", "out_dir", "work_dir", "results_dir"), ("--output-dir",)),
    "k": ("--top-k",),
    "num_predictions": ("--top-k",),
    "data_dir": ("--task-data-dir", "--data"),
    "limit": ("--max-train-samples",),
    "save": ("--output-dir",),
    "dump_folder": ("--output-dir",),
}

_GATED: Final = ("swiglu", "geglu", "reglu", "glu", "gated_linear_unit", "is_gated_act")

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
    **dict.fromkeys(("bfd", "best_fit_decreasing", "bin_packing"), ("best_fit",)),
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
    "rope": ("rotary",),
    **dict.fromkeys(_GATED, ("gated",)),
    "parquet": ("table",),
    "arrow": ("datasets", "table"),
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

NO_KEY: Final = "no such key, because "  # begins the answers about names without a key

# What Sesame lacks or does without a key -> the names elsewhere, and the remedy.
_NO_KEY: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "MLflow records each run": (("report_to",), "leave it out"),
    "Sesame has no latent attention": (("mla", "multi_latent_attention", "kv_lora_rank"), "leave it out"),
    "Sesame has no mixture of experts": (
        (
            "moe",
            "num_experts",
            "num_local_experts",
            "num_experts_per_tok",
            "expert_model_parallel_size",
            "expert_parallel_size",
            "expert_parallel_degree",
            "ep_size",
        ),
        "leave it out",
    ),
    "Sesame does not use Transformer Engine": (("transformer_engine", "transformer_impl"), "leave it out"),
    "attention uses torch's fused kernels by itself": (
        (
            "flash_attn",
            "flash_attention",
            "attn_implementation",
            "attention_backend",
            "sdpa",
        ),
        "leave it out",
    ),
    "Sesame has no interleaved pipeline stages, only 1F1B": (
        (
            "virtual_pipeline_size",
            "virtual_pipeline_model_parallel_size",
            "num_layers_per_virtual_pipeline_stage",
            "num_virtual_stages_per_pipeline_rank",
            "pipeline_parallel_schedule",
        ),
        "leave it out",
    ),
    "workers of a tensor parallel group keep whole activations between layers": (
        ("sequence_parallel",),
        "leave it out, or use cluster.engine.sequence_parallel_size (Ulysses)",
    ),
    "Sesame has no LoRA": (("lora", "peft"), "leave it out"),
}

# Name elsewhere without a key in Sesame -> what to use instead, and the remedy.
ABSENT: Final[Mapping[str, tuple[str, str]]] = {
    "warmup_ratio": ("a number of steps, optimizer.warmup_steps", "use this key"),
    **dict.fromkeys(("output_dir", "save", "dump_folder"), ("the option --output-dir", "use this option")),
    **dict.fromkeys(_GATED, ("model.feed_forward={kind: gated}", "use this key")),
    **dict.fromkeys(("rope", "rotary"), ("model.position_embedding={kind: rotary}", "use this key")),
    "alibi": ("model.position_embedding={kind: alibi}", "use this key"),
    "cluster": ("the option --cluster", "use this option"),
    "scale": ("the option --scale", "use this option"),
    "holdout_ratio": ("the option --holdout-ratio", "use this option"),
    "resume": ("the option --resume", "use this option"),
    **dict.fromkeys(("finetune", "fine_tune", "finetuning"), ("a list of tasks, eval_tasks", "use this key")),
    **{name: (f"{NO_KEY}{reason}", remedy) for reason, (names, remedy) in _NO_KEY.items() for name in names},
}

# Name elsewhere that an override may not have, although a file may -> what to use instead, and the remedy.
OVERRIDES: Final[Mapping[str, tuple[str, str]]] = {
    "max_steps": (
        "the option --max-steps, which shortens all phases and their warm-up",
        "use this option of check, plan, train and run, or train(steps=N) in Python",
    )
}

# Models that Sesame does not have; a name of a model begins with one of these words.
OTHER_MODELS: Final = (
    "bloom",
    "deepseek",
    "falcon",
    "gemma",
    "mamba",
    "mixtral",
    "olmo",
    "phi",
    "qwen",
)

# Name elsewhere of a command -> our command.
COMMANDS: Final[Mapping[str, str]] = {
    "finetune": "eval",
    "fine_tune": "eval",
    "score": "eval",
    "evaluate": "eval",
    "test": "eval",
    "pretrain": "train",
    "fit": "train",
    "preprocess": "corpus",
    "tokenize": "corpus",
    "prepare": "corpus",
    "build": "corpus",
    "predict": "generate",
    "sample": "generate",
    "convert": "export",
    "list": "recipes",
    "ls": "recipes",
    "models": "recipes",
    "config": "keys",
    "cancel": "stop",
}


# Models on a hub -> our recipe, if its name does not follow from the name of the model.
_RECIPES: Final[Mapping[str, str]] = {
    "openai_gpt": "gpt1",
    "transfo_xl_wt103": "transformer_xl_large",
    "bert_base_chinese": "bert_chinese",
}
_RECIPE_WORDS: Final[Mapping[str, str]] = {"_whole_word_masking": "_wwm", "_uncased": "", "_1.0": "_1"}
_END: Final = re.compile(r"_(cased|discriminator|generator|v\d|\d{3,})$")  # of the name of a model on a hub


def plain(name: str) -> str:
    """A name as a key writes it: without leading dashes, and with underscores.

    >>> plain("--train-iters")
    'train_iters'
    """
    return name.lstrip("-").replace("-", "_")


def command_of(word: str) -> str:
    """Our command for a command of another library, or for our own name of it; "" if there is none.

    >>> command_of("fine-tune"), command_of("eval"), command_of("bert_base")
    ('eval', 'eval', '')
    """
    name = plain(word.lower())
    return COMMANDS.get(name) or (name if name in COMMANDS.values() else "")


def option_names(name: str, *files: str) -> list[str]:
    """The options that may have the name or the meaning of `name`, the most likely one first.

    `files` are the kinds of files with a key of this meaning, as for `names`.

    >>> option_names("max_length")
    ['--max-length', '--max-lengths', '--max-new-tokens']
    """
    whole = plain(name)
    same = f"--{whole.replace('_', '-')}"
    of_key = [option for file in files or ("",) for option in OPTIONS.get(key_of(name, file), ())]
    of_name = () if "." in whole and whole in KEYS else OPTION_NAMES.get(whole.rpartition(".")[2], ())
    return list(dict.fromkeys((same, f"{same}s", *of_key, *of_name)))


def find_recipe(model: str, known: Collection[str]) -> str:
    """The recipe of a model on a hub, by its name with or without its owner; "" if there is none.

    >>> ours = ("bert_base", "bert_base_cased", "electra_small")
    >>> [find_recipe(name, ours) for name in ("bert-base-uncased", "google/electra-small-discriminator", "distilbert")]
    ['bert_base', 'electra_small', '']
    """
    name = plain(model.lower().rpartition("/")[2])
    name = _RECIPES.get(name, name)
    for theirs, ours in _RECIPE_WORDS.items():
        name = name.replace(theirs, ours)
    while name not in known and _END.search(name):
        name = _END.sub("", name)
    return name if name in known else ""


def names(file: str = "") -> Mapping[str, str]:
    """Names of other libraries with our keys of one kind of file; {} for corpus files.

    `file` is the first step of the file's paths in `sesame keys`: "", cluster, corpus or task.
    """
    return {"task": TASK_KEYS, "corpus": {}}.get(file, KEYS)


def key_of(name: str, file: str = "") -> str:
    """Our key for a name of another library in such a file, or "". Sections before the name may be unknown.

    The section `validation` of torchtitan repeats names of `training`, which are not translated.

    >>> key_of("lr"), key_of("n_embd"), key_of("colour"), key_of("lr", "task")
    ('optimizer.learning_rate', 'model.hidden_size', '', 'grids.NAME.learning_rates')
    >>> key_of("--train-iters"), key_of("parallelism.tensor_parallel_degree"), key_of("checkpoint.interval")
    ('phases.0.steps', 'cluster.engine.tensor_parallel_size', 'cluster.save_every')
    """
    known, whole = names(file), plain(name)
    section, _, name = whole.rpartition(".")
    return known.get(whole) or ("" if section == "validation" else known.get(name, ""))


def is_switch(name: str, value: object) -> bool:
    """Whether a key with this value is that of another library, although version 0.1 had a key of the same name.

    >>> is_switch("sequence_parallel", True), is_switch("sequence_parallel", 2)
    (True, False)
    """
    return name == "sequence_parallel" and isinstance(value, bool)  # of Megatron-LM; ours had a number


def find_absent(name: str) -> tuple[str, str]:
    """What to use instead of a name without a key in Sesame, and the remedy; two empty texts for other names.

    The first word of a name is enough for what Sesame lacks, e.g. fp8 or lora.

    >>> find_absent("--output-dir"), find_absent("lora_rank")[0], find_absent("save_best")
    (('the option --output-dir', 'use this option'), 'no such key, because Sesame has no LoRA', ('', ''))
    """
    name = plain(name).rpartition(".")[2].lower()
    if found := ABSENT.get(name) or ABSENT.get(name.removeprefix("use_")):
        return found
    found = ABSENT.get(name.partition("_")[0], ("", ""))
    return found if found[0].startswith(NO_KEY) else ("", "")


def note_of(name: str, key: str) -> str:
    """How the values of our key differ from those of a name of another library, or "".

    >>> note_of("min_lr", "optimizer.min_lr_ratio"), note_of("lr", "optimizer.learning_rate")
    ('as a fraction of the peak', '')
    """
    return _NAME_NOTES.get(plain(name).rpartition(".")[2]) or NOTES.get(key, "")


def value_of(name: str) -> str:
    """The value of our key for a switch of another library, e.g. fp16; otherwise "".

    >>> value_of("--fp16"), value_of("lr")
    ('fp16', '')
    """
    return _VALUES.get(plain(name).rpartition(".")[2], "")
