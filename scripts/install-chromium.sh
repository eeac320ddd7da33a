#!/usr/bin/env bash
# Install Debian's Chromium for the browser tests, where that is possible without asking anybody.
set -euo pipefail

[ -x /usr/bin/chromium ] && exit 0

give_up() {
  echo "No Chromium for the browser tests: $1." >&2
  if [ "${CI:-}" = true ]; then
    echo "With CI=true this is a failure: every test must run there." >&2
    exit 1
  fi
  echo "They will be skipped. To run them, install Chromium as /usr/bin/chromium." >&2
  exit 0
}

command -v apt-get >/dev/null || give_up "this system has no apt-get"
if [ "$(id -u)" -eq 0 ]; then
  as_root=()
elif sudo -n true 2>/dev/null; then
  as_root=(sudo -n)
else
  give_up "installing it needs root, and sudo is missing or asks for a password"
fi

echo "Installing Chromium for the browser tests (apt-get install chromium)."
export DEBIAN_FRONTEND=noninteractive
{
  "${as_root[@]}" apt-get update -qq &&
    "${as_root[@]}" apt-get install -y -qq --no-install-recommends chromium fonts-liberation
} >/dev/null || give_up "apt-get could not install it"
