"""``--config FILE.yaml``: vLLM and SGLang put what the file says before the rest of the line, which therefore wins.

vllm/utils/argparse_utils.py: FlexibleArgumentParser._pull_args_from_config and load_config_file;
sglang/srt/server_args_config_parser.py: ConfigArgumentMerger.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from draftproof.errors import DraftproofError
from draftproof.proof.files.json_file import decoded, printable, read_bytes
from draftproof.proof.launch.line import Argument, Command, Problem

FLAG = "--config"
ENGINES = ("vllm", "sglang")
MAX_FILE = 1 << 20  # real ones are a few hundred bytes


class _Loader(yaml.SafeLoader):
    """Without aliases: a few lines of them can stand for gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not followed")
        return super().compose_node(parent, index)


def written_out(command: Command) -> tuple[Command, list[Problem], tuple[str, ...]]:
    """The command with the file's settings in the place of ``--config``; what is wrong with that flag; and why the
    file was not read, if it was not (it may lie on another machine)."""
    if command.engine not in ENGINES or not command.has(FLAG):
        return command, [], ()
    problems: list[Problem] = []
    given = [a for a in command.arguments if a.flag == FLAG]
    if any(a.joined for a in given):
        what = f"{FLAG}=FILE has no effect: only {FLAG} FILE, as two words, is read"
        return command, [Problem("error", what, f"{FLAG} {given[0].values[0]}")], ()
    if len(given) > 1 or not given[0].values:
        what = "is given more than once" if len(given) > 1 else "names no file"
        return command, [Problem("error", f"{FLAG} {what}: the engine refuses it", f"{FLAG} FILE.yaml, once.")], ()
    name = given[0].values[0]
    if not name.endswith((".yaml", ".yml")):
        problems.append(Problem("error", f"{FLAG} {printable(name)}: refused, it must end in .yaml or .yml", ""))
    try:
        settings = read(Path(name).expanduser())
    except (DraftproofError, RuntimeError) as error:  # RuntimeError: ~user of nobody
        return command, problems, (f"{FLAG}: {error}",)
    return _merged(command, list(_flags(settings))), problems, ()


def read(file: Path) -> dict[str, Any]:
    """The file's settings. Raises CheckpointError for one that cannot be read and SpecError for one that is no YAML
    mapping, each with the place."""
    from draftproof.errors import SpecError

    name = printable(file)
    text = decoded(read_bytes(file, MAX_FILE), name)
    try:
        found = yaml.load(text, _Loader)  # a SafeLoader: no tags that make objects
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise SpecError(f"{name}{place}: not YAML ({error.problem})") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that is none
        raise SpecError(f"{name}: not to be read as YAML ({printable(str(error) or type(error).__name__)})") from None
    if not isinstance(found, dict):
        raise SpecError(f"{name}: a {type(found).__name__} where settings (name: value) are needed")
    return found


def _flags(settings: dict[str, Any]) -> Iterator[Argument]:
    """As the engines spell a file's settings: a switch that is true is its bare flag, an object is JSON."""
    for key, value in settings.items():
        flag = f"--{key}"
        if isinstance(value, bool):
            yield Argument(flag if value else f"--no-{key}")
        elif isinstance(value, list):
            if value:
                yield Argument(flag, tuple(map(str, value)))
        elif isinstance(value, dict):
            yield Argument(flag, (json.dumps(value, default=str),))
        else:
            yield Argument(flag, (str(value),))


def _merged(command: Command, settings: list[Argument]) -> Command:
    """Settings behind the leading model name and before all flags. A model on the line wins over the file's."""
    kept: list[Argument] = []
    for argument in command.arguments:
        if argument.flag == FLAG:
            kept += [Argument(None, (word,)) for word in argument.values[1:]]
        else:
            kept.append(argument)
    lead = next((i for i, a in enumerate(kept) if a.flag is not None), len(kept))
    if lead:
        settings = [a for a in settings if a.flag != "--model"]
    settings = [replace(a, flag=(a.flag or "").replace("_", "-")) for a in settings]
    return replace(command, arguments=(*kept[:lead], *settings, *kept[lead:]))
