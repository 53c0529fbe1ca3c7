"""Additional contracts for import-linter: public interfaces of packages, and the external packages of each layer.

`make check` runs them with the settings in pyproject.toml.
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
    """Modules outside of a package may import only the package itself, its `__init__`, not the modules inside of it.

    We call a package a room and its `__init__` the door.
    Every module may also import the door of a nested package.

    Options: `packages`, the root packages; `may_pass`, modules and packages that may import modules inside the packages
    of their own root.
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
    """Modules of a root package may import the standard library, Sesame, and only the external packages of a list.

    Options: `root`; `allowed`, names of packages. A name applies to the whole root; "ray in launch" applies to one of
    its packages or files, and a name may have several such entries. An unused entry breaks the contract too.
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
            f"{importer} imports {package}, which is not allowed"
            for importer, package in found - permitted
            if package not in known
        ]
        broken += [f"{root} may import {each}, but does not" for each in allowed if not used[each]]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        _print(check.metadata["broken"])
