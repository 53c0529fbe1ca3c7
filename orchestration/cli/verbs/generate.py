"""sesame generate"""

import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from orchestration.cli import options
from orchestration.cli.groups import RunOptions
from orchestration.cli.shared import flags_of
from orchestration.progress import Report
from orchestration.terminal import CommandResult, print_answer, show_progress, show_wait, write_part
from preprocessing.errors import BadInput


def generate(
    run: options.Run,
    prompts: Annotated[list[str] | None, typer.Argument(metavar="PROMPT...", help="Prompt text.")] = None,
    *,
    prompts_file: Annotated[
        Path | None,
        typer.Option("--prompts", metavar="FILE", help="Read prompts: one per line, or `prompt` of each .jsonl line."),
    ] = None,
    num_return_sequences: Annotated[
        int, typer.Option("--num-return-sequences", metavar="N", min=1, help="Sample N texts for each prompt.")
    ] = 1,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", metavar="N", min=1, help="Generate at most N tokens.")
    ] = 64,
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the most probable token at each step.")] = False,
    num_beams: Annotated[int | None, typer.Option("--num-beams", metavar="N", min=1, help="Beam width.")] = None,
    temperature: Annotated[float | None, typer.Option(metavar="X", help="Divide the logits by X.")] = None,
    top_k: Annotated[int | None, typer.Option(metavar="N", help="Sample from the N most probable tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(metavar="P", help="Sample from the fewest tokens with total probability P.")
    ] = None,
    repetition_penalty: Annotated[
        float,
        typer.Option("--repetition-penalty", metavar="X", help="Divide scores of tokens that already occur by X."),
    ] = 1.0,
    masked_decoding: Annotated[
        Literal["", "gibbs", "mask_predict"],
        typer.Option(metavar="gibbs|mask_predict", help="Fill N masks (--max-new-tokens) at ___ or after the prompt."),
    ] = "",
    novelty: Annotated[
        bool, typer.Option("--novelty", help="Report passages that the corpus contains, and where.")
    ] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the trained recipe; repeatable."),
    ] = None,
    sample_index: Annotated[
        int,
        typer.Option(
            "--sample-index", metavar="N", min=0, help="Random sample index; equal values reproduce the text."
        ),
    ] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write the texts to FILE, as JSON lines.")
    ] = None,
    where: RunOptions,
    as_json: options.Json = False,
) -> int:
    """Continue each PROMPT with a trained model; an encoder-decoder reads it as source."""
    if bool(prompts) == bool(prompts_file):
        got = "both" if prompts else "neither"
        raise BadInput(f"generate: got {got} of PROMPT and --prompts, expected one of them; give prompts in one way")
    with show_wait("importing PyTorch"):
        from orchestration.evaluation.eval_target import folder_of
        from orchestration.jobs import generation
        from orchestration.terminal import views

    given = prompts or generation.read_prompts(prompts_file or Path())
    if output is not None and not output.absolute().parent.is_dir():
        raise BadInput(f"--output {output}: its directory does not exist; create it first")
    if output is not None and output.is_dir():
        raise BadInput(f"--output {output}: got a directory, expected a file; add the name of a file")
    flags = flags_of(run, overrides, where)
    folder = folder_of(flags)
    values = generation.select_set(
        greedy=greedy, num_beams=num_beams, temperature=temperature, top_k=top_k, top_p=top_p
    )
    is_streamed = generation.can_stream(values, masked_decoding) and not as_json and output is None
    is_streamed = is_streamed and sys.stdout.isatty()
    with ExitStack() as shown:
        report = None
        if prompts_file and not is_streamed:
            progress = shown.enter_context(show_progress())
            report = partial(_report_count, progress)
        elif not is_streamed:
            shown.enter_context(show_wait("generating"))
        found = generation.generate_texts(
            folder,
            given,
            values=values,
            max_new_tokens=max_new_tokens,
            seed=sample_index,
            masked=masked_decoding,
            novelty=novelty,
            num_return_sequences=num_return_sequences,
            repetition_penalty=repetition_penalty,
            write=write_part if is_streamed else None,
            report=report,
        )
    notes = generation.describe_special_start(found)
    if output is not None:
        generation.write_results(output, found)
        lines = [f"{len(found):,} texts are in {output}", *notes]
        data = {"folder": str(folder), "output": str(output), "count": len(found)}
        return print_answer(CommandResult((views.lines(lines),), data), as_json)
    lines = [] if is_streamed else [generation.format_generated(one, masked_decoding) for one in found]
    lines += [generation.format_novelty(one["novelty"]) for one in found if novelty]
    return print_answer(
        CommandResult((views.lines([*lines, *notes]),), {"folder": str(folder), "samples": found}), as_json
    )


def _report_count(progress: Report, done: int, total: int) -> None:
    progress({"stage": "generate", "done": done, "total": total})
