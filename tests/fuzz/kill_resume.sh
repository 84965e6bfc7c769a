#!/bin/bash
# kill_resume.sh PROGRAM [KILLS] [CASES]: a campaign disturbed by kill -9 equals an undisturbed one.
#
# Runs CASES cases twice with one seed: once in peace, once with the engine and its workers killed in turn at KILLS
# random moments while cases are in flight, and resumed. The records must be the same, each index once.
set -u
program=${1:?usage: kill_resume.sh PROGRAM [KILLS] [CASES]}
kills=${2:-20}
cases=${3:-600}
folder=$(mktemp -d)
trap 'pkill -9 -P $$ 2>/dev/null; rm -rf "$folder"' EXIT
arguments=(fuzz cpu:standard cpu:flash2 cpu:decode --cases "$cases" --seed 11)

# A record without its timings, which are the only part that may differ.
records() { sed 's/,"kernel_seconds".*//' "$1"/cases/*.jsonl | sort; }
recorded() { cat "$folder"/killed/cases/*.jsonl 2>/dev/null | wc -l; }

"$program" "${arguments[@]}" --out "$folder/calm" >"$folder/calm.log" 2>&1
calm=$?
[ "$(records "$folder/calm" | wc -l)" -eq "$cases" ] || { echo "the undisturbed run recorded $(records "$folder/calm" | wc -l) of $cases cases:"; tail -5 "$folder/calm.log"; exit 1; }

engine_kills=0
worker_kills=0
resume=()
start_engine() {
  "$program" "${arguments[@]}" --out "$folder/killed" "${resume[@]}" >>"$folder/killed.log" 2>&1 &
  engine=$!
  for _ in $(seq 100); do [ -f "$folder/killed/manifest.json" ] && break; sleep 0.02; done
  resume=(--resume)
}
start_engine
for kill in $(seq "$kills"); do
  # Spread the kills over the campaign: wait until a share of the cases is done, then a random moment.
  until [ "$(recorded)" -ge $((cases * (kill - 1) / (kills + 1))) ] || ! kill -0 "$engine" 2>/dev/null; do sleep 0.02; done
  sleep "0.$((RANDOM % 30 + 10))"
  kill -0 "$engine" 2>/dev/null || break
  if [ $((kill % 2)) -eq 1 ]; then
    kill -9 "$engine" && engine_kills=$((engine_kills + 1))
    wait "$engine" 2>/dev/null
    start_engine
  else
    worker=$(pgrep -P "$engine" | shuf -n 1)
    [ -n "$worker" ] && kill -9 "$worker" && worker_kills=$((worker_kills + 1))
  fi
done
wait "$engine"
disturbed=$?

indices() { sed 's/^{"format":"[^"]*","version":[0-9]*,"index":\([0-9]*\),.*/\1/' "$1"/cases/*.jsonl; }
duplicates=$(indices "$folder/killed" | sort | uniq -d | wc -l)
echo "killed the engine $engine_kills times and a worker $worker_kills times over $cases cases; $duplicates indices recorded twice"
if [ "$calm" -ne "$disturbed" ]; then echo "exit codes differ: $calm undisturbed, $disturbed disturbed"; tail -5 "$folder/killed.log"; exit 1; fi
if [ "$duplicates" -ne 0 ] || ! diff <(records "$folder/calm") <(records "$folder/killed") | head -5; then exit 1; fi
[ "$(records "$folder/calm")" = "$(records "$folder/killed")" ] || exit 1
[ $((engine_kills + worker_kills)) -eq "$kills" ] || { echo "only $((engine_kills + worker_kills)) of $kills kills fell into the campaign; give more cases"; exit 1; }
echo "the same $cases ids and verdicts"
