"""Command line: `python -m rembert.convert {from_hf,to_hf,from_tf} SRC DST`, and `average SRC… --output=DST`."""

import argparse
import functools
import pathlib
import sys
from collections.abc import Sequence

from rembert.command_line import command_parser, run_command
from rembert.errors import UsageError
from rembert.model.config import HEAD_NAMES
from rembert.validation import Count, CountOrZero, NotNegative, Positive, comma_separated, number

DESCRIPTION = """\
Convert checkpoints: a Hugging Face model (a directory or Hub id) or the original TensorFlow checkpoint becomes a
workdir of this project, and a workdir becomes a Hugging Face model. Weights are converted bit-exactly. The average of
several checkpoints becomes a workdir, too."""

EPILOG = """\
examples
  import the released model, from the Hub or a directory:
    python -m rembert.convert from_hf google/rembert runs/released
  import the original checkpoint, the only one with the MLM head and the output embeddings:
    python -m rembert.convert from_tf original/rembert.ckpt-1780000 runs/original
  export a trained model:
    python -m rembert.convert to_hf runs/pretrain_smoke exported/
  export and upload it with its model card (token: `hf auth login`, or HF_TOKEN):
    python -m rembert.convert to_hf runs/pretrain_smoke exported/ --push=ORG/NAME --private
  average three checkpoints of a run, or the last ones of two runs, one with double weight:
    python -m rembert.convert average runs/pretrain --steps=80000,90000,100000 --output=runs/averaged
    python -m rembert.convert average runs/one runs/other --weights=2,1 --output=runs/merged
  all options of a direction:
    python -m rembert.convert from_hf --help

Nothing is written unless all tensors match: missing, unexpected and mismatched ones are listed first.
exit codes
  0 done · 2 wrong usage, or a checkpoint that does not match · 1 anything else
"""
_IMPORT_OPTIONS = ('num_hidden_layers', 'num_labels', 'allow_missing', 'allow_unexpected')


def parser() -> argparse.ArgumentParser:
  """Returns the parser of the command line."""
  flags = command_parser('rembert.convert', DESCRIPTION, EPILOG)
  directions = flags.add_subparsers(dest='direction', required=True, metavar='{from_hf,to_hf,from_tf,average}')
  from_hf = directions.add_parser('from_hf', help='a Hugging Face model → a workdir', allow_abbrev=False)
  to_hf = directions.add_parser('to_hf', help='a workdir or checkpoint → a Hugging Face model', allow_abbrev=False)
  from_tf = directions.add_parser('from_tf', help='an original TensorFlow checkpoint → a workdir', allow_abbrev=False)
  average = directions.add_parser('average', help='several checkpoints → a workdir', allow_abbrev=False)
  sources = {
    from_hf: 'directory with config.json and model.safetensors, possibly sharded; or Hub id, ORG/NAME[@REVISION]',
    to_hf: 'workdir, or a checkpoint (WORKDIR/checkpoints/STEP)',
    from_tf: 'prefix of the .index and .data files, or their directory',
  }
  for direction, source in sources.items():
    add = direction.add_argument
    add('source', metavar='SRC', help=source)
    add('destination', metavar='DST', help='new directory')
    heads = ('none', *HEAD_NAMES)
    add('--head', choices=heads, help='head of the result (default: that of the checkpoint); none: encoder only')
    add('--vocabulary', metavar='FILE', help='SentencePiece model (default: the one next to the checkpoint)')
  for direction in (from_hf, from_tf):
    add = functools.partial(direction.add_argument, type=number(Count), metavar='N')
    add('--num_hidden_layers', help='keep only the bottom N layers')
    add('--num_labels', help='number of labels of a classifier that the checkpoint lacks')
    add = functools.partial(direction.add_argument, action='store_true')
    add('--allow_missing', help='randomly initialise parameters that the checkpoint lacks')
    add('--allow_unexpected', help='ignore tensors that the model lacks')
  add = to_hf.add_argument
  add('--step', type=number(CountOrZero), help='checkpoint of the workdir (default: the newest)')
  add('--no_ema', action='store_true', help='export the trained parameters, not their moving average')
  add('--shard_gb', type=number(Positive), default=5.0, metavar='GB', help='maximum size of a file (default: 5)')
  add('--push', metavar='ORG/NAME', help='upload the directory to the Hugging Face Hub')
  add('--private', action='store_true', help='create a private repository if --push creates one')
  add = from_tf.add_argument
  add('--config', metavar='FILE', type=pathlib.Path, help="BERT's JSON, for settings that shapes do not show")
  add('--num_attention_heads', type=number(Count), metavar='N', help='attention heads (default: of size 64)')
  gelu = "GELU: gelu_tanh as in the original code (default), gelu (erf) as in Hugging Face's copy"
  add('--hidden_act', choices=('gelu', 'gelu_tanh'), default='gelu_tanh', help=gelu)
  add = average.add_argument
  add('sources', metavar='SRC', nargs='+', help='workdir (its newest checkpoint), or a checkpoint')
  add('--output', metavar='DST', required=True, help='new directory')
  add('--steps', type=comma_separated(CountOrZero), metavar='N,N,…', help='checkpoints of a single workdir')
  add('--weights', type=comma_separated(NotNegative), metavar='X,X,…', help='weight per checkpoint (default: equal)')
  for direction in directions.choices.values():
    direction.add_argument('--traceback', action='store_true', help='print the full traceback of an error')
  return flags


