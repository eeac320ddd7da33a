"""Write the JSON schema of certificates to docs/certificate.schema.json.

Usage: python scripts/export-schema.py (a test fails while the file is out of date)
"""

from __future__ import annotations

import json
from pathlib import Path

from nonvacuous.certificate import Certificate

TARGET = Path(__file__).resolve().parents[1] / "docs" / "certificate.schema.json"


def main() -> None:
    TARGET.write_text(
        json.dumps(Certificate.model_json_schema(), indent=2) + "\n", encoding="utf-8"
    )
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()
