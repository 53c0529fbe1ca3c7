"""The parts of a recipe in words, for people: parts that differ in kind never sound the same."""

from orchestration.config import Recipe
from preprocessing.choose import Choose, Entities, Fragment, Ngrams, NoiseSpans, Nothing, Partial, Spans, Tokens, Words
from preprocessing.rewrite import Cloze, Deshuffle, Noise, Permute, Prefix, Rewrite, Sentinel, Shift, Unified
from preprocessing.segment import Packed, Pair, Parallel, Segment, Sentence, Stream, StreamPair
from preprocessing.vocab import ByteBPE, SentencePieceBPE, SingleBytes, Unigram, VocabSpec, WholeWords, WordPiece
from training.losses import Adversarial, Loss, MaskedTokens, NextToken, PairLabel, Replaced, SpanBoundary
from training.optim import Adafactor, AdamW, Lamb, Optim
from training.specs import Decoder, Encoder, EncoderDecoder, Trunk, TwoStream

NETS = {
    "encoder": "encoder",
    "decoder": "decoder",
    "encoder_decoder": "encoder and decoder",
    "two_stream": "two streams",
    "twin": "generator and discriminator",
}
EDITS = {
    "permute": "sentences shuffled",
    "mask": "{rate} of the tokens masked",
    "delete": "{rate} of the tokens deleted",
    "infill": "{rate} of the words infilled, {mean:g} at a time",
    "rotate": "another token at the start",
}


def vocab(spec: VocabSpec) -> str:
    table = f", in a table of {spec.rows:,} rows" if spec.rows > spec.size else ""
    match spec:
        case WordPiece(lowercase=lowercase):
            return f"{spec.size:,} {'lower-cased' if lowercase else 'cased'} word pieces{table}"
        case ByteBPE():
            return f"{spec.size:,} byte-level BPE pieces{table}"
        case Unigram(lowercase=lowercase):
            return f"{spec.size:,} {'lower-cased ' * lowercase}unigram pieces{table}"
        case SentencePieceBPE(lowercase=lowercase, alpha=alpha, languages=languages):
            drawn = f", learned on {len(languages)} languages by p^{alpha:g}" if languages and alpha < 1 else ""
            return f"{spec.size:,} {'lower-cased ' * lowercase}BPE pieces of sentencepiece{drawn}{table}"
        case WholeWords():
            return f"{spec.size:,} whole words{table}"
        case SingleBytes():
            return f"single bytes, {spec.size:,} of them{table}"


def segment(part: Segment) -> str:
    match part:
        case Packed(fill="sentences"):
            where = "across" if part.cross_documents else "inside"
            return f"full sentences packed {where} documents" + (", none longer than a row" * (part.long == "drop"))
        case Packed():
            return "running text packed end to end" + ("" if part.cross_documents else ", one document a row")
        case Stream():
            return "streams of running text, each row going on where the last one stopped"
        case StreamPair(reuse=reuse, ways=ways):
            from_end = ", half of them read from the end" if ways == "both" else ""
            return f"{reuse:,} tokens of a stream that goes on, then a pair of segments{from_end}"
        case Sentence():
            return "single sentences"
        case Parallel(pairs=0):
            return "running text of one language a row"
        case Parallel(pairs=pairs):
            return f"running text of one language a row, or ({pairs:.0%} of the tokens) a sentence and its translation"
        case Pair(negative="none"):
            return "pairs of segments, the second following the first"
        case Pair(negative="dialogue"):
            return "queries and responses, half of them made up"
        case Pair():
            strangers = "strangers" if part.negative == "random" else "in the wrong order"
            return f"pairs of {part.unit}s, {'half' if part.share == 0.5 else f'{part.share:.0%}'} of them {strangers}"


def choose(part: Choose) -> str:
    match part:
        case Nothing():
            return "nothing"
        case Tokens(alpha=alpha):
            return f"{part.rate:.0%} of the tokens" + (", rare ones more often" if alpha else "")
        case Words():
            return f"{part.rate:.0%} of the tokens, in whole words"
        case Spans(units=units):
            named = f", {units:.0%} of them in whole phrases" if units else ""
            return f"{part.rate:.0%} of the tokens{named}, in spans of up to {part.longest} words"
        case Ngrams(of=of):
            return f"{part.rate:.0%} of the tokens, in n-grams of up to {part.longest} {of}"
        case Entities(tokens=tokens):
            singly = f", or ({tokens:.0%} of the rows) one by one" if tokens else ""
            return f"{part.rate:.0%} of the tokens, in whole phrases and words{singly}"
        case NoiseSpans():
            return f"{part.rate:.0%} of the tokens, in spans of {part.mean:g} on average"
        case Fragment(block=block):
            return f"{part.rate:.0%} of the tokens, in one run" + (f" of each {block:,}" if block else "")
        case Partial():
            return f"one token in {part.of}, in n-grams of up to {part.longest}"


