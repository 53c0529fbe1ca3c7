# ruff: noqa: RUF001 # the text in many languages contains characters that look like Latin letters and marks
"""Sentence ends in many languages, against gold data if available, else against sentences written for this test."""

import unicodedata
from collections.abc import Sequence
from itertools import accumulate, product
from pathlib import Path

import pytest
import regex

from preprocessing.characters import get_category
from preprocessing.text import describe_implausible, describe_unmarked, sentences
from preprocessing.text.abbreviations import ANYWHERE, BEFORE_NUMBERS, COMMON_WORDS, ONLY_IN, ORDINALS
from preprocessing.text.sentence_ends import (
    _CJK,
    _FULL_WIDTH_STOP,
    _HARD,
    _HARD_BEYOND,
    _SOFT,
    _TIBETAN,
    _letters,
    guess_language,
)

BURMESE_COMMA = "\u104a"

# Per language: full sentences with difficult cases; then beginnings and endings, which are combined pairwise.
WRITTEN: dict[str, tuple[list[str], list[str], list[str]]] = {
    "hi": (
        [
            "डॉ. शर्मा कल दिल्ली गए थे।",
            "क्या आप पं. नेहरू को जानते हैं?",
            "उसने कहा, “मैं नहीं आऊँगा।”",
            "वाह! कितना सुंदर दृश्य है!",
            "किताब की कीमत 3.50 रुपये है।",
            "बैठक 12 मार्च 1998 को हुई थी।",
        ],
        ["मेरा भाई", "वह लड़का", "हमारा पड़ोसी", "पुराना अध्यापक", "1950 में एक किसान"],
        ["घर जा रहा है।", "किताब पढ़ता था।", "कहाँ रहता है?", "बहुत खुश हुआ!", "कुछ नहीं बोला॥"],
    ),
    "bn": (
        [
            "ডা. রহমান গতকাল ঢাকায় গেছেন।",
            "মো. করিম একজন শিক্ষক।",
            "তুমি কি কাল আসবে?",
            "সে বলল, “আমি যাব না।”",
            "বইটির দাম ৩.৫০ টাকা।",
            "১৯৭১ সালে দেশ স্বাধীন হয়।",
        ],
        ["আমার ভাই", "ছোট ছেলেটি", "আমাদের প্রতিবেশী", "পুরনো শিক্ষক", "একজন কৃষক"],
        ["বাড়ি যাচ্ছে।", "বই পড়ছিল।", "কোথায় থাকে?", "খুব খুশি হল!", "কিছুই বলল না।"],
    ),
    "ur": (
        [
            "کیا آپ کل لاہور آئیں گے؟",
            "اس نے کہا: ”میں نہیں آؤں گا۔“",
            "کتاب کی قیمت 3.50 روپے ہے۔",
            "اجلاس 12 مارچ 1998 کو ہوا۔",
            "واہ! کیا خوبصورت منظر ہے!",
        ],
        ["میرا بھائی", "وہ لڑکا", "ہمارا پڑوسی", "پرانا استاد", "ایک کسان"],
        ["گھر جا رہا ہے۔", "کتاب پڑھتا تھا۔", "کہاں رہتا ہے؟", "بہت خوش ہوا!", "کچھ نہیں بولا۔"],
    ),
    "ar": (
        [
            "وصل د. محمد إلى القاهرة أمس.",
            "هل قرأت هذا الكتاب؟",
            "قال الرجل: «لن أذهب غدا».",
            "يبلغ سعر الكتاب 3.50 دينار.",
            "ولد الكاتب في 12 مارس 1950.",
            "ما أجمل هذا المكان!",
        ],
        ["أخي الصغير", "ذلك الولد", "جارنا القديم", "المعلم الجديد", "فلاح من القرية"],
        ["ذهب إلى البيت.", "يقرأ كتابا.", "أين يسكن؟", "فرح كثيرا!", "لم يقل شيئا..."],
    ),
    "am": (
        [
            "ዶ/ር አበበ ትናንት ወደ አዲስ አበባ ሄደ።",
            "መጽሐፉን አንብበሃል?",
            "እሱም «አልሄድም» አለ።",
            "የመጽሐፉ ዋጋ 3.50 ብር ነው።",
            "ስብሰባው በ1998 ዓ.ም. ተካሄደ።",
        ],
        ["ወንድሜ", "ያ ልጅ", "ጎረቤታችን", "አሮጌው መምህር", "አንድ ገበሬ"],
        ["ወደ ቤት ሄደ።", "መጽሐፍ አነበበ።", "የት ይኖራል፧", "በጣም ተደሰተ!", "ምንም አላለም።"],
    ),
    "my": (
        ["စာအုပ်၏ ဈေးနှုန်းမှာ ၃.၅၀ ကျပ် ဖြစ်သည်။", "ဒေါက်တာလှသည် ၊ ရန်ကုန်သို့ မနေ့က သွားသည်။", "“ကျွန်တော် မလာဘူး။” ဟု သူ ပြောသည်။"],
        ["ကျွန်တော့်အစ်ကိုသည်", "ထိုကလေးသည်", "အိမ်နီးချင်းသည်", "ဆရာဟောင်းသည်", "လယ်သမားတစ်ဦးသည်"],
        ["အိမ်သို့ ပြန်သွားသည်။", "စာအုပ် ဖတ်နေသည်။", "ဘယ်မှာ နေသလဲ။", "အလွန် ပျော်သည်။", "ဘာမှ မပြောပါ။"],
    ),
    "ja": (
        [
            "「行こう！」と彼は言った。",
            "価格は３．５０ドルです。",
            "『雪国。』を読みましたか？",
            "会議は1998年3月12日に開かれた。",
            "なんと美しい景色だろう！",
            "そうですか……と彼女は答えた。",
        ],
        ["私の兄は", "あの子は", "隣の人は", "昔の先生は", "ある農夫は"],
        ["家に帰った。", "本を読んでいた。", "どこに住んでいますか？", "とても喜んだ！", "何も言わなかった｡"],
    ),
    "fa": (
        ["دکتر احمدی دیروز به تهران رفت.", "آیا این کتاب را خوانده‌اید؟", "او گفت: «من نمی‌آیم.»", "قیمت کتاب ۳.۵۰ است."],
        ["برادر من", "آن پسر", "همسایه ما", "معلم پیر", "یک کشاورز"],
        ["به خانه رفت.", "کتاب می‌خواند.", "کجا زندگی می‌کند؟", "خیلی خوشحال شد!", "چیزی نگفت."],
    ),
    "he": (
        ['ד"ר כהן נסע אתמול לחיפה.', "האם קראת את הספר?", "מחיר הספר הוא 3.50 שקלים.", "ח. נ. ביאליק היה משורר."],
        ["אחי", "הילד ההוא", "השכן שלנו", "המורה הזקן", "איכר אחד"],
        ["הלך הביתה.", "קרא ספר.", "איפה הוא גר?", "שמח מאוד!", "לא אמר דבר..."],
    ),
    "ka": (
        ["წიგნი 3.50 ლარი ღირს.", "შეხვედრა 1998 წელს გაიმართა.", "მან თქვა: „არ წამოვალ.“"],
        ["ჩემი ძმა", "ის ბიჭი", "ჩვენი მეზობელი", "ძველი მასწავლებელი", "ერთი გლეხი"],
        ["სახლში წავიდა.", "წიგნს კითხულობდა.", "სად ცხოვრობს?", "ძალიან გაიხარა!", "არაფერი თქვა..."],
    ),
    "uk": (
        [
            "Він народився у 1950 р. у м. Києві.",
            "«Куди ти йдеш?» — спитав він.",
            "Проф. І. Франко приїхав учора.",
            "— Так! — сказала вона.",
        ],
        ["Мій брат", "Той хлопець", "Наш сусід", "Старий учитель", "Один селянин"],
        ["пішов додому.", "читав книжку.", "де живе?", "дуже зрадів!", "нічого не сказав…"],
    ),
    "el": (
        ["Η τιμή είναι 3.50 ευρώ.", "Είπε: «Δεν έρχομαι.»", "Ο κ. Α. Παπαδόπουλος έφυγε."],
        ["Ο αδερφός μου", "Εκείνο το παιδί", "Ο γείτονάς μας", "Ο δάσκαλος", "Ένας αγρότης"],
        ["πήγε στο σπίτι.", "διάβαζε ένα βιβλίο.", "χάρηκε πολύ!", "δεν είπε τίποτα..."],
    ),
}  # fmt: skip


