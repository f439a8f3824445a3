"""Trains one small model here and with Hugging Face's Trainer for the same minutes, and compares their eval loss.

Both start from the same text and vocabulary, with the same model, batch, optimizer and learning rate. This project
streams the text through SeqIO; the other way is that of transformers' example for masked language modelling: `datasets`
tokenizes the text, concatenates it and cuts it into blocks, a collator masks them, and `Trainer` takes the steps. A run
begins with its process, and is killed when its minutes are over. Its checkpoints are evaluated afterwards, all on the
same held-out texts, so evaluation takes no time from either.

The rate is constant after a warmup: checkpoints of one run are comparable over time, and over the number of tokens.
"""

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.settings import ADAMW, CLIP_NORM, SMALL, call
from rembert.command_line import command_parser
from rembert.files import write_whole
from rembert.plotting import style
from rembert.tracking.console import Console
from rembert.validation import Count, Positive, number

ROWS, LENGTH = 32, 128
LEARNING_RATE, WARMUP, B2 = 5e-4, 200, 0.98
EVAL_TEXTS, EVAL_BATCH, MASKED = 512, 32, 0.15
HELD_OUT = 0.02
OURS, THEIRS = 'this project', "Hugging Face's Trainer"
FIELDS = ('candidate', 'seed', 'step', 'tokens', 'seconds', 'loss')
EXAMPLES = """
Two cores that do nothing else take `minutes` per candidate and seed, and a minute more for each evaluation.

  python -m benchmarks.time_to_quality --text=DIR                                          ten minutes, three seeds
  python -m benchmarks.time_to_quality --text=DIR --languages=de,en --minutes=1 --seeds=1  a try

Finished runs are kept: the same command resumes. `make bench` installs what Hugging Face's candidate needs.
"""


