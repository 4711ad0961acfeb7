"""How the panels look: one function per kind. Each takes what it shows, `(expression, legend)` pairs, and a description
that says what the numbers mean and what to do about them."""

from colorsys import hls_to_rgb
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.models import common as kinds
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heat_kinds
from grafana_foundation_sdk.models import prometheus as formats
from queries import WHOSE

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
QUIET, GOOD, BAD = "#8e8e8e", "#3f9b4f", "#d44a3a"

Shown = tuple[str, str]


def number(title: str, expression: str, description: str, *, unit: str = "short", red_from: float | None = None) -> Any:
    """A number of now, one per subscription; red from a limit on."""
    panel = _framed(stat.Panel(), title, description, 4, 3)
    steps = [(None, QUIET if red_from is None else GOOD)] + ([] if red_from is None else [(red_from, BAD)])
    return (
        panel.with_target(_query(expression, WHOSE).instant())
        .unit(unit)
        .thresholds(_thresholds(steps))
        .color_scheme(_coloured_by(models.FieldColorModeId.THRESHOLDS))
        .color_mode(kinds.BigValueColorMode.VALUE)
        .graph_mode(kinds.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )


def lines(
    title: str, *shown: Shown, description: str, unit: str = "short", width: int = 8, limit: float | None = None
) -> Any:
    """Lines over time; `limit` is a dashed line."""
    panel = _framed(timeseries.Panel(), title, description, width, 8).unit(unit).min(0).line_width(1).fill_opacity(8)
    panel.show_points(kinds.VisibilityMode.NEVER).color_scheme(_coloured_by(models.FieldColorModeId.PALETTE_CLASSIC))
    _explained(panel, *shown)
    if limit is not None:
        panel.thresholds(_thresholds([(None, GOOD), (limit, BAD)]))
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(kinds.GraphThresholdsStyleMode.DASHED))
    return panel


def stacked(title: str, *shown: Shown, description: str, unit: str = "short", width: int = 8) -> Any:
    """Areas on top of each other."""
    panel = lines(title, *shown, description=description, unit=unit, width=width)
    return panel.fill_opacity(40).stacking(common.StackingConfig().mode(kinds.StackingMode.NORMAL).group("A"))


def bars(title: str, *shown: Shown, description: str, width: int = 8) -> Any:
    """How often something happened, in steps of at least a minute."""
    panel = stacked(title, *shown, description=description, width=width).interval("1m")
    return panel.draw_style(kinds.GraphDrawStyle.BARS).fill_opacity(70)


def buckets(title: str, expression: str, *, description: str, unit: str = "s", width: int = 8) -> Any:
    """A histogram over time, of series with the label `le`."""
    panel = _heat(title, description, unit, width)
    return panel.with_target(_query(expression, "{{le}}").format(formats.PromQueryFormat.HEATMAP))


def spread(title: str, expression: str, *, description: str, unit: str = "s", width: int = 8) -> Any:
    """How many of many series have which value, over time."""
    rungs = common.HeatmapCalculationBucketConfig().mode(kinds.HeatmapCalculationMode.COUNT).value("20")
    panel = _heat(title, description, unit, width).calculate(True).max_data_points(150)
    panel.calculation(common.HeatmapCalculationOptions().y_buckets(rungs))
    return panel.with_target(_query(expression, "{{partition}}"))


def timeline(title: str, expression: str, legend: str, *, description: str, names: dict[int, str]) -> Any:
    """A row per series, in the colours of its states; `names` are the values' names, 0 is nobody.

    Not coloured by thresholds: Grafana would merge all values between two of them into one state, mapped or not.
    """
    colours = {0: BAD} | {value: _colour(value) for value in names if value}
    mapped = {
        str(value): models.ValueMappingResult(text=name, color=colours[value], index=value)
        for value, name in names.items()
    }
    panel = _framed(statetimeline.Panel(), title, description, 24, 22)
    return (
        panel.with_target(_query(expression, legend))
        .mappings([models.ValueMap(options=mapped)])
        .color_scheme(_coloured_by(models.FieldColorModeId.FIXED).fixed_color(QUIET))
        .merge_values(True)
        .show_value(kinds.VisibilityMode.NEVER)
        .row_height(0.95)
        .line_width(0)
        .fill_opacity(85)
        .per_page(64)
        .legend(_legend(kinds.LegendDisplayMode.LIST, []))
        .tooltip(common.VizTooltipOptions().mode(kinds.TooltipDisplayMode.SINGLE).sort(kinds.SortOrder.NONE))
    )


def _colour(value: int) -> str:
    """A colour of its own for each value: hues a golden angle apart, and none as red as `BAD`."""
    hue, lightness, saturation = value * 137 % 330 + 20, (0.48, 0.62, 0.4)[value % 3], (0.7, 0.5)[value % 2]
    return "#" + "".join(f"{round(255 * part):02x}" for part in hls_to_rgb(hue / 360, lightness, saturation))


def _coloured_by(mode: models.FieldColorModeId) -> Any:
    return dashboard.FieldColor().mode(mode)


def _framed(panel: Any, title: str, description: str, width: int, height: int) -> Any:
    return panel.title(title).description(description).datasource(SOURCE).span(width).height(height)


def _explained(panel: Any, *shown: Shown) -> None:
    for place, (expression, legend) in enumerate(shown):
        panel.with_target(_query(expression, legend, chr(ord("A") + place)))
    panel.legend(_legend(kinds.LegendDisplayMode.TABLE, ["lastNotNull", "max"]))
    panel.tooltip(common.VizTooltipOptions().mode(kinds.TooltipDisplayMode.MULTI).sort(kinds.SortOrder.DESCENDING))


def _query(expression: str, legend: str, name: str = "A") -> Any:
    return prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(name).datasource(SOURCE).range()


def _legend(mode: kinds.LegendDisplayMode, calculated: list[str]) -> Any:
    legend = common.VizLegendOptions().display_mode(mode).placement(kinds.LegendPlacement.BOTTOM)
    return legend.show_legend(True).calcs(calculated)


def _thresholds(steps: list[tuple[float | None, str]]) -> Any:
    made = [models.Threshold(value=value, color=colour) for value, colour in steps]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(made)


def _heat(title: str, description: str, unit: str, width: int) -> Any:
    colours = heatmap.HeatmapColorOptions().mode(heat_kinds.HeatmapColorMode.SCHEME).scheme("Oranges").steps(64)
    colours.fill("dark-orange").exponent(0.5).scale(heat_kinds.HeatmapColorScale.EXPONENTIAL)
    panel = _framed(heatmap.Panel(), title, description, width, 8)
    return panel.color(colours).y_axis(heatmap.YAxisConfig().unit(unit)).hide_legend()
