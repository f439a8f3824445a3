"""How the commands of the pages are run at a small scale: three tables, and what applies them.

A command of a page reaches the program as it is shown, with these differences and no others:

- PLACEHOLDERS: what a reader replaces as well;
- SMALLER: arguments that are added at the end, so that minutes become seconds; what the page itself has set is
  overridden only where it is a matter of size or of the machine (`OVERRIDDEN`);
- WAYS: how a command is run that cannot be run here as it is.

A page may show anything that these tables cover. A command that they do not cover fails tests/docs: add a line here.
"""

import dataclasses
import enum
import re
import shlex
from collections.abc import Sequence

from documented_commands import Command

# Pattern in a word of the page → what stands for it in the sandbox (tests/support/command_sandbox.py makes the files).
PLACEHOLDERS = (
  (r'^--workdir=/shared/', '--workdir=shared/'),
  (r'/path/to/dumps\b', 'dumps'),
  (r'^--gin\.vocabulary\.path=FILE$', '--gin.vocabulary.path=sentencepiece.model'),
  (r'^--gin\.train\.init_from=(PATH|MODEL)$', '--gin.train.init_from=runs/pretrain_smoke'),
  (r'^--init=MODEL$', '--init=runs/pretrain_smoke'),
  (r'^--gin\.train\.init_from=google/rembert$', '--gin.train.init_from=runs/pretrain_smoke'),
  (r'^(--gin\.train\.init_from|--extend)=runs/rembert_original', r'\1=runs/pretrain_smoke'),
  (r'^--gin\.analyze\.model=runs/rembert_original$', '--gin.analyze.model=runs/pretrain_smoke'),  # it has a vocabulary
  (r'^--output=FILE$', '--output=report.json'),
  (r'^--gin\.xtreme\.data_dir=FOLDER$', '--gin.xtreme.data_dir=download'),
  (r'\bgoogle/rembert\b', 'google-rembert'),
  (r'analyze_NAME\.gin', 'analyze_masked_accuracy.gin'),
  (r'runs/mine_NAME', 'runs/mine_masked_accuracy'),
  (r'^--grid=NAME=A,B$', '--grid=train.batch_size=8,16'),
  (r'^--steps=1200,1400,1600$', '--steps=2'),  # the checkpoint of a run of two steps
  (r'^--analyze_gin\.analyze\.NAME=VALUE$', '--analyze_gin.analyze.rows=8'),
  (r'\bWORKDIR\b', 'runs/pretrain_smoke'),
)
# A folder stands for a bucket; where a command is only asked what it would do, a bucket.
_FOLDER, _BUCKET = (r'gs://BUCKET\b', 'bucket'), (r'gs://BUCKET\b', 'gs://my-bucket')


class Way(enum.Enum):
  """What is done with a command."""

  RUN = 'run'
  DRY_RUN = 'run with --dry_run'
  PRINTED = 'printed by make --dry-run: the target is there, and its commands are'
  WITHIN = 'what runs in the container is run'
  LISTED = 'not run'


@dataclasses.dataclass(frozen=True)
class Rule:
  """Which commands go which way."""

  pattern: str  # that the beginning of the command matches, placeholders filled in
  way: Way = Way.RUN  # what is done with it
  why: str = ''  # for what is not run as it is
  exit_codes: tuple[int, ...] = (0,)  # that it may end with


