#!/usr/bin/env bash
# Makes the runs of this page and their report: the rows of Tables 2, 3, 4 and 6 at the scale micro.
#
#   docs/replication/run.sh TEXT XTREME [WORKDIR]
#
# TEXT holds plain text, LL.txt or LL.txt.xz; XTREME is XTREME's download folder. Killed, it goes on where it stood.
# SEEDS=0,1 makes two pre-trainings of each model; SIDE_BY_SIDE=2 runs at a time, each on a share of the cores.
set -euo pipefail

text=${1:?the folder of LL.txt files}
xtreme=${2:?the download folder of XTREME}
workdir=${3:-runs/replication}
seeds=${SEEDS:-0}
side_by_side=${SIDE_BY_SIDE:-2}

# Those with an alphabet, and with text and data: 5,312 pieces have no room for thousands of characters.
languages=af,ar,bg,de,el,en,es,et,fa,fr,id,it,nl,pl,pt,ru,sw,tr,uk,vi
declare -A judged=(
  [udpos]="('af', 'ar', 'bg', 'de', 'el', 'en', 'es', 'et', 'fa', 'fr', 'id', 'it', 'nl', 'pt', 'ru')"
  [panx]="('de', 'en', 'es', 'fr', 'nl', 'pt', 'sw')"
  [xnli]="('de', 'en', 'es', 'sw')"
  [squad]="('ar', 'de', 'el', 'en', 'es', 'ru', 'vi')"
)

# What learns SQuAD is judged on MLQA as well, which has no data in some of these languages.
declare -A besides=([squad]="--finetune_gin.xtreme.evaluate_on=('xquad',)")

vocabulary=$workdir/sentencepiece.model
store=$workdir/store
mkdir -p "$workdir"
[[ -e $vocabulary ]] ||
  python -m tasks.vocabulary --text="$text" --languages="$languages" --size=5312 --output="$vocabulary"
python -m tasks.token_store --text="$text" --languages="$languages" --vocabulary="$vocabulary" \
  --sequence_length=128 --held_out=0.02 --workers=2 --output="$store"

# One task after the other, since each has languages of its own; what is pre-trained for the first serves all.
for task in udpos panx xnli squad; do
  python -m launch.sweep gin/experiments/table{2,3,4,6} --scale=micro --workdir="$workdir/sweep" \
    --gin.data.source=store --gin.data.store="$store" --gin.data.languages=None --pretrain_seeds="$seeds" \
    --data_dir="$xtreme" --tasks="$task" --seeds=0 --finetune_gin.xtreme.languages="${judged[$task]}" \
    --parallel_runs="$side_by_side" ${besides[$task]:+"${besides[$task]}"}
done
