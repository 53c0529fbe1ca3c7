# ruff: noqa: RUF001
"""Speed of the repair of text in many languages on one core, compared with ftfy, and whether both agree.

    python benchmarks/repair.py [--mb 1]

The text needs no repair, like almost all text of a corpus. Columns: speed of Sesame (preprocessing/text/repair.py) and
of ftfy with the same settings, in MB of UTF-8 per second (the best of three), and their ratio.
"""

import argparse
import time
from collections.abc import Callable
from typing import Final

import ftfy

from preprocessing.text import repair_text
from preprocessing.text.repair import _FIXES

TEXTS: Final = {
    "English": "In the summer people come here from all over the country. “Why?” he said — it’s so. ",
    "French": "L’été, des gens viennent ici « nager » dans la mer, puis rentrent à l’hôtel… ",
    "Polish": "Latem ludzie z całego kraju przyjeżdżają tu pływać, a później wracają. ",
    "Vietnamese": "Vào mùa hè mọi người từ khắp cả nước đến đây. ",
    "Russian": "Летом люди приезжают сюда. ",
    "Ukrainian": "Влітку люди їжджаємо й їздимо. ",
    "Greek": "Το καλοκαίρι έρχονται εδώ. ",
    "Hindi": "गर्मियों में लोग यहाँ आते हैं। ",
    "Arabic": "في الصيف يأتي الناس، ثم يعودون. ",
    "Hebrew": "בקיץ אנשים באים לכאן. ",
    "Thai": "ในฤดูร้อนผู้คนจะมาที่นี่ ",
    "Georgian": "ზაფხულში ხალხი აქ მოდის. ",
    "Armenian": "Ամռանը մարդիկ գալիս են։ ",
    "Chinese": "夏天，人们来到这里。他说：“很好”…… ",
    "Japanese": "夏になると多くの人々が訪れます。「はい。」 ",
    "Korean": "여름이면 사람들이 이곳에 옵니다. ",
}


def alone(text: str) -> str:
    """The text after ftfy has repaired each line separately."""
    return "\n".join(ftfy.fix_text_segment(line, _FIXES) for line in text.split("\n"))


def seconds(repair: Callable[[str], str], text: str) -> float:
    """The shortest CPU time of three runs."""
    taken = list[float]()
    for _ in range(3):
        start = time.process_time()
        repair(text)
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
        agree = "" if repair_text(text) == alone(text) else "  results differ"
        ours, theirs = (len(text.encode()) / 1e6 / seconds(repair, text) for repair in (repair_text, alone))
        print(f"{name:12}{ours:9.1f}{theirs:9.1f}{ours / theirs:13.1f}{agree}")


if __name__ == "__main__":
    main()
