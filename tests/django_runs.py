"""Runs test cases of Django, by its own runner, on a database that this makes."""

import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

from psycopg.conninfo import conninfo_to_dict

HEAD = """
import os, sys, unittest
import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "USER": "postgres",
        "HOST": os.environ["DB_HOST"], "PORT": os.environ["DB_PORT"], "TEST": {"NAME": os.environ["DB_NAME"]},
    }},
    INSTALLED_APPS=[],
    USE_TZ=True,
)
django.setup()

"""
TAIL = """
from django.test.utils import get_runner

runner = get_runner(settings)(verbosity=1, interactive=False)
suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
old = runner.setup_databases()
try:
    result = runner.run_suite(suite)
finally:
    runner.teardown_databases(old)
sys.exit(not result.wasSuccessful())
"""


def configure_django() -> None:
    """Configure Django in this process, as it may be configured only once, for all tests that need it there."""
    import django
    from django.conf import settings

    if not settings.configured:
        settings.configure(DATABASES={"default": {}, "other": {}}, USE_TZ=True, SECRET_KEY="s")
        django.setup()


def run(cases: str, server_dsn: str, folder: Path) -> str:
    """The output of a run of these cases; fails if one of them did. `folder` may hold modules that they import."""
    place = conninfo_to_dict(server_dsn)
    name = f"of_django_{uuid4().hex[:8]}"
    environment = {**os.environ, "DB_HOST": str(place["host"]), "DB_PORT": str(place["port"]), "DB_NAME": name}
    program = folder / "program.py"
    program.write_text(HEAD + cases + TAIL)
    ended = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stderr
