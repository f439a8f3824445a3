"""The command line: `python -m rembert.convert {from_hf,to_hf,from_tf} SRC DST`."""

import argparse
import math
import pathlib
import sys
from collections.abc import Sequence

from rembert.command_line import run_command
from rembert.errors import UsageError
from rembert.model.config import HEAD_NAMES
from rembert.validation import Count, CountOrZero, Positive, number

DESCRIPTION = """\
Carry RemBERT in and out: a folder of Hugging Face or the original TensorFlow checkpoint becomes a workdir of this
project, and a workdir becomes a folder of Hugging Face. Weights come through to the bit."""

EPILOG = """\
examples
  bring the released model here:
    python -m rembert.convert from_hf google-rembert/ runs/released
  the original checkpoint, which alone has the MLM head and the output embeddings:
    python -m rembert.convert from_tf original/rembert.ckpt-1780000 runs/original
  take a trained model home:
    python -m rembert.convert to_hf runs/pretrain_smoke exported/
  what a direction can be told:
    python -m rembert.convert from_hf --help

Nothing is written unless everything fits: missing, unexpected and mis-shaped tensors are listed first.
exit codes
  0 done · 2 wrong usage, or a checkpoint that does not fit · 1 anything else
"""


def parser() -> argparse.ArgumentParser:
  """The command line."""
  raw = argparse.RawDescriptionHelpFormatter
  flags = argparse.ArgumentParser(
    prog='python -m rembert.convert', description=DESCRIPTION, epilog=EPILOG, formatter_class=raw, allow_abbrev=False
  )
  directions = flags.add_subparsers(dest='direction', required=True, metavar='{from_hf,to_hf,from_tf}')
  from_hf = directions.add_parser('from_hf', help='a folder of Hugging Face → a workdir', allow_abbrev=False)
  to_hf = directions.add_parser('to_hf', help='a workdir or checkpoint → a folder of Hugging Face', allow_abbrev=False)
  from_tf = directions.add_parser('from_tf', help='an original TensorFlow checkpoint → a workdir', allow_abbrev=False)

  from_hf.add_argument(
    'source', metavar='SRC', help='folder with config.json and model.safetensors, whole or in shards'
  )
  to_hf.add_argument('source', metavar='SRC', help='workdir, or one checkpoint of it (WORKDIR/checkpoints/STEP)')
  from_tf.add_argument('source', metavar='SRC', help='prefix of the .index and .data files, or their folder')
  for direction in (from_hf, to_hf, from_tf):
    direction.add_argument('destination', metavar='DST', help='a new folder')
    direction.add_argument(
      '--head',
      choices=('none', *HEAD_NAMES),
      help='of the result (default: what the checkpoint has); none: encoder alone',
    )
    direction.add_argument(
      '--vocabulary', metavar='FILE', help='the sentencepiece.model (default: the one beside the checkpoint)'
    )
    direction.add_argument('--traceback', action='store_true', help='show where in the code an error arose')
  for direction in (from_hf, from_tf):
    direction.add_argument(
      '--num_hidden_layers', type=number(Count), metavar='N', help='keep the bottom N layers and drop the others'
    )
    direction.add_argument(
      '--num_labels', type=number(Count), metavar='N', help='of a classifier that the checkpoint lacks'
    )
    direction.add_argument('--allow_missing', action='store_true', help='draw parameters that the checkpoint lacks')
    direction.add_argument('--allow_unexpected', action='store_true', help='leave out what the model has no place for')
    direction.add_argument(
      '--input_vocab_size', type=number(Count), metavar='N', help='cut or extend the word embedding to N pieces'
    )
    direction.add_argument(
      '--output_vocab_size', type=number(Count), metavar='N', help='cut or extend the output embedding and its bias'
    )
  to_hf.add_argument('--step', type=number(CountOrZero), help='which checkpoint of the workdir (default: the newest)')
  to_hf.add_argument(
    '--shard_gb', type=number(Positive), default=5.0, metavar='GB', help='split larger weights (default 5)'
  )
  from_tf.add_argument('--config', metavar='FILE', help="BERT's JSON, for what shapes do not tell")
  from_tf.add_argument('--num_attention_heads', type=number(Count), metavar='N', help='default: heads of 64')
  from_tf.add_argument(
    '--hidden_act',
    choices=('gelu', 'gelu_tanh'),
    default='gelu_tanh',
    help="GELU: gelu_tanh as in the original code (default), gelu (erf) as in Hugging Face's copy",
  )
  return flags


