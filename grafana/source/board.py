"""What all dashboards share: name, variables, links to each other, and the marks of alerts and rebalances."""

from typing import Any

import queries
from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as models
from look import BAD, SOURCE

TAG = "partbox"


def board(uid: str, title: str, description: str, variables: tuple[Any, ...] = ()) -> dashboard.Dashboard:
    """A dashboard without panels; `variables` come after those that all have."""
    made = dashboard.Dashboard(f"partbox: {title}").uid(uid).description(description).tags([TAG]).readonly()
    made.time("now-1h", "now").refresh("10s").timezone("browser").tooltip(models.DashboardCursorSync.CROSSHAIR)
    for variable in (_source(), _job(), _database(), _subscription(), *variables):
        made.with_variable(variable)
    for name, colour, expression in MARKS:
        made.annotation(_mark(name, colour, expression))
    links = dashboard.DashboardLink("partbox").type(models.DashboardLinkType.DASHBOARDS).tags([TAG])
    return made.link(links.include_vars(True).keep_time(True).as_dropdown(False))


def rows(made: dashboard.Dashboard, *titled: tuple[str, tuple[Any, ...]]) -> dashboard.Dashboard:
    """Add rows of panels, each under its title."""
    for title, panels in titled:
        made.with_row(dashboard.Row(title))
        for panel in panels:
            made.with_panel(panel)
    return made


def several(name: str, label: str, query: str) -> dashboard.QueryVariable:
    """A variable of which any number can be chosen, all at first."""
    return _variable(name, label, query).multi(True).include_all(True).all_value(".*").current(_option("All", "$__all"))


MARKS = (
    ("rebalance", "#5794f2", f"{queries.increase('rebalances_total')} > 0"),
    ("alert", BAD, 'ALERTS{alertname=~"Partbox.*", alertstate="firing"}'),
)


def _source() -> dashboard.DatasourceVariable:
    return dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")


def _job() -> dashboard.QueryVariable:
    """One outbox: numbers of different ones must not be merged."""
    return _variable("job", "Job", "label_values(partbox_database_up, job)")


def _database() -> dashboard.QueryVariable:
    """Empty where each node works for one database."""
    return several("database", "Database", 'label_values(partbox_partitions{job="$job"}, database)')


def _subscription() -> dashboard.QueryVariable:
    return several("subscription", "Subscription", 'label_values(partbox_partitions{job="$job"}, subscription)')


def _variable(name: str, label: str, query: str) -> dashboard.QueryVariable:
    made = dashboard.QueryVariable(name).label(label).datasource(SOURCE).query({"query": query, "refId": name})
    return made.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.NATURAL_ASC)


def _option(text: str, value: str) -> models.VariableOption:
    return models.VariableOption(selected=True, text=text, value=value)


def _mark(name: str, colour: str, expression: str) -> dashboard.AnnotationQuery:
    made = dashboard.AnnotationQuery().name(name).datasource(SOURCE).enable(True).icon_color(colour)
    return made.expr(expression)
