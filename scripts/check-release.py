"""What must hold before a release: `make release-check`. Builds wheel and sdist into dist/.

Version, changelog and citation agree; metadata and README pass the checks of a package index; the
wheel, built from the sdist, has every source file, the sdist what it takes to build and test.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SDIST = (
    *("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff"),
    *("SECURITY.md", "CODE_OF_CONDUCT.md", "Makefile", "constraints.txt", "docs/conf.py"),
    *("src/nonvacuous/py.typed", "tests/conftest.py", "scripts/house.py"),
)


def disagreements(root: Path = ROOT) -> list[str]:
    """What version, changelog and citation say differently; a released version needs a section."""
    version = _found(r'__version__ = "(.+)"', root / "src/nonvacuous/__init__.py")
    cited = _found(r"(?m)^version: (.+)$", root / "CITATION.cff")
    top = _found(r"(?m)^## (.+)$", root / "CHANGELOG.md")
    said = []
    if cited != version:
        said.append(f"CITATION.cff says {cited}, the package {version}")
    if top != "Unreleased" and top.split()[0].strip("[]") != version:
        said.append(f"CHANGELOG.md begins with {top!r}, the package is {version}")
    if top != "Unreleased" and not re.search(r"\d{4}-\d\d-\d\d", top):
        said.append(f"CHANGELOG.md gives no date: {top!r}")
    return said


def _found(pattern: str, file: Path) -> str:
    match = re.search(pattern, file.read_text("utf-8"))
    if match is None:
        sys.exit(f"{file} has nothing like {pattern}")
    return match[1]


def contents(wheel: Path, sdist: Path) -> list[str]:
    """What is missing in the two archives, or too much."""
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    said = [f"the sdist lacks {name}" for name in SDIST if name not in inside]
    source = {
        str(file.relative_to(ROOT / "src"))
        for file in (ROOT / "src/nonvacuous").rglob("*")
        if file.is_file() and file.suffix not in (".pyc", ".pyo")
    }
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = next(name for name in names if name.endswith("/METADATA"))
        headers = HeaderParser().parsestr(archive.read(metadata).decode())
    said += [f"the wheel lacks {name}" for name in sorted(source - names)]
    said += [
        f"the metadata lack {key}"
        for key in ("Summary", "License-Expression", "Requires-Python")
        if not headers.get(key)
    ]
    return said


def _run(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")


def main() -> None:
    said = disagreements()
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    # Without an argument, `build` makes the wheel from the sdist: both are tried.
    _run("build", "--no-isolation", "--outdir", str(dist))
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    said += contents(wheel, sdist)
    _run("twine", "check", "--strict", str(wheel), str(sdist))  # metadata, README rendering
    if said:
        sys.exit("\n".join(said))
    print(f"ready: {wheel.name}, {sdist.name}")


if __name__ == "__main__":
    main()
