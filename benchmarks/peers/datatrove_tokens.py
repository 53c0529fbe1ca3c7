"""datatrove: JsonlReader -> DocumentTokenizer, as in its README, without shuffling of documents."""

from datatrove.executor import LocalPipelineExecutor  # type: ignore[import-not-found]
from datatrove.pipeline.readers import JsonlReader  # type: ignore[import-not-found]
from datatrove.pipeline.tokens import DocumentTokenizer  # type: ignore[import-not-found]
from task import Task, begin, end

TASKS = 8  # tasks, which the workers process one after the other


def work(task: Task) -> tuple[int, int]:
    steps = [
        JsonlReader(str(task.input), glob_pattern="*.jsonl.zst"),
        DocumentTokenizer(str(task.out / "tokens"), str(task.tokenizer), shuffle_documents=False),
    ]
    LocalPipelineExecutor(steps, tasks=TASKS, workers=task.cores, logging_dir=str(task.out / "logs")).run()
    sizes = {ending: sum(path.stat().st_size for path in task.out.rglob(f"*{ending}")) for ending in (".index", ".ds")}
    return sizes[".index"] // 8, sizes[".ds"] // 2


if __name__ == "__main__":
    end(*work(begin()))
