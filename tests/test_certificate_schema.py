"""The exported JSON schema: current, and obeyed by certificates."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from nonvacuous.certificate import Certificate
from tests.certificates import MODES, sealed

SCHEMA = Path(__file__).resolve().parents[1] / "docs" / "certificate.schema.json"
Schema = dict[str, Any]


def test_the_exported_schema_is_current():
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == Certificate.model_json_schema(), (
        "run python scripts/export-schema.py"
    )


def problems(
    value: Any, schema: dict[str, Any], root: dict[str, Any], where: str = ""
) -> list[str]:
    """What is wrong with ``value``, by the part of JSON Schema that the certificate's uses."""
    known = {"title", "description", "default", "$defs", "$ref", "anyOf", "type", "enum", "const"}
    known |= {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "pattern"}
    known |= {"properties", "required", "additionalProperties", "items", "minItems"}
    known |= {"maxItems"}
    assert schema.keys() <= known, f"this checker does not know {schema.keys() - known}"
    found: list[str] = []
    if "$ref" in schema:
        found += problems(value, root["$defs"][schema["$ref"].rsplit("/", 1)[-1]], root, where)
    if "anyOf" in schema and all(problems(value, s, root, where) for s in schema["anyOf"]):
        found.append(f"{where}: fits no alternative")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    kinds = {
        "object": isinstance(value, dict),
        "array": isinstance(value, list),
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "null": value is None,
        "number": number,
        "integer": number and float(value).is_integer(),
    }
    if "type" in schema and not kinds[schema["type"]]:
        return [*found, f"{where}: not of type {schema['type']}"]
    checks = {
        "enum": lambda limit: value in limit,
        "const": lambda limit: value == limit,
        "minimum": lambda limit: value >= limit,
        "maximum": lambda limit: value <= limit,
        "exclusiveMinimum": lambda limit: value > limit,
        "exclusiveMaximum": lambda limit: value < limit,
        "minLength": lambda limit: len(value) >= limit,
        "minItems": lambda limit: len(value) >= limit,
        "maxItems": lambda limit: len(value) <= limit,
        "pattern": lambda limit: re.search(limit, value) is not None,
        "required": lambda limit: set(limit) <= value.keys(),
    }
    found += [
        f"{where}: {key}" for key, ok in checks.items() if key in schema and not ok(schema[key])
    ]
    for item in value if "items" in schema else ():
        found += problems(item, schema["items"], root, f"{where}[]")
    properties, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    for key, item in value.items() if kinds["object"] else ():
        if key in properties:
            found += problems(item, properties[key], root, f"{where}.{key}")
        elif rest is False:
            found.append(f"{where}.{key}: unknown")
        elif isinstance(rest, dict):
            found += problems(item, rest, root, f"{where}.{key}")
    return found


@pytest.mark.parametrize("mode", MODES)
def test_certificates_follow_the_exported_schema(mode):
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    record = json.loads(sealed(mode).model_dump_json())
    assert problems(record, schema, schema) == []
    for forged in (
        {"risk_upper": 1.5},
        {"status": "fine"},
        {"surprise": 1},
        {"digest": "0"},
        {"budget": {"failure": 0.05, "entries": []}},
        {"seed": "3"},
    ):
        assert problems(record | forged, schema, schema), forged
    del record["empirical"]
    assert problems(record, schema, schema)
