"""Help in sections, without boxes: narrow terminals keep whole flag names, files get no escape codes."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

DEFAULT_SECTION = "Options"


class SectionedCommand(TyperCommand):
    """A command whose options are listed by the section (``rich_help_panel``) they name."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], DEFAULT_SECTION: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            fallback = "Arguments" if parameter.param_type_name == "argument" else DEFAULT_SECTION
            section = getattr(parameter, "rich_help_panel", None) or fallback
            sections.setdefault(section, []).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