def rewrite(part: Rewrite) -> str:
    match part:
        case Cloze(mask=mask, swap=swap):
            return f"{_thrown(mask, swap)}, drawn per {part.unit}"
        case Shift():
            return "each token asks for the next"
        case Sentinel():
            return _sentinel(part)
        case Prefix():
            return "the beginning is read, the rest is asked for"
        case Deshuffle():
            return "tokens in random order are read, the text is asked for"
        case Noise(edits=edits):
            said = (EDITS[edit].format(rate=f"{part.rate:.0%}", mean=part.mean) for edit in edits)
            return f"text with {', '.join(said)} is read, the text is asked for"
        case Permute(block=block):
            return f"hidden by the order in which the tokens of each {block:,} are predicted"
        case Unified():
            return (
                f"{part.full:.0%} of the rows seen both ways, {part.sequence:.0%} as source and target, "
                f"{part.left:.0%} from the left, {part.right:.0%} from the right; {_thrown(part.mask, part.swap)}"
            )
        case _:
            looks = "" if part.hide else ", which sees masks as well"
            return f"hidden from the encoder ({_thrown(part.mask, part.swap)}), asked of the decoder{looks}"


def _thrown(mask: float, swap: float) -> str:
    return f"{mask:.0%} masked, {swap:.0%} swapped, {abs(1 - mask - swap):.0%} kept"


def _sentinel(part: Sentinel) -> str:
    if part.collapse:
        asked = "asked for behind it" if part.answer == "spans" else "and the text is asked for"
        return f"each hidden span is one sentinel, {asked}"
    if part.answer == "spans":
        return "what is hidden is left out, and asked for"
    swapped = f", {part.swap:.0%} of them another token" if part.swap else ""
    return f"each hidden token is a sentinel{swapped}, and the text is asked for"


def hidden(recipe: Recipe) -> str:
    """What is hidden, and how, shortly: the choice, or the rewrite where that one chooses by itself."""
    part, rewritten = recipe.objective.choose, recipe.objective.rewrite
    return rewrite(rewritten) if isinstance(part, Nothing) and not isinstance(rewritten, Shift) else choose(part)


def trunk(part: Trunk) -> str:
    """Kind and size of a net."""
    size = f"{part.layers} layers, width {part.width:,}, {part.heads} heads"
    return f"{NETS[part.kind]}, {size}, {part.norm}-norm"


def positions(part: Trunk) -> str:
    """How a net knows where a token stands."""
    match part:
        case EncoderDecoder(positions="buckets"):
            return f"its distance from another, in {part.buckets} buckets"
        case Decoder(positions="relative") | TwoStream():
            return "its distance from another"
        case Encoder(positions="sinusoidal"):
            return "sines of its place"
        case _:
            return "a table of places"


def shared(part: Trunk) -> str:
    """What the layers of a net have in common."""
    sharing = part.sharing if isinstance(part, Encoder) else "none"
    of = f"in {part.groups} groups of layers" if isinstance(part, Encoder) and part.groups > 1 else "in all layers"
    return {
        "none": "weights of its own in each layer",
        "all": f"the same weights {of}",
        "attention": f"the same attention {of}",
        "feed_forward": f"the same feed-forward part {of}",
    }[sharing]


def optim(part: Optim) -> str:
    match part:
        case AdamW():
            return "Adam"
        case Lamb():
            return "LAMB"
        case Adafactor():
            return "Adafactor"


def loss(part: Loss, recipe: Recipe) -> str:
    match part:
        case MaskedTokens() if isinstance(recipe.trunk, TwoStream):
            asked = "hidden tokens in random order"
        case MaskedTokens():
            asked = "masked tokens"
        case PairLabel():
            negative = getattr(recipe.data.segment, "negative", "")
            asked = {"swap": "sentence order", "dialogue": "real or made-up response"}.get(
                negative, "next sentence prediction"
            )
        case SpanBoundary():
            asked = "span boundaries"
        case Replaced(asks="original"):
            asked = "original tokens"
        case Replaced():
            asked = "replaced tokens"
        case Adversarial():
            asked = "samples that are not found out"
        case NextToken():
            asked = _answer(recipe.objective.rewrite) if isinstance(recipe.trunk, EncoderDecoder) else "next token"
    return asked if part.weight == 1 else f"{part.weight:g} x {asked}"


def _answer(part: Rewrite) -> str:
    """What the decoder of a sequence to sequence is asked for."""
    match part:
        case Sentinel(answer="spans"):
            return "hidden spans"
        case Noise() | Deshuffle() | Sentinel():
            return "the whole text"
        case Prefix():
            return "the rest of the text"
        case _:
            return "the fragment"


def losses(recipe: Recipe) -> list[str]:
    return [loss(part, recipe) for part in recipe.objective.losses]


def brief(number: float) -> str:
    """A large number, to two digits.

    >>> brief(2_097_152_000_000)
    '2.1e12'
    """
    return f"{number:.2g}".replace("e+", "e")
