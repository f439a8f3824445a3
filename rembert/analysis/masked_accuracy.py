"""Masked-token accuracy by language (paper, Table 8, last column; section 6.1).

Sequences of the eval set are masked as in training: of every 100 selected tokens 80 become [MASK], 10 another token, 10
stay, and all count. Accuracy is the fraction whose token has the highest logit, loss the mean cross-entropy in nats.

`results` of `analysis.json`:

    languages       by code, sorted:
      rows          eval sequences
      positions     masked positions in them
      accuracy      0 to 100
      loss          nats
      most_frequent 0 to 100: accuracy of always predicting the token that is masked most often
    all             the same over all positions, so languages are weighted by their number
    mean            {"accuracy", "loss"}: the unweighted mean over languages
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import optax

from rembert.analysis.context import AnalysisContext, AnalysisResult, Table, model_facts
from rembert.checkpoint.initialize import open_initial
from rembert.data.config import DataRequest
from rembert.errors import Setting, UsageError
from rembert.kernels import resolve_dtype
from rembert.runtime.signals import Stopped
from rembert.train import sharding, state
from rembert.train.losses import LossSums
from rembert.train.metrics import language_sums
from rembert.train.step import make_eval_step


def masked_accuracy(
  sums: LossSums, batches: Iterable[Mapping[str, np.ndarray]], languages: Sequence[str], vocab_size: int
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
  """Computes `languages` and `all` of `results`, from sums by language (`rembert.train.metrics`) and their batches.

  Sequences that pad the last batch do not count. Languages are in the order of the sums, [languages] each.
  ValueError if the sums are of other batches.
  """
  rows = np.zeros(len(languages), np.int64)  # that have masked tokens
  counts = np.zeros((len(languages), vocab_size), np.int64)  # how often each token is masked
  for batch in batches:
    weights, language = np.asarray(batch['weights']) > 0, np.asarray(batch['language'])
    rows += np.bincount(language[weights.any(1)], minlength=len(languages))
    row, slot = np.nonzero(weights)
    np.add.at(counts, (language[row], np.asarray(batch['targets'])[row, slot]), 1)
  if not np.array_equal(np.rint(sums.weight), counts.sum(1)):
    raise ValueError('sums and targets are of different batches')

  def of(chosen: list[int]) -> dict[str, Any]:
    positions = float(sums.weight[chosen].sum())
    return {
      'rows': int(rows[chosen].sum()),
      'positions': round(positions),
      'accuracy': 100 * float(sums.correct[chosen].sum()) / positions,
      'loss': float(sums.loss[chosen].sum()) / positions,
      'most_frequent': 100 * float(counts[chosen].sum(0).max()) / positions,
    }

  numbers = sorted((number for number in range(len(languages)) if sums.weight[number]), key=languages.__getitem__)
  return {languages[number]: of([number]) for number in numbers}, of(numbers)


# --- the analysis -----------------------------------------------------------------------------------------------------


def run(context: AnalysisContext) -> AnalysisResult:
  """Evaluates the model on the eval set of training, on all devices; the module docstring has the results."""
  config, source = context.config, context.source()
  analyze, model = config.analyze, source.config
  if source.head != 'mlm':
    raise UsageError(
      'the model has no MLM head',
      where=source.path,
      fix="name a pre-training run; Hugging Face's google/rembert lacks the head, the original checkpoint has it",
    )
  initial = open_initial(source, 'all', model)

  # --- eval set ----------------------------------------------------------------
  vocabulary = config.vocabulary
  if vocabulary.path is None and source.vocabulary is not None:
    vocabulary = dataclasses.replace(vocabulary, path=str(source.vocabulary))
  length = config.train.sequence_length
  if length > model.max_position_embeddings:
    raise UsageError(
      f"sequences of {length} tokens exceed the model's {model.max_position_embeddings} positions",
      where='train.sequence_length',
      fix=Setting('train.sequence_length', model.max_position_embeddings),
    )
  mesh = sharding.make_mesh(config.mesh)
  shards = sharding.batch_shards(mesh)
  request = DataRequest(
    data=config.data,
    batch_size=-(-analyze.batch_size // shards) * shards,  # rows that only fill a batch do not count
    sequence_length=length,
    vocab_size=model.vocab_size,
    evaluation_rows=analyze.rows,
    seed=config.train.seed,  # as in training: the same masks as its evaluations
    vocabulary=vocabulary,
    masking=config.masking,
    packing=config.packing,
  )
  opened = context.open_data(request, workdir=context.workdir, console=context.console)
  initial.check_vocabulary(opened.vocabulary)
  languages = opened.batches.languages
  with context.task('building the eval set'):
    batches = list(opened.batches.evaluation_batches())
  if not batches:
    raise UsageError('the eval set is empty', where='data.held_out', fix='use the data.* of the training run')

  # --- model -------------------------------------------------------------------
  trainable = state.masked_lm(model, resolve_dtype(config.execution, jax.default_backend()), optax.identity(), mesh)
  with jax.set_mesh(mesh):
    with context.task('loading parameters') as progress:
      params = initial.put_into(trainable.init(0), progress).params
    eval_step = make_eval_step(trainable, len(languages))
    with context.task('predicting masked tokens') as progress:

      def on_devices() -> Iterator[dict[str, jax.Array]]:
        for done, batch in enumerate(batches):
          progress(done / len(batches), f'{done} of {len(batches)} batches')
          yield sharding.to_device(batch, mesh)

      is_stopped = lambda: bool(context.stop.requested)
      sums = language_sums(eval_step, params, on_devices(), len(languages), is_stopped=is_stopped)
  if sums is None:
    raise Stopped(context.stop.requested)

  # --- results -----------------------------------------------------------------
  by_language, whole = masked_accuracy(sums, batches, languages, model.padded_vocab_size)
  fields = ('accuracy', 'loss', 'most_frequent')
  mean = {name: sum(found[name] for found in by_language.values()) / len(by_language) for name in fields}
  scores = lambda found: (f'{found["accuracy"]:.1f}', f'{found["loss"]:.3f}', f'{found["most_frequent"]:.1f}')
  cells = [
    (name, f'{found["rows"]:,}', f'{found["positions"]:,}', *scores(found))
    for name, found in [*by_language.items(), ('all', whole)]
  ]
  cells.append((f'average ({len(by_language)} languages)', '', '', *scores(mean)))
  columns = ('language', 'sequences', 'masked', 'accuracy', 'loss (nats)', 'most frequent')
  left_out = [name for name in languages if name not in by_language]
  return AnalysisResult(
    {'languages': by_language, 'all': whole, 'mean': mean},
    {
      **model_facts(source),
      'data': opened.identity,
      'sequence_length': length,
      'masking': dataclasses.asdict(config.masking),
    },
    [Table('Masked-token accuracy', columns, cells)],
    [f'skipped, no eval sequences: {", ".join(left_out)}'] if left_out else [],
  )
