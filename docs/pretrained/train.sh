#!/usr/bin/env bash
# Trains a policy that ships, and writes it into compiler_opt/pretrained. After an interruption, it resumes.
#
#   docs/pretrained/train.sh inlining-Oz-plugin|inlining-Oz-portable CORPORA RUNS [--clang_path=PATH]
#
# CORPORA is the output of `fetch_corpus --set=large`. RUNS receives the trainings. The plugin's policy learns from flips;
# the portable one, which observes less, from the plugin's policy that ships. With 2 cores, the flips take 40 minutes, and
# reinforcement learning 90: FLIP_MINUTES and PPO_MINUTES are those of each seed. PYTHON is the Python of .venv, SEEDS
# lists the seeds.
set -euo pipefail
usage() {
  sed -n '4s/^# *//p' "$0" >&2
  exit 2
}
[ $# -ge 3 ] || usage
name=$1 corpora=$(realpath "$2") runs=$(realpath -m "$3") compiler=("${@:4}")
case $name in *-plugin | *-portable) ;; *) usage ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PYTHONPATH=$PWD
python=${PYTHON:-.venv/bin/python} gin=gin_configs/inlining
shipped=(--output_dir=compiler_opt/pretrained --history_dir=docs/pretrained)
read -ra seeds <<<"${SEEDS:-1 2 3}"
features=--gin_files=$gin/plugin_features.gin

# vocabulary FOLDER [flags]: of the default's decisions on the training projects.
vocabulary() {
  local folder=$1
  [ -d "$folder/vocabulary" ] && return
  mkdir -p "$folder"
  [ -f "$folder/trace.tfrecord.meta.json" ] || $python compiler_opt/tools/generate_default_trace.py \
    --data_path="$corpora/train" --output_path="$folder/trace.tfrecord" --seed=1 "${compiler[@]}" "${@:2}"
  $python compiler_opt/tools/generate_vocab.py --input="$folder/trace.tfrecord" --output_dir="$folder/vocabulary" \
    --seed=1 --gin_files=$gin/common.gin
  # What the rules of step 5 decide by is no input of the network.
  rm -f "$folder"/vocabulary/{callee_cost,further_calls_percent}.buckets
}

# train FOLDER SEED VOCABULARY GIN_FILE [flags]
train() {
  $python compiler_opt/rl/train_locally.py --output_dir="$1" --seed="$2" --vocab_path="$3" --gin_files="$gin/$4" \
    --data_path="$corpora/train" --validation_path="$corpora/validation" "${compiler[@]}" "${@:5}"
}

# 1. What teaches: flips, first of clang's own decisions, or the policy that ships.
vocabulary "$runs/flips" "$features"
if [[ $name == *-plugin ]]; then
  observed=$runs/flips/vocabulary
  stores=""
  for seed in "${seeds[@]}"; do
    train "$runs/flips/seed-$seed" "$seed" "$observed" flips_nn_agent.gin --minutes="${FLIP_MINUTES:-13}"
    stores+="'$runs/flips/seed-$seed/flips',"
  done
else
  vocabulary "$runs/portable"
  observed=$runs/portable/vocabulary
  teacher=pretrained:inlining-Oz-plugin met=$runs/portable/teacher.tfrecord
  [ -f "$met.meta.json" ] || $python compiler_opt/tools/generate_default_trace.py --data_path="$corpora/train" \
    --output_path="$met" --policy_path="$teacher" --record_policy "$features" "${compiler[@]}"
fi

# taught FOLDER SEED
taught() {
  if [[ $name == *-plugin ]]; then
    train "$1" "$2" "$observed" flips_nn_agent.gin --gin_bindings=train_eval.num_iterations=0 \
      --gin_bindings=flips.first_samples=1 --gin_bindings="flips.stores=($stores)"
  else
    $python compiler_opt/rl/train_bc.py --output_dir="$1" --seed="$2" --teacher="$teacher" --vocab_path="$observed" \
      --data_path="$met" --data_path="$runs/flips/trace.tfrecord" --gin_files=$gin/behavioral_cloning_nn_agent.gin
  fi
}

# 2. What they teach; 3. reinforcement learning from there.
trained=""
for seed in "${seeds[@]}"; do
  start=$runs/$name/taught-$seed
  [ -f "$start/policy/saved_model.pb" ] || taught "$start" "$seed"
  train "$runs/$name/seed-$seed" "$seed" "$observed" ppo_from_flips.gin --warmstart_policy_dir="$start/policy" \
    --minutes="${PPO_MINUTES:-26}"
  trained+="${trained:+,}$runs/$name/seed-$seed"
done

# 4. The best of them on the validation projects, with its margin.
if [[ $name == *-portable ]]; then
  $python -m compiler_opt policy release --name="$name" --data_path="$corpora/validation" \
    --training_dirs="$trained" "${shipped[@]}" "${compiler[@]}"
  exit
fi
$python -m compiler_opt policy release --name="$name" --data_path="$corpora/validation" \
  --training_dirs="$trained" --output_dir="$runs/$name/released" \
  --history_dir=docs/pretrained "${compiler[@]}"

# 5. Two rules come before its network, where it has no business.
$python -m compiler_opt policy combine --policy_path="$runs/$name/released/$name" --policy_path=never \
  --feature=further_calls_percent --threshold=101 --output_dir="$runs/$name/with-one-rule"
$python -m compiler_opt policy combine --policy_path=always --policy_path="$runs/$name/with-one-rule" \
  --feature=callee_cost --threshold=10 --output_dir="$runs/$name/with-rules"
$python -m compiler_opt policy release --name="$name" --data_path="$corpora/validation" \
  --policy_path="$runs/$name/with-rules" --margins=0 "${shipped[@]}" "${compiler[@]}"
