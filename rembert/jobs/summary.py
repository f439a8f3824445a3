"""Tables and plots of a run: model, parameters, devices and schedule at the start, time breakdown at the end."""

import collections
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np
from etils import epath

import rembert
from rembert.analysis.fertility import TokenCounter, has_spaces
from rembert.checkpoint.initialize import InitialParameters
from rembert.data.phases import Phase
from rembert.data.token_store import TokenStore
from rembert.files import write_whole
from rembert.jobs.config import JobConfig, PretrainConfig
from rembert.jobs.pretrain_data import Rates, show_largest
from rembert.jobs.training_run import JobRun
from rembert.model.config import RemBertConfig
from rembert.model.parameter_count import count_parameters
from rembert.paper import PaperFigures
from rembert.plotting.training import plot_schedule
from rembert.tokenizer import SpecialIds, load_vocabulary
from rembert.tracking.console import Console, human_bytes, human_duration
from rembert.tracking.goodput import account, read_sessions
from rembert.train import sharding
from rembert.train.optimizer import format_schedule, learning_rate_schedule
from rembert.train.state import Trainable

# Tolerance for the paper's rounding, and for the pooler and most of the head, which its ablation tables do not count:
# 2.7 % at most (Table 13, 3072 out). A larger deviation means another model than the row's.
_MOST_DEVIATION = 0.03
_MOST_TEXTS, _MOST_LANGUAGES = 16, 24  # of the table of fertility; texts of one language
_PLOTTED_STEPS = 400


def show_start(job: JobRun, title: str, config: JobConfig, trainable: Trainable | None = None) -> None:
  """Prints version, title and model; of a job that trains also parameters, devices and the names of hosts."""
  job.console.say(f'rembert {rembert.__version__} · {title}')
  show_model(job.console, config.model)
  if isinstance(config, PretrainConfig):
    show_parameters(job.console, config.model, config.paper)
  if trainable is not None:
    _show_devices(job, trainable, config)
  if len(job.hosts.names) > 1:
    job.console.say(f'{len(job.hosts.names)} hosts: {", ".join(job.hosts.names)}')


def show_model(console: Console, config: RemBertConfig) -> None:
  """Prints the sizes of the model."""
  is_padded = config.padded_vocab_size != config.vocab_size
  console.facts(
    'Model',
    {
      'vocabulary': f'{config.vocab_size:,}' + f', padded to {config.padded_vocab_size:,}' * is_padded,
      'embeddings': f'input {config.input_embedding_size} · output {config.output_embedding_size}'
      + ' (tied)' * config.tie_word_embeddings,
      'layers': f'{config.num_hidden_layers} × (hidden {config.hidden_size}, {config.num_attention_heads} heads of '
      f'{config.head_dim}, feed-forward {config.intermediate_size}, {config.hidden_act})',
    },
  )


def show_parameters(console: Console, config: RemBertConfig, paper: PaperFigures) -> None:
  """Prints parameter counts by part, in pre-training and in fine-tuning, and the paper's if it has the model."""
  counts = count_parameters(config, kept_layers=paper.kept_layers)
  rows: list[tuple[str, ...]] = []
  for part, count in counts.by_part.items():
    kept = counts.kept_by_part.get(part)
    is_cut = kept is not None and kept != count
    label = f'{part}, {paper.kept_layers} of {config.num_hidden_layers} kept' if is_cut else part
    if count:
      rows.append((label, f'{count:,}', '' if kept is None else f'{kept:,}'))
  rows.append(('total', f'{counts.pre_training:,}', f'{counts.fine_tuning:,}'))
  printed, remark = paper.printed, ''
  if printed is not None:
    counted = counts.without(paper.uncounted_parts)
    rows.append(("by the paper's counting rule", f'{counted.pre_training:,}', f'{counted.fine_tuning:,}'))
    if paper.scale != 'full':
      remark = f"{printed.title}, at scale {paper.scale}; the paper's figures are for the full scale.\n"
    else:
      deviations = paper.deviations(counts.pre_training, counts.fine_tuning)
      rows.append((f'in the paper ({printed.title})', *(f'{count}M' for count in paper.millions)))
      rows.append(('total compared with the paper', *(f'{each:+.2%}' for each in deviations)))
      if any(abs(deviation) > _MOST_DEVIATION for deviation in deviations):
        remark = f"warning: the counts differ from the paper's by more than {_MOST_DEVIATION:.0%}\n"
  console.table('Parameters', ('', 'pre-training', 'fine-tuning'), rows)
  if remark:
    console.say(remark)


