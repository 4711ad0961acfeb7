"""Secrets are taken out of texts and headers before anybody sees them."""

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from partbox.text.secrets import MASK, is_secret, mask_headers, mask_secrets, mask_url

SECRETS = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=30).map(lambda text: f"S3{text}")

FORMS = (
    "postgresql://app:{}@db/x",
    "redis://:{}@cache:6379/0",
    "https://{}@git.example.org/x",
    "password={} host=x",
    "host=x password='{}'",
    "sslpassword = {}",
    "PGPASSWORD={}",
    '{{"user": "ada", "password": "{}"}}',
    '{{"user":"ada","client_secret":"{}","n":1}}',
    r"{{\"token\": \"{}\", \"n\": 1}}",
    '{{"token": ["{}"], "n": 1}}',
    "{{'passwd': '{}'}}",
    "{{b'password': b'{}'}}",
    "{{'headers': [(b'authorization', b'Bearer {}'), (b'x', b'y')]}}",
    "password: {}",
    "Password: {}, user: ada",
    "token: {}",
    "api key: {}",
    "x-api-key: {}",
    "secretKey: '{}'",
    "user[password]={}&user[name]=ada",
    "Authorization: Bearer {}",
    "Authorization: Token {}",
    'Authorization: Digest username="ada", response="{}"',
    "Cookie: theme=dark; sid={}",
    "Set-Cookie: sid={}; Path=/",
    "refused Bearer {}",
    "refused Basic {}=",
    "GET https://api.example.org/?token={}&x=1 HTTP/1.1",
    "GET /?x=1&api_key={}",
    "/blob?sv=1&sig={}",
    "https://h/?X-Amz-Signature={}",
    "aws_secret_access_key = {}",
    "AWS_SECRET_ACCESS_KEY={}",
    "AccountKey={};EndpointSuffix=x",
    "alter role app password '{}'",
    "Command '['mysql', '--password', '{}']' returned 1",
    "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
    "eyJhbGciOi.eyJzdWIiOi{}.x",
    "signed with whsec_{}",
    "ghp_0123456789abcdefgh{}",
    "Key: AKIAIOSFODNN7EXAMPLE, session_id={}",
)

PROSE = (
    "invalid token: unexpected }",
    "unexpected token: '}'",
    "Unexpected token: identifier",
    "SyntaxError: invalid token (<string>, line 1)",
    "tokenize.TokenError: ('EOF in multi-line statement', (2, 0))",
    "jwt.exceptions.InvalidTokenError: Signature verification failed",
    "KeyError: 'token'",
    "target 1 has an unknown key 'token': there are types, to",
    "password: must have 8 characters",
    "the password is too short",
    "Authorization: required",
    "secret: not found",
    '{"token": null, "password": "", "has_token": true}',
    "max_tokens: 4096 of total_tokens: 5000",
    "basic usage of it; Basic authentication failed",
    "Bearer token is missing",
    'password authentication failed for user "app"',
    'duplicate key value violates unique constraint "x" DETAIL: Key (id)=(1) already exists.',
    "if token == expected: raise",
    "postgresql://app@db:5432/x and http://localhost:8080/a?page=2",
    "ValueError: no such customer: 4711",
)


@pytest.mark.parametrize("form", FORMS)
@given(secret=SECRETS)
@example(secret="S3CRET")
@example(secret="S3TOKEN")  # which reads as a name before the `=` of base64; the next line is not its value
def test_a_secret_is_masked_in_every_form_in_which_it_may_appear(form, secret):
    text = form.format(secret)
    shown = mask_secrets(f"a: 1, {text}\nand more")
    assert secret not in shown
    assert MASK in shown
    assert shown.endswith("\nand more")
    assert mask_secrets(shown) == shown


@pytest.mark.parametrize("text", PROSE)
def test_a_text_that_mentions_secrets_but_holds_none_is_unchanged(text):
    assert mask_secrets(text) == text


PARTS = st.sampled_from(
    [*FORMS, *PROSE, "password", "token", ":", "=", "'", '"', "\\", "{", "[", "(", " ", "\n", "@", "://", "Bearer", "x"]
)


@given(st.lists(PARTS, max_size=8).map("".join))
def test_masking_any_text_ends_and_adds_nothing_but_masks(text):
    shown = mask_secrets(text)
    assert sum(map(len, shown.split(MASK))) <= len(text)


@pytest.mark.parametrize(
    "part",
    [
        "a://b:", "a", "://", "a://b:c@", "password", "password=", "password='", "a:b@c/", "token: ", "eyJ",
        "eyJaaaaa.", '"password": "', '\\"', 'password\\"', "Bearer ", "-----BEGIN PRIVATE KEY-----", "(b'cookie', ",
        "token: '", "password ", "tokenhash", "cookie: ", "password:{", "https://a", "x-", "&key=", "AKIA",
        "bad token: x",
    ],
    ids=str,
)  # fmt: skip
def test_a_text_of_a_megabyte_is_masked_in_linear_time(part):
    """Quadratic time would be many minutes."""
    assert len(mask_secrets(part * (1_000_000 // len(part)))) > 0


HEADERS = [
    "password", "authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "X-Auth-Token",
    "client-secret", "x-amz-signature", "session-id", "csrf",
]  # fmt: skip


@given(secret=SECRETS)
def test_a_header_is_masked_because_of_its_name_or_of_the_form_of_its_value(secret):
    headers = {**dict.fromkeys(HEADERS, secret), "dsn": f"postgresql://a:{secret}@h", "source": "web", "author": "ada"}
    shown = mask_headers(headers)
    assert shown == dict.fromkeys(HEADERS, MASK) | {"dsn": f"postgresql://a:{MASK}@h", "source": "web", "author": "ada"}


@pytest.mark.parametrize("name", ["password", "sslpassword", "oauth_client_secret", "scram_client_key", "passfile"])
def test_the_secrets_of_a_connection_string_are_known_by_their_names(name):
    assert is_secret(name)
    assert not is_secret("require_auth")


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("amqp://u:p@h/v?exchange=e", "amqp://u:***@h/v?exchange=e"),
        ("nats://token@a,b:1", "nats://***@a,b:1"),
        ("redis://:p@h:1/0?maxlen=7", "redis://:***@h:1/0?maxlen=7"),
        (
            "kafka://h?sasl.password=a/b&linger.ms=5&ssl.key.pem=x",
            "kafka://h?sasl.password=***&linger.ms=5&ssl.key.pem=***",
        ),
        ("https://h/a?b=c&d", "https://h/a?b=***&***"),
        ("https://h/a", "https://h/a"),
        ("stdout:", "stdout:"),
    ],
)
def test_a_url_is_shown_without_the_parts_that_may_be_secret(url, seen):
    assert mask_url(url) == seen


def test_the_secret_of_a_webhook_is_masked_wherever_it_appears():
    assert mask_secrets("signed with whsec_MDEy+/==, and sent") == "signed with ***, and sent"


def test_the_id_of_an_aws_key_is_masked_wherever_it_appears():
    assert mask_secrets("credential AKIAIOSFODNN7EXAMPLE/20260131/eu") == "credential ***/20260131/eu"
