"""How fast one core mends text of many languages, beside ftfy itself in the same run, and whether both agree.

    python benchmarks/repair.py [--mb 1]

Sound text of each language: what nearly all of a corpus is. Columns: MB of UTF-8 a second of ours (preprocessing/text/
repair.py) and of ftfy with the same settings, each the best of three, and the ratio of the two.
"""

import argparse
import time
from collections.abc import Callable
from typing import Final

import ftfy

from preprocessing.text import repaired
from preprocessing.text.repair import _FIXES

TEXTS: Final = {
    "English": "In the summer people come here from all over the country. \u201cWhy?\u201d he said \u2014 it\u2019s so. ",
    "French": "L\u2019\u00e9t\u00e9, des gens viennent ici \u00ab nager \u00bb dans la mer, puis rentrent \u00e0 l\u2019h\u00f4tel\u2026 ",
    "Polish": "Latem ludzie z ca\u0142ego kraju przyje\u017cd\u017caj\u0105 tu p\u0142ywa\u0107, a p\u00f3\u017aniej wracaj\u0105. ",
    "Vietnamese": "V\u00e0o m\u00f9a h\u00e8 m\u1ecdi ng\u01b0\u1eddi t\u1eeb kh\u1eafp c\u1ea3 n\u01b0\u1edbc \u0111\u1ebfn \u0111\u00e2y. ",
    "Russian": "\u041b\u0435\u0442\u043e\u043c \u043b\u044e\u0434\u0438 \u043f\u0440\u0438\u0435\u0437\u0436\u0430\u044e\u0442 \u0441\u044e\u0434\u0430. ",
    "Ukrainian": "\u0412\u043b\u0456\u0442\u043a\u0443 \u043b\u044e\u0434\u0438 \u0457\u0436\u0434\u0436\u0430\u0454\u043c\u043e \u0439 \u0457\u0437\u0434\u0438\u043c\u043e. ",
    "Greek": "\u03a4\u03bf \u03ba\u03b1\u03bb\u03bf\u03ba\u03b1\u03af\u03c1\u03b9 \u03ad\u03c1\u03c7\u03bf\u03bd\u03c4\u03b1\u03b9 \u03b5\u03b4\u03ce. ",
    "Hindi": "\u0917\u0930\u094d\u092e\u093f\u092f\u094b\u0902 \u092e\u0947\u0902 \u0932\u094b\u0917 \u092f\u0939\u093e\u0901 \u0906\u0924\u0947 \u0939\u0948\u0902\u0964 ",
    "Arabic": "\u0641\u064a \u0627\u0644\u0635\u064a\u0641 \u064a\u0623\u062a\u064a \u0627\u0644\u0646\u0627\u0633\u060c \u062b\u0645 \u064a\u0639\u0648\u062f\u0648\u0646. ",
    "Hebrew": "\u05d1\u05e7\u05d9\u05e5 \u05d0\u05e0\u05e9\u05d9\u05dd \u05d1\u05d0\u05d9\u05dd \u05dc\u05db\u05d0\u05df. ",
    "Thai": "\u0e43\u0e19\u0e24\u0e14\u0e39\u0e23\u0e49\u0e2d\u0e19\u0e1c\u0e39\u0e49\u0e04\u0e19\u0e08\u0e30\u0e21\u0e32\u0e17\u0e35\u0e48\u0e19\u0e35\u0e48 ",
    "Georgian": "\u10d6\u10d0\u10e4\u10ee\u10e3\u10da\u10e8\u10d8 \u10ee\u10d0\u10da\u10ee\u10d8 \u10d0\u10e5 \u10db\u10dd\u10d3\u10d8\u10e1. ",
    "Armenian": "\u0531\u0574\u057c\u0561\u0576\u0568 \u0574\u0561\u0580\u0564\u056b\u056f \u0563\u0561\u056c\u056b\u057d \u0565\u0576\u0589 ",
    "Chinese": "\u590f\u5929\uff0c\u4eba\u4eec\u6765\u5230\u8fd9\u91cc\u3002\u4ed6\u8bf4\uff1a\u201c\u5f88\u597d\u201d\u2026\u2026 ",
    "Japanese": "\u590f\u306b\u306a\u308b\u3068\u591a\u304f\u306e\u4eba\u3005\u304c\u8a2a\u308c\u307e\u3059\u3002\u300c\u306f\u3044\u3002\u300d ",
    "Korean": "\uc5ec\ub984\uc774\uba74 \uc0ac\ub78c\ub4e4\uc774 \uc774\uacf3\uc5d0 \uc635\ub2c8\ub2e4. ",
}


def alone(text: str) -> str:
    """What ftfy makes of each line by itself."""
    return "\n".join(ftfy.fix_text_segment(line, _FIXES) for line in text.split("\n"))


def seconds(mend: Callable[[str], str], text: str) -> float:
    taken = list[float]()
    for _ in range(3):
        start = time.process_time()
        mend(text)
        taken.append(time.process_time() - start)
    return min(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--mb", type=float, default=1.0)
    size = parser.parse_args().mb * 1e6
    print(f"{'':12}{'ours':>9}{'ftfy':>9}  ours / ftfy")
    for name, sentence in TEXTS.items():
        line = sentence * 6
        text = "\n".join([line] * int(size / len(line.encode()) + 1))
        agree = "" if repaired(text) == alone(text) else "  other results"
        ours, theirs = (len(text.encode()) / 1e6 / seconds(mend, text) for mend in (repaired, alone))
        print(f"{name:12}{ours:9.1f}{theirs:9.1f}{ours / theirs:13.1f}{agree}")


if __name__ == "__main__":
    main()
