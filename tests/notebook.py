"""Run notebooks without Jupyter: execute the code of all cells in order, in one namespace.

`python -m tests.notebook docs/sesame.ipynb` runs a notebook and updates its outputs.
"""

import ast
import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any


def cells(path: Path) -> list[dict[str, Any]]:
    """The cells of a notebook."""
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def code(cell: dict[str, Any]) -> str:
    """The code of a cell; "" for a text cell."""
    return "".join(cell["source"]) if cell["cell_type"] == "code" else ""


def run_cell(source: str, names: dict[str, Any], place: str = "cell") -> str:
    """Execute a cell; return its printed output and its last expression, as a notebook shows them."""
    tree, printed = ast.parse(source, place), io.StringIO()
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, place, "exec"), names)
        value = eval(compile(ast.Expression(last.value), place, "eval"), names) if last else None
    return printed.getvalue() + ("" if value is None else repr(value))


def run(path: Path) -> list[str]:
    """Run a notebook and return the output of each code cell."""
    names: dict[str, Any] = {"__name__": "__main__"}
    return [run_cell(code(cell), names, f"{path.name}, cell {n}") for n, cell in enumerate(cells(path)) if code(cell)]


def main(path: Path) -> None:
    """Run a notebook in an empty directory, and write the new outputs of its cells to the file."""
    path = path.resolve()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        outputs = iter(run(path))
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for number, cell in enumerate(cell for cell in notebook["cells"] if code(cell)):
        text = next(outputs).splitlines(keepends=True)
        shown = {"output_type": "execute_result", "execution_count": number + 1, "metadata": {}}
        cell["execution_count"] = number + 1
        cell["outputs"] = [shown | {"data": {"text/plain": text}}] if text else []
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
