#!/usr/bin/env python3
"""tidy.py BUILD [JOBS]: clang-tidy 14 over src/, cli/ and python/fused/, as the compile commands of a configured build folder say.

A kernel source has one compile command per ISA; the first is enough, the code is the same. Standard library only.
"""
import json
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOP = (ROOT / "src", ROOT / "cli", ROOT / "python" / "fused")


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: tools/tidy.py BUILD [JOBS]")
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    commands = {}
    for entry in json.loads((Path(sys.argv[1]) / "compile_commands.json").read_text()):
        if any(Path(entry["file"]).is_relative_to(top) for top in TOP):
            commands.setdefault(entry["file"], entry)
    if not commands:
        sys.exit(f"tidy: no sources in {sys.argv[1]}/compile_commands.json")
    for entry in commands.values():  # clang reads no precompiled header of GCC
        entry["command"] = re.sub(r" -include \S*cmake_pch\S*| -Winvalid-pch| -fpch-preprocess", "", entry["command"])
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "compile_commands.json").write_text(json.dumps(list(commands.values())))

        def tidy(file):
            return subprocess.run(
                ["clang-tidy-14", "-p", folder, "--quiet", "--extra-arg=-Wno-unknown-warning-option", file],
                check=False, capture_output=True, text=True)

        failed = 0
        with ThreadPoolExecutor(jobs) as pool:
            for result in pool.map(tidy, sorted(commands)):
                failed += result.returncode != 0
                print(result.stdout, end="", flush=True)
                if result.returncode != 0 and not result.stdout:
                    print(result.stderr, end="", flush=True)
    print(f"tidy: {len(commands)} files, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
