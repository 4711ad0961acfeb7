"""Settings: the source of a value, refusals, and secrets that nobody gets to see."""

import os
import pickle
from datetime import timedelta

import dill
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from partbox.db.connect import resolve_dsn
from partbox.errors import SettingsError
from partbox.protocol.retry import Exponential, Fixed, Jittered
from partbox.settings import Settings, load, names, strays
from partbox.text.secrets import mask_secrets


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch, tmp_path):
    """No variable and no file of the machine that runs the tests."""
    for variable in [name for name in os.environ if name.startswith("PARTBOX_")]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)


def refusal(**given) -> str:
    with pytest.raises(SettingsError) as refused:
        load(**given)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_the_defaults_are_those_of_the_documentation():
    settings = load()
    assert (settings.schema_name, settings.enabled, settings.auto_migrate, settings.concurrency) == (
        "partbox",
        True,
        False,
        4,
    )
    assert (settings.poll_busy, settings.poll_idle, settings.heartbeat, settings.lease) == (0.001, 0.040, 1.0, 6.0)
    assert (settings.page, settings.window, settings.window_bytes, settings.max_parked) == (10_000, 1_000, 2**26, 1_000)
    assert (settings.drain_timeout, settings.handler_timeout, settings.max_attempts) == (15.0, None, 20)
    assert settings.retry == Jittered(Exponential(0.2, 600, 3))
    assert (settings.on_failure, settings.on_dead, settings.on_unroutable) == ("block", "continue", "dead")
    assert (settings.max_payload, settings.error_limit) == (1_048_576, 4_000)
    assert (settings.retain_done, settings.retain_dead) == (7 * 86_400, 30 * 86_400)
    assert (settings.retain_keys, settings.retain_inbox) == (7 * 86_400, 30 * 86_400)
    assert (settings.retain_history, settings.retain_actions) == (3 * 86_400, 90 * 86_400)
    assert (settings.purge_interval, settings.purge_batch) == (3_600, 500)
    assert (settings.metrics_prefix, settings.http, settings.pooler) == ("partbox", None, False)
    assert settings.processes >= 1
    assert settings.node
    assert set(settings.origins.values()) == {"default"}


def test_the_attempts_of_a_failing_event_last_two_hours_by_default():
    policy, waits = load().retry, range(1, load().max_attempts)
    assert sum(policy.policy.next_delay(attempt) for attempt in waits) == pytest.approx(2 * 3_600, rel=0.01)
    assert max(policy.policy.next_delay(attempt) for attempt in waits) == 600


def test_flag_beats_keyword_beats_environment_beats_file_beats_default(monkeypatch, tmp_path):
    given = {}
    places = [
        (lambda: None, 1_000, "default"),
        (lambda: (tmp_path / "partbox.toml").write_text("window = 1\n"), 1, "partbox.toml"),
        (lambda: monkeypatch.setenv("PARTBOX_WINDOW", "2"), 2, "PARTBOX_WINDOW"),
        (lambda: given.update(window=3), 3, "keyword"),
        (lambda: given.update(flags={"window": 4}), 4, "--window"),
    ]
    before: list[str] = []
    for give, value, origin in places:
        give()
        settings = load(**given)
        assert (settings.window, settings.origins["window"]) == (value, origin)
        assert [*settings.overruled["window"], "default"] == (before or ["default"])
        before.insert(0, origin)


def test_command_line_options_override_settings_made_in_code(monkeypatch):
    monkeypatch.setenv("PARTBOX_LEASE", "8s")
    made = load(lease="9s", schema="orders", window=5)
    laid = made.under({"lease": "10s", "pooler": False, "dsn": None})
    assert (laid.lease, laid.schema_name, laid.window, made.lease) == (10, "orders", 5, 9)
    assert (laid.origins["lease"], laid.overruled["lease"]) == ("--lease", ("keyword", "PARTBOX_LEASE"))
    origins = [laid.origins[name] for name in ("pooler", "dsn", "schema")]
    assert origins == ["--no-pooler", "default", "keyword"]
    assert laid.under({"lease": "11s"}).overruled["lease"] == ("keyword", "PARTBOX_LEASE")
    with pytest.raises(SettingsError, match=r"must be shorter than a third of lease = 1s \(from --lease\)"):
        made.under({"lease": "1s"})


def test_the_environment_is_read_at_each_call_and_not_before(monkeypatch):
    assert load().lease == 6
    monkeypatch.setenv("PARTBOX_LEASE", "12s")
    assert load().lease == 12
    assert Settings().lease == 6


