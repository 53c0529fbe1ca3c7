"""A pipeline of transformers loads each format with the class that we name, and gives an answer."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from pydoc_data.topics import topics

import pytest
import transformers

from orchestration.config import load
from preprocessing import tokenization
from preprocessing.errors import BadInput
from tests.training.formats import newer
from training.formats import FORMATS, pipeline, to_transformers
from training.formats.spec_file import read_json
from training.model import Model
from training.model_spec import ModelSpec

RECIPES = {  # a recipe of each model type, and of both kinds of XLM, with its task
    "roberta_base": "fill-mask",
    "bert_base": "fill-mask",
    "albert_base": "fill-mask",
    "megatron_bert_345m": "fill-mask",
    "longformer_base": "fill-mask",
    "xlm_mlm": "fill-mask",
    "xlm_clm": "text-generation",
    "electra_base": "feature-extraction",
    "deberta_v3_base": "feature-extraction",
    "gpt1": "text-generation",
    "gpt2": "text-generation",
    "opt_125m": "text-generation",
    "mbart_large": "fill-mask",
    "bart_base": "fill-mask",
    "pegasus_base": "text2text-generation",
    "t5_base": "feature-extraction",
    "xlnet_base": "text-generation",
}
# the small models of newer.py, and the recipe with the tokenizer of each
TOKENIZERS = dict.fromkeys(newer.TRUNKS, "gpt2") | {"modernbert": "bert_base", "mt5": "t5_base"}
TASKS = dict.fromkeys(newer.TRUNKS, "text-generation") | {"modernbert": "fill-mask", "mt5": "feature-extraction"}

pytestmark = pytest.mark.filterwarnings("ignore")


def exported(name: str, folder: Path) -> Path:
    """The export of a random model of a recipe at tiny scale, with a small vocabulary of its kind."""
    recipe = load(TOKENIZERS.get(name, name), scale="tiny")
    for size in (600, 900):  # SentencePiece has a minimum and a maximum size for a text
        try:
            words = tokenization.train(replace(recipe.data.tokenizer, vocab_size=size), list(topics.values())[:20])
        except BadInput:
            continue
        break
    else:
        pytest.fail(f"{name}: no vocabulary")
    words.save(folder / "vocab")
    spec = ModelSpec(model=recipe.model, losses=recipe.losses, vocab_size=1_200)
    if name in newer.TRUNKS:
        spec = newer.make_spec(newer.TRUNKS[name], 1_200)
    weights = dict(Model(spec.model, spec.losses, spec.vocab_size, seed=0).named_parameters())
    to_transformers(weights, spec, folder / "vocab", folder / "export")
    return folder / "export"


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("name", "task"), (RECIPES | TASKS).items())
def test_a_pipeline_gives_an_answer(name: str, task: str, tmp_path: Path) -> None:
    folder = exported(name, tmp_path)
    what = pipeline(folder)
    assert what.task == task
    net = getattr(transformers, what.model_class).from_pretrained(folder)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    if what.lacks:
        with pytest.raises(KeyError, match=r"has been removed|Unknown task"):
            transformers.pipeline(task, model=net, tokenizer=words)
        return
    answers = transformers.pipeline(task, model=net, tokenizer=words)
    text = f"The {words.mask_token} of the house" if task == "fill-mask" else "The house"
    more = {"max_new_tokens": 3} if task == "text-generation" else {}
    assert len(answers([text, text], **more)) == 2


@pytest.mark.parametrize("name", ["bert_base", "albert_base", "t5_base"])
def test_the_class_finds_all_of_its_weights_in_the_file(name: str, tmp_path: Path) -> None:
    folder = exported(name, tmp_path)
    kind = getattr(transformers, pipeline(folder).model_class)
    _, report = kind.from_pretrained(folder, output_loading_info=True)
    assert set(report["missing_keys"]) == set()


def test_every_format_is_tested(tmp_path: Path) -> None:
    tried = {read_json(exported(name, tmp_path / name) / "config.json")["model_type"] for name in RECIPES | TASKS}
    only_loaded = {"ernie", "xlm-roberta"}  # exported as BERT and RoBERTa
    assert tried | only_loaded == {format.model_type for format in FORMATS}


def test_a_model_is_described_without_torch(tmp_path: Path) -> None:
    folder = exported("bert_base", tmp_path)
    code = f"""
import sys
from pathlib import Path
from training import formats
folder = Path({str(folder)!r})
assert not formats.uses_all_weights(folder)
assert formats.write_for_pipeline(folder, folder.with_name("for_pipeline"))
assert all(format.pipeline and format.architecture for format in formats.FORMATS)
print(formats.pipeline(folder).model_class, formats.auto_class("BertForMaskedLM"), "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["BertForMaskedLM", "AutoModelForMaskedLM", "False"]
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder.with_name("for_pipeline"))
    expected = transformers.AutoModelForPreTraining.from_pretrained(folder).state_dict()
    assert all(tensor.equal(expected[name]) for name, tensor in model.state_dict().items())
