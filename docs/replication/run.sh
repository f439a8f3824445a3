#!/usr/bin/env bash
# Trains and evaluates the models of docs/replication, and adds their scores to docs/replication/scores.csv.
#
#   docs/replication/run.sh TEXT XTREME [WORKDIR]
#
# TEXT is a directory of plain text, LL.txt or LL.txt.xz; XTREME is XTREME's download directory. Run the command again to
# resume. What learning_rates.csv and scores.csv have is not run again, so the study can continue on another machine.
# WORKERS=2 models are trained at a time, one per core.
set -euo pipefail

export text=${1:?the directory of LL.txt files} xtreme=${2:?the download directory of XTREME}
export workdir=${3:-runs/replication}
export vocabulary=$workdir/sentencepiece.model store=$workdir/store
workers=${WORKERS:-2}

# Alphabets, not syllables or ideographs, for which a vocabulary of 5,312 has no room; with text and data.
languages=af,ar,bg,de,el,en,es,et,fa,fr,id,it,nl,pt,ru,sw
mkdir -p "$workdir"
[[ -e $vocabulary ]] ||
  python -m tasks.vocabulary --text="$text" --languages="$languages" --size=5312 --output="$vocabulary"
python -m tasks.token_store --text="$text" --languages="$languages" --vocabulary="$vocabulary" \
  --sequence_length=128 --held_out=0.02 --workers=2 --output="$store"

sweep() {  # DIRECTORY FILE OPTION…
  taskset -c "$WORKER" python -m launch.sweep "$2" --scale=micro --gin_file=docs/replication/pretraining.gin \
    --gin.data.store="$store" --workdir="$1" --data_dir="$xtreme" "${@:3}"
}

tune() {  # FILE LEARNING_RATES
  local directory
  directory=$workdir/learning_rates/$(basename "$1" .gin)_$2
  sweep "$directory" "$1" --grid=LEARNING_RATE="$2" --pretrain_seeds=1000 --tasks=
  flock "$workdir/lock" python -m docs.tools.replication --tuned="$directory"
}

# Each task and analysis has languages of its own.
run() {  # FILE LEARNING_RATE SEED
  local udpos="('af', 'ar', 'bg', 'de', 'el', 'en', 'es', 'et', 'fa', 'fr', 'id', 'it', 'nl', 'pt', 'ru')"
  local panx="('de', 'en', 'es', 'fr', 'nl', 'pt', 'sw')"
  local tatoeba="('af', 'ar', 'bg', 'de', 'el', 'es', 'et', 'fa', 'fr', 'id', 'it', 'nl', 'pt', 'ru', 'sw')"
  local file=$1 rate=$2 seed=$3 directory
  directory=$workdir/models/$(basename "$file" .gin)/seed_$seed
  model() {
    sweep "$directory" "$file" --gin.LEARNING_RATE="$rate" --pretrain_seeds="$seed" "$@"
  }
  model --tasks=udpos --finetune_gin_file=docs/replication/finetuning.gin --finetune_gin.xtreme.languages="$udpos"
  model --tasks=panx --finetune_gin_file=docs/replication/finetuning.gin --finetune_gin.xtreme.languages="$panx"
  model --tasks= --analyses=layer_retrieval --analyze_gin.xtreme.data_dir="$xtreme" \
    --analyze_gin.xtreme.languages="$tatoeba"
  model --tasks= --analyses=edge_probing --analyze_gin.xtreme.data_dir="$xtreme" --analyze_gin.xtreme.languages="$udpos" \
    --analyze_gin.analyze.control=False --analyze_gin.probe.max_train=3000 --analyze_gin.probe.epochs=8
  flock "$workdir/lock" python -m docs.tools.replication --collect="$directory"
}

export -f sweep tune run
in_parallel() {  # FUNCTION, which gets the fields of a line of the input
  xargs --no-run-if-empty --max-procs="$workers" --process-slot-var=WORKER --max-lines=1 bash -euo pipefail -c "$1 \"\$@\"" -
}
while python -m docs.tools.replication --missing=learning_rates | grep . > "$workdir/untuned"; do
  in_parallel tune < "$workdir/untuned"
done
# The seeds that every claim needs, then those of claims that are not decided by them.
for seeds in first later; do
  python -m docs.tools.replication --missing="$seeds" | in_parallel run
done