def test_a_file_may_have_its_settings_in_a_separate_table(monkeypatch, tmp_path):
    config = tmp_path / "application.toml"
    config.write_text('title = "shop"\n[partbox]\nschema = "orders"\nhandler_timeout = "5m"\nhttp = false\n')
    monkeypatch.setenv("PARTBOX_CONFIG", str(config))
    settings = load()
    assert (settings.schema_name, settings.handler_timeout, settings.http) == ("orders", 300, None)
    assert settings.origins["schema"] == str(config)


def test_flags_that_were_not_given_and_empty_variables_count_as_absent(monkeypatch):
    monkeypatch.setenv("PARTBOX_LEASE", "")
    settings = load(flags={"dsn": None, "lease": None}, dsn=None)
    assert (settings.lease, settings.dsn, settings.origins["dsn"]) == (6, None, "default")


@pytest.mark.parametrize(("value", "length"), [(7, 7), ("6500ms", 6.5), ("1h", 3_600), (timedelta(minutes=1), 60)])
def test_a_duration_may_be_a_number_a_text_or_a_timedelta(value, length):
    assert load(lease=value).lease == length


def test_text_from_the_environment_is_converted_to_the_type_of_the_setting(monkeypatch):
    texts = {
        "ENABLED": "false",
        "MAX_ATTEMPTS": "none",
        "WINDOW_BYTES": "1MiB",
        "RETRY": "fixed:5",
        "POOLER": "1",
        "HTTP": "127.0.0.1:9090",
        "CONCURRENCY": "8",
        "HANDLER_TIMEOUT": "off",
    }
    for name, text in texts.items():
        monkeypatch.setenv(f"PARTBOX_{name}", text)
    settings = load()
    assert (settings.enabled, settings.pooler, settings.concurrency) == (False, True, 8)
    assert (settings.window_bytes, settings.retry, settings.http) == (2**20, Fixed(5), "127.0.0.1:9090")
    assert (settings.max_attempts, settings.handler_timeout) == (None, None)


def test_an_unknown_setting_is_refused_with_the_one_that_was_meant(monkeypatch):
    assert refusal(leese=3) == "unknown setting 'leese' (from keyword): did you mean 'lease'?"
    assert "`partbox config`" in refusal(flags={"zzz": 1})


def test_an_unknown_variable_is_ignored_and_an_invalid_one_is_refused(monkeypatch):
    monkeypatch.setenv("PARTBOX_CONCURENCY", "3")
    monkeypatch.setenv("PARTBOX_PORT_8080_TCP_ADDR", "10.0.0.7")
    assert set(load().origins.values()) == {"default"}
    assert "PARTBOX_CONCURENCY (did you mean PARTBOX_CONCURRENCY?)" in strays()
    monkeypatch.setenv("PARTBOX_CONCURRENCY", "many")
    assert "setting concurrency = many (from PARTBOX_CONCURRENCY) is invalid: use a whole number" in refusal()


def test_the_variables_of_scripts_and_tests_are_no_settings(monkeypatch):
    for variable in ("PARTBOX_TEST_DSN", "PARTBOX_PYTHON"):
        monkeypatch.setenv(variable, "anything")
    assert set(load().origins.values()) == {"default"}
    assert strays() is None


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("lease", "soon", "give seconds"),
        ("lease", 0, "more than 0"),
        ("concurrency", "many", "whole number"),
        ("concurrency", 0, "1 or more"),
        ("enabled", "perhaps", "true or false"),
        ("on_dead", "stop", "'block' or 'continue'"),
        ("retry", "often", "exponential:0.2:60:2"),
        ("window_bytes", "64 parsecs", "64MiB"),
        ("schema", "pg_catalog", "1 to 63 bytes"),
        ("schema", "ä" * 32, "1 to 63 bytes"),
        ("http", "everywhere", "give HOST:PORT, such as 127.0.0.1:9464"),
        ("metrics_prefix", "9-lives", "use letters of a to z, digits and _, and no digit in front"),
        ("max_attempts", 0, "1 or more"),
    ],
)
def test_an_invalid_value_is_refused_naming_setting_value_place_and_remedy(monkeypatch, name, value, remedy):
    monkeypatch.setenv(f"PARTBOX_{name.upper()}", str(value))
    for message, place in [(refusal(**{name: value}), "keyword"), (refusal(), f"PARTBOX_{name.upper()}")]:
        assert message.startswith(f"setting {name} = {value} (from {place}) is invalid: ")
        assert remedy in message


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"heartbeat": 2}, "heartbeat = 2s (from keyword) must be shorter than a third of lease = 6s (the default)"),
        ({"lease": 3}, "lower heartbeat or raise lease"),
        ({"poll_busy": "1s"}, "poll_busy = 1s (from keyword) must be at most as long as poll_idle = 40ms"),
        ({"poll_idle": 5}, "lower poll_idle or raise lease"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given, says):
    assert says in refusal(**given)


