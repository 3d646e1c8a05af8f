#!/usr/bin/env bash
# A far better drafter in ten minutes of one big GPU:
#
#   scripts/pack_answers.py RUN/answers answers.safetensors     where the answers were recorded
#   scripts/train_on_gpu.sh answers.safetensors OUT [MINUTES] [START]
#
# START: target (default), or a drafter's folder to go on from. Needs this package and a torch that sees the GPU.
set -euo pipefail
answers=$1 out=$2 minutes=${3:-8} start=${4:-target}
mkdir -p "$out"
cat > "$out/settings.yaml" <<YAML
taps: [2, 9, 15, 21, 28]
init: $start
rows: [8, 7, 6, 5]
sequences: 32
anchors: 32
lr: 1.0e-3
warmup: 200
steps: 1000000
decay_share: 0.5
weight_decay: 0.05
ema: 0.999
held_out: 50
eval_every: 1000000
save_every: 1000
YAML
python -c "import torch, sys; sys.exit(not torch.cuda.is_available())" ||
  { echo "error: torch sees no GPU here" >&2; exit 3; }
draftproof train --target bundled:smollm2 --answers "$answers" --out "$out" --config "$out/settings.yaml" \
  --device cuda --max-minutes "$minutes"
