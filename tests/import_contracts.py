"""Contracts for import-linter that it does not come with: doors of folders, and the packages that a floor may import.

`make check` runs them; pyproject.toml says what they are asked of.
"""

import sys
from collections.abc import Sequence
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


def _print(lines: list[str]) -> None:
    for line in sorted(lines):
        output.print_error(line)


def _is_inside(module: str, packages: Sequence[str]) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in packages)


class Doors(Contract):
    """A package is a room, its `__init__` the door: no module outside of a room imports a module inside of it.

    A room inside a room has a door of its own, which may be imported from anywhere.

    Options: `packages`, the roots; `may_pass`, modules and packages that may import past the doors of their
    own root.
    """

    type_name = "doors"
    packages = fields.ListField(subfield=fields.StringField())
    may_pass = fields.ListField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        roots: list[str] = self.packages  # type: ignore[assignment]  # a field becomes its value
        may_pass: list[str] = self.may_pass or []  # type: ignore[assignment]
        rooms = {module for root in roots for module in graph.find_descendants(root) if graph.find_children(module)}
        broken = [
            f"{importer} imports {module}, past the door {room}"
            for room in rooms
            for module in graph.find_children(room) - rooms
            for importer in graph.find_modules_that_directly_import(module)
            if importer != room and not importer.startswith(f"{room}.")
            if not (_is_inside(importer, may_pass) and importer.partition(".")[0] == module.partition(".")[0])
        ]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        _print(check.metadata["broken"])


def _permits(root: str, permission: str, importer: str, imported: str) -> bool:
    """Whether a permission covers an import.

    >>> _permits("orchestration", "ray in launch", "orchestration.launch.group", "ray")
    True
    >>> _permits("orchestration", "ray in launch", "orchestration.launcher", "ray")
    False
    """
    package, _, place = permission.partition(" in ")
    where = f"{root}.{place}" if place else root
    return package == imported and f"{importer}.".startswith(f"{where}.")


class AllowedExternals(Contract):
    """Modules of a root import the standard library, Sesame, and of all other packages those that are named.

    Options: `root`; `allowed`, top-level names, each for the whole root, or as "ray in launch" for one of its rooms or
    files: a package may be named for several. A permission that nothing uses breaks the contract too.
    """

    type_name = "allowed_externals"
    root = fields.StringField()
    ours = fields.ListField(subfield=fields.StringField())
    allowed = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        known: set[str] = {*self.ours, *sys.stdlib_module_names}  # type: ignore[misc]
        root: Any = self.root
        allowed: list[str] = self.allowed  # type: ignore[assignment]
        found = {
            (importer, imported.partition(".")[0])
            for importer in {root, *graph.find_descendants(root)}
            for imported in graph.find_modules_directly_imported_by(importer)
        }
        used = {each: {one for one in found if _permits(root, each, *one)} for each in allowed}
        permitted = set().union(*used.values())
        broken = [
            f"{importer} imports {package}, which it may not"
            for importer, package in found - permitted
            if package not in known
        ]
        broken += [f"{root} may import {each}, and does not" for each in allowed if not used[each]]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        _print(check.metadata["broken"])
