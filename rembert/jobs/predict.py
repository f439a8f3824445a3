"""What a model says about text: the best pieces for `[MASK]`, or embeddings of lines.

python -m rembert.jobs.predict fill_mask runs/pretrain_smoke 'Die Donau ist ein [MASK] in Europa.'
python -m rembert.jobs.predict embed exported/ sentences.txt embeddings.npz
"""

import argparse
import io
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rembert.command_line import run_command
from rembert.data.sentence_batches import BATCH_SIZE
from rembert.errors import UsageError
from rembert.files import check_output, read_text, write_whole
from rembert.inference.fill_mask import fill_masks
from rembert.model.config import DTYPES, Execution
from rembert.tokenizer import MASK, TextEncoder
from rembert.tracking.console import Console
from rembert.validation import Count, CountOrZero, number

if TYPE_CHECKING:
  from rembert.inference.model import LoadedModel

EPILOG = """\
examples
  the five best pieces for each mask, in any language of the model:
    python -m rembert.jobs.predict fill_mask runs/pretrain_smoke 'Die Donau ist ein [MASK] in Europa.'
  lines from a file or a pipe:
    cat lines.txt | python -m rembert.jobs.predict fill_mask runs/pretrain_smoke
  one vector a line, from layer 8 (the layers at two thirds of the depth tell translations best):
    python -m rembert.jobs.predict embed runs/pretrain_smoke sentences.txt embeddings.npz --layer=8

MODEL is a workdir, one checkpoint in it, or a folder of Hugging Face with the weights and sentencepiece.model.
"""


def text_encoder(
  model: 'LoadedModel',
  vocabulary: str | None = None,
  say: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> TextEncoder:
  """The vocabulary of a model; UsageError if it is nowhere, or another model's.

  Fewer tokens than the model has embeddings are said: that may be how it was made, or another vocabulary.
  """
  from rembert.tokenizer import check_vocabulary

  file = vocabulary or model.vocabulary
  if file is None:
    raise UsageError('no sentencepiece.model beside the model', where='--vocabulary', fix='--vocabulary=FILE')
  check_vocabulary(file, model.config.vocab_size)
  encoder = TextEncoder(file)
  if len(encoder) < model.config.vocab_size:
    say(f'{file} has {len(encoder):,} tokens, and the model {model.config.vocab_size:,}')
  return encoder


# --- command line -----------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
  raw = argparse.RawDescriptionHelpFormatter
  flags = argparse.ArgumentParser(
    prog='python -m rembert.jobs.predict',
    description='Ask a trained model.',
    epilog=EPILOG,
    formatter_class=raw,
    allow_abbrev=False,
  )
  commands = flags.add_subparsers(dest='command', required=True, metavar='{fill_mask,embed}')
  fill = commands.add_parser('fill_mask', help='the best pieces for every [MASK]', allow_abbrev=False)
  embed = commands.add_parser('embed', help='one vector a line of text, to an .npz', allow_abbrev=False)
  for command in (fill, embed):
    command.add_argument('model', metavar='MODEL', help='workdir, checkpoint, or folder of Hugging Face')
  fill.add_argument('text', nargs='*', metavar='TEXT', help='with [MASK] in it (default: lines of standard input)')
  fill.add_argument('--top_k', type=number(Count), default=5, metavar='K', help='candidates for each mask (default 5)')
  embed.add_argument('lines', metavar='LINES', help='a text file, one sentence a line; - is standard input')
  embed.add_argument('output', metavar='NPZ', help='the file to write: `embeddings` [lines, H], `layer`')
  embed.add_argument('--layer', type=number(CountOrZero), metavar='L', help='0 is the embeddings (default: the last)')
  embed.add_argument(
    '--batch_size',
    type=number(Count),
    default=BATCH_SIZE,
    metavar='B',
    help='rows of 64 pieces at a time (default %(default)s)',
  )
  embed.add_argument(
    '--dtype',
    choices=DTYPES,
    default=DTYPES[0],
    help='of the computation; bfloat16 is faster on GPUs, TPUs and CPUs with AMX or AVX512_BF16, and leaves two to '
    'three exact digits (default %(default)s)',
  )
  for command in (fill, embed):
    command.add_argument('--vocabulary', metavar='FILE', help='sentencepiece.model (default: that beside the model)')
    command.add_argument('--step', type=number(CountOrZero), help='which checkpoint of a workdir (default: the newest)')
    command.add_argument('--traceback', action='store_true', help='show where in the code an error arose')
  return flags


def _fill_mask(options: argparse.Namespace, console: Console) -> None:
  texts = options.text or [line.rstrip('\n') for line in sys.stdin if line.strip()]
  from rembert.inference.model import load

  model = load(options.model, 'mlm', step=options.step)
  encoder = text_encoder(model, options.vocabulary)
  for text in texts:
    for mask, candidates in enumerate(fill_masks(model, encoder, text, options.top_k), 1):
      rows = [(_filled(text, mask, found.piece), found.piece, f'{found.probability:.2%}') for found in candidates]
      console.table(text if mask == 1 else f'mask {mask}', ('text', 'piece', 'probability'), rows)


def _filled(text: str, number: int, piece: str) -> str:
  """The text with its mask of this number filled in; `▁` begins a word."""
  before, after = MASK.join(text.split(MASK)[:number]), MASK.join(text.split(MASK)[number:])
  return before.rstrip() + piece.replace('▁', ' ') + after


def _embed(options: argparse.Namespace, console: Console) -> None:
  check_output(options.output, 'NPZ')
  lines = _read_lines(options.lines)
  if not lines:
    raise UsageError('no lines to embed', where=options.lines, fix='one sentence a line')
  from rembert.inference.embed import embed_lines
  from rembert.inference.model import load

  model = load(options.model, step=options.step, execution=Execution(options.dtype))
  encoder = text_encoder(model, options.vocabulary)
  layer = model.config.num_hidden_layers if options.layer is None else options.layer
  with console.task('embedding') as progress, warnings.catch_warnings(record=True) as said:
    warnings.simplefilter('always')
    vectors = embed_lines(model, encoder, lines, layer=layer, batch_size=options.batch_size, on_progress=progress)
  for warning in said:
    console.say(str(warning.message))
  content = io.BytesIO()
  np.savez(content, embeddings=vectors, layer=layer)
  write_whole(options.output, content.getvalue())
  console.facts(
    'Done', {'lines': f'{len(lines):,}', 'vectors': f'{vectors.shape[1]} wide, layer {layer}', 'file': options.output}
  )


def _read_lines(path: str) -> list[str]:
  try:
    text = sys.stdin.read() if path == '-' else read_text(path, fix='a UTF-8 file, one sentence a line')
  except UnicodeDecodeError as error:
    raise UsageError(f'standard input is not UTF-8: {error.reason}', where='-', fix='iconv -f … -t UTF-8 |') from error
  return text.removesuffix('\n').split('\n') if text else []  # not at the other line ends of Unicode


def main(argv: Sequence[str] | None = None) -> int:
  """The command line; errors that a user can put right are told without a traceback."""
  options = _parser().parse_args(argv)
  command = _fill_mask if options.command == 'fill_mask' else _embed
  return run_command('rembert.jobs.predict', lambda: command(options, Console()), show_traceback=options.traceback)


if __name__ == '__main__':
  sys.exit(main())
