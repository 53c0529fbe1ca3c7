"""The requirements of the wheel have upper bounds, match the tested versions in constraints.txt, and are complete."""

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from preprocessing.tokenization.encoders import TESTED

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {
    name: [Requirement(text) for text in texts]
    for name, texts in {"preprocessing": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}.items()
}
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
ABOVE = "99999"  # a version that was not tested
NOT_SET_UP = ("fp8",)  # extras that `make setup` does not install: they name the only tested version
FLOORS = ("preprocessing", "pipeline", "training", "orchestration")
BELOW = {  # the extras that are installed with each layer
    "preprocessing": ("preprocessing", "fast"),
    "pipeline": ("preprocessing", "pipeline"),
    "training": ("preprocessing", "training", "fp8"),
    "orchestration": FLOORS,
}


def _imports(path: Path) -> set[str]:
    """The top-level modules that a file imports, also inside functions."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    of = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    return {name.split(".")[0] for name in plain | of}


@pytest.mark.parametrize("requirement", [one for extra in EXTRAS.values() for one in extra], ids=str)
def test_each_requirement_refuses_an_untested_release(requirement: Requirement) -> None:
    assert requirement.specifier, "has no version"
    assert not requirement.specifier.contains(ABOVE), f"{requirement}: has no upper bound"


SET_UP = [one for name, extra in EXTRAS.items() if name not in NOT_SET_UP for one in extra]


@pytest.mark.parametrize("requirement", SET_UP, ids=str)
def test_each_requirement_admits_the_pinned_release_and_not_the_next_major_one(requirement: Requirement) -> None:
    pinned = Version(PINS[canonicalize_name(requirement.name)])
    assert requirement.specifier.contains(pinned)
    major, minor = pinned.major, pinned.minor
    following = f"{major + 1}.0" if major else f"0.{minor + 1}"
    assert not requirement.specifier.contains(following), f"{requirement} allows {following}; {pinned} was tested"


@pytest.mark.parametrize("requirement", [one for name in NOT_SET_UP for one in EXTRAS[name]], ids=str)
def test_a_requirement_that_is_not_set_up_names_one_version(requirement: Requirement) -> None:
    assert canonicalize_name(requirement.name) not in PINS
    assert [each.operator for each in requirement.specifier] == ["=="]


def test_the_pinned_encoders_are_those_that_were_compared() -> None:
    """With other versions, `tokenizers` would encode all corpora, more slowly."""
    assert {name: PINS[name] for name in TESTED} == TESTED
    fast = {one.name: str(one.specifier) for one in EXTRAS["fast"]}
    assert {name: version for name, version in fast.items() if name in TESTED} == {
        name: f"=={TESTED[name]}" for name in ("nanotoken", "gigatoken")
    }


@pytest.mark.parametrize("text", ["tokenizers==1.0.0", "tokenizers==1.0.0rc3", "typer==1.0"])
def test_releases_without_the_functions_that_we_call_are_refused(text: str) -> None:
    """tokenizers 1.0 has no trainers, no AddedToken and no offsets."""
    other = Requirement(text)
    (version,) = [Version(one.version) for one in other.specifier]
    (ours,) = [one for extra in EXTRAS.values() for one in extra if one.name == other.name]
    assert not ours.specifier.contains(version, prereleases=True)


@pytest.mark.parametrize("floor", FLOORS)
def test_a_layer_requires_all_packages_that_it_imports(floor: str) -> None:
    """An indirect requirement disappears when another package no longer requires it."""
    required = {canonicalize_name(one.name) for name in BELOW[floor] for one in EXTRAS[name]}
    distributions = packages_distributions()
    imported = set().union(*(_imports(path) for path in (ROOT / floor).rglob("*.py")))
    outside = imported - {*sys.stdlib_module_names, *FLOORS, "sesame"}
    assert outside, "found no import"
    for module in outside:
        names = {canonicalize_name(name) for name in distributions.get(module, [module])}  # an extra may be missing
        assert names & required, f"{floor} imports {module}, but requires none of {sorted(names)}"
