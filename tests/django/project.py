"""A Django project in a folder, whose commands are processes: Django's settings are those of a process."""

import json
import os
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict

MANAGE = """
import os, sys, warnings
warnings.simplefilter("error")
warnings.simplefilter("ignore", ResourceWarning)  # of those that fork
from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_settings")
    execute_from_command_line(sys.argv)
"""

SETTINGS = """
import json, os

DEBUG = os.environ.get("DEBUG") == "1"
SECRET_KEY, USE_TZ, ALLOWED_HOSTS, ROOT_URLCONF = "s" * 50, True, ["*"], "urls"
DATABASES = json.loads(os.environ["DATABASES"])
PARTBOX = {"OUTBOX": "shop.outbox:outbox", **json.loads(os.environ.get("PARTBOX_APP", "{}"))}
TASKS = {"default": {"BACKEND": "partbox.django.tasks.PartboxBackend", "OPTIONS": {"max_attempts": 1}}}
INSTALLED_APPS = [
    "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions",
    "django.contrib.messages", "partbox.django", "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
    "OPTIONS": {"context_processors": [
        "django.template.context_processors.request", "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]},
}]
"""

URLS = """
from django.contrib import admin
from django.urls import path

urlpatterns = [path("admin/", admin.site.urls)]
"""

OUTBOX = """
from partbox import Dead, Outbox

outbox = Outbox()


@outbox.on("OrderPlaced")
def greet(event):
    from django.contrib.auth.models import User

    print("users:", User.objects.count(), "order:", event.payload)


@outbox.on("Hopeless")
def refuse(event):
    return Dead("no use")
"""

TASKS = """
import django

if django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task


@task
def add(a, b):
    print("sum:", a + b)


@task(takes_context=True)
async def fail(context, text):
    raise LookupError(f"{text} at attempt {context.attempt}")
"""

FILES = {
    "manage.py": MANAGE,
    "site_settings.py": SETTINGS,
    "urls.py": URLS,
    "shop/__init__.py": "",
    "shop/outbox.py": OUTBOX,
    "shop/tasks.py": TASKS,
}
SETUP = """
import warnings
warnings.simplefilter("error")
warnings.simplefilter("ignore", ResourceWarning)  # of those that fork
import json, django
django.setup()
"""


class Project:
    """`manage` runs a command of manage.py, `run` a program in the project; what they print."""

    def __init__(self, folder: Path, dsn: str, forks: Any) -> None:
        self.folder, self.dsn = folder, dsn
        self._forks = forks
        given = conninfo_to_dict(dsn)
        names = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port"}
        database = {name: str(given.get(part, "")) for name, part in names.items()}
        self.databases: dict[str, Any] = {"default": {"ENGINE": "django.db.backends.postgresql", **database}}
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
        self.environment["DJANGO_SETTINGS_MODULE"] = "site_settings"
        for name, text in FILES.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)

    def start(self, *command: str, **environment: str) -> Any:
        databases = {"DATABASES": json.dumps(self.databases)}
        return self._forks.start(*command, cwd=self.folder, env={**self.environment, **databases, **environment})

    def started(self, *words: str, **environment: str) -> Any:
        """By its whole path, for a fork does not know the folder in which it would have begun."""
        return self.start("python", str(self.folder / "manage.py"), *words, **environment)

    def manage(self, *words: str, code: int = 0, **environment: str) -> str:
        return self._ended(self.started(*words, **environment), code)

    def run(self, program: str) -> str:
        (self.folder / "program.py").write_text(SETUP + program)
        return self._ended(self.start("python", "program.py"), 0)

    @staticmethod
    def _ended(process: Any, code: int) -> str:
        out, err = process.communicate()
        assert process.returncode == code, out + err
        return str(out + err)
