"""Draw the pictures of the documentation from real output: `make pictures`, or `python -m docs.draw NAME...`.

batch and pipeline are drawn with matplotlib, plan and inspect are recorded from the terminal, data-card and mlflow are
screenshots by a headless Chromium. The text is Python's own documentation; the run of mlflow has 400 steps.
"""

import argparse
import asyncio
import base64
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import aiohttp
import apache_beam as beam
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from rich.console import Console

import sesame
from orchestration import cli
from orchestration.terminal import output
from orchestration.terminal.inspect import DecodedExample

PICTURES = Path(__file__).resolve().parent / "pictures"
DATA = "python_docs:python"
FEW_STEPS = ["phases=[{seq_length: 128, global_batch_size: 32, steps: 400}]", "optimizer.warmup_steps=40"]
INK, ACCENT, MUTED, PAPER = "#1f2933", "#b4451f", "#9aa5b1", "#ffffff"
COLORS = {"segment A": "#d6e4f0", "segment B": "#f3e3c7", "special token": "#8a97a6", "predicted": ACCENT}
Place = tuple[float, float]
COLUMNS = 96  # of the recorded terminal
# rich's own template loads fonts from another host
TEMPLATE = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


def session(work: Path) -> sesame.Session:
    return sesame.open("bert_base", scale="tiny", data=DATA, output_dir=work)


def run(*words: str) -> None:
    if code := cli.main(words):
        sys.exit(f"sesame {' '.join(words)}: exit code {code}")


# Drawn with matplotlib


def batch(work: Path) -> None:
    """The first batch of a run: all sequences by the kind of their tokens, and the first tokens of one of them."""
    one = session(work)
    arrays = {name: tensor.numpy() for name, tensor in one.batch(step=0).items()}
    first_B, lengths_B = arrays["first_at"], arrays["lengths"]
    kind_T = np.where(arrays["token_type_ids"] > 0, 1, 0)
    examples = one.examples(step=0, count=len(lengths_B))
    special_T = np.concatenate([[token.is_special for token in example.shown] for example in examples])
    kind_T[special_T] = 2
    kind_T[arrays["targets_at"]] = 3
    grid = np.full((len(lengths_B), int(lengths_B.max())), np.nan)
    for row, (first, length) in enumerate(zip(first_B, lengths_B, strict=True)):
        grid[row, :length] = kind_T[first : first + length]

    figure = Figure(figsize=(10, 5.6), facecolor=PAPER, layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(3, 1))
    colors = np.array([[int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)] for color in COLORS.values()])
    image = np.ones((*grid.shape, 3))
    image[~np.isnan(grid)] = colors[grid[~np.isnan(grid)].astype(int)]
    above.imshow(image, aspect="auto", interpolation="nearest")
    above.set_xlabel("position", color=INK)
    above.set_ylabel("sequence", color=INK)
    num = f"{len(lengths_B)} sequences, {int(lengths_B.sum()):,} tokens, {len(arrays['targets']):,} of them predicted"
    above.set_title(f"bert_base --scale tiny, step 0: {num}", color=INK, fontsize=11, loc="left")
    for number, (label, color) in enumerate(COLORS.items()):
        above.text(0.44 + 0.14 * number, -0.19, "■", color=color, transform=above.transAxes, fontsize=11)
        above.text(0.46 + 0.14 * number, -0.19, label, color=INK, transform=above.transAxes, fontsize=9)
    below.set_title("sequence 0, its first tokens; the label is below each predicted token", fontsize=9, loc="left")
    _tokens(below, examples[0], 30)
    FigureCanvasAgg(figure).print_png(PICTURES / "batch.png")


def _tokens(axes: Any, example: DecodedExample, count: int) -> None:
    """Two lines of tokens, with the label below each that is predicted."""
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 2)
    half = count // 2
    words = [(token.text.strip() or "␣", token.label.strip()) for token in example.shown]
    for line in range(2):
        x = 0.0
        for text, label in words[line * half : (line + 1) * half]:
            wide = 0.0082 * max(len(text), len(label), 1) + 0.012
            y = 1.45 - line
            color = ACCENT if label else "#eef1f4"
            axes.add_patch(FancyBboxPatch((x, y), wide - 0.006, 0.36, boxstyle="round,pad=0.002", fc=color, ec="none"))
            axes.text(x + wide / 2 - 0.003, y + 0.17, text, ha="center", va="center", fontsize=8, family="monospace",
                      color=PAPER if label else INK)  # fmt: skip
            if label:
                axes.text(x + wide / 2 - 0.003, y - 0.17, label, ha="center", va="center", fontsize=8,
                          family="monospace", color=ACCENT)  # fmt: skip
            x += wide


