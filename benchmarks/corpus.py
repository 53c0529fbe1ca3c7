"""Time from jsonl.zst files to token files: Sesame and four other systems, on one core and on two.

    python benchmarks/corpus.py --make-envs      # once: create the environments of the other systems
    python benchmarks/corpus.py [--json]         # reads text from ../shared/data/text, or from --shared FOLDER
    python benchmarks/corpus.py --memory 100 1000    # only the memory of Sesame's job, on 100 and 1,000 MB of text
    python benchmarks/corpus.py --ratio 100 --short 11 40    # CPU time of `sesame corpus` and of `tokenizers` alone

All systems read the same files and write the token IDs of each document, with BERT's uncased WordPiece vocabulary. The
scripts of the other systems (benchmarks/peers/) do nothing else. Sesame's whole job also repairs, normalizes and
deduplicates text, finds sentences and words, holds out two splits, sorts the documents, and writes counts and hashes.
"Sesame, shared work" is the job with as few of these steps as its options allow.

Each run is a process tree that is pinned to its cores. The systems run one after the other, in another order in each
round, and results are medians over the rounds. CPU time and memory include the whole tree and its startup. Memory is
the sum of the resident sets of all processes, so shared pages are counted more than once. The time of Sesame is also
printed by stage.
"""

import argparse
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import zstandard
from corpus_ratio import Ratio, cut_short, print_ratios, write_documents
from peers.measure import Run, adopt, measured

from preprocessing.tokenization import WordPiece, train

ROOT: Final = Path(__file__).resolve().parents[1]
PEERS: Final = ROOT / "benchmarks" / "peers"
PINS: Final = {  # environment -> its packages
    "tokenizers": ("tokenizers==0.23.3", "zstandard==0.25.0", "orjson==3.13.0"),
    "datatrove": ("datatrove[io,processing]==0.10.1", "tokenizers==0.23.3", "zstandard==0.25.0", "orjson==3.13.0"),
    "megatron": ("torch==2.13.0", "megatron-core==0.16.1", "tokenizers==0.23.3", "zstandard==0.25.0", "numpy==2.4.6"),
    "datasets": ("datasets==5.2.0", "tokenizers==0.23.3", "zstandard==0.25.0"),
}
FILE_BYTES: Final = 2_500_000  # text in each file
NOVELS: Final = 0.25  # fraction of the text
MB: Final = 1e6


@dataclass(frozen=True)
class System:
    """A script of benchmarks/peers and its environment; "" is the environment of this process."""

    name: str
    script: str
    env: str = ""
    threads: bool = False  # whether `tokenizers` uses threads: only in scripts with one process

    def environment(self, cores: int) -> dict[str, str]:
        """The environment variables: no network access, and at most one thread per core."""
        found = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        found |= {"RAYON_NUM_THREADS": str(cores), "TOKENIZERS_PARALLELISM": str(self.threads).lower()}
        return found if self.env else found | {"PYTHONPATH": str(ROOT)}

    def python(self, envs: Path) -> Path:
        """The interpreter of the environment."""
        return envs / self.env / "bin" / "python" if self.env else Path(sys.executable)


SYSTEMS: Final = (
    System("Sesame", "sesame_job.py"),
    System("Sesame, shared work", "sesame_shared_work.py"),
    System("tokenizers alone", "tokenizers_alone.py", "tokenizers", threads=True),
    System("datatrove", "datatrove_tokens.py", "datatrove"),
    System("megatron-core", "megatron_indexed.py", "megatron"),
    System("datasets.map", "datasets_map.py", "datasets"),
)


def make_input(shared: Path, out: Path, mb: int) -> None:
    """Write `mb` MB of text as .jsonl.zst files, unless they exist: three quarters Wikipedia, one quarter novels.

    If there is not enough text, documents are repeated with another first line, so that all documents differ.
    """
    if out.exists():
        return
    part = out.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    size, here, lines = 0, 0, list[str]()
    number = itertools.count()
    for text in _mixed(shared / "text"):
        lines.append(json.dumps({"text": text}, ensure_ascii=False))
        here += len(text.encode())
        if here >= FILE_BYTES or size + here >= mb * MB:
            packed = zstandard.compress("\n".join([*lines, ""]).encode())
            (part / f"{next(number):04d}.jsonl.zst").write_bytes(packed)
            size, here, lines = size + here, 0, []
        if size >= mb * MB:
            break
    part.rename(out)


def _mixed(folder: Path) -> Iterator[str]:
    """Yield articles and novels without end, with the fraction NOVELS of novels."""
    sizes = {"articles": 0, "novels": 0}
    sources = {"articles": _again(folder, _articles), "novels": _again(folder, _novels)}
    while True:
        which = "novels" if sizes["novels"] < NOVELS * sum(sizes.values()) else "articles"
        text = next(sources[which])
        sizes[which] += len(text.encode())
        yield text


