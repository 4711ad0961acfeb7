"""The page of the documentation that lists every check; `partbox doctor --markdown` prints it."""

from partbox.doctor.checks import CHECKS

HEAD = """\
# partbox doctor

This page is generated: `partbox doctor --markdown > docs/doctor.md`.

```console
$ partbox doctor
$ partbox doctor --json                  # for programs
$ partbox doctor --transactions-over 10s # transactions are said to be long from here on; 60 s unless given
```

Looks at an outbox, changes nothing, and names what is wrong: the cause, what shows it (numbers, names, pids,
statements up to their first literal; never a payload or a password), and the remedy, with the command to copy. It
looks a second time, three seconds later, where one look could mistake a handover for a partition that nobody takes,
or a burst for a backlog that grows; otherwise it takes as long as counting what is pending.

| severity | meaning | exit code |
|---|---|---|
| problem | events wait or are lost until somebody does something | 1 |
| warning | it works, slower than it could or not for ever | 0; with `--strict` 1 |
| note | worth knowing; also what could not be looked at | 0 |

A database that cannot be reached, and a schema that is not there, end it with one line and exit code 1; with `--json`
they are findings like others. Thresholds that follow settings (`lease`, `max_parked`, `retain_done`,
`purge_interval`, `pooler`, `bell`, `listen_dsn`) take those that doctor is started with: give it those of the workers.

It needs to read the outbox's tables, as workers do. What other roles' sessions do, and since when, PostgreSQL shows
to members of `pg_read_all_stats` only; without it doctor says so and judges the rest.

## What it knows

| cause | severity | meaning |
|---|---|---|
"""

SHAPE = """
## As JSON

```json
{
  "schema": "partbox",
  "at": "2026-01-31T09:00:00+00:00",
  "healthy": false,
  "findings": [
    {
      "severity": "problem",
      "summary": "no process works on it, and records wait",
      "evidence": ["12 records pending, the oldest published 3 m ago; 0 parked"],
      "remedy": ["start workers: `partbox worker MODULE:OUTBOX`"],
      "subscription": "default",
      "cause": "no-workers"
    }
  ],
  "checks": ["database", "schema", "copied"]
}
```

`healthy` is whether there is no problem; `subscription` is null for what concerns all; `checks` names all that was
looked for.
"""


def page() -> str:
    """The whole page, in Markdown."""
    rows = [f"| `{each.name}` | {' or '.join(each.severities)} | {each.meaning} |\n" for each in CHECKS]
    return "".join([HEAD, *rows, SHAPE])