def pipeline(work: Path) -> None:
    """The transforms of the Beam pipelines that make a corpus with all kinds of deduplication, and static rows."""
    corpus = work / "all_steps.yaml"
    corpus.write_text(
        "name: all_steps\nsources: [{kind: python_docs, packages: [python]}]\n"
        "dedup: {minhash: true, line_min_chars: 100}\nvalidation_ratio: 0.02\ntest_ratio: 0.02\n"
    )
    shutil.rmtree(work / "graph", ignore_errors=True)
    graphs = list[Any]()
    original = beam.Pipeline.run

    def recorded(self: Any, *given: Any, **named: Any) -> Any:
        graphs.append(self.to_runner_api(use_fake_coders=True))
        return original(self, *given, **named)

    beam.Pipeline.run = recorded
    try:
        run("corpus", "bert_base", "--scale", "tiny", "--data", str(corpus), "--materialize", "data.static_masks=2",
            "--output-dir", str(work / "graph"), "--progress", "none")  # fmt: skip
    finally:
        beam.Pipeline.run = original
    names = ("clean the text and find duplicates", "remove repeated lines", "vocabulary", "shards", "static rows")
    figure = Figure(figsize=(11, 4.3), facecolor=PAPER)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    left, top, widest = 0.0, 0.0, 0.0
    for name, (places, edges) in zip(names, map(_steps, graphs), strict=True):
        wide, high = (max(place[axis] for place in places.values()) for axis in (0, 1))
        axes.text(left - 0.03, top + 0.68, name, fontsize=9, color=ACCENT)
        _graph(axes, places, edges, left, top)
        widest = max(widest, left + wide + 1)
        if wide > 2:  # short ones stand side by side
            top -= high + 1.35
        else:
            left += wide + 1.5
    axes.set_xlim(-0.15, widest)
    axes.set_ylim(top - 0.2, 1.1)
    FigureCanvasAgg(figure).print_png(PICTURES / "pipeline.png")


def _steps(graph: Any) -> tuple[dict[str, Place], list[tuple[str, str]]]:
    """Place of each top-level transform of a pipeline, by its name, and the edges between them."""
    transforms = graph.components.transforms
    (root,) = graph.root_transform_ids
    top = {name: transforms[name] for name in transforms[root].subtransforms}
    made_by = {output: name for name, one in top.items() for output in one.outputs.values()}
    inner = dict[str, str]()
    for name, one in top.items():  # a composite hands on what one of its parts makes
        waiting = list(one.subtransforms)
        while waiting:
            part = transforms[waiting.pop()]
            waiting += part.subtransforms
            inner |= dict.fromkeys(part.outputs.values(), name)
    made_by = inner | made_by
    edges = [
        (top[made_by[given]].unique_name, one.unique_name)
        for one in top.values()
        for given in one.inputs.values()
        if given in made_by
    ]
    joined = {name for edge in edges for name in edge}
    rank = dict.fromkeys((one.unique_name for one in top.values() if one.unique_name in joined), 0)
    for _ in rank:
        for before, after in edges:
            rank[after] = max(rank[after], rank[before] + 1)
    for name in rank:  # a source stands beside what reads it
        after = [rank[to] for of, to in edges if of == name]
        if after and not any(to == name for _, to in edges):
            rank[name] = min(after) - 1
    down = dict[int, int]()
    places = dict[str, Place]()
    for name, x in rank.items():
        places[name] = (x, 0.75 * down.get(x, 0))
        down[x] = down.get(x, 0) + 1
    return places, edges


def _graph(axes: Any, places: Mapping[str, Place], edges: list[tuple[str, str]], left: float, top: float) -> None:
    """Boxes of transforms, and arrows between them: around the boxes between, where there are some."""
    wide, high = 0.82, 0.4
    for name, (x, y) in places.items():
        color = "#f3e3c7" if name.startswith(("By ", "All ")) else "#d6e4f0"
        corner = left + x, top - y
        axes.add_patch(FancyBboxPatch(corner, wide, high, boxstyle="round,pad=0.02", fc=color, ec="none"))
        label = name.partition("/")[0]
        axes.text(corner[0] + wide / 2, corner[1] + high / 2, label, ha="center", va="center", fontsize=8, color=INK)
    for before, after in edges:
        (x, y), (u, v) = ((left + a, top - b) for a, b in (places[before], places[after]))
        start, stop, bend = (x + wide + 0.02, y + high / 2), (u - 0.02, v + high / 2), 0.0
        if u - x > 1 and y == v:
            start, stop, bend = (x + wide / 2, y + high + 0.02), (u + wide / 2, v + high + 0.02), -0.2
        elif u - x > 1:
            stop = (u + wide / 2, v - 0.02)
        style: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 9, "connectionstyle": f"arc3,rad={bend}"}
        axes.add_patch(FancyArrowPatch(start, stop, color=MUTED, shrinkA=0, shrinkB=0, **style))


# Recorded from the terminal


