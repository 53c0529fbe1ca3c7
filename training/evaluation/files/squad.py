"""SQuAD's JSON, versions 1.1 and 2.0, also used by XQuAD, MLQA and CMRC: articles, paragraphs, questions."""

from collections.abc import Iterator
from typing import Any, Literal

from preprocessing.files import parse_json
from preprocessing.spec import spec
from training.evaluation.files.record import Record, RecordFault, text_of


@spec
class SquadFormat:
    """SQuAD files: one record per question.

    Columns: `id`, `question`, `context`, `title`, `answers` and `starts`. The last two are lists: the texts of the
    answers, and the positions of their first characters in the context. Both are empty if `is_impossible` is true: the
    question has no answer (2.0). If `is_impossible` is not true and the file has no answers, or only
    blank ones, the question is unlabeled, and both are None.

    A start is -1 if the context does not have the text of the answer at the given place (176 of CMRC's 3,219).
    Such an answer counts for a score, but is not used for training.
    """

    kind: Literal["squad"] = "squad"

    def records(self, content: bytes) -> Iterator[tuple[int, Record | RecordFault]]:
        try:
            articles = parse_json(text_of(content))["data"]
            pairs = [(article, paragraph) for article in articles for paragraph in article["paragraphs"]]
        except (ValueError, KeyError, TypeError) as error:
            yield 1, RecordFault(f"invalid SQuAD format: {error}")
            return
        number = 0
        for article, paragraph in pairs:
            questions = paragraph.get("qas") if isinstance(paragraph, dict) else None
            if not isinstance(questions, list):
                yield number + 1, RecordFault("invalid SQuAD format: a paragraph without 'qas'")
                continue
            for question in questions:
                number += 1
                yield number, _question(article, paragraph, question)


def _question(article: Any, paragraph: Any, question: Any) -> Record | RecordFault:
    try:
        context = paragraph["context"]
        found = {"id": question["id"], "question": question["question"], "context": context}
        found |= {"title": article.get("title", ""), "answers": None, "starts": None}
        if (value := question.get("is_impossible")) not in (None, False, True):
            return RecordFault(f"invalid is_impossible: got {value!r}, expected true or false")
        answers = [one for one in question.get("answers") or [] if (one["text"] or "").strip()]
        if not answers and not question.get("is_impossible"):
            return found
        answers = [] if question.get("is_impossible") else answers
        texts = [one["text"] for one in answers]
        return found | {
            "answers": texts,
            "starts": [_start(context, one["text"], one["answer_start"]) for one in answers],
        }
    except (KeyError, TypeError, AttributeError) as error:
        return RecordFault(f"invalid SQuAD format: {error}")


def _start(context: str, text: str, start: int | None) -> int:
    return start if start is not None and start >= 0 and context.startswith(text, start) else -1
