#!/usr/bin/env bash
# Writes the report as one comment on the pull request NUMBER, or updates the comment of an earlier run.
set -euo pipefail
mark='<!-- statelens -->'
comments="repos/$GITHUB_REPOSITORY/issues/$NUMBER/comments"
old=$(gh api --paginate "$comments" --jq ".[] | select(.body | startswith(\"$mark\")) | .id")
# The first: a pipe to `head` would end `gh` early, and with it this script.
old=${old%%$'\n'*}
if [ -n "$old" ]; then
  gh api --method PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$old" --field "body=@$REPORT" --silent
else
  gh api --method POST "$comments" --field "body=@$REPORT" --silent
fi
