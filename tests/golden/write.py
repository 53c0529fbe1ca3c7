"""`make golden`: write the golden files anew. Read the difference, and tell CHANGELOG, Numerics, before committing.

With names of recipes (`python -m tests.golden.write bert_large_lamb`) only theirs in the family's file; a recipe that
learns as one of them is written too.
"""

import json
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.family import RECIPES
from tests.golden import record
from tests.golden.process import alike_everywhere


def main(names: list[str]) -> None:
    with alike_everywhere() as process:
        if not names:
            whole(process)
        family(process, names or RECIPES)


def whole(process: ProcessPoolExecutor) -> None:
    """The recipes that go all the way from a text."""
    for recipe in record.RECIPES:
        with tempfile.TemporaryDirectory() as folder:
            job, manifest = record.made(recipe, Path(folder))
            losses = process.submit(record.losses, job.pretraining()).result()
            record.write(recipe, {"losses": losses, "first_batch": record.first_batch(job)})
            record.write(f"manifest_{recipe}", json.loads(manifest.to_json()))
            print(f"golden: {recipe}")


def family(process: ProcessPoolExecutor, names: list[str]) -> None:
    """These recipes and those that learn alike; the others of the file stay as they are."""
    alike = record.alike(RECIPES)
    wanted = {alike[name] for name in names}
    kept = {name for name, first in alike.items() if first not in wanted}
    found = {name: value for name, value in record.read(record.FAMILY).items() if name in kept}
    for name, first in alike.items():
        if first in wanted:
            if name == first:
                losses = process.submit(record.losses_of, name).result()
                found[name] = {"batch": record.batch_of(name), "losses": losses}
            found[name] = found[first]
            print(f"golden: {name}" + (f", which is {first}" if first != name else ""))
    record.write(record.FAMILY, found)


if __name__ == "__main__":
    main(sys.argv[1:])