def f1(pieces: Sequence[str], gold: Sequence[str], joint: str) -> float:
    """Return the F1 score of the sentence ends in a text of gold sentences, without the end of the text."""
    found = set(accumulate(map(len, pieces[:-1])))
    ends = {end + at * len(joint) for at, end in enumerate(accumulate(map(len, gold[:-1])))}
    return 2 * len(found & ends) / (len(found) + len(ends))


@pytest.mark.parametrize("language", WRITTEN)
def test_ends_of_written_sentences_are_found(language: str) -> None:
    full, beginnings, endings = WRITTEN[language]
    joint = "" if language == "ja" else " "
    gold = [*full, *(f"{begin}{joint}{end}" for begin, end in product(beginnings, endings))]
    text = joint.join(gold)
    assert f1(sentences(text), gold, joint) >= 0.95
    assert f1(sentences(text, language), gold, joint) >= 0.95


@pytest.mark.shared
@pytest.mark.parametrize(
    ("language", "least"),
    [("de", 0.922), ("fr", 0.967), ("es", 0.966), ("ru", 0.980), ("hy", 0.907), ("zh", 0.995)],
)
def test_ends_of_gold_sentences_are_found(language: str, least: float, shared: Path) -> None:
    if language == "zh":
        lines = (shared / "zh" / "zh_seg" / "zh_gsdsimp-ud-test.conllu").read_text(encoding="utf-8").splitlines()
        gold, joint = [line.removeprefix("# text = ") for line in lines if line.startswith("# text = ")], ""
    else:
        lines = (shared / "sentences" / f"{language}.txt").read_text(encoding="utf-8").splitlines()
        gold, joint = list(filter(None, lines)), " "
    assert f1(sentences(joint.join(gold)), gold, joint) >= least


