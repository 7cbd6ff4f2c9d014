#!/usr/bin/env python3
"""Fails where a function is longer than 70 lines or a file longer than 500. Tables (.def, tests/op_cases.cc) are exempt.

C++ is not parsed but scanned: comments, strings and preprocessor lines are blanked, braces are matched, and a block that
opens outside any function and follows a parameter list is a function. Standard library only.
"""
import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUNCTION_LINES = 70
FILE_LINES = 500
TABLES = {Path("tests/op_cases.cc")}
NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])+\'',
    re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def cpp_functions(text):
    """Yields (name, first line, last line) of each function that stands in no other function."""
    text = DIRECTIVE.sub(blank, NOISE.sub(blank, text))
    stack, head = [], 0  # kinds of the open blocks; where the text before the next brace begins
    for at, char in enumerate(text):
        if char == "{":
            before = text[head:at]
            inside = any(kind is not None for kind in stack)
            kind = None
            if not inside and "(" in before and not SCOPE.match(before.strip()):
                start = head + len(before) - len(before.lstrip())
                kind = (before.split("(")[0].split()[-1:] or ["?"])[0], text.count("\n", 0, start) + 1
            stack.append(kind if not inside else None)
            head = at + 1
        elif char == "}":
            kind = stack.pop() if stack else None
            if kind:
                yield kind[0], kind[1], text.count("\n", 0, at) + 1
            head = at + 1
        elif char == ";":
            head = at + 1


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno


def main():
    ends = {".cc": cpp_functions, ".h": cpp_functions, ".py": python_functions}
    problems, lengths, lines = [], [], 0
    for top in ("src", "include", "cli", "python", "tests", "bench", "tools"):
        for path in sorted((ROOT / top).rglob("*")):
            where = path.relative_to(ROOT)
            if path.suffix not in ends or where in TABLES:
                continue
            text = path.read_text(encoding="utf-8")
            count = text.count("\n")
            lines += count if top == "src" else 0
            if count > FILE_LINES:
                problems.append(f"{where}:1: {count} lines, at most {FILE_LINES}")
            for name, first, last in ends[path.suffix](text):
                lengths.append(last - first + 1)
                if lengths[-1] > FUNCTION_LINES:
                    problems.append(f"{where}:{first}: {name} has {lengths[-1]} lines, at most {FUNCTION_LINES}")
    lengths.sort()
    tenth = lengths[int(len(lengths) * 0.9)] if lengths else 0
    print("\n".join(problems + [f"check_budget: {len(lengths)} functions, 9 of 10 within {tenth} lines; src/ has {lines}"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
