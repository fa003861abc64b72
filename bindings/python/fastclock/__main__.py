"""python -m fastclock: what was chosen and why, as text or as JSON."""

import argparse
import json
import sys
import typing

import fastclock


def main(arguments: typing.Optional[typing.Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fastclock",
        description="Tell which source of time fastclock uses here, and why.",
        epilog="Exit code: 0 if a source serves, 1 if none does, 2 for wrong arguments.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--version", action="version", version=fastclock.__version__)
    options = parser.parse_args(arguments)
    info = fastclock.info()
    if options.json:
        print(json.dumps({"version": fastclock.__version__, **info._asdict()}, indent=2))
    else:
        print(f"fastclock {fastclock.__version__}")
        for name, value in info._asdict().items():
            if isinstance(value, dict):
                print(f"{name}:")
                for source, reason in value.items():
                    print(f"    {source + ':':<18} {reason}")
            else:
                print(f"{name + ':':<22} {'-' if value is None else value}")
    if info.source == "none":
        print(f"fastclock: {info.reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