@pytest.mark.parametrize(
    ("language", "pieces"),
    [
        ("de", ["Das ist z. B. am 3. Oktober so.", " „Ja.“", " Dann kam Dr. Koch, d. h. der Arzt."]),
        ("de", ["Er lief 5 m.", " Dann ging er.", " »Gut«, sagte sie, »wir gehen.«"]),
        ("fr", ["Elle voit M. Noir, p. 5.", " « Oui. »", " Puis il part.", " – Non !", " – Si."]),
        ("es", ["El Sr. Ruiz vive en la Av. Sur.", " ¿Quién es?", " ¡Nadie!"]),
        ("it", ["Il prof. Bianchi parla.", " «Sì.»", " Poi il dott. Neri tace."]),
        ("pt", ["O Sr. Silva mora na Av. Central.", " Sim!"]),
        ("nl", ["Dat is bijv. Amsterdam.", " De heer drs. Jansen kwam."]),
        ("pl", ["To prof. Nowak z ul. Długiej.", " W 1990 r. było inaczej.", " W 1990 r.", " Potem nic."]),
        ("ru", ["Он живёт в г. Москве.", " Родился в 1990 г.", " Потом уехал.", " — Да! — сказал он.", " — Нет."]),
        ("cs", ["To je např. Praha.", " Stalo se 3. října."]),
        ("el", ["Ο κ. Παππάς και ο κ. Α. Νίκου ήρθαν.", " Η κα. Δήμου έφυγε."]),
        ("hy", ["Ես եկա։", " Դու գնացիր:", " Նա ասաց. «Այո»:", " Վերջ։"]),
        ("am", ["አንድ።", "ሁለት፧", " ሦስት።"]),
        ("bo", ["བོད་ཡིག།", " ཡི་གེ།"]),
        ("km", ["គាត់ទៅផ្ទះ។", " ខ្ញុំទៅ"]),
        ("zh", ["他走了。", "《书》在这里。", "“真的？”", "对。", "（完）"]),
        ("ar", ["هل جئت؟", " نعم."]),
        ("sat", ["ᱱᱚᱣᱟ ᱫᱚ᱾", " ᱱᱚᱣᱟ᱿"]),
        ("ccp", ["\U00011103\U00011107\U00011141", " \U00011107"]),
    ],
)  # fmt: skip
def test_each_language_is_split_at_its_marks(language: str, pieces: list[str]) -> None:
    assert sentences("".join(pieces), language) == pieces


def test_headings_and_list_items_end_at_their_lines() -> None:
    prose = "A line of prose that is as wide as the page and goes on"
    pieces = ["A heading", f"\n{prose}\nand on.", "\nThings", "\n- one", "\n- two", "\nThree", "\n4. Four"]
    assert sentences("".join(pieces)) == pieces
    wrapped = f"{prose} to\nGermany and to\nFrance."
    assert sentences(wrapped)[0].startswith(f"{prose} to\nGermany")