def test_a_file_that_is_missing_or_broken_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PARTBOX_CONFIG", "nowhere.toml")
    assert "'nowhere.toml', which is not a file" in refusal()
    monkeypatch.delenv("PARTBOX_CONFIG")
    (tmp_path / "partbox.toml").write_text("lease = = 3")
    assert "partbox.toml cannot be read as TOML" in refusal()
    (tmp_path / "partbox.toml").write_text("partbox = 3")
    assert "must be a table" in refusal()
    (tmp_path / "partbox.toml").write_text("leese = 3")
    assert "from partbox.toml" in refusal()


def test_settings_are_frozen_and_a_changed_copy_knows_its_origins():
    settings = load(lease=9)
    with pytest.raises(ValidationError, match="frozen"):
        settings.lease = 3
    changed = settings.replace(schema="orders", concurrency="2")
    assert (changed.schema_name, changed.concurrency, changed.lease, settings.concurrency) == ("orders", 2, 9, 4)
    assert [changed.origins[name] for name in ("schema", "lease", "page")] == ["keyword", "keyword", "default"]
    with pytest.raises(SettingsError, match="heartbeat"):
        settings.replace(heartbeat=5)


@pytest.mark.parametrize("pickler", [pickle, dill])
def test_settings_can_be_pickled_for_another_process(pickler):
    settings = load(dsn="host=db password=secret", retry=Fixed(2), lease="9s")
    copy = pickler.loads(pickler.dumps(settings))
    assert copy == settings
    assert copy.origins == settings.origins


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://shop:s3cret@db:5432/shop", "postgresql://shop:***@db:5432/shop"),
        ("postgresql://shop:s3cret@db/shop?connect_timeout=3", "postgresql://shop:***@db/shop?connect_timeout=3"),
        ("postgresql://shop:s3/c@ret@db/shop", "postgresql://shop:***@db/shop"),
        (
            "postgresql://db/shop?user=shop&password=s3cret&sslmode=require",
            "postgresql://db/shop?user=shop&password=***&sslmode=require",
        ),
        ("host=db user=shop password=s3cret dbname=shop", "host=db user=shop password=*** dbname=shop"),
        ("host=db password='s3cret and \\' more' dbname=shop", "host=db password=*** dbname=shop"),
        ("host=db password = s3cret sslpassword=s3cret", "host=db password = *** sslpassword=***"),
        ("postgresql://shop@db:5432/shop", "postgresql://shop@db:5432/shop"),
        ("embedded:./data", "embedded:./data"),
    ],
)
def test_a_password_is_never_shown(dsn, shown):
    settings = load(dsn=dsn)
    assert settings.dsn == dsn
    assert settings.shown("dsn") == mask_secrets(dsn) == shown
    for text in (repr(settings), str(settings), f"{settings}", refusal(dsn=dsn, heartbeat=5)):
        assert "s3" not in text


def test_a_password_in_a_refused_value_is_not_shown():
    assert "s3cret" not in refusal(node=["postgresql://shop:s3cret@db/shop"])
    assert "s3cret" not in refusal(password="s3cret")


def test_every_setting_shows_as_a_text_that_reads_back():
    settings = load()
    shown = {name: settings.shown(name) for name in names() if name != "dsn"}
    assert Settings(**shown) == settings


@pytest.mark.parametrize(
    "template",
    [
        "javascript:alert({trace_id})",
        "https://traces.example",
        "https://traces.example/{span_id}",
        "https://t.example/{trace_id} x",
        "https://{trace_id",
        "{trace_id}",
        "//traces.example/{trace_id}",
    ],
)
def test_the_address_of_traces_must_be_a_web_address_with_a_placeholder_for_the_id(template):
    with pytest.raises(SettingsError, match="trace_url"):
        load(trace_url=template)
    assert (
        load(trace_url="https://traces.example/t/{trace_id}?org=1").trace_url
        == "https://traces.example/t/{trace_id}?org=1"
    )


@pytest.mark.parametrize("name", ["production:pink", ":red", "a:b:red", "x" * 41, ""])
def test_an_environment_consists_of_a_name_and_a_known_colour(name):
    with pytest.raises(SettingsError, match="environment"):
        load(environment=name)
    assert load(environment="production:red").environment == "production:red"
    assert load(environment="none").environment is None


