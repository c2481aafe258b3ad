#!/usr/bin/env bash
# Demonstrates everything on real code: sets up what is missing, fetches open-source projects, and measures how much
# smaller than with clang -Oz the linked binaries of some of them get with the policy that ships; then trains another one
# on the other projects, and measures that.
#
#   ./run_demo.sh [--minutes N] [--smoke] [--output_dir DIR] [--clang PATH] [--seed N]
#
#   --minutes N       minutes of reinforcement learning (default 30)
#   --smoke           a few small projects and a minute of training, to check that everything works (about 4 minutes)
#   --output_dir DIR  the folder of all results (default demo, or demo-smoke with --smoke)
#   --clang PATH      the compiler (default: the newest installed clang)
#   --seed N          the seed of all random choices (default 1)
#
# After an interruption, the same command resumes.
set -euo pipefail
cd "$(dirname "$0")"

minutes=30 set=small output="" clang="" seed=1
usage() { sed -n '2,/^set -e/p' "$0" | sed -n 's/^# \{0,1\}//p'; }
while [ $# -gt 0 ]; do
  case $1 in
    --minutes) minutes=${2:?--minutes needs a number}; shift 2 ;;
    --smoke) set=smoke; shift ;;
    --output_dir) output=${2:?--output_dir needs a folder}; shift 2 ;;
    --clang) clang=${2:?--clang needs a path}; shift 2 ;;
    --seed) seed=${2:?--seed needs a number}; shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "error: unknown option $1; see $0 --help" >&2; exit 2 ;;
  esac
done
gin=()
if [ $set = smoke ]; then
  : "${output:=demo-smoke}"
  minutes=1
  gin=(--gin_bindings=train_eval.num_modules=8 --gin_bindings=train_eval.rollouts_per_module=4)
fi
: "${output:=demo}"
case $minutes in '' | *[!0-9.]*) echo "error: --minutes: expected a number, found $minutes" >&2; exit 2 ;; esac

./bootstrap.sh --try-plugin
export PYTHONPATH=.
python=.venv/bin/python
compiler=()
[ -z "$clang" ] || compiler=(--clang_path="$clang")

corpus=$output/corpus trace=$output/default_trace.tfrecord vocabulary=$output/vocabulary
warm_start=$output/warm_start training=$output/training report=$output/evaluation
step() { printf '\n== %s\n' "$1"; }

step "1/7 Corpus: real projects, compiled with the stock clang"
$python compiler_opt/tools/fetch_corpus.py --set=$set --output_dir="$corpus" "${compiler[@]}"

step "2/7 The policy that ships: on projects that it was not trained on"
if ! $python compiler_opt/tools/evaluate.py --data_path="$corpus/held_out" --output_dir="$output/shipped" \
  --baselines= --seed="$seed" "${compiler[@]}"; then
  echo "It was not measured; the demo goes on without it."
fi

step "3/7 Default trace: the decisions of clang -Oz"
[ -f "$trace" ] || $python compiler_opt/tools/generate_default_trace.py --data_path="$corpus/train" \
  --output_path="$trace" --seed="$seed" "${compiler[@]}"

step "4/7 Vocabulary: quantiles of the features"
[ -d "$vocabulary" ] || $python compiler_opt/tools/generate_vocab.py --input="$trace" --output_dir="$vocabulary" \
  --seed="$seed" --gin_files=gin_configs/inlining/common.gin

step "5/7 Warm start: a network that imitates the default"
[ -f "$warm_start/policy/saved_model.pb" ] || $python compiler_opt/rl/train_bc.py --output_dir="$warm_start" \
  --data_path="$trace" --vocab_path="$vocabulary" --seed="$seed" \
  --gin_files=gin_configs/inlining/behavioral_cloning_nn_agent.gin

step "6/7 Training: $minutes minutes of reinforcement learning"
$python compiler_opt/rl/train_locally.py --output_dir="$training" --data_path="$corpus/train" \
  --warmstart_policy_dir="$warm_start/policy" --minutes="$minutes" --seed="$seed" \
  --gin_files=gin_configs/inlining/ppo_nn_agent.gin "${gin[@]}" "${compiler[@]}"

step "7/7 Evaluation: on projects that the policy was not trained on"
$python compiler_opt/tools/evaluate.py --data_path="$corpus/held_out" --policy_path="$training/policy" \
  --output_dir="$report" --training_log="$training" --seed="$seed" "${compiler[@]}"
if [ $set = smoke ]; then
  echo "Everything works. A minute of training on two small projects is too short for a gain: run it without --smoke."
fi