def bytes_per_device(config: JobConfig, trainable: Trainable) -> dict[str, int]:
  """Bytes per device during a step: parameters, their average, optimizer state, gradients, its part of the batch."""
  params = sharding.bytes_per_device(trainable.abstract_state.params, trainable.shardings.params)
  batch = config.abstract_batch(trainable.mesh)
  return {
    'parameters': params,
    **({'moving average': params} if trainable.ema_decay else {}),
    'optimizer': sharding.bytes_per_device(trainable.abstract_state.opt_state, trainable.shardings.opt_state),
    'gradients': params,
    'batch': sharding.bytes_per_device(batch, {name: array.sharding for name, array in batch.items()}),
  }


def _show_devices(job: JobRun, trainable: Trainable, config: JobConfig) -> None:
  devices = trainable.mesh.devices.flatten()
  rows, parts = config.train.batch_size // sharding.batch_shards(trainable.mesh), config.train.accumulation_steps
  held, slices = bytes_per_device(config, trainable), sharding.slice_count(devices)
  axes = ' · '.join(f'{axis} {size}' for axis, size in trainable.mesh.shape.items())
  job.console.facts(
    'Devices',
    {
      'devices': f'{len(devices)} × {devices[0].device_kind} ({devices[0].platform}), '
      f'{len({device.process_index for device in devices})} process(es), jax {jax.__version__}',
      'mesh': axes + (f', data over {slices} slices' if slices > 1 else ''),
      'peak': f'{job.peak[0] / 1e12:.3g} TFLOP/s per device ({job.peak[1]})'
      if job.peak
      else 'unknown for this device: no MFU',
      'memory per device': ', '.join(f'{name} {human_bytes(count)}' for name, count in held.items()),
      'sequences per device': f'{rows}' + (f', {parts} micro-batches of {rows // parts}' if parts > 1 else ''),
    },
  )


def format_training(config: JobConfig) -> dict[str, str]:
  """Batch, number of steps and learning rate, for the schedule of a job."""
  train = config.train
  parts = f', in {train.accumulation_steps} micro-batches' if train.accumulation_steps > 1 else ''
  return {
    'batch': f'{train.batch_size} sequences × {train.sequence_length} tokens{parts}',
    'steps': f'{train.steps:,}',
    'learning rate': format_schedule(config.optimizer, train.steps),
  }


def show_transfer(
  console: Console,
  initial: InitialParameters,
  vocabulary: epath.Path,
  held_out: Sequence[Mapping[str, np.ndarray]],
  languages: Sequence[str],
) -> None:
  """How the rows of a new vocabulary are initialised, and its fertility on `held_out` batches of this host.

  The table has the languages that gain most, with tokens per word, or per character in scripts without spaces.
  """
  transfer, old = initial.transfer, initial.source.vocabulary
  if transfer is None or old is None:
    return
  console.say(
    f'{vocabulary} is not the vocabulary of {initial.source.path}: the embeddings of {transfer.copied:,} tokens are '
    f'copied, {transfer.averaged:,} are means of their old subwords, {transfer.initialised:,} are randomly initialised'
  )
  before, after = load_vocabulary(old), load_vocabulary(vocabulary)
  texts: dict[str, list[str]] = {}
  for batch in held_out:
    ids = batch['input_ids'].copy()
    rows, slots = np.nonzero(batch['weights'])
    ids[rows, batch['masked_positions'][rows, slots]] = batch['targets'][rows, slots]
    for row, language in zip(ids, batch['language'], strict=True):
      of_language = texts.setdefault(languages[language], [])
      if row.any() and len(of_language) < _MOST_TEXTS:  # not of padding
        of_language.append(after.decode(row[row >= SpecialIds().first_piece].tolist()))
  counters, changes = (TokenCounter(before), TokenCounter(after)), []
  for language, of_language in texts.items():
    unit = 'word' if has_spaces(language) else 'character'
    old_rate, new_rate = (counter.statistics(of_language)[f'pieces_per_{unit}'] or 0.0 for counter in counters)
    changes.append((new_rate - old_rate, (language, f'{old_rate:.2f}', f'{new_rate:.2f}', unit)))
  if changes:
    columns = ('', 'old vocabulary', 'new vocabulary', 'per')
    console.table('Fertility (tokens)', columns, [row for _, row in sorted(changes)[:_MOST_LANGUAGES]])


def show_account(console: Console, workdir: epath.Path) -> None:
  """Prints the time breakdown of the whole run, restarts included."""
  sessions = read_sessions(workdir / 'goodput.json')
  if not sessions:
    return
  spent = account(sessions)
  parts = spent.by_activity | {'downtime between restarts': spent.restart, 'recomputed steps': spent.lost}
  rows = [
    (name, human_duration(seconds), f'{seconds / max(spent.total, 1e-9):.1%}')
    for name, seconds in parts.items()
    if seconds >= 0.5
  ]
  rows.append((f'total ({spent.starts} launch(es))', human_duration(spent.total), ''))
  console.table('Time breakdown', ('', 'time', 'fraction'), rows)
  console.say(f'Goodput: {spent.productive_share:.1%} of the time went into training steps that were kept.')


# --- the schedule of pre-training -------------------------------------------------------------------------------------


