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
  killer=
  for tests in "tests/conformance -k store-valkey-p1" "tests/redis tests/server"; do
    # shellcheck disable=SC2086 # words on purpose
    told=$(cd "$copy/work" && PYTHONPATH="$copy/work/client/src:$copy/work/server/src" \
      "$root/.venv/bin/pytest" -x -q -n 2 -p no:cacheprovider $tests 2>&1) && continue
    killer=$(echo "$told" | grep -m 1 -oE '^(FAILED|ERROR) [^ ]+' | cut -d' ' -f2)
    break
  done
  if [ -n "$killer" ]; then
    echo "$name: killed by $killer"
  else
    echo "$name: SURVIVED"
    survived=1
  fi
done
exit $survived
