#!/usr/bin/env bash
# Build the wheel, install it alone in a clean environment, and use it outside the source tree.
# Usage: scripts/check-wheel.sh path/to/python (with `build` and `hatchling` installed)
set -euo pipefail

cd "$(dirname "$0")/.."
python=${1:?usage: scripts/check-wheel.sh path/to/python}
source_tree=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "== build the wheel"
"$python" -m build --wheel --no-isolation --outdir "$work/dist" >"$work/build.log" 2>&1 ||
  { cat "$work/build.log"; exit 1; }
wheel=$(echo "$work"/dist/nonvacuous-*.whl)

echo "== every source file is inside, templates and py.typed too, and nothing else"
"$python" -m zipfile -l "$wheel" | awk '/^nonvacuous\// {print $1}' | sort >"$work/inside"
(cd src && find nonvacuous -type f -not -name '*.py[co]' | sort) >"$work/expected"
grep -qx 'nonvacuous/py.typed' "$work/inside"
diff "$work/expected" "$work/inside"

echo "== install it in a clean environment"
"$python" -m venv "$work/venv"
install=("$work/venv/bin/python" -m pip install -qq --disable-pip-version-check -c "$source_tree/constraints.txt")
"${install[@]}" "$(grep '^torch==' constraints.txt)"
"${install[@]}" "$wheel"

echo "== use it outside the source tree"
cd "$work"
venv/bin/python -c "import nonvacuous; print('nonvacuous', nonvacuous.__version__, 'imports')"
# No extra is installed here, so this also finds imports that no listed dependency provides.
venv/bin/python - <<'PYTHON'
import importlib
import pkgutil

import nonvacuous

# These are layers on packages of the same names, which their users have.
layers = {"nonvacuous.integrations.lightning", "nonvacuous.integrations.transformers"}
for module in pkgutil.walk_packages(nonvacuous.__path__, "nonvacuous."):
    if module.name not in layers:
        importlib.import_module(module.name)
for name in dir(nonvacuous):
    getattr(nonvacuous, name)
print("every module imports, every public name resolves")
PYTHON
venv/bin/nonvacuous --version
venv/bin/nonvacuous bound --risk 0.02 --kl 5000 --examples 60000 --confidence 0.95 --json >bound.json
venv/bin/python -m json.tool bound.json >/dev/null
echo "nonvacuous bound --json writes JSON"
echo "== the wheel works"
