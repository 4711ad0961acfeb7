"""Libraries of tasks, which import the module `tasks` of each installed app, in a project without django-tasks."""

import json
import subprocess
import sys
from typing import Any

import django
import pytest
from project import SETUP, Project

WITHOUT_DJANGO_TASKS = """
import sys
sys.modules["django_tasks"] = None  # an import of it raises ModuleNotFoundError
"""
TASKS = """
from celery import shared_task
from django.db import connection, transaction
from shop.outbox import outbox

@shared_task
def place(reference):
    with transaction.atomic():
        outbox.publish(connection, "OrderPlaced", {"total": 1}, aggregate_type="Order", aggregate_id=reference)
"""
CELERY = """
from threading import Event
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.signals import task_success

app = Celery("shop", broker="memory://")
app.autodiscover_tasks()
app.loader.import_default_modules()  # as every command of Celery does
from shop.tasks import place
done = Event()
task_success.connect(lambda **_: done.set(), weak=False)
with start_worker(app, perform_ping_check=False, loglevel="ERROR"):
    place.delay("A-1")
    assert done.wait(60)

from partbox.django.models import Record
print([record.aggregate_id for record in Record.objects.all()])
"""
DISCOVERY = """
import pkgutil
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules, import_string

autodiscover_modules("tasks")
tasks = sys.modules["partbox.django.tasks"]
print([each.name for each in pkgutil.walk_packages(getattr(tasks, "__path__", []))])  # what Dramatiq imports, too
try:
    import_string("partbox.django.tasks.PartboxBackend")
except ImproperlyConfigured as error:
    print(error)
"""


def run(project: Project, program: str) -> str:
    """The output of a program in a process that has imported nothing of Django before, as forks have."""
    (project.folder / "program.py").write_text(WITHOUT_DJANGO_TASKS + SETUP + program)
    environment = {**project.environment, "DATABASES": json.dumps(project.databases)}
    command = [sys.executable, "program.py"]
    ended = subprocess.run(command, cwd=project.folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_celery_worker_finds_the_tasks_of_a_project_without_django_tasks(migrated: Any) -> None:
    pytest.importorskip("celery")
    (migrated.folder / "shop/tasks.py").write_text(TASKS)
    assert run(migrated, CELERY) == "['A-1']\n"


def test_the_tasks_module_imports_without_django_tasks_and_the_backend_says_what_is_missing(migrated: Any) -> None:
    (migrated.folder / "shop/tasks.py").write_text("")
    said = [] if django.VERSION >= (6, 0) else ["Django before 6.0 has no tasks: install django-tasks"]
    assert run(migrated, DISCOVERY).splitlines() == ["[]", *said]
