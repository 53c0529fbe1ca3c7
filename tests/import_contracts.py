"""Contracts for import-linter that it does not come with: doors of folders, and the packages that a floor may import.

`make check` runs them; pyproject.toml says what they are asked of.
"""

import sys
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


def _print(lines: list[str]) -> None:
    for line in sorted(lines):
        output.print_error(line)


class Doors(Contract):
    """A package is a room, its `__init__` the door: no module outside of a room imports a module inside of it.

    A room inside a room has a door of its own, which may be imported from anywhere.

    Options: `packages`, the roots; `may_pass`, modules that may import past the doors of their own root.
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
            if not (importer in may_pass and importer.partition(".")[0] == module.partition(".")[0])
        ]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        _print(check.metadata["broken"])


class AllowedExternals(Contract):
    """Modules of a root import the standard library, Sesame, and of all other packages those that are named.

    Options: `root`; `allowed`, top-level names.
    """

    type_name = "allowed_externals"
    root = fields.StringField()
    ours = fields.ListField(subfield=fields.StringField())
    allowed = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        known: set[str] = {*self.ours, *self.allowed, *sys.stdlib_module_names}  # type: ignore[misc]
        root: Any = self.root
        found = {
            (importer, imported.partition(".")[0])
            for importer in {root, *graph.find_descendants(root)}
            for imported in graph.find_modules_directly_imported_by(importer)
        }
        imported = {package for _, package in found}
        broken = [
            f"{importer} imports {package}, which {root} may not" for importer, package in found if package not in known
        ]
        allowed: list[str] = self.allowed  # type: ignore[assignment]
        broken += [f"{root} may import {package}, and does not" for package in allowed if package not in imported]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        _print(check.metadata["broken"])
