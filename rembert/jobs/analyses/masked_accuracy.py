"""`masked_accuracy`: held-out rows, opened as for training, through the model on all devices."""

import dataclasses

import jax
import optax

from rembert.analysis.masked_accuracy import masked_accuracy, masked_targets
from rembert.data.config import DataRequest
from rembert.errors import UsageError
from rembert.jobs.analyses.desk import Analysed, Desk, Table, model_facts
from rembert.jobs.initial_parameters import open_initial
from rembert.jobs.pretrain_data import open_data
from rembert.runtime.signals import Stopped
from rembert.train import sharding, state
from rembert.train.metrics import language_sums
from rembert.train.step import make_eval_step


def run(desk: Desk) -> Analysed:
  """See `rembert.analysis.masked_accuracy`."""
  config, source = desk.config, desk.source()
  analyze, model = config.analyze, source.config
  if source.head != 'mlm':
    raise UsageError(
      'the model has no head for masked pieces',
      where=source.path,
      fix='name a pre-training run; what Hugging Face publishes lacks the head, the original checkpoint has it',
    )
  initial = open_initial(analyze.model, 'all', model)

  # --- held-out rows -----------------------------------------------------------
  vocabulary = config.vocabulary
  if vocabulary.path is None and source.vocabulary is not None:
    vocabulary = dataclasses.replace(vocabulary, path=str(source.vocabulary))
  length = config.train.sequence_length
  if length > model.max_position_embeddings:
    raise UsageError(
      f'rows of {length} tokens, but positions for {model.max_position_embeddings}',
      where='train.sequence_length',
      fix=f'--gin.train.sequence_length={model.max_position_embeddings}',
    )
  request = DataRequest(
    data=config.data,
    batch_size=analyze.batch_size,
    sequence_length=length,
    vocab_size=model.vocab_size,
    evaluation_rows=analyze.rows,
    seed=config.train.seed,  # as in training: the same masks as its evaluations
    vocabulary=vocabulary,
    masking=config.masking,
    packing=config.packing,
  )
  mesh = sharding.make_mesh(config.mesh)
  shards = sharding.batch_shards(mesh)
  if analyze.batch_size % shards:
    raise UsageError(
      f'a batch of {analyze.batch_size} rows does not divide over {shards} device group(s)',
      where='analyze.batch_size, mesh.data × mesh.fsdp',
      fix=f'--gin.analyze.batch_size={-(-analyze.batch_size // shards) * shards}',
    )
  opened = open_data(request, workdir=desk.workdir, console=desk.console)
  initial.check_vocabulary(opened.vocabulary)
  languages = opened.batches.languages
  with desk.task('held-out rows'):
    batches = list(opened.batches.evaluation_batches())
  if not batches:
    raise UsageError('no text is held out', where='data.held_out', fix='the data.* of the training run')
  targets = masked_targets(batches, num_languages=len(languages), vocab_size=model.padded_vocab_size)

  # --- model -------------------------------------------------------------------
  trainable = state.masked_lm(model, config.execution, optax.identity(), mesh)
  with jax.set_mesh(mesh):
    with desk.task('reading parameters') as progress:
      params = initial.put_into(trainable.init(0), progress).params
    eval_step = make_eval_step(trainable, len(languages))
    with desk.task('restoring masked pieces') as progress:
      sums = language_sums(
        eval_step,
        params,
        _on_devices(batches, mesh, progress),
        len(languages),
        is_stopped=lambda: bool(desk.stop.requested),
      )
  if sums is None:
    raise Stopped(desk.stop.requested)

  # --- results -----------------------------------------------------------------
  by_language, whole = masked_accuracy(sums, targets, languages)
  scores = list(by_language.values())
  mean = {
    name: sum(getattr(found, name) for found in scores) / len(scores) for name in ('accuracy', 'loss', 'most_frequent')
  }
  results = {
    'languages': {name: dataclasses.asdict(found) for name, found in by_language.items()},
    'all': dataclasses.asdict(whole),
    'mean': mean,
  }
  in_row = lambda name, found: (
    name,
    f'{found.rows:,}',
    f'{found.positions:,}',
    f'{found.accuracy:.1f}',
    f'{found.loss:.3f}',
    f'{found.most_frequent:.1f}',
  )
  rows = [in_row(name, found) for name, found in by_language.items()]
  rows.append(in_row('all', whole))
  rows.append(
    (f'mean of {len(scores)}', '', '', f'{mean["accuracy"]:.1f}', f'{mean["loss"]:.3f}', f'{mean["most_frequent"]:.1f}')
  )
  columns = ('language', 'rows', 'masked', 'accuracy', 'loss (nats)', 'most frequent')
  left_out = [name for name in languages if name not in by_language]
  return Analysed(
    results,
    {
      **model_facts(model, source.path),
      'data': opened.identity,
      'sequence_length': length,
      'masking': dataclasses.asdict(config.masking),
    },
    [Table('Masked pieces restored', columns, rows)],
    [f'no held-out rows: {", ".join(left_out)}'] if left_out else [],
  )


def _on_devices(batches, mesh, progress):
  for done, batch in enumerate(batches):
    progress(done / len(batches), f'{done} of {len(batches)} batches')
    yield sharding.to_device(batch, mesh)
