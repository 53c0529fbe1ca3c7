"""All formats of transformers, one value each (see format.py). A model is exported in the first format that
expresses it."""

from typing import Final

from training.formats.albert import ALBERT
from training.formats.bart import BART, MBART
from training.formats.bert import BERT
from training.formats.deberta_v2 import DEBERTA_V2
from training.formats.electra import ELECTRA
from training.formats.ernie import ERNIE
from training.formats.format import Format
from training.formats.gpt1 import GPT1
from training.formats.gpt2 import GPT2
from training.formats.gpt_neox import GPT_NEOX
from training.formats.gptj import GPTJ
from training.formats.llama import LLAMA
from training.formats.longformer import LONGFORMER
from training.formats.megatron_bert import MEGATRON_BERT
from training.formats.mistral import MISTRAL
from training.formats.modernbert import MODERN_BERT
from training.formats.mpt import MPT
from training.formats.opt import OPT
from training.formats.pegasus import PEGASUS
from training.formats.qwen3 import QWEN3
from training.formats.roberta import ROBERTA, XLM_ROBERTA
from training.formats.t5 import MT5, T5
from training.formats.xlm import XLM
from training.formats.xlnet import XLNET

FORMATS: Final[tuple[Format, ...]] = (
    *(ROBERTA, BERT, ALBERT, MEGATRON_BERT, LONGFORMER, XLM, ELECTRA),
    DEBERTA_V2,
    *(GPT1, GPT2, OPT, BART, MBART, PEGASUS, T5, MT5, XLNET),
    *(LLAMA, MISTRAL, QWEN3, GPT_NEOX, GPTJ, MPT, MODERN_BERT),
    *(ERNIE, XLM_ROBERTA),  # for loading: exported as BERT and RoBERTa
)
