"""The wheel of partbox in an environment without extras, made of the libraries that are installed here."""

import ctypes.util
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import distribution, distributions
from pathlib import Path
from zipfile import ZipFile

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
DIRECT = {"mmh3", "orjson", "psycopg", "pydantic", "uuid-utils"}
LIBPQ = [] if ctypes.util.find_library("pq") else ["binary"]
"""The extra that a machine without libpq needs."""

SHOP = Path(__file__).with_name("light_shop.py")
REMEDY = 'partbox: error: the command line needs typer: pip install "partbox[worker]"'


def requirements(lines: Iterable[str], extras: Iterable[str] = ()) -> list[Requirement]:
    """Return the requirements that hold in this environment, without extras or with these."""
    wanted = [{"extra": each} for each in ("", *extras)]
    found = map(Requirement, lines)
    return [each for each in found if each.marker is None or any(map(each.marker.evaluate, wanted))]


def closure(first: Iterable[Requirement]) -> set[str]:
    names: set[str] = set()
    todo = list(first)
    while todo:
        each = todo.pop()
        names.add(canonicalize_name(each.name))
        todo += (
            below
            for below in requirements(distribution(each.name).requires or (), each.extras)
            if canonicalize_name(below.name) not in names
        )
    return names


def link(name: str, site: Path) -> None:
    found = next(each for each in distributions(name=name))
    for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
        (site / top).symlink_to(Path(str(found.locate_file(top))))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    (path,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")))
    return ZipFile(path)


@pytest.fixture(scope="module")
def required(wheel: ZipFile) -> list[str]:
    (name,) = [each for each in wheel.namelist() if each.endswith(".dist-info/METADATA")]
    lines = wheel.read(name).decode().splitlines()
    return [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]


@pytest.fixture(scope="module")
def python(wheel: ZipFile, required: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a new environment that has the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("alone")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    wheel.extractall(site)
    for name in closure(requirements(required, LIBPQ)) - {"partbox"}:
        link(name, site)
    return folder / "bin" / "python"


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [python, "-W", "error", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={}, cwd=python.parent)


def test_the_wheel_without_extras_requires_five_libraries(required):
    direct = {canonicalize_name(each.name) for each in map(Requirement, required) if "extra" not in str(each.marker)}
    assert direct == DIRECT


def test_an_application_publishes_and_runs_a_worker_with_the_wheel_alone(python, dsn):
    ran = run(python, str(SHOP), dsn)
    processes = "worker processes need multiprocess: pip install 'partbox[worker]'"
    said = [f"order 7 by psycopg ({LIBPQ[0] if LIBPQ else 'python'})", processes, f"1 {REMEDY}"]
    assert (ran.returncode, ran.stdout.splitlines()) == (0, said), ran.stderr


@pytest.mark.parametrize("typed", [["worker", "shop:outbox"], []])
def test_a_command_of_the_wheel_alone_names_the_extra_in_one_line(python, typed):
    ran = run(python, "-m", "partbox", *typed)
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", f"{REMEDY}\n")


def test_the_version_is_printed_by_the_wheel_alone(python):
    ran = run(python, "-m", "partbox", "--version")
    assert (ran.returncode, ran.stdout[:8]) == (0, "partbox ")


def test_a_library_that_is_missing_is_named_with_the_extra_that_brings_it(python):
    program = "import sys; sys.modules['psycopg_binary'] = sys.modules['psycopg_c'] = None\n"
    program += "import ctypes.util; ctypes.util.find_library = lambda name: None\n"
    said = 'psycopg needs libpq: pip install "partbox[binary]", or install libpq from the packages of this machine\n'
    ran = run(python, "-c", f"{program}from partbox import Outbox")
    assert ran.stderr.endswith(f"ImportError: {said}")
    ran = run(python, "-c", f"{program}from partbox.cli import main; main(['status'])")
    assert (ran.returncode, ran.stderr) == (1, f"partbox: error: {said}")
    ran = run(python, "-c", "from partbox import Outbox; Outbox('embedded:').dsn")
    assert 'the embedded PostgreSQL and worker processes need psutil: pip install "partbox[embedded]"' in ran.stderr
