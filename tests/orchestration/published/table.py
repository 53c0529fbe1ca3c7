"""Training settings of each paper of the family, read from the papers and the authors' code, never from a recipe.

None means that neither the paper nor the code states the value. Rates, warmups and horizons given in tokens are
converted to steps here.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

Rule = Literal["adam", "lamb", "adafactor"]
Curve = Literal[
    "linear from 0",  # polynomial_decay of the global step; replaced during warmup (google-research/bert)
    "linear from 0 times warm-up",  # google-research/electra
    "linear from the warm-up",  # fairseq, XLNet
    "cube from the warm-up",
    "cosine from the warm-up",
    "cosine from 0",  # CosineAnnealingLR of the global step (Transformer-XL, pytorch/train.py)
    "cosine from the warm-up, stopped",  # max(cosine to 0, minimum rate) (Megatron-LM, learning_rates.py of 2019)
    "root from the warm-up",  # 1 / sqrt(step) after warmup (fairseq, XLM)
    "root",  # 1 / sqrt(max(step, warmup)) (T5)
    "constant",
    "constant from the warm-up, then 1 - sqrt",  # over a fraction of the steps (arXiv:2405.18392, 4)
]
Start = Literal["normal", "truncated", "torch", "glorot", "t5"]


@dataclass(frozen=True)
class Published:
    """Published training settings of a recipe. Steps count updates; ratios refer to the peak learning rate."""

    source: str
    rule: Rule
    curve: Curve
    peak: float | None
    warmup: int | None
    steps: int | None  # length of the decay, counted from step 0
    least: float = 0.0  # rate at the end of the decay, as a fraction of the peak
    falling: float = 0.0  # the last part of the steps, if the rate is constant before it
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    corrected: bool = True  # whether the bias of the moments is corrected
    decay: float = 0.01
    decays: Literal["matrices", "all"] = "matrices"
    clip: float = 1.0  # maximum global norm; 0: no clipping
    again: tuple[int, float, int, int] | None = None  # second stage: first update, peak, warmup and steps
    relative: bool = True  # Adafactor: rates multiplied by the root mean square of the weights
    kept: float = 0.0  # Adafactor: decay rate of the squares; 0: 1 - step^-0.8
    start: Start = "normal"
    std: float = 0.02
    scaled: bool = False  # residual projections are scaled by 1 / sqrt(2 L) at initialization
    gain_std: float = 0.0  # standard deviation of the gains of norms
    positions_std: float = 0.0  # standard deviation of the position table; 0: like all others
    left_to_tensorflow: tuple[str, ...] = ()  # linear layers with Glorot initialization
    dropout: float = 0.1
    attention_dropout: float = 0.1
    inner_dropout: bool = False  # dropout inside the feed-forward layer too


BERT = Published(
    "arXiv:1810.04805, A.2; google-research/bert: optimization.py, modeling.py",
    rule="adam",
    curve="linear from 0",
    peak=1e-4,
    warmup=10_000,
    steps=1_000_000,
    corrected=False,
    start="truncated",
)
ALBERT = replace(
    BERT,
    source="arXiv:1909.11942, 4.1; google-research/albert: lamb_optimizer.py, run_pretraining.py",
    rule="lamb",
    peak=1.76e-3,
    warmup=3_125,
    steps=125_000,
)
# 15,625 updates with batches of 32K are 40 epochs. A tenth of the epochs has 512 tokens: 1,562 of the 8,599 steps
# (section 4.1, re-warm-up; the rate decays as 1 - t / T). Peaks and warmups of both stages are those of NVIDIA's
# reproduction.
LAMB = replace(
    BERT,
    source="arXiv:1904.00962, 4.1 and table 1; NVIDIA/DeepLearningExamples: PyTorch BERT, pretrain_config.sh",
    rule="lamb",
    peak=6e-3,
    warmup=2_000,
    steps=7_037,
    again=(7_037, 4e-3, 200, 1_562),
)
# fairseq gives all parameters to optim/adam.py, so norms and biases decay too; init_bert_params is a plain normal.
ROBERTA = Published(
    "arXiv:1907.11692, table 9; fairseq: optim/adam.py, polynomial_decay_schedule.py, init_bert_params",
    rule="adam",
    curve="linear from the warm-up",
    peak=6e-4,
    warmup=24_000,
    steps=500_000,
    beta2=0.98,
    decays="all",
    clip=0.0,
)
ROBERTA_AS_BERT = replace(
    ROBERTA, source="arXiv:1907.11692, 3.1 and 4: BERT's rates, a million steps", peak=1e-4, warmup=10_000, steps=10**6
)
SPANBERT = Published(
    "README of facebookresearch/SpanBERT; pair_bert.py, optim/adam.py, polynomial_decay_schedule.py of its fairseq",
    rule="adam",
    curve="linear from 0",
    peak=1e-4,
    warmup=10_000,
    steps=2_400_000,
    eps=1e-8,
    decays="all",
)
# The decay covers 2.4 million steps; the run ends after 1.2 million.
SPANBERT_SCHEMES = replace(SPANBERT, source="arXiv:1907.10529, 6: the checkpoints at 1.2 million steps")
ELECTRA = Published(
    "arXiv:2003.10555, table 6; google-research/electra: optimization.py, modeling.py, run_pretraining.py",
    rule="adam",
    curve="linear from 0 times warm-up",
    peak=2e-4,
    warmup=10_000,
    steps=766_000,
    corrected=False,
    start="truncated",
    left_to_tensorflow=("embeddings_project/kernel", "discriminator_predictions/dense_1/kernel"),
)
BART = Published(
    "arXiv:1910.13461; the authors' command, facebookresearch/fairseq issue 1899; the base nets: see their recipes",
    rule="adam",
    curve="linear from the warm-up",
    peak=1e-4,
    warmup=10_000,
    steps=1_000_000,
    eps=1e-8,
    decays="all",
    clip=0.1,
)
# Rates: bart_large's, which the paper does not state.
MBART = replace(
    BART,
    source="arXiv:2001.08210, 2.2: eps, beta2, steps and a linear decay; the rest is BART's",
    peak=None,
    warmup=None,
    steps=500_000,
    beta2=0.98,
    eps=1e-6,
    inner_dropout=True,  # differs from fairseq's mbart_large, which has none: see the recipe
)
GPT_1 = Published(
    "GPT-1, 4.1; openai/finetune-transformer-lm: train.py, opt.py",
    rule="adam",
    curve="cosine from the warm-up",
    peak=2.5e-4,
    warmup=2_000,
    steps=3_000_000,
    eps=1e-8,
)
GPT_2 = replace(
    GPT_1,
    source="GPT-2, 2.3, openai/gpt-2: model.py states only the initial weights; the rest is GPT-1's",
    peak=None,
    steps=None,
    scaled=True,
    positions_std=0.01,
)


def gpt_3(peak: float, rows: int) -> Published:
    """Return the settings of arXiv:2005.14165, table 2.1 and appendix B, for a batch of `rows` sequences of 2,048
    tokens."""
    tokens = rows * 2_048
    return Published(
        "arXiv:2005.14165, table 2.1 and appendix B",
        rule="adam",
        curve="cosine from the warm-up",
        peak=peak,
        warmup=round(375e6 / tokens),
        steps=round(260e9 / tokens),
        least=0.1,
        beta2=0.95,
        eps=1e-8,
        decay=0.1,
        scaled=True,
        positions_std=0.01,  # section 2.1: the initialization of GPT-2
        dropout=0.0,
        attention_dropout=0.0,
    )


MT_NLG = replace(
    gpt_3(5e-5, 1_920),
    source="arXiv:2201.11990, 3.2: a warmup of a billion tokens, a decay over 340 billion",
    warmup=round(1e9 / (1_920 * 2_048)),
    steps=round(340e9 / (1_920 * 2_048)),
    std=4e-3,
    positions_std=0.0,
)
MEGATRON = Published(
    "arXiv:1909.08053, 4.2; NVIDIA/Megatron-LM of 2019: learning_rates.py, arguments.py",
    rule="adam",
    curve="cosine from the warm-up, stopped",
    peak=1.5e-4,
    warmup=3_000,
    steps=300_000,
    least=1e-5 / 1.5e-4,
    eps=1e-8,
    scaled=True,
)
MEGATRON_BERT = replace(
    MEGATRON,
    source="arXiv:1909.08053, 4.2; learning_rates.py of 2019; eps is the default of the optimizer",
    curve="linear from the warm-up",
    peak=1e-4,
    warmup=10_000,
    steps=2_000_000,
    least=0.0,
)
OPT = Published(
    "arXiv:2205.01068, 2.2 and table 1; facebookresearch/metaseq: launcher/opt_baselines.py, opt_job_constants.py",
    rule="adam",
    curve="linear from the warm-up",
    peak=6e-4,
    warmup=715,
    steps=572_204,
    least=0.1,
    beta2=0.95,
    eps=1e-8,
    decay=0.1,
    decays="all",
    scaled=True,
    std=6e-3,
)
CPM = replace(
    MEGATRON,
    source="arXiv:2012.00413, 2.3; TsinghuaAI/CPM-1-Pretrain: run_gpt2.sh, whose minimum rate is 1e-5",
    warmup=5_000,
    steps=20_000,
)
TURING = replace(
    MEGATRON,
    source="the announcement of February 2020; the rest is Megatron's",
    curve="cosine from the warm-up",
    warmup=3_200,
    steps=500_000,
    least=0.0,
)
GROVER = Published(
    "arXiv:1905.12616, 4.2; rowanz/grover: optimization_adafactor.py, modeling.py, mega.json",
    rule="adafactor",
    curve="linear from 0",
    peak=1e-4,
    warmup=10_000,
    steps=800_000,
    clip=0.0,
    relative=False,
    kept=0.999,
    start="truncated",
    std=0.014142135623731,
)
T5 = Published(
    "arXiv:1910.10683, 3.1.2; tensorflow/mesh: optimize.py, transformer/attention.py",
    rule="adafactor",
    curve="root",
    peak=0.01,
    warmup=10_000,
    steps=None,
    decay=0.0,
    clip=0.0,
    start="t5",
    inner_dropout=True,
)
T5_1_1 = replace(
    T5,
    source="google-research/text-to-text-transfer-transformer: t5.1.1.*.gin, which has no dropout; the rest is T5's",
    dropout=0.0,
    attention_dropout=0.0,
)
PEGASUS = replace(
    T5,
    source="google-research/pegasus: estimator_utils.py, embedding.py, attention.py, transformer_block.py",
    start="glorot",
)
# TinyLlama and Pythia are initialized with sqrt(2 / (5 x width)) (small_init, arXiv:1910.05895). The scale of residual
# projections differs from llama2.c, TinyLlama and Pythia: see the recipes.
LLAMA = Published(
    "arXiv:2302.13971, 2.3; eps is torch's default, initial weights are those of transformers",
    rule="adam",
    curve="cosine from the warm-up",
    peak=3e-4,
    warmup=2_000,
    steps=238_419,
    least=0.1,
    beta2=0.95,
    eps=1e-8,
    decay=0.1,
    dropout=0.0,
    attention_dropout=0.0,
)
LLAMA_2_C = replace(
    LLAMA,
    source="karpathy/llama2.c: train.py and model.py, whose scaled projections are others: see the recipe",
    peak=5e-4,
    warmup=1_000,
    steps=100_000,
    least=0.0,
    scaled=True,
)
TINY_LLAMA = replace(
    LLAMA,
    source="jzhang38/TinyLlama: pretrain/tinyllama.py, lit_gpt/model.py, README.md",
    peak=4e-4,
    steps=1_430_512,
    decays="all",
    std=(2 / (5 * 2_048)) ** 0.5,
    scaled=True,
)
# Rates and steps are not published; the rest is LLaMA's.
MISTRAL = replace(LLAMA, source="arXiv:2310.06825 states no settings", peak=None, warmup=None, steps=None)


def pythia(peak: float, width: int = 0) -> Published:
    """Return the settings of models/*.yml of EleutherAI/pythia. Width 0: the initial weights of GPT-NeoX's defaults."""
    return replace(
        LLAMA,
        source="EleutherAI/pythia: models/*.yml; GPT-NeoX: init_functions.py",
        peak=peak,
        warmup=1_430,  # a hundredth of the steps
        steps=143_000,
        std=(2 / (5 * width)) ** 0.5 if width else 0.02,
        scaled=True,
    )


GPT_J = replace(
    LLAMA,
    source="kingoflolz/mesh-transformer-jax: 6B_roto_256.json, util.py, train.py; initial weights: see the recipe",
    peak=1.2e-4,
    warmup=3_000,
    steps=303_000,
    beta2=0.999,
    scaled=True,
)
# Composer's weight decay of 1e-5 is relative to the peak rate.
MOSAIC_BERT = Published(
    "mosaicml/examples: mosaic-bert-base-uncased.yaml, main.py",
    rule="adam",
    curve="linear from the warm-up",
    peak=5e-4,
    warmup=4_200,
    steps=70_000,
    least=0.02,
    beta2=0.98,
    decay=0.02,
    decays="all",
    clip=0.0,
    attention_dropout=0.0,
)
# A first phase of 364,303 steps, then 423,855 steps and a decay of 84,771 (large: 340,649, 396,333, 79,267).
MODERN_BERT = Published(
    "arXiv:2412.13663, 2.2 and table 3; AnswerDotAI/ModernBERT: modernbert-base-pretrain.yaml",
    rule="adam",
    curve="constant from the warm-up, then 1 - sqrt",
    peak=8e-4,
    warmup=636,
    steps=364_303,
    falling=1 / 6,
    beta2=0.98,
    decay=0.0125,
    clip=0.0,
    again=(364_303, 3e-4, 0, 508_626),
    start="truncated",
    scaled=True,  # full_megatron
    dropout=0.0,
    attention_dropout=0.0,
)
TRANSFORMER_XL = Published(
    "kimiyoung/transformer-xl: pytorch/train.py (weights_init), run_wt103_base.sh and its siblings",
    rule="adam",
    curve="cosine from 0",
    peak=2.5e-4,
    warmup=0,
    steps=200_000,
    eps=1e-8,
    decay=0.0,
    clip=0.25,
    gain_std=0.02,
    attention_dropout=0.0,
    inner_dropout=True,
)
XLNET = Published(
    "arXiv:1906.08237, A.4; zihangdai/xlnet: model_utils.py, train.py (min_lr_ratio), xlnet.py (init_std)",
    rule="adam",
    curve="linear from the warm-up",
    peak=4e-4,
    warmup=40_000,
    steps=500_000,
    least=1e-3,
    corrected=False,
    inner_dropout=True,
)
XLM = Published(
    "README of facebookresearch/XLM (section I.2 and its optimizer); optim.py, model/transformer.py, train.py (clip)",
    rule="adam",
    curve="constant",
    peak=1e-4,
    warmup=0,
    steps=None,
    eps=1e-8,
    decay=0.0,
    clip=5.0,
    start="torch",
)
MASS_MT = replace(
    XLM,
    source="README of microsoft/MASS (unsupervised translation); optim.py and transformer.py of MASS-unsupNMT",
    curve="root from the warm-up",
    warmup=4_000,  # the warmup starts from 1e-7 there, from 0 here
    beta2=0.98,
)
MASS = replace(
    ROBERTA,
    source="README of microsoft/MASS (summarization); s2s_model.py of MASS-summarization",
    peak=5e-4,
    warmup=10_000,
    steps=125_000,
)
LONGFORMER = replace(
    ROBERTA,
    source="arXiv:2004.05150, 5; clipping and decayed parameters: convert_model_to_long.ipynb of allenai/longformer",
    curve="cube from the warm-up",
    peak=3e-5,
    warmup=500,
    steps=65_000,
    decays="matrices",
    clip=5.0,
)
UNILM = replace(
    BERT,
    source="arXiv:1905.03197, 3.1; it does not state the bias correction, and starts from BERT's weights",
    peak=3e-5,
    warmup=40_000,
    steps=770_000,
    corrected=True,
)
ERNIE = Published(
    "PaddlePaddle/ERNIE release/r2.1.0: optimization.py, pretrain_args.py, script/zh_task/pretrain.sh, ernie_v1.py",
    rule="adam",
    curve="linear from 0",
    peak=1e-4,
    warmup=5_000,
    steps=1_000_000,
    eps=1e-8,
    start="truncated",
)

PUBLISHED: Final[dict[str, Published]] = {
    **dict.fromkeys(("albert_base", "albert_large", "albert_xlarge"), ALBERT),
    "albert_xxlarge": replace(ALBERT, steps=1_000_000, dropout=0.0, attention_dropout=0.0),
    # google-research/albert, README: no dropout, ten million steps of the base model, three million of the others
    "albert_base_v2": replace(ALBERT, peak=None, warmup=None, steps=10_000_000, dropout=0.0, attention_dropout=0.0),
    **dict.fromkeys(
        ("albert_large_v2", "albert_xlarge_v2", "albert_xxlarge_v2"),
        replace(ALBERT, peak=None, warmup=None, steps=3_000_000, dropout=0.0, attention_dropout=0.0),
    ),
    **dict.fromkeys((f"bart_{name}" for name in ("base", "deletion", "infilling", "masking")), BART),
    **dict.fromkeys(("bart_permutation", "bart_rotation"), BART),
    "bart_large": replace(BART, peak=4e-4, steps=500_000),
    **dict.fromkeys((f"bert_{name}" for name in ("base", "base_cased", "chinese", "large", "large_cased")), BERT),
    **dict.fromkeys((f"bert_{name}" for name in ("large_wwm", "medium", "mini", "small", "tiny")), BERT),
    "bert_large_lamb": LAMB,
    "bert_multilingual": replace(BERT, source="google-research/bert: multilingual.md; arXiv:1810.04805, A.2"),
    "bert_wwm": replace(
        BERT, source="README of ymcui/Chinese-BERT-wwm", rule="lamb", warmup=20_000, steps=200_000
    ),  # warmup: a tenth of the steps
    "cpm_2_6b": CPM,
    "electra_base": ELECTRA,
    "electra_large": replace(ELECTRA, steps=1_750_000),
    "electra_small": replace(ELECTRA, peak=5e-4, steps=1_000_000),
    "deberta_v3_base": Published(
        "arXiv:2111.09543, table of hyperparameters in the appendix, from memory",
        rule="adam",
        curve="linear from the warm-up",
        peak=6e-4,
        warmup=10_000,
        steps=500_000,
        beta2=0.98,
    ),
    **dict.fromkeys(("ernie_1", "ernie_1_dialogue"), ERNIE),
    "gpt1": GPT_1,
    **dict.fromkeys(("gpt2", "gpt2_large", "gpt2_medium", "gpt2_xl"), GPT_2),
    "gpt3_125m": gpt_3(6e-4, 256),
    "gpt3_350m": gpt_3(3e-4, 256),
    "gpt3_760m": gpt_3(2.5e-4, 256),
    "gpt3_1_3b": gpt_3(2e-4, 512),
    "gpt3_2_7b": gpt_3(1.6e-4, 512),
    "gpt3_6_7b": gpt_3(1.2e-4, 1_024),
    "gpt3_13b": gpt_3(1e-4, 1_024),
    "gpt3_175b": gpt_3(0.6e-4, 1_600),
    "gptj_6b": GPT_J,
    "grover_mega": GROVER,
    "llama_110m": LLAMA_2_C,
    "llama_7b": LLAMA,
    "longformer_base": LONGFORMER,
    "mass_base": MASS,
    "mass_mt": MASS_MT,
    "mbart_large": MBART,
    **dict.fromkeys(("megatron_1_2b", "megatron_2_5b", "megatron_4_2b", "megatron_8b"), MEGATRON),
    **dict.fromkeys(("megatron_bert_1_3b", "megatron_bert_345m", "megatron_bert_3_9b"), MEGATRON_BERT),
    "mistral_7b": MISTRAL,
    "modernbert_base": MODERN_BERT,
    "modernbert_large": replace(
        MODERN_BERT, peak=5e-4, warmup=396, steps=340_649, decay=0.02, again=(340_649, 5e-5, 0, 475_600)
    ),
    "mosaicbert_base": MOSAIC_BERT,
    "mt5_small": T5_1_1,
    "mt_nlg_530b": MT_NLG,
    "opt_125m": OPT,
    **dict.fromkeys(("pegasus_base", "pegasus_large"), PEGASUS),
    "pythia_14m": pythia(1e-3, 128),
    "pythia_31m": pythia(1e-3, 256),
    "pythia_70m": pythia(1e-3, 512),
    "pythia_160m": pythia(6e-4, 768),
    "pythia_410m": pythia(3e-4, 1_024),
    "pythia_1b": pythia(3e-4, 2_048),
    "pythia_1_4b": pythia(2e-4, 2_048),
    "pythia_2_8b": pythia(1.6e-4, 2_560),
    "pythia_6_9b": pythia(1.2e-4),
    "pythia_12b": pythia(1.2e-4),
    "roberta_base": ROBERTA,
    "roberta_large": replace(ROBERTA, peak=4e-4, warmup=30_000),
    **dict.fromkeys(("roberta_doc_sentences", "roberta_full_sentences"), ROBERTA_AS_BERT),
    **dict.fromkeys(("roberta_segment_pair", "roberta_sentence_pair"), ROBERTA_AS_BERT),
    **dict.fromkeys(("spanbert_base", "spanbert_large"), SPANBERT),
    **dict.fromkeys(("spanbert_entities", "spanbert_noun_phrases", "spanbert_spans"), SPANBERT_SCHEMES),
    **dict.fromkeys(
        ("spanbert_single", "spanbert_single_sbo", "spanbert_subwords", "spanbert_words"), SPANBERT_SCHEMES
    ),
    **dict.fromkeys((f"t5_{name}" for name in ("11b", "3b", "base", "bert_style", "deshuffling", "drop", "iid")), T5),
    **dict.fromkeys((f"t5_{name}" for name in ("large", "mass_style", "prefix_lm", "small")), T5),
    **dict.fromkeys(("t5_v1_1_base", "t5_v1_1_small"), T5_1_1),
    "tinyllama_1_1b": TINY_LLAMA,
    "transformer_xl_base": TRANSFORMER_XL,
    "transformer_xl_large": replace(TRANSFORMER_XL, warmup=16_000, steps=4_000_000, dropout=0.2, attention_dropout=0.2),
    "transformer_xl_enwik8": replace(TRANSFORMER_XL, steps=400_000),
    "transformer_xl_enwik8_large": replace(
        TRANSFORMER_XL, warmup=4_000, steps=400_000, dropout=0.15, attention_dropout=0.15
    ),
    "transformer_xl_lm1b": replace(TRANSFORMER_XL, warmup=20_000, steps=500_000, dropout=0.0),
    "turing_nlg": TURING,
    "unilm_large": UNILM,
    **dict.fromkeys(("xlm_clm", "xlm_mlm", "xlm_tlm"), XLM),
    "xlm_roberta_base": replace(
        ROBERTA, source="arXiv:1911.02116, 3.1, states no rates", peak=None, warmup=None, steps=1_500_000
    ),
    "xlnet_large": XLNET,
    "xlnet_base": replace(XLNET, source="arXiv:1906.08237, 3.2, states no rates", peak=None, warmup=None, steps=None),
}