def from_foreign(options: argparse.Namespace) -> None:
  """`from_hf` and `from_tf`."""
  from etils import epath

  from rembert.checkpoint.load import find_checkpoint
  from rembert.convert import importing
  from rembert.files import check_folder
  from rembert.tokenizer import check_vocabulary
  from rembert.tracking.console import Console

  console = Console()
  destination = epath.Path(options.destination)
  if find_checkpoint(destination):
    raise UsageError('the destination holds checkpoints', where=str(destination), fix='name a new folder')
  check_folder(destination, 'the destination', fix='name another folder')
  import_options = importing.ImportOptions(
    head=_head(options),
    num_hidden_layers=options.num_hidden_layers,
    num_labels=options.num_labels,
    allow_missing=options.allow_missing,
    allow_unexpected=options.allow_unexpected,
    input_vocab_size=options.input_vocab_size,
    output_vocab_size=options.output_vocab_size,
  )
  with console.task('reading') as progress:
    if options.direction == 'from_hf':
      imported = importing.read_hugging_face(options.source, import_options, progress)
    else:
      imported = importing.read_tensorflow(
        options.source,
        import_options,
        progress,
        config_file=pathlib.Path(options.config) if options.config else None,
        num_attention_heads=options.num_attention_heads,
        hidden_act=options.hidden_act,
      )
  vocabulary = options.vocabulary or imported.vocabulary
  if vocabulary is not None:
    check_vocabulary(vocabulary, imported.config.vocab_size)
  with console.task('writing'):
    source = pathlib.Path(options.source).name
    importing.save(imported, destination, vocabulary, converted_from=source, format=options.direction)
  parameters = sum(math.prod(leaf.shape) for leaf in imported.leaves.values())
  padding = imported.config.padded_vocab_size - imported.config.vocab_size
  console.facts(
    'Done',
    {
      'model': f'{imported.config.num_hidden_layers} × {imported.config.hidden_size}, head {imported.head or "none"}',
      'numbers': f'{parameters:,} float32, {padding} padding rows of the vocabulary among them',
      'drawn anew': _some(imported.missing),
      'left out': _some(imported.left_out),
      'vocabulary': str(vocabulary or 'none found: add it with --vocabulary=FILE'),
      'checkpoint': f'{destination}/checkpoints/0',
      'configuration': f'{destination}/config.gin',
    },
  )


def to_hugging_face(options: argparse.Namespace) -> None:
  """`to_hf`."""
  from rembert.checkpoint.load import SavedModel, read_newest
  from rembert.convert import exporting
  from rembert.tracking.console import Console

  console = Console()

  def export(saved: SavedModel) -> tuple[SavedModel, exporting.Export]:
    return saved, exporting.export(
      saved,
      options.destination,
      head=_head(options),
      vocabulary=options.vocabulary,
      shard_bytes=int(options.shard_gb * 1e9),
      on_progress=progress,
    )

  with console.task('writing') as progress:
    saved, exported = read_newest(options.source, options.step, export)
  console.facts(
    'Done',
    {
      'model': f'{saved.config.num_hidden_layers} × {saved.config.hidden_size}, head {exported.head or "none"}, '
      f'step {saved.step:,}',
      'parameters': f'{exported.parameters:,}',
      'left out': _some(exported.left_out),
      'tokenizer': 'written' if exported.has_tokenizer else 'none: no vocabulary found, add it with --vocabulary=FILE',
      'folder': options.destination,
    },
  )


def _head(options: argparse.Namespace) -> str | None:
  """`--head` as the converters take it: not given is as saved, `none` is the encoder alone."""
  from rembert.convert.importing import AS_SAVED

  return {None: AS_SAVED, 'none': None}.get(options.head, options.head)


def _some(names: Sequence[str]) -> str:
  return 'nothing' if not names else ', '.join(names[:4]) + (f' and {len(names) - 4} more' if len(names) > 4 else '')


def main(argv: Sequence[str] | None = None) -> int:
  """Converts; errors that a user can put right are told without a traceback."""
  options = parser().parse_args(argv)
  direction = to_hugging_face if options.direction == 'to_hf' else from_foreign
  return run_command('rembert.convert', lambda: direction(options), show_traceback=options.traceback)


if __name__ == '__main__':
  sys.exit(main())
