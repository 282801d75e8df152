#!/usr/bin/env bash
# For pre-commit: `hook.sh scan FILE…` or `hook.sh check FILE…`, which checks the folder of each file once.
# macOS has Bash 3.2, which lacks associative arrays.
set -euo pipefail
task="$1"
shift
command="${STATELENS:-statelens}"
if [ "$task" = scan ]; then exec "$command" scan -- "$@"; fi
seen=$'\n'
folders=()
for file in "$@"; do
  folder=$(dirname -- "$file")
  case "$seen" in *$'\n'"$folder"$'\n'*) continue ;; esac
  seen+="$folder"$'\n'
  folders+=("$folder")
done
exec "$command" check -- "${folders[@]}"