_PYTHON = r'(?:\S*/)?python3? -m '
# The first that matches counts.
WAYS = (
  Rule(_PYTHON + r'launch\.(tpu_vm|queued_resource|slurm) ', Way.DRY_RUN, 'needs machines of others'),
  Rule(_PYTHON + r'launch\.sweep ', Way.DRY_RUN, 'dozens of runs; tests/launch/test_sweep.py makes a small one'),
  Rule(_PYTHON + r'launch\.xtreme .*--devices=', Way.DRY_RUN, 'needs several GPUs'),
  # What it finds on this machine is this machine's affair; that it says so in a table is the command's.
  Rule(_PYTHON + r'rembert\.doctor', exit_codes=(0, 1)),
  # With --check: the samples are not the whole of XTREME, so the exit code is 1.
  Rule(_PYTHON + r'tasks\.xtreme\.download ', exit_codes=(1,)),
  Rule(_PYTHON + r'docs\.tools\.', Way.LISTED, 'writes a page of the project; tests/docs/tools calls it'),
  Rule(
    _PYTHON + r'tasks\.corpus --text=hf://', Way.LISTED, 'needs Hugging Face; tests/tasks/corpus serve a made-up one'
  ),
  Rule(_PYTHON + r'tasks\.\w+ .*--runner=', Way.LISTED, 'needs a cluster; tests/tasks/corpus/test_dask.py starts one'),
  Rule(_PYTHON + r'rembert\.convert to_hf .*--push=', Way.LISTED, 'uploads; tests/convert/test_hub.py starts a Hub'),
  Rule(_PYTHON + r'benchmarks\.time_to_quality ', Way.LISTED, 'ten minutes a run; tests/benchmarks makes short ones'),
  Rule(_PYTHON + r'(rembert|tasks|launch|benchmarks)\b'),
  Rule(
    r'(?:PYTHONPATH=\S+ )?(?:\S*/)?python tests/support/launcher_commands\.py', Way.LISTED, 'writes tests/golden again'
  ),
  Rule(r'bash docs/replication/run\.sh ', Way.LISTED, 'hours; tests/docs/test_replication.py reads its commands'),
  Rule(r'python3\.\d+ -m venv '),
  Rule(r'make (smoke|test|help)(?![\w-])'),
  Rule(r'(cat|head|paste|touch) '),
  Rule(r'source .venv/bin/activate', Way.LISTED, 'changes the shell that it is typed into'),
  Rule(
    r'(?:[A-Z_]+=\S+ )*make \w',
    Way.PRINTED,
    '.ci/run runs it, or it installs packages or rewrites files of the project',
  ),
  Rule(r'docker run .* python -m ', Way.WITHIN, 'needs a Docker daemon'),
  Rule(r'docker (build|push) ', Way.LISTED, 'needs a Docker daemon; tests/launch reads the Dockerfiles'),
  Rule(r'gcloud ', Way.LISTED, 'needs an account of Google Cloud'),
  Rule(r'xpk ', Way.LISTED, 'needs a GKE cluster'),
  Rule(r'ssh-add ', Way.LISTED, 'needs a key of gcloud'),
  Rule(r'(?:\S*/)?pip install ', Way.LISTED, 'installs packages'),
  Rule(r'pre-commit install', Way.LISTED, 'writes into .git'),
  Rule(r'sh lock\.sh', Way.LISTED, 'asks the package index'),
  Rule(r'hf auth login', Way.LISTED, 'needs an account of the Hugging Face Hub'),
  Rule(r'wandb (login|sync)', Way.LISTED, 'needs an account of Weights & Biases'),
)

