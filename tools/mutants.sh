#!/bin/sh
# Breaks the product on purpose, one patch of tests/mutants at a time, and sees the suite go red for each.
#
# Each mutant lives in a copy; the tests run on the copy's sources. Ends with 1 if a mutant survives. With arguments:
# only the patches whose names hold one of them.
set -u
cd "$(dirname "$0")/.."
root=$PWD
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
survived=0
for patch in tests/mutants/*.patch; do
  name=$(basename "$patch" .patch)
  if [ $# -gt 0 ]; then
    wanted=no
    for word in "$@"; do case $name in *"$word"*) wanted=yes ;; esac; done
    [ $wanted = yes ] || continue
  fi
  rm -rf "$copy/work" && mkdir "$copy/work" && git archive HEAD | tar -x -C "$copy/work"
  (cd "$copy/work" && git apply --unsafe-paths "$root/$patch") || { echo "$name: does not apply"; survived=1; continue; }
  # What the rules, the engine's side and the dispatch's say: enough to see each of these faults.
  failed=$(cd "$copy/work" && PYTHONPATH="$copy/work/client/src:$copy/work/server/src" "$root/.venv/bin/pytest" -x -q -n 2 \
    -p no:cacheprovider tests/conformance tests/redis tests/server -k 'not memory-p16 and not valkey-p16' 2>&1)
  if [ $? -eq 1 ]; then
    echo "$name: killed by $(echo "$failed" | grep -m 1 -oE '^(FAILED|ERROR) [^ ]+' | cut -d' ' -f2)"
  else
    echo "$name: SURVIVED"
    survived=1
  fi
done
exit $survived
