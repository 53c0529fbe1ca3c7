"""sesame generate"""

from typing import Annotated, Literal

import typer

from orchestration.cli import options
from orchestration.cli.groups import RunOptions
from orchestration.cli.shared import flags_of
from orchestration.terminal import CommandResult, print_answer, show_wait


def generate(
    run: options.Run,
    prompts: Annotated[list[str], typer.Argument(metavar="PROMPT...", help="Prompt text.")],
    *,
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
    where: RunOptions,
    as_json: options.Json = False,
) -> int:
    """Continue each PROMPT with a trained model; an encoder-decoder reads it as source."""
    with show_wait("importing PyTorch"):
        from orchestration.jobs import generation
        from orchestration.jobs.eval_target import folder_of
        from orchestration.terminal import views

    flags = flags_of(run, overrides, where)
    folder = folder_of(flags)
    values = generation.select_set(
        greedy=greedy, num_beams=num_beams, temperature=temperature, top_k=top_k, top_p=top_p
    )
    with show_wait("generating"):
        found = generation.generate_texts(
            folder,
            prompts,
            values=values,
            max_new_tokens=max_new_tokens,
            seed=sample_index,
            masked=masked_decoding,
            novelty=novelty,
        )
    lines = [generation.format_generated(one, masked_decoding) for one in found]
    lines += [generation.format_novelty(one["novelty"]) for one in found if novelty]
    lines += generation.describe_special_start(found)
    next_ = (flags.command("inspect"),) if generation.is_run_directory(folder) else ()
    return print_answer(CommandResult((views.lines(lines),), {"folder": str(folder), "samples": found}, next_), as_json)