def _again(folder: Path, read: Any) -> Iterator[str]:
    """Yield the texts again and again; each repetition has another first line."""
    yield from read(folder)
    for time_ in itertools.count(2):
        for text in read(folder):
            yield f"Copy {time_}.\n{text}"


def _short_again(folder: Path, read: Any) -> Iterator[str]:
    return cut_short(_again(folder, read))


def _all_articles(folder: Path) -> Iterator[str]:
    for file in ("enwiki2015_AA.tar.xz", "enwiki2015_AB.tar.xz"):
        yield from _articles(folder, file)


def _articles(folder: Path, file_name: str = "enwiki2015_AA.tar.xz") -> Iterator[str]:
    with tarfile.open(folder / file_name) as tar:
        for member in tar:
            if (file := tar.extractfile(member)) is not None:
                yield from re.findall(r"<doc [^>]*>\n(.*?)</doc>", file.read().decode(), re.DOTALL)


def _novels(folder: Path) -> Iterator[str]:
    with tarfile.open(folder / "novels100.tar.bz2") as tar:
        for member in tar:
            if (file := tar.extractfile(member)) is not None:
                yield file.read().decode(errors="replace")


def make_envs(envs: Path) -> None:
    """Create the missing environments of the other systems, with venv and pip."""
    for name, pins in PINS.items():
        if not (envs / name).exists():
            subprocess.run([sys.executable, "-m", "venv", envs / name], check=True)
            subprocess.run([envs / name / "bin" / "python", "-m", "pip", "install", "--quiet", *pins], check=True)
            print(f"{name}: {', '.join(pins)}")


@dataclass(frozen=True)
class Bench:
    """The paths of the text, the tokenizer and the environments. Runs write to `scratch`; this output is deleted."""

    input: Path
    tokenizer: Path
    envs: Path
    scratch: Path

    def run(self, system: System, cores: Sequence[int]) -> Run:
        """Run a system once on these cores."""
        out = self.scratch / "run"
        shutil.rmtree(out, ignore_errors=True)
        options = {"input": self.input, "tokenizer": self.tokenizer, "out": out, "cores": len(cores)}
        command = [str(system.python(self.envs)), str(PEERS / system.script)]
        command += [f"--{name}={value}" for name, value in options.items()]
        run = measured(command, cores, system.environment(len(cores)))
        shutil.rmtree(out)
        return run

    def compare(self, rounds: int) -> list[dict[str, Any]]:
        """The medians for each system and number of cores, with median ratios of its times to Sesame's."""
        present = [system for system in SYSTEMS if system.python(self.envs).exists()]
        for system in set(SYSTEMS) - set(present):
            print(
                f"{system.name} is left out: {system.python(self.envs)} does not exist; run with --make-envs first",
                file=sys.stderr,
            )
        all_cores = sorted(os.sched_getaffinity(0))
        places = [all_cores[:1], all_cores[:2]] if len(all_cores) > 1 else [all_cores]
        runs: dict[tuple[str, int], list[Run]] = {}
        for turn in range(rounds):
            first = turn % len(present)
            for cores in places:
                for system in present[first:] + present[:first]:
                    runs.setdefault((system.name, len(cores)), []).append(self.run(system, cores))
        return [
            _row(name, cores, runs)
            for cores in sorted({cores for _, cores in runs})
            for name, at in runs
            if at == cores
        ]

    def stages(self) -> dict[str, float]:
        """CPU seconds of each stage of Sesame's job, on one core."""
        run = self.run(System("", "sesame_by_stage.py"), sorted(os.sched_getaffinity(0))[:1])
        return run.printed["stages"]

    def memory(self) -> list[dict[str, Any]]:
        """Peak memory of Sesame's job for one and two workers, with the bound of 400 MB + 300 MB per worker."""
        rows = list[dict[str, Any]]()
        for workers in (1, 2):
            run = self.run(SYSTEMS[0], sorted(os.sched_getaffinity(0))[:workers])
            peaks = {stage: round(peak / MB) for stage, peak in run.peaks.items()}
            rows.append(
                {"workers": workers, "wall_s": round(run.wall), "peak_mb": peaks, "bound_mb": 400 + 300 * workers}
            )
        return rows


def make_bench(shared: Path, scratch: Path, mb: int, envs: Path = Path()) -> Bench:
    """A benchmark on `mb` MB of text; writes the text and the tokenizer if they are missing."""
    text, tokenizer = scratch / f"text-{mb}mb", scratch / "tokenizer.json"
    make_input(shared, text, mb)
    vocab = train(WordPiece(path=str(shared / "tokenizers" / "bert-uncased" / "vocab.txt")), ())
    tokenizer.write_bytes(vocab.files["tokenizer.json"])
    return Bench(text, tokenizer, envs, scratch)


