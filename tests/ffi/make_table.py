# SPDX-License-Identifier: MIT
"""Prints abi.h's functions as a C table: name, kinds of result and arguments, address.

Ends with an error at a declaration that an FFI cannot call: a structure by value, long double, a
variable number of arguments.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import declarations


def main() -> None:
    print("/* Made by make_table.py from abi.h. */")
    for f in declarations.abi_functions():
        kinds = ", ".join(f"KIND_{k.upper()}" for k in f.arguments) or "KIND_VOID"
        print(
            f'{{"{f.name}", KIND_{f.result.upper()}, {len(f.arguments)}, {{{kinds}}}, '
            f"(void (*)(void)){f.name}}},"
        )


if __name__ == "__main__":
    main()