def _recorded(name: str, *words: str) -> None:
    """What a command prints, as a picture of a terminal."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), highlight=False, force_terminal=True)
    original = output.Console
    output.Console = lambda **_: console  # type: ignore[assignment, misc]
    try:
        run(*words)
    finally:
        output.Console = original  # type: ignore[misc]
    title = f"sesame {' '.join(words)}" if len(words) < 8 else f"sesame {' '.join(words[:6])}"
    svg = console.export_svg(title=title, code_format=TEMPLATE, unique_id=name)
    (PICTURES / f"{name}.svg").write_text(svg, encoding="utf-8")


def plan(work: Path) -> None:
    """Memory, time and cost of a run, and faster layouts."""
    _recorded("plan", "plan", "gpt2", "--cluster", "8xh100", "--deadline", "3d")


def inspect(work: Path) -> None:
    """Two decoded sequences of a step."""
    given = ["inspect", "bert_base", "--scale", "tiny", "--step", "100", "--data", DATA]
    _recorded("inspect", *given, "--output-dir", str(work), "--rows", "2")


# Screenshots


def _screenshot(url: str, name: str, width: int, height: int, wait_s: float = 2, script: str = "") -> None:
    """A page after `wait_s` seconds, a script and the same time again, by Chromium's debugging protocol."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        sys.exit(f"{name}: needs chromium or google-chrome")
    words = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"]
    words += [f"--window-size={width},{height}", "--remote-debugging-port=0", "about:blank"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = subprocess.Popen([*words, f"--user-data-dir={profile}"], stderr=subprocess.DEVNULL)
        try:
            image = asyncio.run(_captured(Path(profile) / "DevToolsActivePort", url, wait_s, script))
        finally:
            browser.terminate()
            browser.wait()
    (PICTURES / f"{name}.png").write_bytes(image)


async def _captured(port_file: Path, url: str, wait_s: float, script: str) -> bytes:
    for _ in range(60):
        if port_file.is_file() and port_file.stat().st_size:
            break
        await asyncio.sleep(1)
    port = port_file.read_text().split()[0]
    async with aiohttp.ClientSession() as client:
        async with client.get(f"http://127.0.0.1:{port}/json/list") as answer:
            tabs = await answer.json()
        page = next(tab for tab in tabs if tab["type"] == "page")
        async with client.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as socket_:

            async def call(number: int, method: str, **values: Any) -> dict[str, Any]:
                await socket_.send_json({"id": number, "method": method, "params": values})
                while (message := await socket_.receive_json()).get("id") != number:
                    pass
                return dict(message["result"])

            await call(1, "Page.navigate", url=url)
            await asyncio.sleep(wait_s)
            if script:
                await call(2, "Runtime.evaluate", expression=script)
                await asyncio.sleep(wait_s)
            return base64.b64decode((await call(3, "Page.captureScreenshot", format="png"))["data"])


def data_card(work: Path) -> None:
    """The first screen of the data card."""
    run("corpus", "bert_base", "--scale", "tiny", "--data", DATA, "--data-card", "--output-dir", str(work))
    card = next(work.glob("corpora/*/data_card.html"))
    _screenshot(card.resolve().as_uri(), "data-card", 1000, 1150)


def mlflow(work: Path) -> None:
    """Metrics of a run in MLflow's UI."""
    run(
        "run",
        "bert_base",
        *FEW_STEPS,
        "eval_tasks=[cloze]",
        "--scale",
        "tiny",
        "--data",
        DATA,
        "--output-dir",
        str(work),
    )
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{work.resolve()}/mlflow.db")
    experiment = client.get_experiment_by_name("sesame")
    (found, *_) = client.search_runs([experiment.experiment_id], "tags.precision != ''", order_by=["start_time DESC"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-m", "sesame", "ui", "--output-dir", str(work), "--port", str(port)])
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(120):
            try:
                urllib.request.urlopen(url, timeout=2).close()
                break
            except OSError:
                time.sleep(1)
        page = f"{url}/#/experiments/{experiment.experiment_id}/runs/{found.info.run_id}/model-metrics"
        sections = "[...document.querySelectorAll('button, [role=button]')]"
        fold = f"{sections}.filter(one => /^(ckpt|eval|perf)/.test(one.innerText)).forEach(one => one.click())"
        _screenshot(page, "mlflow", 1400, 1250, wait_s=25, script=fold)
    finally:
        server.terminate()
        server.wait()


DRAWN: Mapping[str, Callable[[Path], None]] = {
    "batch": batch,
    "pipeline": pipeline,
    "plan": plan,
    "inspect": inspect,
    "data-card": data_card,
    "mlflow": mlflow,
}


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m docs.draw")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"pictures to draw [all]: {', '.join(DRAWN)}")
    parser.add_argument(
        "--work", type=Path, default=Path("work/pictures"), help="directory of corpus and run [%(default)s]"
    )
    given = parser.parse_args(words)
    given.work.mkdir(parents=True, exist_ok=True)
    PICTURES.mkdir(exist_ok=True)
    for name in given.names or DRAWN:
        DRAWN[name](given.work)
        print(f"docs/pictures/{name}: drawn", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
