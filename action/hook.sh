#!/usr/bin/env bash
# For pre-commit: `hook.sh scan FILE…` or `hook.sh check FILE…`, which checks the folder of each file once.
set -euo pipefail
task="$1"
shift
command="${STATELENS:-statelens}"
if [ "$task" = scan ]; then exec "$command" scan "$@"; fi
declare -A seen=()
folders=()
for file in "$@"; do
  folder=$(dirname "$file")
  if [ -z "${seen[$folder]:-}" ]; then
    seen[$folder]=1
    folders+=("$folder")
  fi
done
exec "$command" check "${folders[@]}"
