#!/usr/bin/env bash
# What each part of the training of `inlining-Oz-plugin` contributes: trains with one part left out at a time, each with
# three seeds and equal compiles, and compares the runs by the validation projects. After an interruption, it resumes.
#
#   studies/ablation.sh CORPORA RUNS [--clang_path=PATH]
#
# CORPORA is the output of `fetch_corpus --set=standard`. RUNS receives the trainings, `RUNS/*/comparison.md` the
# results, and `RUNS/margins-SEED.txt` what margins do. COMPILES are those of reinforcement learning; the flips that
# teach take as many, once for all runs. PYTHON is the Python of .venv, SEEDS lists the seeds.
set -euo pipefail
if [ $# -lt 2 ]; then
  sed -n '5s/^# *//p' "$0" >&2
  exit 2
fi
corpora=$(realpath "$1") runs=$(realpath -m "$2") compiler=("${@:3}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONPATH=$PWD
python=${PYTHON:-.venv/bin/python} gin=$PWD/gin_configs/inlining compiles=${COMPILES:-2000}
mkdir -p "$runs/settings"

# 1. Traces, vocabularies.
trace() {
  [ -f "$runs/$1.tfrecord.meta.json" ] || $python compiler_opt/tools/generate_default_trace.py \
    --data_path="$corpora/train" --output_path="$runs/$1.tfrecord" --seed=1 "${compiler[@]}" "${@:2}"
}
vocabulary() {
  [ -d "$runs/vocabularies/$1" ] || $python compiler_opt/tools/generate_vocab.py --input="$runs/$2.tfrecord" \
    --output_dir="$runs/vocabularies/$1" --seed=1 --gin_files="$gin/common.gin" "${@:3}"
}
trace plugin --gin_files="$gin/plugin_features.gin"
trace portable
vocabulary plugin plugin
vocabulary portable portable
vocabulary unbalanced plugin --gin_bindings=vocabulary.project_balance=0.0 --gin_bindings=vocabulary.distinct_share=0.0

# 2. Flips, and what they teach.
train() {
  $python compiler_opt/rl/train_locally.py --output_dir="$1" --seed=1 --vocab_path="$runs/vocabularies/$2" \
    --gin_files="$gin/flips_nn_agent.gin" --data_path="$corpora/train" "${compiler[@]}" "${@:3}"
}
train "$runs/flips" plugin --gin_bindings=train_eval.max_compiles="$compiles"
taught() {
  [ -f "$runs/$1/policy/saved_model.pb" ] || train "$runs/$1" "$2" --gin_bindings=train_eval.num_iterations=0 \
    --gin_bindings=flips.first_samples=1 --gin_bindings="flips.stores=('$runs/flips/flips',)" "${@:3}"
}
taught taught plugin
taught taught-portable portable
taught taught-unbalanced unbalanced --gin_bindings=flips.project_balance=0.0
[ -f "$runs/cloned/policy/saved_model.pb" ] || $python compiler_opt/rl/train_bc.py --output_dir="$runs/cloned" --seed=1 \
  --data_path="$runs/plugin.tfrecord" --vocab_path="$runs/vocabularies/plugin" \
  --gin_files="$gin/behavioral_cloning_nn_agent.gin"

# 3. Reinforcement learning, with all parts, and with one left out.
settings() {
  printf '%s\n' "include '$gin/$2'" "train_eval.warmstart_policy_dir = '$runs/$3/policy'" "${@:4}" \
    >"$runs/settings/$1.gin"
}
settings everything ppo_from_flips.gin taught
settings no_inputs ppo_from_flips.gin taught-portable
settings no_signal ppo_from_flips.gin taught "advantages.credit = 'module'" 'train_eval.counts_copies = False'
settings no_balance ppo_from_flips.gin taught-unbalanced "train_eval.sampling = 'uniform'" 'ppo.project_balance = 0.0'
settings no_ppo_balance ppo_from_flips.gin taught "train_eval.sampling = 'uniform'" 'ppo.project_balance = 0.0'
settings no_teacher ppo_nn_agent.gin cloned
compare() {
  local files=() name
  for name in "${@:3}"; do
    files+=("--gin_files=$runs/settings/$name.gin")
  done
  $python -m compiler_opt.tools.compare_trainers --data_path="$corpora/train" --validation_path="$corpora/validation" \
    --compiles="$2" --validate_every="$2" --seeds="${SEEDS:-1,2,3}" --output_dir="$runs/$1" "${compiler[@]}" "${files[@]}"
}
compare parts "$compiles" everything no_inputs no_signal no_balance no_ppo_balance
compare without_teacher $((2 * compiles)) no_teacher

# 4. The policy with all parts, with margins and without.
for seed in $(tr , ' ' <<<"${SEEDS:-1,2,3}"); do
  [ -s "$runs/margins-$seed.txt" ] || {
    $python -m compiler_opt policy margin --policy_path="$runs/parts/everything/seed-$seed/policy" --dry_run \
      --data_path="$corpora/validation" "${compiler[@]}" >"$runs/margins-$seed.unfinished"
    mv "$runs/margins-$seed.unfinished" "$runs/margins-$seed.txt"
  }
done