class Problem:
  """What all runs share, in the directory of the benchmark."""

  def __init__(self, folder: pathlib.Path):
    self.folder = folder
    self.corpus, self.vocabulary = folder / 'corpus', folder / 'sentencepiece.model'
    self.text = folder / 'train.txt'  # the training documents of the corpus, a paragraph a line
    self.model = folder / 'model'  # configuration and tokenizer, as Hugging Face has them

  def prepare(self, text: str, languages: str | None, console: Console) -> None:
    """Makes corpus and vocabulary unless they exist, and what Hugging Face's candidate reads."""
    from rembert.convert.huggingface import config_json
    from rembert.convert.tokenizer_files import write_tokenizer
    from tasks.corpus.format import open_corpus

    source = [f'--text={text}', *([f'--languages={languages}'] if languages else [])]
    with console.task('corpus and vocabulary'):
      call('tasks.corpus', *source, f'--output={self.corpus}', f'--held_out={HELD_OUT}')
      if not self.vocabulary.exists():
        call('tasks.vocabulary', f'--corpus={self.corpus}', f'--size={SMALL.vocab_size}', f'--output={self.vocabulary}')
    corpus = open_corpus(self.corpus)
    with open(self.text, 'w') as file:
      for language in corpus.languages:
        file.writelines(f'{document}\n' for document in corpus.texts(language, 'train'))
    self.model.mkdir(exist_ok=True)
    (self.model / 'config.json').write_text(json.dumps(config_json(SMALL, 'mlm', ())))
    write_tokenizer(self.vocabulary, self.model, longest=LENGTH)

  def evaluation_batches(self) -> Iterator[dict[str, np.ndarray]]:
    """Batches of held-out texts [B, S]: `input_ids` with masks, `attention_mask`, and `labels`, −1 where not masked."""
    from rembert.tokenizer import SpecialIds, load_vocabulary
    from tasks.corpus.format import open_corpus

    corpus, vocabulary, special = open_corpus(self.corpus), load_vocabulary(self.vocabulary), SpecialIds()
    texts = [text for language in corpus.languages for text in corpus.texts(language, 'validation')]
    random = np.random.default_rng(0)
    chosen = random.permutation(len(texts))[:EVAL_TEXTS]
    for numbers in np.array_split(chosen, -(-len(chosen) // EVAL_BATCH)):
      ids = np.full((EVAL_BATCH, LENGTH), special.pad, np.int32)
      for row, index in zip(ids, numbers, strict=False):
        pieces = [special.cls, *vocabulary.encode(texts[index])[: LENGTH - 2], special.sep]
        row[: len(pieces)] = pieces
      is_masked = (ids >= special.first_piece) & (random.random(ids.shape) < MASKED)
      yield {
        'input_ids': np.where(is_masked, special.mask, ids).astype(np.int32),
        'attention_mask': (ids != special.pad).astype(np.int32),
        'labels': np.where(is_masked, ids, -1),
      }

  def losses(self, checkpoints: Sequence[pathlib.Path]) -> Iterator[float]:
    """Nats per masked token, for each checkpoint of either candidate."""
    import jax
    import optax

    from rembert.inference.model import load

    @jax.jit
    def loss_sum(logits_BxSxV, labels_BxS):
      losses_BxS = optax.losses.softmax_cross_entropy_with_integer_labels(logits_BxSxV, labels_BxS.clip(0))
      return losses_BxS.sum(where=labels_BxS >= 0)

    batches = list(self.evaluation_batches())
    count = sum((batch['labels'] >= 0).sum() for batch in batches)
    for checkpoint in checkpoints:
      model, total = load(checkpoint, 'mlm'), 0.0
      for batch in batches:
        logits = model(batch['input_ids'], attention_mask=batch['attention_mask']).logits
        total += float(loss_sum(logits, batch['labels']))
      yield total / count


# --- candidates -------------------------------------------------------------------------------------------------------


class Candidate(NamedTuple):
  """A way to train.

  Attributes:
    command: of the problem, the directory of the run, the seed, and the steps from checkpoint to checkpoint.
    checkpoints: where it puts them; `*` is the step.
    save_every: steps from one to the next.
  """

  command: Callable[[Problem, pathlib.Path, int, int], list[str]]
  checkpoints: str
  save_every: int


def our_command(problem: Problem, folder: pathlib.Path, seed: int, save_every: int) -> list[str]:
  """`python -m rembert.main` on the corpus."""
  model = {name: getattr(SMALL, name) for name in (field.name for field in dataclasses.fields(SMALL))}
  values = {f'RemBertConfig.{name}': value for name, value in model.items()}
  values |= {
    'run.mode': 'pretrain',
    'data.corpus': str(problem.corpus),
    'data.alpha': 1.0,  # as often as in the text, which the other candidate reads from end to end
    'vocabulary.path': str(problem.vocabulary),
    'optimizer.learning_rate': LEARNING_RATE,
    'optimizer.schedule': 'constant',
    'optimizer.warmup_steps': WARMUP,
    'optimizer.b2': B2,
    'optimizer.bias_correction': True,
    'optimizer.eps': ADAMW['eps'],
    'optimizer.weight_decay': ADAMW['weight_decay'],
    'optimizer.clip_norm': CLIP_NORM,
    'train.batch_size': ROWS,
    'train.sequence_length': LENGTH,
    'train.seed': seed,
    'train.eval_every': 0,
    'train.checkpoint_every': save_every,
    'train.keep_checkpoints': 1000,
  }
  file = folder / 'run.gin'
  file.write_text(''.join(f'{name} = {value!r}\n' for name, value in values.items()))
  files = [f'--gin_file={file}', '--gin_file=gin/hardware/cpu.gin']
  return [sys.executable, '-m', 'rembert.main', *files, f'--workdir={folder}']


def their_command(problem: Problem, folder: pathlib.Path, seed: int, save_every: int) -> list[str]:
  """A process that calls `train_with_torch`."""
  arguments = (str(problem.folder), str(folder), seed, save_every)
  return [sys.executable, '-c', f'from benchmarks import time_to_quality as t; t.train_with_torch(*{arguments!r})']


def train_with_torch(problem_folder: str, folder: str, seed: int, save_every: int) -> None:
  """Trains until it is killed: the steps of transformers' example for masked language modelling, at its fastest here.

  That is bfloat16 autocast, compiled, with AdamW in one pass over the parameters, and a process that prepares batches.
  """
  import datasets
  import transformers

  datasets.disable_progress_bars()
  problem = Problem(pathlib.Path(problem_folder))
  transformers.set_seed(seed)
  tokenizer = transformers.AutoTokenizer.from_pretrained(problem.model)
  model = transformers.RemBertForMaskedLM(transformers.AutoConfig.from_pretrained(problem.model))

  def tokenize(batch: dict) -> dict:
    return tokenizer(batch['text'], return_special_tokens_mask=True)

  def blocks(batch: dict) -> dict:
    joined = {name: list(itertools.chain.from_iterable(rows)) for name, rows in batch.items()}
    end = len(joined['input_ids']) // LENGTH * LENGTH
    return {name: [ids[at : at + LENGTH] for at in range(0, end, LENGTH)] for name, ids in joined.items()}

  text = datasets.load_dataset('text', data_files=str(problem.text), split='train', cache_dir=f'{folder}/cache')
  tokenized = text.map(tokenize, batched=True, num_proc=2, remove_columns=['text'])
  options = transformers.TrainingArguments(
    output_dir=folder,
    max_steps=10_000_000,
    per_device_train_batch_size=ROWS,
    learning_rate=LEARNING_RATE,
    lr_scheduler_type='constant_with_warmup',
    warmup_steps=WARMUP,
    adam_beta2=B2,
    adam_epsilon=ADAMW['eps'],
    weight_decay=ADAMW['weight_decay'],
    max_grad_norm=CLIP_NORM,
    optim='adamw_torch_fused',
    bf16=True,
    torch_compile=True,
    use_cpu=True,
    dataloader_num_workers=1,
    dataloader_drop_last=True,
    save_steps=save_every,
    save_only_model=True,
    report_to='none',
    disable_tqdm=True,
    seed=seed,
  )
  collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=MASKED)
  dataset = tokenized.map(blocks, batched=True, num_proc=2)
  transformers.Trainer(model, options, train_dataset=dataset, data_collator=collator).train()


CANDIDATES = {
  OURS: Candidate(our_command, 'checkpoints/*', 100),
  THEIRS: Candidate(their_command, 'checkpoint-*', 50),
}


# --- runs -------------------------------------------------------------------------------------------------------------


def train(name: str, problem: Problem, seed: int, seconds: float, console: Console) -> list[dict]:
  """Runs a candidate for so long, and evaluates its checkpoints; rows of `FIELDS`, by step."""
  candidate, folder = CANDIDATES[name], problem.folder / 'run'
  shutil.rmtree(folder, ignore_errors=True)
  folder.mkdir()
  caches = {'JAX_ENABLE_COMPILATION_CACHE': 'false', 'TORCHINDUCTOR_CACHE_DIR': str(folder / 'inductor')}
  command, log = candidate.command(problem, folder, seed, candidate.save_every), problem.folder / 'log.txt'
  with console.task(f'{name}, seed {seed}') as progress, open(log, 'w') as output:
    start, clock = time.time(), time.monotonic()
    process = subprocess.Popen(
      command, stdout=output, stderr=output, env={**os.environ, **caches}, start_new_session=True
    )
    try:
      while process.poll() is None and (done := time.monotonic() - clock) < seconds:
        progress(done / seconds)
        time.sleep(0.2)
    finally:
      stopped = process.poll()
      if stopped is None:
        os.killpg(process.pid, 9)
        process.wait()
    if stopped is not None:
      raise RuntimeError(f'{name} ended by itself with exit code {stopped}: see {log}')
  named = ((re.fullmatch(r'(checkpoint-)?(\d+)', path.name), path) for path in folder.glob(candidate.checkpoints))
  paths = {int(match[2]): path for match, path in named if match}
  times = {step: max(each.stat().st_mtime for each in path.rglob('*')) - start for step, path in paths.items()}
  # Hugging Face's checkpoints have their names before their files are written: the last may not be whole.
  steps = [step for step in sorted(paths) if times[step] < seconds - 1]
  if not steps:
    raise RuntimeError(f'{name} saved no checkpoint in {seconds:.0f} s: --minutes; see {log}')
  rows = []
  with console.task('evaluating') as progress:
    for step, loss in zip(steps, problem.losses([paths[step] for step in steps]), strict=True):
      values = (name, seed, step, step * ROWS * LENGTH, round(times[step], 1), round(float(loss), 4))
      rows.append(dict(zip(FIELDS, values, strict=True)))
      progress(len(rows) / len(steps), f'step {step}: {loss:.3f}')
  shutil.rmtree(folder)
  return rows


def summarize(rows: pd.DataFrame) -> tuple[list[tuple[str, ...]], str]:
  """A line per candidate, with means over seeds; and how long this project takes to the other's last loss."""
  ends = rows.sort_values('step').drop_duplicates(['candidate', 'seed'], keep='last')
  lines = []
  for name in CANDIDATES:
    of_candidate = ends[ends['candidate'] == name]
    losses, tokens = of_candidate['loss'], of_candidate['tokens']
    deviation = f' ± {losses.std():.3f}' if len(losses) > 1 else ''
    speed = (tokens / of_candidate['seconds']).mean()
    lines.append((name, f'{speed:,.0f}', f'{tokens.mean() / 1e6:.2f}', f'{losses.mean():.3f}{deviation}'))
  reached = []
  for seed, theirs in ends[ends['candidate'] == THEIRS].set_index('seed').iterrows():
    ours = rows[(rows['candidate'] == OURS) & (rows['seed'] == seed)].sort_values('step')
    if len(ours) and ours['loss'].iloc[-1] <= theirs['loss']:
      falling = np.minimum.accumulate(ours['loss'])
      at = lambda column, x=falling, y=ours, loss=theirs['loss']: np.interp(-loss, -x, y[column])
      reached.append((theirs['seconds'] / at('seconds'), theirs['tokens'] / at('tokens')))
  if not reached:
    return lines, f'{OURS} does not reach the last loss of {THEIRS}'
  times, tokens = np.mean(reached, axis=0)
  return lines, f'to the last loss of {THEIRS}, {OURS} takes 1/{times:.1f} of the time and 1/{tokens:.2f} of the tokens'


def plot(rows: pd.DataFrame) -> bytes:
  """Eval loss over minutes and over tokens, a line per run; PNG."""
  with style.canvas(1, 2, width=2 * style.WIDTH, sharey=True) as picture:
    axes_and_columns = zip(picture.axes, (('seconds', 60, 'minutes'), ('tokens', 1e6, 'million tokens')), strict=True)
    for axes, (column, unit, label) in axes_and_columns:
      for index, name in enumerate(CANDIDATES):
        for number, (_, run) in enumerate(rows[rows['candidate'] == name].groupby('seed')):
          look = style.line_style(index) | {'markersize': 2.5, 'linewidth': 1.2}
          axes.plot(run[column] / unit, run['loss'], **look, label=None if number else name)
      axes.set_xlabel(label)
      axes.set_xlim(left=0)
    picture.axes[0].set_ylabel('eval loss (nats)')
    picture.axes[0].legend()
  return picture.png()


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
  parser = command_parser('benchmarks.time_to_quality', __doc__, EXAMPLES)
  parser.add_argument('--text', required=True, help='plain text, as `python -m tasks.corpus --text`')
  parser.add_argument('--languages', help='codes with commas (default: all of the text)')
  help_text = 'of each run (default: %(default)s)'
  parser.add_argument('--minutes', type=number(Positive), default=10.0, help=help_text)
  parser.add_argument('--seeds', type=number(Count), default=3, help='runs per candidate (default: %(default)s)')
  help_text = 'CSV, plot and what the runs share (default: %(default)s)'
  parser.add_argument('--output', type=pathlib.Path, default='runs/time_to_quality', metavar='DIR', help=help_text)
  return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
  options, console = parse_arguments(arguments), Console()
  options.output.mkdir(parents=True, exist_ok=True)
  problem, results = Problem(options.output.resolve()), options.output / 'results.csv'
  problem.prepare(options.text, options.languages, console)
  rows = pd.read_csv(results) if results.exists() else pd.DataFrame(columns=FIELDS)
  for seed, name in itertools.product(range(options.seeds), CANDIDATES):
    if not len(rows[(rows['candidate'] == name) & (rows['seed'] == seed)]):
      found = pd.DataFrame(train(name, problem, seed, 60 * options.minutes, console), columns=FIELDS)
      rows = found if rows.empty else pd.concat([rows, found], ignore_index=True)
      write_whole(results, rows.to_csv(index=False))
      write_whole(options.output / 'time_to_quality.png', plot(rows))
  lines, conclusion = summarize(rows)
  console.table('Time to quality', ('', 'tokens/s', 'million tokens', 'eval loss'), lines)
  console.say(conclusion)
  console.say(f'{results}, {options.output}/time_to_quality.png')


if __name__ == '__main__':
  main()
