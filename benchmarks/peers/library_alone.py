"""tokenizers: train a WordPiece vocabulary on .jsonl files and encode them. CPU seconds of these two steps only.

One thread, because threads take more CPU time. Usage: library_alone.py FILE VOCAB_SIZE
"""

import json
import sys
import time
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

AT_ONCE = 500  # documents


def main(path: str, size: int) -> None:
    with Path(path).open(encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=["[UNK]"], show_progress=False)
    start = time.process_time()
    tokenizer.train_from_iterator(texts, trainer)
    trained = time.process_time()
    tokens = 0
    for first in range(0, len(texts), AT_ONCE):
        encodings = tokenizer.encode_batch_fast(texts[first : first + AT_ONCE], add_special_tokens=False)
        tokens += sum(len(encoding.ids) for encoding in encodings)
    print(json.dumps({"train": trained - start, "encode": time.process_time() - trained, "tokens": tokens}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
