"""Phrases that must not occur in any text for users, each with a better phrase.

A phrase is listed only if it is wrong in every use. For example, "rows" is not listed, because a table may have rows.
Code is not checked: text between backticks, fenced blocks, and lines that begin with `>>>`.
"""

import re
from collections.abc import Mapping
from typing import Final

_ISE: Final = r"is(e|es|ed|er|ers|ing|ation|ations)\b"
BANNED: Final[Mapping[str, str]] = {  # regular expression, in any case -> better phrase
    # standard terms of the field
    r"\bnets?\b": "model",
    r"\bfolders?\b": "directory",
    r"\b(go|goes|going|went|gone) on\b": "continue, resume",
    r"\bbegun\b": "started",
    r"\banew\b": "again",
    r"\b(a|the|its|their) share\b": "fraction",
    r"\bshares? (from|between|above|below) \d": "fraction",
    r"\brows? of (tokens|text)\b": "sequence",
    r"\bfirst weights\b": "initial weights",
    r"\bcells? of (a|the|each|its) grids?\b": "trial",
    r"\b(published|printed|paper'?s'?) figures\b": "results",
    r"\bfigures (of|in|that) (a|the) papers?\b": "results",
    r"\bknobs?\b": "key, option",
    # participles as nouns, counts without a number, and old-fashioned phrases
    r"\bso (many|much) (\w+|as)\b": "N, that many",
    r"\bbut for (the|a|an|its|those|these|what)\b": "except",
    r"\bwhere there (is|are|was|were) (none|no|not)\b": "if missing, without",
    r"\bof (the|these|those|its|their) \w+ all\b": "all",
    r"\bwhat (is|was|are|were) (kept|left|there|said|asked|done|meant|learned|learnt)\b": "a noun",
    r"\bwhat (is|was|are|were) (chosen|drawn|given|written)\b": "a noun",
    r"\bwhat (becomes|became|is to become) of\b": "a noun",
    r"\bthe very (rows?|tokens?|texts?|files?|same)\b": "the same",
    r"\bfor the sake of\b": "so that, for",
    r"\bbe it\b": "even, whether",
    r"\bmended\b": "fixed, changed",
    r"\bat hand\b": "available",
    r"\bin place of\b": "instead of",
    r"\b(is|are|was|were) told\b": "receives",
    r"\bbehind (it|them|each|this|that)\b": "after",
    # errors: invalid X: got Y, expected Z
    r"\ballowed (is|are)\b": "expected",
    r"(?<!there )\b(is|are) no (part|key|file|number|task|recipe|run|model)s?\b": "is not a",
    r"(?<!there )\b(is|are) no (option|loss|zip|word|text|label)s?\b": "is not a",
    # personification
    r"\b(models?|runs?|workers?|tasks?) (knows?|asks?|wants?|says?|tells?|thinks?)\b": "has, needs, reports",
    r"\b(models?|runs?|tasks?) waits?\b": "has, needs, reports",  # workers are processes, which may wait
    r"\b(tokenizer|vocabulary|recipe|file|corpus|paper) (knows|asks|wants|waits|tells|thinks)\b": "has, needs, states",
    # American spelling
    r"\w*(optim|normal|token|initial|summar|organ|recogn|general|material|parallel|serial)" + _ISE: "-ize",
    r"\w*(custom|random|visual|minim|maxim|real|util|special|synchron|vector|factor|final|capital)" + _ISE: "-ize",
    r"\b(coloured|colours?|behaviours?|favours?|licences?|centres?)\b": "American spelling",
    r"\b(labelled|labelling|modelled|modelling|cancelled|travelled)\b": "American spelling",
    r"\b(learnt|whilst|grey|analyse[ds]?|artefacts?|catalogues?)\b": "American spelling",
}
_CODE: Final = re.compile(r"```.*?```|``.*?``|`(?:[^`\n]|\n(?!\s*\n))*`|^\s*(>>>|\.\.\.) .*$", re.DOTALL | re.MULTILINE)
_END: Final = re.compile(r"(?<=[.!?])\s+|\n\s*\n|(?<=\|)\n")


def sentences(text: str) -> list[str]:
    """Split a text without its code into sentences, each in one line; the end of a table row ends a sentence.

    >>> sentences("One of\\n  them. See `a net`!\\n\\nA title")
    ['One of them.', 'See !', 'A title']
    """
    return [" ".join(each.split()) for each in _END.split(_CODE.sub("", text)) if each.split()]


def banned_phrases(text: str) -> list[str]:
    """A line for each banned phrase in a text: the phrase, the better phrase, and the sentence.

    >>> banned_phrases("The run resumes. The net goes on in its folder, `net.py`.")
    ["'net' (write: model) in: The net goes on in its folder, .",
     "'folder' (write: directory) in: The net goes on in its folder, .",
     "'goes on' (write: continue, resume) in: The net goes on in its folder, ."]
    >>> banned_phrases("Rows of a table and figure 4a; word pieces.")
    []
    """
    return [
        f"{found[0]!r} (write: {instead}) in: {sentence}"
        for sentence in sentences(text)
        for phrase, instead in BANNED.items()
        for found in re.finditer(phrase, sentence, re.IGNORECASE)
    ]


def banned_in(texts: Mapping[str, str]) -> list[str]:
    """The banned phrases of several texts; the key of a text, its place, begins each line."""
    return [f"{where}: {line}" for where, text in texts.items() for line in banned_phrases(text)]
