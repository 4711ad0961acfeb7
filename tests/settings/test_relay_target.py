"""The setting `relay`: what is taken as targets, and what is said of everything else."""

import json
import os
import pickle

import pytest

from partbox.errors import SettingsError
from partbox.settings import load
from partbox.settings.relay_target import RelayTarget, targets_of

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
PASSWORD = "s3same-0pen"

FILE = f"""
[[partbox.relay]]
types = ["OrderPlaced", "OrderPaid"]
to = "kafka://broker:9092"
topic = "orders"

[[partbox.relay]]
to = "https://example.org/hooks"
secret = "{SECRET}"
name = "billing"
"""


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    for variable in [name for name in os.environ if name.startswith("PARTBOX_")]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_settings_file_has_a_table_for_each_target(here):
    (here / "partbox.toml").write_text(FILE)
    settings = load()
    kafka, hooks = settings.relay
    assert (kafka.types, kafka.to, kafka.topic) == (("OrderPlaced", "OrderPaid"), "kafka://broker:9092", "orders")
    assert (kafka.handler, hooks.handler, hooks.types) == ("kafka", "billing", ("*",))
    assert hooks.secret is not None
    assert hooks.secret.get_secret_value() == SECRET
    assert settings.origins["relay"] == "partbox.toml"


def test_targets_in_the_environment_are_json_and_override_those_of_the_file(here, monkeypatch):
    (here / "partbox.toml").write_text(FILE)
    monkeypatch.setenv("PARTBOX_RELAY", '[{"to": "redis://cache", "topic": "all"}]')
    assert load().relay == (RelayTarget(to="redis://cache", topic="all"),)
    monkeypatch.setenv("PARTBOX_RELAY", "none")
    assert load().relay == ()


def test_a_changed_copy_of_settings_keeps_its_targets():
    settings = load(relay=[{"to": "stdout:"}])
    assert settings.replace(lease="9s").relay == settings.relay == (RelayTarget(to="stdout:"),)


def test_a_target_is_pickled_for_another_process_with_its_secret():
    (target,) = targets_of([{"to": "https://example.org", "secret": SECRET}])
    assert pickle.loads(pickle.dumps(target)) == target


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("kafka://broker", "write [[partbox.relay]] and below it types, to and topic"),
        ({"to": "stdout:"}, "write [[partbox.relay]]"),
        ("[", "write [[partbox.relay]]"),
        (7, "write [[partbox.relay]]"),
        (b"[]", "write [[partbox.relay]]"),
        (["stdout:"], "target 1 is no table"),
        ([{}], 'target 1 does not say where to send: add a key such as to = "kafka://broker:9092"'),
        ([{"to": 7}], "target 1 has a wrong value for to: write a string"),
        (
            [{"to": "stdout:", "types": "OrderPlaced"}],
            'target 1 has a wrong value for types: write a list of strings, such as ["',
        ),
        ([{"to": "stdout:", "types": [7]}], "target 1 has a wrong value for types: write a list of strings"),
        ([{"to": "stdout:", "types": []}], "target 1 names no types: leave types out"),
        ([{"to": "stdout:", "types": [""]}], "target 1 has an empty type"),
        (
            [{"to": "stdout:", "types": ["Order*"]}],
            "target 1 has the type 'Order*', but only \"*\" alone is a wildcard",
        ),
        ([{"to": "stdout:", "tpoic": "x"}], "target 1 has an unknown key 'tpoic': did you mean 'topic'?"),
        (
            [{"to": "stdout:", "zzz": "x"}],
            "target 1 has an unknown key 'zzz': there are types, to, topic, secret, name",
        ),
        ([{"to": "stdout:", "name": "my sink"}], "target 1 has the name 'my sink': use 1 to 60 letters"),
        (
            [{"to": "stdout:", "secret": SECRET}],
            "target 1 has a secret, which only webhooks use, but sends to stdout:: leave",
        ),
        ([{"to": "stdout:"}, {"to": "file:x"}], "targets 1 and 2 have the type '*': leave it to one of them"),
        ([{"to": "stdout:", "types": ["A", "A"]}], "target 1 repeats the type 'A'"),
        (
            [{"to": "kafka://a", "types": ["A"]}, {"to": "kafka://b", "types": ["B"]}],
            "targets 1 and 2 have the name 'kafka': give one of them another, such as name = \"billing\"",
        ),
    ],
)
def test_a_wrong_target_is_a_one_line_error_with_its_name_and_the_remedy(given, said):
    with pytest.raises(SettingsError) as refused:
        load(relay=given)
    line = str(refused.value)
    assert line.startswith("setting relay = *** (from keyword) is invalid: ")
    assert said in line
    assert "\n" not in line


@pytest.mark.parametrize(
    "target",
    [
        {"to": f"amqp://shop:{PASSWORD}@broker/"},
        {"to": f"nats://{PASSWORD}@broker"},
        {"to": f"kafka://broker?sasl.username=u&sasl.password={PASSWORD}"},
        {"to": f"https://example.org/hooks?a={PASSWORD}"},
        {"to": "https://example.org/hooks", "secret": PASSWORD},
    ],
    ids=lambda target: target["to"],
)
def test_no_secret_of_a_target_is_shown(target):
    settings = load(relay=[target])
    wrong = [{**target, "types": 7}, {**target, "secrte": PASSWORD}, {**target, "name": "?"}]
    said = [settings.shown("relay"), repr(settings), repr(settings.relay), str(settings.relay[0])]
    for each in wrong:
        with pytest.raises(SettingsError) as refused:
            load(relay=[each])
        said.append(str(refused.value))
    with pytest.raises(SettingsError) as refused:
        load(flags={"relay": json.dumps([target, 7])})
    assert PASSWORD not in "\n".join([*said, str(refused.value)])


def test_a_shown_target_says_which_events_go_where():
    targets = [{"types": ["A", "B"], "to": "kafka://u@broker?linger.ms=7", "topic": "t"}, {"to": "https://x/y?z"}]
    assert (
        load(relay=targets).shown("relay") == "A, B to kafka://***@broker?linger.ms=7 (topic t); * to https://x/y?***"
    )
    assert load().shown("relay") == "none"
