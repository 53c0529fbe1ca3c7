"""`make golden`: write the golden files anew. Read the difference, and tell CHANGELOG, Numerics, before committing."""

import json
import tempfile
from pathlib import Path

from tests.golden import record


def main() -> None:
    for recipe in record.RECIPES:
        with tempfile.TemporaryDirectory() as folder:
            job, manifest = record.made(recipe, Path(folder))
            record.write(recipe, {"losses": record.losses(job), "first_batch": record.first_batch(job)})
            record.write(f"manifest_{recipe}", json.loads(manifest.to_json()))
            print(f"golden: {recipe}")


if __name__ == "__main__":
    main()
