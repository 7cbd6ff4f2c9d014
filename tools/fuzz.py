#!/usr/bin/env python3
"""Runs every fuzz target of tests/fuzz for some time each: fuzz.py BUILD SECONDS JOBS. Ends with N passed, N failed.

Each target starts from its corpus in replay_test.cc with a seed of its own, which is printed: LAMINA_FUZZ_SEED=N runs the
same inputs again. A target that ends by a signal or a sanitizer has failed. Standard library only.
"""
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def targets(program):
    listed = subprocess.run([program, "--gtest_list_tests"], check=True, capture_output=True, text=True).stdout
    suite, names = "", []
    for line in listed.splitlines():
        if line.startswith("  "):
            names.append(suite + line.split()[0])
        elif line.endswith("."):
            suite = line
    return names


def run(program, name, seconds):
    seed = os.environ.get("LAMINA_FUZZ_SEED") or str(random.randrange(2**32))
    environment = dict(os.environ, LAMINA_FUZZ_SECONDS=str(seconds), LAMINA_FUZZ_SEED=seed)
    done = subprocess.run([program, "--gtest_brief=1", f"--gtest_filter={name}"], env=environment, capture_output=True,
                          text=True, errors="replace", check=False)
    print(f"fuzz: {name}: seed {seed}: {'passed' if done.returncode == 0 else 'FAILED'}", flush=True)
    if done.returncode != 0:
        print(done.stdout[-2000:], done.stderr[-6000:], sep="\n", flush=True)
    return done.returncode == 0


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: tools/fuzz.py BUILD SECONDS JOBS")
    program = str(Path(sys.argv[1]).resolve() / "tests" / "lamina_test_fuzz")
    with ThreadPoolExecutor(int(sys.argv[3])) as pool:
        passed = list(pool.map(lambda name: run(program, name, int(sys.argv[2])), targets(program)))
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    sys.exit(0 if passed and all(passed) else 1)


if __name__ == "__main__":
    main()