SPACE = st.text(" \t\r\n", max_size=3)
AROUND = st.tuples(st.sampled_from(["", "\ufeff"]), SPACE, SPACE).map(lambda each: (f"{each[0]}{each[1]}", each[2]))
VALUES = {
    "dsn": "postgresql://shop@db/shop",
    "listen_dsn": "postgresql://shop@db/shop",
    "schema": "orders",
    "lease": "7s",
    "processes": "3",
    "pooler": "true",
    "bell": "off",
    "on_dead": "block",
    "on_unroutable": "retry",
    "max_payload": "2MiB",
    "http_token": "0123456789abcdef",
    "archive": "s3://bucket/prefix",
    "environment": "production:red",
    "trace_url": "https://traces.example.org/{trace_id}",
    "metrics_prefix": "shop",
    "relay": '[{"to": "kafka://broker:9092"}]',
}


@given(name=st.sampled_from([*VALUES]), around=AROUND, place=st.sampled_from(["variable", "keyword", "flag"]))
def test_white_space_and_a_byte_order_mark_around_a_value_are_taken_off_wherever_it_is_given(name, around, place):
    """As a secret of Kubernetes or Docker has them, or a file that Notepad wrote."""
    given, attribute = VALUES[name].join(around), names()[name]
    expected = getattr(load(**{name: VALUES[name]}), attribute)
    with pytest.MonkeyPatch.context() as patch:
        if place == "variable":
            patch.setenv(f"PARTBOX_{name.upper()}", given)
        found = load(**({"flags": {name: given}} if place == "flag" else {name: given} if place == "keyword" else {}))
    assert getattr(found, attribute) == expected
    assert Settings(**{name: given}) == Settings(**{name: VALUES[name]})
    assert load(relay=[{"to": f"kafka://broker:9092{around[1]}"}]).relay[0].to == "kafka://broker:9092"


def test_a_variable_of_white_space_counts_as_not_set(monkeypatch):
    monkeypatch.setenv("PARTBOX_SCHEMA", "\r\n")
    assert load().schema_name == "partbox"


def test_the_first_variable_of_a_file_with_a_byte_order_mark_is_read(monkeypatch):
    monkeypatch.setenv("\ufeffPARTBOX_SCHEMA", "orders\r")
    assert (load().schema_name, strays()) == ("orders", None)
    monkeypatch.setenv("PARTBOX_SCHEMA", "shop")
    assert load().schema_name == "shop"


@pytest.mark.parametrize("named", [False, True])
def test_a_file_of_notepad_is_read_with_its_byte_order_mark_and_its_line_ends(monkeypatch, tmp_path, named):
    (tmp_path / "partbox.toml").write_bytes(b'\xef\xbb\xbflease = "7s"\r\nschema = "orders\\n"\r\n')
    if named:
        monkeypatch.setenv("PARTBOX_CONFIG", "partbox.toml\r\n")
    assert (load().lease, load().schema_name) == (7, "orders")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_file_in_utf_16_is_refused_in_one_line(tmp_path, encoding):
    (tmp_path / "partbox.toml").write_bytes('lease = "7s"\r\n'.encode(encoding))
    assert refusal() == "partbox.toml is in UTF-16 or not text: save it as UTF-8"


@pytest.mark.parametrize("name", ["schema", "dsn", "listen_dsn", "environment", "archive", "http_names"])
@pytest.mark.parametrize("character", ["\x01", "\x07", "\x1b", "\x7f"])
def test_a_control_character_within_a_value_is_refused_in_one_line(name, character):
    said = refusal(**{name: f"a{character}b"})
    assert f"setting {name} = " in said
    assert f"remove the control character {character!a}" in said


def test_a_line_break_within_the_name_of_a_schema_or_a_part_of_a_dsn_is_refused(tmp_path):
    assert "a schema name is one line" in refusal(schema="part\nbox")
    for dsn in ("postgresql://shop:secret%0A@db/shop", "host=db user=shop password='secret\n' dbname=shop"):
        with pytest.raises(SettingsError, match="a control character in its password") as refused:
            resolve_dsn(dsn)
        assert "secret" not in str(refused.value).replace("an inserted secret", "")
    assert resolve_dsn("host=db\nuser=shop\n") == "host=db\nuser=shop"
    assert resolve_dsn(lambda: "\ufeffpostgresql://shop@db/shop\r\n") == "postgresql://shop@db/shop"
    with pytest.raises(SettingsError, match="no database"):
        resolve_dsn(" \n")
