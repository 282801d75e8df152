#!/usr/bin/env bash
# Installs pystatelens, which has the command, into an environment of its own, and puts it on the path of later steps.
# VERSION: a version on PyPI, or empty for the newest. WHEEL: a wheel to install instead.
set -euo pipefail
folder="${RUNNER_TEMP:-$(mktemp -d)}/statelens"
python3 -m venv "$folder"
bin="$folder/bin"
if [ -d "$folder/Scripts" ]; then bin="$folder/Scripts"; fi
package="pystatelens${VERSION:+==$VERSION}"
"$bin/python" -m pip install --quiet --disable-pip-version-check "${WHEEL:-$package}"
echo "$bin" >> "${GITHUB_PATH:-/dev/null}"
"$bin/statelens" --version
