"""Write the table of theorems to docs/bounds.md.

Usage: python scripts/bounds-page.py, or `make house` (a test fails while the page is out of date)
"""

from __future__ import annotations

from pathlib import Path

from nonvacuous.bounds.table import THEOREMS, Theorem

TARGET = Path(__file__).resolve().parents[1] / "docs" / "bounds.md"
ABOUT = {
    "stochastic": "the randomized network",
    "drawn": "one drawn network",
    "deterministic": "one fixed network",
}
INTRODUCTION = """# Theorems

Every bound that `nv.bounds` has, written by `make house` from the table in which each is entered
once, above its function. `nonvacuous bound`, certificates, `verify` and the pages read the same
entries; [how to add one](extending.md). All are rounded outward; unless an entry says that it is a
lower bound, the number is an upper one.
"""


def page() -> str:
    names = sorted(THEOREMS, key=lambda name: not THEOREMS[name].certifies)
    certifying = [name for name in names if THEOREMS[name].certifies]
    parts = [INTRODUCTION, "## Those that may carry a certificate\n"]
    parts += [_section(THEOREMS[name]) for name in certifying]
    parts.append("## The others\n")
    parts += [_section(THEOREMS[name]) for name in names if name not in certifying]
    return "\n".join(parts)


def _section(entry: Theorem) -> str:
    about = ", ".join(ABOUT.get(name, name) for name in entry.about)
    facts = {
        "About": about + (" (a lower bound)" if entry.lower else ""),
        "Source": entry.source,
        "Fixed before the data": ", ".join(f"`{name}`" for name in entry.fixed_before),
        "True for all values at once": ", ".join(f"`{name}`" for name in entry.free),
        "Pays for the prior by": f"`{entry.complexity}`" if entry.complexity else "",
        "Among others": "; ".join(dict.fromkeys(reading.relation for reading in entry.readings)),
    }
    rows = [f"### {entry.name}", "", "```text", entry.statement, "```", ""]
    rows += ["| input | meaning |", "|---|---|"]
    rows += [f"| `{name}` | {spec.meaning} |" for name, spec in entry.inputs.items()]
    rows += ["", *(f"- {word}: {fact}" for word, fact in facts.items() if fact), ""]
    return "\n".join(rows)


def main() -> None:
    TARGET.write_text(page(), encoding="utf-8")
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()
