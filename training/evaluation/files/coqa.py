"""CoQA's JSON: stories with conversations of questions and answers."""

from collections.abc import Iterator
from typing import Any, Literal

from preprocessing.files import parse_json
from preprocessing.spec import spec
from training.evaluation.files.record import Record, RecordFault, text_of


@spec
class CoqaFormat:
    """CoQA files: one record per turn of a conversation.

    Columns: `id`, `turn`, `story`, `history`, `question` and `answers`, those of all annotators. `history` has the
    previous turns as "Q: ...", "A: ..." lines, with the first annotator's answers (GPT-2 3.5).
    """

    kind: Literal["coqa"] = "coqa"

    def records(self, content: bytes) -> Iterator[tuple[int, Record | RecordFault]]:
        try:
            stories = list(parse_json(text_of(content))["data"])
        except (ValueError, KeyError, TypeError) as error:
            yield 1, RecordFault(f"invalid CoQA format: {error}")
            return
        number = 0
        for story in stories:
            for found in _turns(story):
                number += 1
                yield number, found


def _turns(story: Any) -> Iterator[Record | RecordFault]:
    history = ""
    try:
        others = story.get("additional_answers", {}).values()
        for at, (question, answer) in enumerate(zip(story["questions"], story["answers"], strict=True)):
            query, reply = question["input_text"], answer["input_text"]
            turn = {"id": story["id"], "turn": at + 1, "story": story["story"], "history": history, "question": query}
            yield turn | {"answers": [reply, *(other[at]["input_text"] for other in others)]}
            history += f"Q: {query}\nA: {reply}\n"
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        yield RecordFault(f"invalid CoQA format: {error!r}")
