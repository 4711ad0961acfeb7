"""The page of the documentation that lists every setting; `partbox config --markdown` prints it."""

from pydantic.fields import FieldInfo

from partbox.protocol import retry
from partbox.settings import Settings, names
from partbox.settings.environment import PREFIX

HEAD = """\
# Settings

This page is generated: `partbox config --markdown > docs/settings.md`.

A value is taken from the first place that gives one:

1. an option of the command line: every setting is one, such as `--lease 10s`, `--pooler` or `--no-pooler`
2. a keyword: `Outbox(lease="10s")`
3. the environment: `PARTBOX_LEASE=10s`; an empty variable counts as not set
4. a TOML file, the one that `PARTBOX_CONFIG` names, else `partbox.toml` in the current folder: its table `[partbox]`,
   or its top level if it has no such table
5. the default

An invalid value is an error that names the place it came from, and so is an unknown name. Only an unknown variable
`PARTBOX_…` is ignored, with a warning: Kubernetes adds some to every container beside a service of that name.
`partbox config` shows every value, where it comes from and why, passwords masked; `partbox config shop:outbox` does so
for an outbox with its keywords. Durations are seconds, or texts such as `250ms`, `6s`, `5m`, `1h`, `7d`; sizes are
bytes, or texts such as `64MiB`. `none` and `off` stand for no value.

| setting | environment | default | meaning |
|---|---|---|---|
"""

RETRY = """
## Retry policies as text

```
{grammar}
```
"""

# What the machine decides; a page must not name the one it was written on.
COMPUTED = {
    "node": "host name",
    "processes": "usable cores: by affinity, at most the cgroup's CPU quota",
}


def page() -> str:
    """The whole page, in Markdown."""
    rows = "".join(_row(name, Settings.model_fields[attribute]) for name, attribute in names().items())
    return HEAD + rows + RETRY.format(grammar=_grammar())


def _row(name: str, field: FieldInfo) -> str:
    default = COMPUTED.get(name) or f"`{Settings().shown(name)}`"
    return f"| `{name}` | `{PREFIX}{name.upper()}` | {default} | {field.description} |\n"


def _grammar() -> str:
    lines = (retry.__doc__ or "").splitlines()
    return "\n".join(line[4:] for line in lines if line.startswith("    "))
