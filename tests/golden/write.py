"""`make golden`: write the golden files anew. Read the difference, and tell CHANGELOG, Numerics, before committing."""

import json
import tempfile
from pathlib import Path

from tests.family import RECIPES
from tests.golden import record


def main() -> None:
    for recipe in record.RECIPES:
        with tempfile.TemporaryDirectory() as folder:
            job, manifest = record.made(recipe, Path(folder))
            record.write(recipe, {"losses": record.losses(job), "first_batch": record.first_batch(job)})
            record.write(f"manifest_{recipe}", json.loads(manifest.to_json()))
            print(f"golden: {recipe}")
    alike, found = record.alike(RECIPES), {}
    for name, first in alike.items():
        same = found.get(first) or {"batch": record.batch_of(name), "losses": record.losses_of(name)}
        found[name] = same
        print(f"golden: {name}" + (f", which is {first}" if first != name else ""))
    record.write(record.FAMILY, found)


if __name__ == "__main__":
    main()
