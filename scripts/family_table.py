"""The differences between the variants of RecFusion as a Markdown table, for docs/how-to/diffusion.md."""

from dataclasses import dataclass
from typing import Any

from recfusion.models.settings import setting_values, settings_of
from recfusion.paper.architecture_figure import recfusion_variants

NOT_USED = "–"


_PROCESS = ("process", "T", "schedule", "decreasing", "beta_low", "beta_high", "low", "high")
_NET = (
    *("net", "time", "width", "depth", "shared", "channels", "levels", "picture_users"),
    *("layout", "pixels", "neighbours", "input_power"),
)
TRAINING = "training"  # all settings of no other stage
STAGES = {"forward process": _PROCESS, "network": _NET, "reverse step": ("variance",), TRAINING: ("objective",)}

# Settings that are shown even if all variants agree.
_ALWAYS = ("process", "T", "net", "time", "variance", "objective")
# Not used with a layout: survival then falls evenly from high to low.
_SCHEDULE = ("schedule", "decreasing", "beta_low", "beta_high")
# Settings that are used only with some values of another setting.
_USED_WITH: dict[str, tuple[str, tuple[str, ...]]] = {
    "beta_low": ("schedule", ("linear", "quadratic")),
    "beta_high": ("schedule", ("linear", "quadratic", "constant")),
    **dict.fromkeys(("width", "depth", "shared"), ("net", ("mlp",))),
    **dict.fromkeys(("channels", "levels"), ("net", ("unet1d", "unet2d"))),
    "picture_users": ("layout", ("none",)),
    "variance": ("process", ("gaussian",)),
}


@dataclass(frozen=True)
class Row:
    """A setting and its value in each variant."""

    stage: str
    setting: str
    meaning: str
    values: tuple[str, ...]

    @property
    def differs(self) -> tuple[bool, ...]:
        """For each variant, whether it differs from the first one."""
        return tuple(value not in (NOT_USED, self.values[0]) for value in self.values)


@dataclass(frozen=True)
class Family:
    """The variants of RecFusion and their settings."""

    names: tuple[str, ...]
    rows: tuple[Row, ...]  # settings in the table
    common: tuple[Row, ...]  # settings with the same value in every variant that uses them


def recfusion_family() -> Family:
    """Return the RecFusion models of the registry with their default settings."""
    models = recfusion_variants()
    variants = [setting_values(model) for model in models.values()]
    declared = {key: of for model in models.values() for key, of in settings_of(type(model)).items()}
    stages = {name: stage for stage, settings in STAGES.items() for name in settings if name in declared}
    stages |= {name: TRAINING for name in declared if name not in stages}
    rows = [
        Row(stage, name, declared[name].doc, tuple(_cell(name, of) for of in variants))
        for name, stage in stages.items()
    ]
    shown = tuple(row for row in rows if any(row.differs) or row.setting in _ALWAYS)
    return Family(tuple(models), shown, tuple(row for row in rows if row not in shown))


def _cell(name: str, values: dict[str, Any]) -> str:
    if name not in values:
        return NOT_USED
    placed = values.get("layout", "none") != "none"
    if name == "time" and values["net"] != "mlp":  # a U-Net with a layout does not get the step
        return "none" if placed else "built in"
    other, wanted = _USED_WITH.get(name, ("", ("",)))
    if (placed and name in _SCHEDULE) or values.get(other, wanted[0]) not in wanted:
        return NOT_USED
    value = values[name]
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def family_table(family: Family | None = None) -> str:
    """Return the settings of the variants as a Markdown table; values that differ from the first variant are bold."""
    family = family or recfusion_family()
    lines = [("part", "setting", "meaning", *(f"`{name}`" for name in family.names))]
    lines.append(("---",) * len(lines[0]))
    for row in family.rows:
        values = [f"**{value}**" if new else value for value, new in zip(row.values, row.differs, strict=True)]
        lines.append((row.stage, f"`{row.setting}`", row.meaning, *values))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
