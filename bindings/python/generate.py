"""Makes the source and the stub of `fastclock._abi` from abi.h.

The header is CFFI's cdef as it stands; nothing is declared a second time. Run by CMake:
generate.py ABI_H DIRECTORY writes _abi.c and _abi.pyi into DIRECTORY.
"""

import pathlib
import sys

import cffi
from cffi import model


def stub_type(ctype):
    """How a value of a C type looks from Python."""
    if isinstance(ctype, model.VoidType):
        return "None"
    if isinstance(ctype, (model.PrimitiveType, model.EnumType)):
        return "int"
    return "_CData"


def stub(builder):
    """The stub: the functions and the enumerators as attributes of `lib`."""
    lines = [
        "# Made from abi.h by generate.py.",
        "from typing import Any, Final",
        "",
        "_CData = Any  # pointers and structures of CFFI",
        "",
        "class _Lib:",
    ]
    declarations = builder._parser._declarations
    for key, (ctype, _) in declarations.items():
        kind, _, name = key.partition(" ")
        if kind == "enum":
            for enumerator, value in zip(ctype.enumerators, ctype.enumvalues):
                lines.append(f"    {enumerator}: Final = {value}")
        elif kind == "function":
            arguments = [f"a{i}: {stub_type(a)}, " for i, a in enumerate(ctype.args)]
            if arguments:
                arguments.append("/")
            signature = "".join(["self, ", *arguments]).rstrip(", ")
            lines.append(f"    def {name}({signature}) -> {stub_type(ctype.result)}: ...")
        elif kind != "struct":
            raise SystemExit(f"abi.h declares {key!r}, of a kind that this script does not know")
    lines += ["", "lib: _Lib", "ffi: Any  # a CFFI FFI object", ""]
    return "\n".join(lines)


def main(header, directory):
    builder = cffi.FFI()
    builder.cdef(pathlib.Path(header).read_text(encoding="utf-8"))
    builder.set_source("fastclock._abi", "#include <fastclock.h>")
    out = pathlib.Path(directory)
    builder.emit_c_code(str(out / "_abi.c"))
    (out / "_abi.pyi").write_text(stub(builder), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: generate.py ABI_H DIRECTORY")
    main(*sys.argv[1:])
