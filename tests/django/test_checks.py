"""System checks tell what is wrong with the settings, the outbox and the database."""

import json
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"OUTBOX": "shop.nowhere:outbox"}, "(partbox.E002) The outbox 'shop.nowhere:outbox' cannot be imported: "),
        ({"SCHEMA": "billing"}, "(partbox.E003) The outbox uses schema 'partbox', but migrations and the admin"),
        ({"DATABASE": "nowhere"}, "(partbox.E001) PARTBOX names the database 'nowhere', which DATABASES lacks"),
        ({"OUTBOX": 7}, 'PARTBOX["OUTBOX"] is 7: name it as text, as in "shop.outbox:outbox"'),
        ({"OUTBUX": "x:y"}, "PARTBOX has an unknown key 'OUTBUX': did you mean 'OUTBOX'?"),
    ],
)
def test_wrong_settings_are_errors_of_the_django_check(project: Any, given: dict[str, Any], said: str) -> None:
    assert said in project.manage("check", code=1, PARTBOX_APP=json.dumps(given))


def test_a_deploy_check_warns_about_atomic_requests(project: Any) -> None:
    assert "partbox.I001" in project.manage("check", "--deploy", "--tag", "partbox")
    assert "no issues" in project.manage("check")


def test_a_check_tells_a_project_without_an_outbox_what_it_lacks(project: Any) -> None:
    said = project.manage("check", PARTBOX_APP='{"OUTBOX": null}')
    assert "(partbox.W001) No outbox is named: there are no workers, admin actions or tasks." in said
    assert 'HINT: Name it, such as PARTBOX = {"OUTBOX": "shop.outbox:outbox"}.' in said


def test_a_wrong_option_of_tasks_is_an_error(project: Any) -> None:
    settings = project.folder / "site_settings.py"
    settings.write_text(settings.read_text() + 'TASKS["default"]["OPTIONS"] = {"max_attemps": 1}\n')
    assert "max_attemps" in project.manage("check", code=1)


def test_a_database_that_does_not_answer_is_a_warning_with_the_reason(project: Any) -> None:
    project.databases["default"] |= {"HOST": "127.0.0.1", "PORT": "1"}
    said = project.manage("check", "--database", "default")
    assert "(partbox.W003) The database cannot be queried: connection failed" in said
    assert "HINT: Start the database, or correct its alias in DATABASES" in said