def _row(name: str, cores: int, runs: dict[tuple[str, int], list[Run]]) -> dict[str, Any]:
    mine, ours = runs[name, cores], runs["Sesame", cores]
    return {
        "system": name,
        "cores": cores,
        "documents": mine[0].printed["documents"],
        "tokens": mine[0].printed["tokens"],
        "wall_s": median(run.wall for run in mine),
        "start_s": median(run.start for run in mine),
        "cpu_s": median(run.cpu for run in mine),
        "peak_mb": median(run.peak for run in mine) / MB,
        "wall_of_sesame": median(run.wall / our.wall for run, our in zip(mine, ours, strict=True)),
        "cpu_of_sesame": median(run.cpu / our.cpu for run, our in zip(mine, ours, strict=True)),
    }


def _print_comparison(rows: list[dict[str, Any]], mb: float) -> None:
    names = ("wall s", "start s", "CPU s", "peak MB", "MB/s", "of wall", "of CPU")
    print(f"{'':24} {'cores':>5} {'documents':>9} {'tokens':>11}" + "".join(f" {name:>8}" for name in names))
    for row in rows:
        print(
            f"{row['system']:24} {row['cores']:>5} {row['documents']:>9,} {row['tokens']:>11,} {row['wall_s']:>8.1f} "
            f"{row['start_s']:>8.1f} {row['cpu_s']:>8.1f} {row['peak_mb']:>8.0f} {mb / row['wall_s']:>8.2f} "
            f"{row['wall_of_sesame']:>8.2f} {row['cpu_of_sesame']:>8.2f}"
        )
    print("of wall, of CPU: median ratio to the time of Sesame's whole job in the same round")


def _print_stages(stages: dict[str, float]) -> None:
    total = sum(stages.values())
    print(f"\n{'stages of Sesame on one core':44} {'CPU s':>7} {'fraction':>8}")
    for stage, seconds in sorted(stages.items(), key=lambda item: -item[1]):
        print(f"{stage:44} {seconds:>7.2f} {seconds / total:>8.1%}")
    print(f"{'all':44} {total:>7.2f}")


def compare_with_library(args: argparse.Namespace) -> None:
    """Print the CPU time of `sesame corpus` and of training and encoding by `tokenizers`, and the stages of the job."""
    results = dict[str, Any]()
    for kind, sizes, texts in (("long", args.ratio, _again), ("short", args.short, _short_again)):
        for mb in sizes:
            path = args.scratch / f"{kind}-{mb}mb.jsonl"
            write_documents(texts(args.shared / "text", _all_articles), path, mb)
            ratio, name = Ratio(path, args.scratch), f"{mb} MB of {kind} documents"
            results[name] = ratio.measure(args.rounds)
            results[name]["stages"] = ratio.stages()
            results[name]["stages_near_lines"] = ratio.stages("--near")
            if not args.json:
                print_ratios(name, results[name])
                _print_stages(results[name]["stages"])
                print("\nwith near and line dedup:")
                _print_stages(results[name]["stages_near_lines"])
                sys.stdout.flush()
    if args.json:
        print(json.dumps({"rounds": args.rounds, "texts": results}, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=40, help="MB of text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--memory", type=int, nargs="+", metavar="MB", help="measure only the memory, on these sizes of text"
    )
    parser.add_argument("--ratio", type=int, nargs="*", metavar="MB", default=[], help="long documents: CPU time only")
    parser.add_argument(
        "--short", type=int, nargs="*", metavar="MB", default=[], help="documents of 500 bytes: the same"
    )
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--envs", type=Path, default=ROOT / "build" / "peers")
    parser.add_argument("--scratch", type=Path, default=ROOT / "build" / "corpus")
    parser.add_argument(
        "--make-envs", action="store_true", help="create the environments of the other systems and exit"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    args = parser.parse_args()
    if args.make_envs:
        make_envs(args.envs)
        return
    adopt()

    def bench(mb: int) -> Bench:
        return make_bench(args.shared, args.scratch, mb, args.envs)

    if args.ratio or args.short:
        compare_with_library(args)
        return
    if args.memory:
        memory = [{"mb": mb} | row for mb in args.memory for row in bench(mb).memory()]
        print(json.dumps(memory, indent=1) if args.json else "\n".join(map(str, memory)))
        return
    rows, stages = bench(args.mb).compare(args.rounds), bench(args.mb).stages()
    if args.json:
        print(json.dumps({"mb": args.mb, "rounds": args.rounds, "systems": rows, "stages": stages}, indent=1))
        return
    _print_comparison(rows, args.mb)
    _print_stages(stages)


if __name__ == "__main__":
    main()