def show_phases(console: Console, config: PretrainConfig) -> None:
  """A row per phase with the settings that any phase changes; nothing for a run without phases."""
  if config.phases.begins is None:
    return
  by_number: dict[int, list[Phase]] = collections.defaultdict(list)
  for phase in config.schedule():
    by_number[phase.number].append(phase)
  names = [name for name in _COLUMNS if getattr(config.phases, name) is not None]
  rows = []
  for number, phases in by_number.items():
    first, last = phases[0], phases[-1]
    tokens = sum(_tokens(config, phase) for phase in phases)
    change = lambda name, first=first, last=last: list(dict.fromkeys(_COLUMNS[name](p) for p in (first, last)))
    values = (' → '.join(change(name)) for name in names)
    rows.append((str(number + 1), f'{first.begin:,} to {last.end:,}', *values, f'{tokens:.3g}'))
  console.table('Phases', ('', 'steps', *(name.replace('_', ' ') for name in names), 'tokens'), rows)


_COLUMNS: dict[str, Callable[[Phase], str]] = {
  'alpha': lambda phase: f'{phase.alpha:.3g}',
  'languages': lambda phase: _format_languages(phase.languages),
  'mixture': lambda phase: str(phase.mixture),
  'masking_rate': lambda phase: f'{phase.masking_rate:.1%}',
  'sequence_length': lambda phase: str(phase.sequence_length),
  'store': lambda phase: str(phase.store),
}


def _format_languages(languages: tuple[str, ...] | None) -> str:
  codes = ', '.join(languages or ())
  return 'all' if languages is None else codes if len(codes) <= 30 else f'{len(languages)} codes'


def _tokens(config: PretrainConfig, phase: Phase) -> int:
  return (phase.end - phase.begin) * config.train.batch_size * phase.sequence_length


def show_schedule(console: Console, config: PretrainConfig, rates_in: Rates | None, workdir: epath.Path) -> None:
  """Prints tokens by language if sampling rates are known, and of a run in phases plots its schedule in the workdir."""
  if rates_in is not None:
    _show_sampling(console, config, rates_in)
  if config.phases.begins is not None:
    write_whole(workdir / 'schedule.png', _draw_schedule(config, rates_in))
    console.say(f'plot of the schedule: {workdir}/schedule.png')


def _show_sampling(console: Console, config: PretrainConfig, rates_in: Rates) -> None:
  """Prints tokens of the whole run by language, padding included, and from token stores the epochs of each."""
  tokens: dict[str, float] = collections.defaultdict(float)
  epochs: dict[str, float] = collections.defaultdict(float)
  open_store = functools.cache(TokenStore)
  for phase in config.schedule():
    store = open_store(phase.store) if phase.store else None
    for language, rate in rates_in(phase).items():
      tokens[language] += rate * _tokens(config, phase)
      if store is not None:
        rows = rate * (phase.end - phase.begin) * config.train.batch_size
        epochs[language] += rows / store.rows(language, 'train')
  total = sum(tokens.values())

  def row(label: str, languages: Sequence[str]) -> tuple[str, ...]:
    count = sum(tokens[language] for language in languages)
    passes = [epochs[language] for language in languages if language in epochs]
    span = dict.fromkeys(f'{passes:.3g}' for passes in (min(passes), max(passes))) if passes else {}
    return label, f'{count:.3g}', f'{count / total:.2%}', ' to '.join(span)

  show_largest(console, 'Tokens by language', ('', 'tokens', 'share', 'epochs'), tokens, row)
  if epochs:
    most = max(epochs, key=lambda language: epochs[language])
    console.say(f'most repeated: {most}, {epochs[most]:.3g} epochs')
  else:
    console.say('epochs are known of token stores only: python -m tasks.token_store --help')


def _draw_schedule(config: PretrainConfig, rates_in: Rates | None) -> bytes:
  """Sampling rates by language, if they are known, mask rate and learning rate over the steps of the run, as PNG."""
  phases = config.schedule()
  begins = [phase.begin for phase in phases]
  steps = np.unique(
    [*np.linspace(0, config.train.steps - 1, _PLOTTED_STEPS).astype(int), *begins, *(b - 1 for b in begins[1:])]
  )
  of_step = np.searchsorted(begins, steps, side='right') - 1
  in_phases = [{} if rates_in is None else rates_in(phase) for phase in phases]
  rates = {
    language: np.array([rates.get(language, 0.0) for rates in in_phases])
    for language in dict.fromkeys(itertools.chain(*in_phases))
  }
  return plot_schedule(
    steps,
    rates={language: rates[language][of_step] for language in sorted(rates, key=lambda name: -rates[name].max())},
    masking=np.array([phase.masking_rate for phase in phases])[of_step],
    learning_rate=np.asarray(learning_rate_schedule(config.optimizer, config.train.steps)(steps)),
  )
