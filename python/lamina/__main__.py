"""python -m lamina: the program `lamina` of this installation, in this process's place."""
import os
import sys
from importlib.metadata import files


def main():
    for file in files("lamina") or []:
        if file.name == "lamina" and file.parent.name in ("bin", "Scripts"):
            program = os.path.realpath(file.locate())
            os.execv(program, ["lamina", *sys.argv[1:]])
    sys.exit("lamina: error: the program of this installation is missing: expected bin/lamina beside the package")


if __name__ == "__main__":
    main()