_SMALL_MODEL = (
  '--gin.RemBertConfig.num_hidden_layers=2 --gin.RemBertConfig.num_attention_heads=4 '
  '--gin.RemBertConfig.hidden_size=32 --gin.RemBertConfig.intermediate_size=64 '
  '--gin.RemBertConfig.input_embedding_size=16 --gin.RemBertConfig.output_embedding_size=48'
)
_FEW_STEPS = (
  '--gin.train.steps=2 --gin.train.batch_size=8 --gin.train.log_every=1 '
  '--gin.train.eval_every=2 --gin.train.eval_rows=2 --gin.train.checkpoint_every=2 --gin.optimizer.warmup_steps=1'
)
_SHORT_ROWS = '--gin.train.sequence_length=64'
_LITTLE_TEXT = '--gin.vocabulary.sample_characters=300000'
_PRETRAINING = r'rembert\.main .*gin/(pretrain_|experiments/)'
_CONTINUING = r'rembert\.main .*gin/(continue_|recipes/continued)'
_LEARNING = r'rembert\.main .*gin/finetune_'
# Pattern found in a command, placeholders filled in → arguments that are added; all that match count, in this order.
SMALLER = (
  # The README makes a file of the same name before a page is played.
  (r'tasks\.vocabulary (?!report)', '--overwrite'),
  (rf'{_PRETRAINING}(?!.*--dry_run)', _FEW_STEPS),
  # Rows of a store are as long as they are.
  (rf'{_PRETRAINING}(?!.*--dry_run)(?!.*data\.source=store)', _SHORT_ROWS),
  (rf'{_PRETRAINING}(?!smoke)(?!.*--dry_run)', _SMALL_MODEL),
  (r'rembert\.main .*gin/pretrain_smoke', _LITTLE_TEXT),
  (rf'{_CONTINUING}(?!.*--dry_run)', f'{_FEW_STEPS} {_SHORT_ROWS} --gin.train.accumulation_steps=1'),
  (r'tasks\.vocabulary .*--extend=', '--size=9000'),
  (r'rembert\.main .*gin/recipes/continued', '--gin.RemBertConfig.vocab_size=9000'),
  # The released model's text and vocabulary are far away.
  (
    r'rembert\.main .*gin/pretrain_large(?!.*--dry_run)',
    '--gin.data.source=dumps --gin.data.dumps=dumps --gin.data.languages=None '
    '--gin.vocabulary.path=runs/pretrain_smoke/vocabulary/sentencepiece.model --gin.RemBertConfig.vocab_size=8000',
  ),
  # So are the Wikipedias of TFDS, and a vocabulary of 120,000 tokens requires more text than the samples.
  (
    r'rembert\.main .*gin/(pretrain_base|experiments/)(?!.*data\.source=)(?!.*--dry_run)',
    '--gin.data.source=dumps --gin.data.dumps=dumps --gin.data.languages=None',
  ),
  (
    r'rembert\.main .*gin/(pretrain_base|experiments/)(?!.*vocab_size=)(?!.*--dry_run)',
    '--gin.RemBertConfig.vocab_size=8000',
  ),
  # Files of machines name the mesh of that machine.
  (
    r'rembert\.main .*gin/hardware/(?!.*--dry_run)',
    '--gin.mesh.data=1 --gin.mesh.fsdp=-1 --gin.mesh.require_platform=None --gin.train.accumulation_steps=1 '
    '--gin.hardware.xla_flags=() --gin.execution.attention=einsum',
  ),
  (r'rembert\.main .*--mode=compile', '--topology=cpu:8'),
  (
    _LEARNING,
    '--gin.train.batch_size=8 --gin.train.sequence_length=64 --gin.finetune.epochs=1',
  ),
  (r'gin/analyze_masked_accuracy', f'--gin.analyze.rows=2 {_SHORT_ROWS}'),
  (
    r'gin/analyze_edge_probing',
    '--gin.probe.epochs=1 --gin.probe.projection=8 --gin.probe.hidden=8 --gin.analyze.samples=20',
  ),
  (r'gin/analyze_word_similarity', '--gin.analyze.samples=20'),
  (r'launch\.xtreme ', '--tasks=udpos --seeds=0 --gin.train.batch_size=6 --gin.train.sequence_length=64'),
  (r'launch\.xtreme .*scales/finetuning/', '--gin.finetune.epochs=1'),
  (r'tasks\.xtreme\.download ', '--check'),
  (r'tracking\.wandb_project=', '--gin.tracking.wandb_project=None'),  # it is not installed
  (r'^make smoke', f'ARGS="{_FEW_STEPS} {_SHORT_ROWS} {_LITTLE_TEXT}"'),
  (r'^make test(?![\w-])', 'ARGS=tests/test_paper.py'),
  (r'^python3\.\d+ -m venv ', '--without-pip'),
)
# What may be set otherwise than the page does: sizes, lengths, and the machine.
OVERRIDDEN = {
  *('--topology', '--seeds', '--tasks', '--setting', '--size', '--gin.mesh.data', '--gin.analyze.rows'),
  '--gin.tracking.wandb_project',
  *('--gin.train.steps', '--gin.train.batch_size', '--gin.train.accumulation_steps'),
  *('--gin.RemBertConfig.num_hidden_layers', '--gin.RemBertConfig.vocab_size'),
}

