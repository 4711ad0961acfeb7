"""System checks tell what is wrong with the settings, the outbox and the database."""

import json
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"OUTBOX": "shop.nowhere:outbox"}, "(partbox.E002) The outbox 'shop.nowhere:outbox' cannot be imported: "),
        ({"SCHEMA": "billing"}, "(partbox.E003) The outbox has schema 'partbox', and migrations and the admin"),
        ({"DATABASE": "nowhere"}, "(partbox.E001) PARTBOX names the database 'nowhere', which DATABASES lacks"),
        ({"OUTBUX": "x:y"}, "PARTBOX has an unknown key 'OUTBUX': did you mean 'OUTBOX'?"),
    ],
)
def test_wrong_settings_are_errors(project: Any, given: dict[str, str], said: str) -> None:
    assert said in project.manage("check", code=1, PARTBOX_APP=json.dumps(given))


def test_a_deploy_is_told_of_atomic_requests(project: Any) -> None:
    assert "partbox.I001" in project.manage("check", "--deploy", "--tag", "partbox")
    assert "no issues" in project.manage("check")
