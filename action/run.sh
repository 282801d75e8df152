#!/usr/bin/env bash
# Scans and checks what PATHS lists, one per line; without it, the checkpoints that differ from the commit BASE, or all.
# LEVELS: levels of rules, one per line. Writes SARIF, a report in Markdown, and outputs of the step. Fails only if the
# command can't do its work; the result is in the output `whole`. macOS has Bash 3.2, which lacks associative arrays.
set -euo pipefail
out="${RUNNER_TEMP:-$(mktemp -d)}/statelens-results"
mkdir -p "$out/sarif"
report="$out/report.md"
output="${GITHUB_OUTPUT:-/dev/null}"
command="${STATELENS:-statelens}"
names='\.(safetensors|bin|pt|pth|ckpt|gguf|pkl|h5|hdf5|mdl|keras|npz|npy|msgpack|index|index\.json)$'

files=()
if [ -n "${PATHS:-}" ]; then
  while IFS= read -r path; do
    if [ -n "$path" ]; then files+=("$path"); fi
  done <<< "$PATHS"
else
  if [ -n "${BASE:-}" ]; then
    git fetch --quiet --depth=1 origin "$BASE" 2>/dev/null || true
    git diff -z --name-only --diff-filter=d "$BASE" HEAD > "$out/changed"
  else
    git ls-files -z > "$out/changed"
  fi
  # The config and the tokenizer are checked with the weights next to them. Names end with NUL: git quotes unusual
  # ones otherwise.
  while IFS= read -r -d '' path; do
    if [[ "$path" =~ $names || "${path##*/}" =~ ^(config|tokenizer|adapter_config)\.json$ ]]; then
      files+=("$path")
    fi
  done < "$out/changed"
fi

levels=()
while IFS= read -r level; do
  if [ -n "$level" ]; then levels+=(--level "$level"); fi
done <<< "${LEVELS:-}"

# The folders with weights in them.
seen=$'\n'
folders=()
for path in "${files[@]+"${files[@]}"}"; do
  folder="$path"
  if [ ! -d "$path" ]; then folder=$(dirname -- "$path"); fi
  case "$seen" in *$'\n'"$folder"$'\n'*) continue ;; esac
  seen+="$folder"$'\n'
  at="$folder"
  case "$at" in -*) at="./$at" ;; esac
  # `grep -q` would end `find` early, which counts as a failure.
  if find "$at" -maxdepth 1 -type f | grep -cE "$names" > /dev/null; then folders+=("$folder"); fi
done

whole=true
{
  echo "<!-- statelens -->"
  echo "### Statelens"
  echo
} > "$report"

# Runs `NAME ARGUMENTS…` once for the log and once for SARIF. Its exit status is 0 or 1; others are errors.
examine() {
  local name="$1" status=0
  shift
  "$command" "$name" --sarif "$@" > "$out/sarif/$name.sarif" || status=$?
  if [ "$status" -gt 1 ]; then
    "$command" "$name" "$@" || true
    echo "statelens $name could not do its work (exit status $status)" >&2
    exit "$status"
  fi
  if [ "$status" -ne 0 ]; then whole=false; fi
  local text
  text=$("$command" "$name" "$@" || true)
  printf '%s\n' "$text"
  {
    echo "<details><summary><code>statelens $name</code>: $([ "$status" -eq 0 ] && echo "nothing wrong" || echo "<b>findings</b>")</summary>"
    echo
    echo '```text'
    # Names in files must not end the block. A comment has at most 65,536 characters.
    printf '%s\n' "${text:0:20000}" | sed 's/```/` ` `/g'
    echo '```'
    echo
    echo "</details>"
  } >> "$report"
}

if [ "${#files[@]}" -eq 0 ]; then
  echo "No checkpoints to examine."
  echo "No checkpoints to examine." >> "$report"
  printf '%s' '{"$schema":"https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json","version":"2.1.0","runs":[{"tool":{"driver":{"name":"Statelens"}},"automationDetails":{"id":"statelens-scan/"},"results":[]}]}' > "$out/sarif/scan.sarif"
else
  examine scan -- "${files[@]}"
  if [ "${#folders[@]}" -gt 0 ]; then examine check "${levels[@]+"${levels[@]}"}" -- "${folders[@]}"; fi
fi

cat "$report" >> "${GITHUB_STEP_SUMMARY:-/dev/null}"
{
  echo "whole=$whole"
  echo "sarif=$out/sarif"
  echo "report=$report"
} >> "$output"
echo "whole: $whole"
