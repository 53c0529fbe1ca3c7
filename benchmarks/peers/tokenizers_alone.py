"""tokenizers: orjson, encode_batch_fast for a MB of text at a time, token IDs to a file; one process with threads."""

import array

import orjson  # type: ignore[import-not-found]
from task import Task, begin, end
from tokenizers import Tokenizer

AT_ONCE = 1 << 20  # characters


def work(task: Task) -> tuple[int, int]:
    tokenizer = Tokenizer.from_file(str(task.tokenizer))
    batch, size = list[str](), 0
    lengths = array.array("Q")
    with (task.out / "tokens.bin").open("wb") as file:

        def encode() -> None:
            for encoding in tokenizer.encode_batch_fast(batch, add_special_tokens=False):
                lengths.append(len(encoding.ids))
                array.array("H", encoding.ids).tofile(file)

        for line in task.lines():
            batch.append(orjson.loads(line)["text"])
            size += len(batch[-1])
            if size >= AT_ONCE:
                encode()
                batch, size = [], 0
        encode()
    with (task.out / "lengths.bin").open("wb") as file:
        lengths.tofile(file)
    return len(lengths), sum(lengths)


if __name__ == "__main__":
    end(*work(begin()))
