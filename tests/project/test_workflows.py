"""What .github/workflows promise; scripts/check holds their form against GitHub's schema."""

import re
from pathlib import Path

import yaml
from test_readme import PROJECT

from partbox.db.schema.migrate import _OLDEST_SERVER

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")}
NEWEST_SERVER = 19


def matrix(job: str) -> dict[str, list[str]]:
    return yaml.safe_load(WORKFLOWS["test"])["jobs"][job]["strategy"]["matrix"]


def test_every_supported_python_and_postgresql_is_tested():
    tags = [tag.rpartition(" ")[2] for tag in PROJECT["classifiers"] if "Python :: 3." in tag]
    assert matrix("python") == {"python": tags}
    servers = range(_OLDEST_SERVER, NEWEST_SERVER + 1)
    assert matrix("postgresql") == {"postgresql": [str(version) for version in servers]}


def test_every_script_that_a_workflow_runs_exists():
    commands = {each for text in WORKFLOWS.values() for each in re.findall(r"\./(scripts/\w+)", text)}
    assert {"scripts/check", "scripts/build", "scripts/wheel", "scripts/docs", "scripts/coverage"} <= commands
    assert [each for each in commands if not (ROOT / each).is_file()] == []


def test_every_action_is_pinned_by_its_commit_with_its_version_beside_it():
    """zizmor, which scripts/check runs, looks for the hash; Renovate reads the version."""
    used = [line for text in WORKFLOWS.values() for line in re.findall(r"uses: (.*)", text)]
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []
    assert len({line.split("@")[0] for line in used}) == len({*used}), "one version of each"


def test_workflows_have_read_permission_only_and_a_job_that_writes_says_so():
    for text in WORKFLOWS.values():
        workflow = yaml.safe_load(text)
        assert workflow["permissions"] == {"contents": "read"}
        asking = [name for name, job in workflow["jobs"].items() if "permissions" in job]
        assert set(asking) <= {"publish"}
