"""Makes each mutation in a copy of the tree, runs its tests there, and says `killed` or `SURVIVED`.

Exit code 1 if one survives, no longer applies, or if its tests could not be run. The checkout is only read.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from mutations import MUTATIONS
from mutations.mutation import Mutation, make, problem

ROOT = Path(__file__).resolve().parent.parent
PYTEST = (sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", "-p", "no:cacheprovider", "--tb=line")
ALL_EXAMPLES = "--hypothesis-profile=default"
NOTICED, QUIET = 1, 0  # what pytest ends with: a test failed, all passed
LONGEST = 600  # seconds


def main() -> int:
    arguments = _arguments()
    chosen = [each for each in MUTATIONS if not arguments.only or each.name in arguments.only]
    if unknown := set(arguments.only) - {each.name for each in MUTATIONS}:
        sys.exit(f"mutants: there is no mutation {', '.join(sorted(unknown))}: --list names them")
    if arguments.list:
        for mutation in chosen:
            print(f"{mutation.name}: {mutation.trap}", mutation.file, *mutation.tests, sep="\n    ")
        return 0
    ends = [_try(mutation) for mutation in chosen]
    print(f"{ends.count(True)} of {len(ends)} killed")
    return 0 if all(ends) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the mutations, and the tests that catch them")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="try this one; repeatable")
    return parser.parse_args()


def _try(mutation: Mutation) -> bool:
    """Whether the tests notice the mutation; says so."""
    began = time.monotonic()
    if reason := problem(mutation, ROOT):
        said, killed = f"DOES NOT APPLY: {reason}", False
    else:
        said, killed = _verdict(mutation)
    print(f"{said:>8}  {mutation.name} ({time.monotonic() - began:.0f} s)", flush=True)
    return killed


def _verdict(mutation: Mutation) -> tuple[str, bool]:
    with TemporaryDirectory(prefix="partbox-mutant-") as folder:
        copy = Path(folder)
        _copy(copy)
        make(mutation, copy)
        try:
            done = _tests(mutation, copy)
        except subprocess.TimeoutExpired:
            return "killed (it hung)", True
    if done.returncode in (NOTICED, QUIET):
        return ("killed", True) if done.returncode == NOTICED else ("SURVIVED", False)
    return f"NOT RUN (pytest ended with {done.returncode}):\n{done.stdout}{done.stderr}\n", False


def _copy(target: Path) -> None:
    """What git knows of the tree, and what is new in it, as it is now."""
    listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, capture_output=True, check=True).stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def _tests(mutation: Mutation, copy: Path) -> subprocess.CompletedProcess[str]:
    """The copy goes before what is installed, in the processes that tests start too."""
    environment = {**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{copy / 'lab'}", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [*PYTEST, ALL_EXAMPLES, *mutation.tests],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main())