# Options that a page explains by themselves: what they are tried with. The first pattern that matches counts. Of those
# that none matches, or whose value is left open (`…`), the name alone is looked up.
WITH_OPTIONS = (
  (r'--mode=analyze', 'python -m rembert.main --gin_file=gin/analyze_edge_probing.gin --gin.analyze.model=runs/mine'),
  (
    r'--(mode|topology|search_batch|output)\b',
    'python -m rembert.main --gin_file=gin/pretrain_smoke.gin --mode=compile',
  ),
  (
    r'--gin\.(analyze|probe)\.',
    'python -m rembert.main --gin_file=gin/analyze_edge_probing.gin --gin.analyze.model=runs/mine',
  ),
  (
    r'--gin\.[A-Z_]+=',
    'python -m rembert.main --gin_file=gin/experiments/table4/in128_out3072.gin --gin_file=gin/scales/mini.gin',
  ),
  (
    r'--gin\.(finetune|xtreme)\.',
    'python -m rembert.main --gin_file=gin/finetune_udpos.gin --gin.xtreme.data_dir=download',
  ),
  (r'--gin[._]', 'python -m rembert.main --gin_file=gin/pretrain_base.gin'),
  (
    r'--(grid|pretrain_seeds|tasks|seeds|learning_rates|finetune_grid|analyses|analyze_gin|devices|parallel_runs)[=.]',
    'python -m launch.sweep gin/experiments/table4/in128_out768.gin --scale=mini --data_dir=download',
  ),
)
# Options of programs that are not ours.
OF_OTHERS = {
  '--no-deps': 'pip',
  '--basetemp': 'pytest',
  '--max-restarts': 'xpk',
  '--survivors-of': 'tests/support/mutation_testing.py',
}


class NoRule(Exception):
  """A page shows what no table covers."""


@dataclasses.dataclass(frozen=True)
class Planned:
  """How a command of a page is run."""

  words: tuple[str, ...]  # of the page, placeholders filled in
  added: tuple[str, ...]  # what is added at the end
  rule: Rule  # which way it goes

  @property
  def arguments(self) -> tuple[str, ...]:
    """All words that are run."""
    if self.rule.way is Way.DRY_RUN and '--dry_run' not in self.words:
      cut = self.words.index('--') if '--' in self.words else len(self.words)
      return (*self.words[:cut], '--dry_run', *self.words[cut:], *self.added)
    return (*self.words, *self.added)


def filled_in(words: Sequence[str]) -> tuple[str, ...]:
  """Words with placeholders replaced; `…` says that more can be added, and is left out."""
  line = ' '.join(words)
  is_asked = any(rule.way is Way.DRY_RUN for rule in WAYS if re.match(rule.pattern, line))
  found = []
  for word in words:
    for pattern, replacement in (*PLACEHOLDERS, _BUCKET if is_asked else _FOLDER):
      word = re.sub(pattern, replacement, word)
    if word not in ('…', '...'):
      found.append(word)
  return tuple(found)


def planned(command: Command) -> Planned:
  """How a command is run; NoRule if no table covers it."""
  words = filled_in(command.words)
  rule = rule_of(' '.join(words))
  if rule is None:
    raise NoRule(
      f'{command}\n  no rule says how this is run: give WAYS in tests/support/small_scale.py one (and SMALLER, if it '
      'takes longer than seconds), or fix the page'
    )
  if rule.way is Way.WITHIN:
    words = words[words.index('python') :]
  return Planned(words, added_to(' '.join(words)), rule)


def rule_of(line: str) -> Rule | None:
  """The rule of a command, placeholders filled in."""
  return next((rule for rule in WAYS if re.match(rule.pattern, line)), None)


def added_to(line: str) -> tuple[str, ...]:
  """What is added to a command, placeholders filled in."""
  return tuple(word for pattern, added in SMALLER if re.search(pattern, line) for word in shlex.split(added))


def tried_with(options: Sequence[str]) -> tuple[str, ...] | None:
  """A whole command with options that stand alone on a page; None where their names are all that can be looked up."""
  words = filled_in(options)
  if any('…' in word for word in words):
    return None
  for pattern, base in WITH_OPTIONS:
    if re.match(pattern, words[0]):
      return (*shlex.split(base), *words)
  return None
