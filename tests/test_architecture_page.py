"""The tables of docs/concepts/architecture.md agree with the import contracts and the source tree."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "concepts" / "architecture.md").read_text(encoding="utf-8")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
(LAYERS,) = (
    contract["layers"] for contract in CONTRACTS if contract["type"] == "layers" and "containers" not in contract
)
FLOORS = [floor for layer in LAYERS for floor in layer.split(" | ")]
FLOOR_WIDE = ""


def _section(floor: str) -> str:
    """The section of a layer on the page."""
    found = re.search(rf"^### {floor}$\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"architecture.md has no heading {floor}"
    return found[1]


def _rows(floor: str) -> dict[str, set[str]]:
    """The third-party packages in each row of the table of a layer."""
    rows = re.findall(r"^\| `([\w/.]+)` \|[^|]*\|([^|]*)\|$", _section(floor), re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", packages)) for name, packages in rows}


def _floor_wide(floor: str) -> set[str]:
    """The packages that the whole layer may import, as stated on the page."""
    found = re.search(r"^Every package may import: (.*?)\n\n", _section(floor), re.MULTILINE | re.DOTALL)
    assert found, f"{floor} has no line of packages"
    return set(re.findall(r"`(\w+)`", found[1]))


def _allowed(floor: str) -> dict[str, set[str]]:
    """The packages that each package or file of a layer may import, from its contract; FLOOR_WIDE: the whole layer."""
    (entries,) = (
        contract["allowed"]
        for contract in CONTRACTS
        if contract["type"] == "allowed_externals" and contract["root"] == floor
    )
    allowed: dict[str, set[str]] = {}
    for entry in entries:
        package, _, place = entry.partition(" in ")
        allowed.setdefault(place.split(".")[0], set()).add(package)
    return allowed


def _rooms(floor: str) -> set[str]:
    return {path.parent.name for path in (ROOT / floor).glob("*/__init__.py")}


def test_the_drawing_has_the_layers_of_the_contract_from_top_to_bottom() -> None:
    drawing = next(re.finditer(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))[1]
    lines = drawing.splitlines()
    at = [
        {next(n for n, line in enumerate(lines) if floor in line) for floor in layer.split(" | ")} for layer in LAYERS
    ]
    assert all(len(line) == 1 for line in at), "the packages of one layer must be on one line"
    assert [min(line) for line in at] == sorted(min(line) for line in at)


@pytest.mark.parametrize("floor", FLOORS)
def test_the_table_of_a_layer_lists_its_packages(floor: str) -> None:
    assert {name.removesuffix("/") for name in _rows(floor) if name.endswith("/")} == _rooms(floor)


@pytest.mark.parametrize("floor", FLOORS)
def test_the_table_of_a_layer_has_the_third_party_packages_of_its_contract(floor: str) -> None:
    allowed = _allowed(floor)
    assert _floor_wide(floor) == allowed.pop(FLOOR_WIDE)
    rows = {name.removesuffix("/").removesuffix(".py"): packages for name, packages in _rows(floor).items()}
    assert {name: packages for name, packages in rows.items() if packages} == allowed


def test_the_files_that_the_page_names_exist() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", PAGE)
    assert len([link for link in links if re.search(r"\.py$", link)]) >= 6
    inside = [link for link in links if not link.startswith("../decisions/") and not link.startswith("../extending")]
    assert not [link for link in inside if not (ROOT / "docs" / "concepts" / link).exists()]
    for name in re.findall(
        r"^(?:├── |└── )?([\w.]+/?) {2,}", PAGE[PAGE.index("## Map of the repository") :], re.MULTILINE
    ):
        folder = ROOT / "orchestration" if name in ("recipes/", "tasks/", "corpora/", "clusters/") else ROOT
        assert (folder / name).exists(), name
