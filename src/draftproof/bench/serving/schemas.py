"""Seeded JSON schemas whose instances are finite: every string, number and list has a bound, so that an answer ends."""

from __future__ import annotations

import random
from typing import Any


def random_schema(chance: random.Random, depth: int = 0) -> dict[str, Any]:
    """An object at the top, anything below, at most four levels deep."""
    kinds = ["bool", "int", "enum", "text", "null", "pattern"] + (["object", "list", "any"] if depth < 3 else [])
    match "object" if depth == 0 else chance.choice(kinds):
        case "bool":
            return {"type": "boolean"}
        case "null":
            return {"type": "null"}
        case "int":
            low = chance.randint(-50, 50)
            return {"type": "integer", "minimum": low, "maximum": low + chance.randint(0, 200)}
        case "enum":
            return {"enum": chance.sample(["é", "a b", "", "🙂", 'q"uote', 3, None, True, -1.5], chance.randint(1, 4))}
        case "text":
            return {"type": "string", "minLength": chance.randint(0, 2), "maxLength": chance.randint(2, 6)}
        case "pattern":
            return {"type": "string", "pattern": chance.choice(["^[a-c]{2}$", "^(no|yes)[0-9]$", "^x?y$"])}
        case "list":
            return {"type": "array", "items": random_schema(chance, depth + 1), "maxItems": chance.randint(1, 3)}
        case "any":
            return {"anyOf": [random_schema(chance, depth + 1) for _ in range(2)]}
    names = chance.sample(["a", "b", "näme", "with space", "x/y", "$z"], chance.randint(1, 4))
    return {
        "type": "object",
        "properties": {name: random_schema(chance, depth + 1) for name in names},
        "required": chance.sample(names, chance.randint(0, len(names))),
        "additionalProperties": False,
    }
