# SPDX-License-Identifier: MIT
"""What the headers declare, read from the headers: the one place that other checks compare with.

abi.h is parsed as the plain C that it is. The calls that only C has are found in fastclock.h by
their shape, since that header brings in the system's.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from pycparser import c_ast, c_parser

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include"

_STDINT = "".join(
    f"typedef {kind} {'u' if unsigned else ''}int{bits}_t;\n"
    for bits, base in ((32, "int"), (64, "long long"))
    for unsigned, kind in ((False, base), (True, f"unsigned {base}"))
)


@dataclass(frozen=True)
class Function:
    """A function of abi.h. Kinds: void, int32, uint32, uint64, pointer."""

    name: str
    result: str
    arguments: tuple[str, ...]


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)


def _kind(node: c_ast.Node, where: str) -> str:
    if isinstance(node, c_ast.PtrDecl):
        return "pointer"
    if isinstance(node, c_ast.TypeDecl) and isinstance(node.type, c_ast.IdentifierType):
        name = " ".join(node.type.names)
        kinds = {"void": "void", "int32_t": "int32", "uint32_t": "uint32", "uint64_t": "uint64"}
        if name in kinds:
            return kinds[name]
        raise SystemExit(f"{where}: {name} is no type that every FFI can pass")
    raise SystemExit(
        f"{where}: a structure, enumeration or array by value, which no FFI passes alike"
    )


def abi_functions() -> list[Function]:
    """Every function that abi.h declares. Ends the program at one that an FFI cannot call."""
    text = _STDINT + without_comments((INCLUDE / "fastclock/abi.h").read_text())
    functions = []
    for node in c_parser.CParser().parse(text, "abi.h").ext:
        if not isinstance(node, c_ast.Decl) or not isinstance(node.type, c_ast.FuncDecl):
            continue
        parameters = node.type.args.params if node.type.args else None
        if parameters is None:
            raise SystemExit(f"{node.name}: declared without a prototype")
        if any(isinstance(p, c_ast.EllipsisParam) for p in parameters):
            raise SystemExit(f"{node.name}: a variable number of arguments")
        arguments = tuple(_kind(p.type, node.name) for p in parameters)
        if arguments == ("void",):
            arguments = ()
        functions.append(Function(node.name, _kind(node.type.type, node.name), arguments))
    if not functions:
        raise SystemExit("abi.h declares no function")
    return functions


def c_only_functions() -> list[str]:
    """The functions that fastclock.h adds."""
    text = without_comments((INCLUDE / "fastclock.h").read_text())
    return re.findall(r"^(?:int|time_t) (fc_\w+)\(", text, flags=re.MULTILINE)


def exported_symbols() -> set[str]:
    """All that libfastclock.so may export: the functions, and what inlined reads look at."""
    return {f.name for f in abi_functions()} | set(c_only_functions()) | {"fc_view_v1"}