def test_a_heading_in_capitals_ends_before_its_text() -> None:
    assert sentences("HEUTE IM LAND Der Herbst kommt. MEHR WETTER Es regnet.", "de") == [
        *("HEUTE IM LAND", " Der Herbst kommt.", " MEHR WETTER", " Es regnet."),
    ]


@pytest.mark.parametrize("text", ["ฉันไปตลาด เธอไปบ้าน ฝนตก", "ຂ້ອຍໄປຕະຫຼາດ ລາວໄປບ້ານ ຝົນຕົກ"])
def test_blanks_end_sentences_in_scripts_without_marks(text: str) -> None:
    assert sentences(text) == [text.split(" ")[0], *(f" {piece}" for piece in text.split(" ")[1:])]


def test_an_english_full_stop_is_not_an_ordinal() -> None:
    assert sentences("It was 3. Then we left. Vitamin z. Then more.", "en") == [
        *("It was 3.", " Then we left.", " Vitamin z.", " Then more."),
    ]


# Tables and character classes


def characters_of(inside: str) -> set[str]:
    return set(regex.findall(f"[{inside}]", "".join(map(chr, range(0x110000))), regex.V0))


def test_sentence_marks_agree_with_unicode() -> None:
    everything = "".join(character for character in map(chr, range(0x110000)) if unicodedata.name(character, ""))
    of_unicode = set(regex.findall(r"\p{SB=STerm}", everything))
    ours = characters_of(_SOFT + _CJK + _HARD + _HARD_BEYOND).intersection(everything)
    assert of_unicode - ours == {BURMESE_COMMA}
    assert ours - of_unicode == {".", "…", *_TIBETAN}
    assert regex.fullmatch(r"\p{SB=ATerm}", _FULL_WIDTH_STOP)


@pytest.mark.parametrize(("category", "property"), [("Lu", r"\p{Lu}"), ("Ll", r"\p{Ll}")])
def test_letter_classes_agree_with_unicode(category: str, property: str) -> None:
    known = "".join(character for character in map(chr, range(0x110000)) if get_category(character) != "Cn")
    ours, theirs = characters_of(_letters(category)).intersection(known), set(regex.findall(property, known))
    assert ours - theirs <= {"\u0295"}  # a lower-case letter before Unicode 16
    assert {unicodedata.name(letter).split()[0] for letter in theirs - ours} <= {"GEORGIAN", "MATHEMATICAL"}


def test_language_tables_have_no_duplicates_and_no_trailing_full_stop() -> None:
    for table in (ANYWHERE, BEFORE_NUMBERS, ONLY_IN, COMMON_WORDS):
        for words in table.values():
            assert len(set(words.split())) == len(words.split())
            assert not any(word.endswith(".") for word in words.split())
    assert {*ORDINALS.split()} - {*COMMON_WORDS} == {"hr", "nb", "nn"}


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The cat is on the mat, and that was it for this one. It was not to be by then at all.", "en"),
        ("Das ist der erste Satz, und er ist nicht lang.", "de"),
        ("Toto je první věta, která se stala v Praze, a byl to také konec.", "cs"),
        ("C'est la première phrase, elle est dans le livre et elle est pas longue.", "fr"),
        ("ฉันไปตลาด เธอไปบ้าน", "th"),
        ("一句话。", ""),
        ("12 + 5", ""),
        ("", ""),
    ],
)
def test_a_language_is_guessed_by_its_words(text: str, language: str) -> None:
    assert guess_language(text) == language


# Implausible splits


def test_a_long_median_sentence_is_implausible() -> None:
    assert describe_implausible(["a" * 250, "b" * 250]) == ""
    assert "is 251 characters" in describe_implausible([" " + "a" * 251])
    assert describe_implausible(["一" * 80]) == ""
    assert "more than 80" in describe_implausible(["一" * 81])
    assert describe_implausible([]) == ""


def test_scripts_without_marks_are_reported() -> None:
    assert describe_unmarked(["ฉันไปตลาด"]).startswith("Thai without sentence marks")
    assert describe_unmarked(["គាត់ទៅផ្ទះ", " ຂ້ອຍ"]).startswith("Lao and Khmer without")
    assert describe_unmarked(["This is a word of Thai: ฉัน", "and so on"]) == ""