def to_workdir(options: argparse.Namespace) -> None:
  """`from_hf` and `from_tf`."""
  from rembert.checkpoint.load import import_model, open_hugging_face, save_workdir
  from rembert.convert import hub, tensorflow
  from rembert.tokenizer import check_vocabulary
  from rembert.tracking.console import Console

  console = Console()
  _check_destination(options.destination)
  with console.task('reading') as progress:
    if options.direction == 'from_hf':
      source = open_hugging_face(options.source)
    else:
      given = {name: getattr(options, name) for name in ('num_attention_heads', 'hidden_act')}
      source = tensorflow.open_source(options.source, config_file=options.config, **given)
    given = {name: getattr(options, name) for name in _IMPORT_OPTIONS}
    imported = import_model(source, head=_head(options), **given, on_progress=progress)
  vocabulary = options.vocabulary or source.vocabulary
  if vocabulary is not None:
    check_vocabulary(vocabulary, imported.config.vocab_size)
  with console.task('writing'):
    name = options.source if hub.is_at_hub(options.source) else pathlib.Path(options.source).name
    save_workdir(imported, options.destination, vocabulary, converted_from=name, format=options.direction)
  parameters = sum(leaf.size for leaf in imported.leaves.values())
  padding = imported.config.padded_vocab_size - imported.config.vocab_size
  console.facts(
    'Done',
    {
      'model': f'{imported.config.num_hidden_layers} × {imported.config.hidden_size}, head {imported.head or "none"}',
      'numbers': f'{parameters:,} float32, {padding} padding rows of the vocabulary among them',
      'initialised': _some(imported.missing),
      'left out': _some(imported.left_out),
      'vocabulary': str(vocabulary or 'none found: add it with --vocabulary=FILE'),
      'checkpoint': f'{options.destination}/checkpoints/0',
      'configuration': f'{options.destination}/config.gin',
    },
  )


def to_hugging_face(options: argparse.Namespace) -> None:
  """`to_hf`."""
  from rembert.checkpoint.load import read_newest
  from rembert.convert import hub
  from rembert.convert.huggingface import export
  from rembert.tracking.console import Console

  console = Console()
  if options.push:
    hub.check_upload(options.push)
  elif options.private:
    raise UsageError('--private is for models that are uploaded', where='--private', fix='--push=ORG/NAME')
  given = {'head': _head(options), 'vocabulary': options.vocabulary, 'name': options.push}
  given['shard_bytes'] = int(options.shard_gb * 1e9)
  with console.task('writing') as progress:
    write = lambda source: (source, export(source, options.destination, on_progress=progress, **given))
    source, exported = read_newest(options.source, options.step, write, ema=not options.no_ema)
  url = ''
  if options.push:
    with console.task(f'uploading to {options.push}'):
      try:
        url = hub.upload(pathlib.Path(options.destination), options.push, private=options.private)
      except UsageError as error:
        error.fix.append(f'then upload the directory that was written: hf upload {options.push} {options.destination}')
        raise
  size = f'{source.config.num_hidden_layers} × {source.config.hidden_size}'
  console.facts(
    'Done',
    {
      'model': f'{size}, head {exported.head or "none"}, step {source.step:,}',
      'parameters': f'{exported.parameters:,}',
      'left out': _some(exported.left_out),
      'tokenizer': 'written' if exported.has_tokenizer else 'none: no vocabulary found, add it with --vocabulary=FILE',
      'folder': options.destination,
      **({'model of the Hub': url} if url else {}),
    },
  )


def average_checkpoints(options: argparse.Namespace) -> None:
  """`average`."""
  from rembert.checkpoint.load import import_model, open_source, save_workdir
  from rembert.convert.averaging import average
  from rembert.tracking.console import Console

  console = Console()
  _check_destination(options.output)
  if options.steps and len(options.sources) > 1:
    raise UsageError(
      'steps of several runs',
      where='--steps',
      fix='name checkpoints instead: RUN/checkpoints/STEP RUN/checkpoints/STEP',
    )
  sources = [open_source(path, step) for path in options.sources for step in options.steps or [None]]
  averaged = average(sources, options.weights)
  with console.task('averaging') as progress:
    imported = import_model(averaged, on_progress=progress)
    save_workdir(imported, options.output, averaged.vocabulary, **averaged.meta)
  rows = zip(averaged.meta['averaged_from'], averaged.meta['averaged_weights'], strict=True)
  console.table('Averaged', ('checkpoint', 'weight'), [(name, f'{weight:.4g}') for name, weight in rows])
  console.facts('Done', {'checkpoint': f'{options.output}/checkpoints/0', 'vocabulary': str(averaged.vocabulary)})


def _check_destination(workdir: str) -> None:
  """UsageError, before anything is read, if the new workdir holds checkpoints or cannot be written to."""
  from rembert.checkpoint.load import find_checkpoint
  from rembert.files import check_folder

  if find_checkpoint(workdir):
    raise UsageError('the destination holds checkpoints', where=workdir, fix='name a new folder')
  check_folder(workdir, 'the destination', fix='name another folder')


def _head(options: argparse.Namespace) -> str | None:
  """`--head` for the converters: without the flag it is the checkpoint's, and None is the encoder alone."""
  from rembert.convert.tensor_names import AS_SAVED

  return {None: AS_SAVED, 'none': None}.get(options.head, options.head)


def _some(names: Sequence[str]) -> str:
  return ', '.join(names[:4]) + (f' and {len(names) - 4} more' if len(names) > 4 else '') or 'nothing'


def main(argv: Sequence[str] | None = None) -> int:
  """Converts; returns the exit code."""
  options = parser().parse_args(argv)
  direction = {'to_hf': to_hugging_face, 'average': average_checkpoints}.get(options.direction, to_workdir)
  return run_command('rembert.convert', lambda: direction(options), show_traceback=options.traceback)


if __name__ == '__main__':
  sys.exit(main())
