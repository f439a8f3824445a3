"""Predicts with a trained model: tokens for `[MASK]`, embeddings of lines, or labels of a fine-tuned model."""

import argparse
import csv
import functools
import io
import itertools
import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rembert.command_line import command_parser, run_command
from rembert.data.packing import BATCH_SIZE
from rembert.errors import UsageError
from rembert.files import check_output, read_text, whole_file, write_whole
from rembert.model.config import DTYPES, Execution
from rembert.tokenizer import MASK
from rembert.tracking.console import Console
from rembert.validation import Count, CountOrZero, number
from tasks.tables import HEAD_OF_KIND, DatasetConfig

if TYPE_CHECKING:
  from rembert.inference.model import LoadedModel
  from tasks.tables.registry import Tables

_PAIR = ('text', 'second_text')
# Commands for tables: the kind of dataset, the columns that have an option, and the help.
_TABLE_COMMANDS = {
  'classify': ('classification', _PAIR, 'predict a label for each text or pair of a table, with probabilities'),
  'regress': ('regression', _PAIR, 'predict a number for each text or pair of a table'),
  'tag': ('tagging', ('text',), 'predict a tag for each word of CoNLL columns, or of a column of lists'),
  'answer': ('question_answering', ('question', 'context'), 'extract the answer to each question from its context'),
  'choose': ('multiple_choice', (*_PAIR, 'choices'), 'predict which of its choices is right for each row of a table'),
}
_ROWS_AT_ONCE = 1024
EPILOG = """\
examples
  the five most probable tokens for each mask, in any language of the model:
    python -m rembert.jobs.predict fill_mask runs/pretrain_smoke 'Die Donau ist ein [MASK] in Europa.'
  read lines from a file or a pipe:
    cat lines.txt | python -m rembert.jobs.predict fill_mask runs/pretrain_smoke
  one vector per line, from layer 8 (layers at two thirds of the depth retrieve translations best):
    python -m rembert.jobs.predict embed runs/pretrain_smoke sentences.txt embeddings.npz --layer=8
  labels with probabilities for a table (CSV, TSV, JSONL or Parquet), as TSV or JSONL with all of its columns:
    python -m rembert.jobs.predict classify runs/finetune_own/best reviews.csv labels.tsv --text_column=review
  answers to questions, from the context in each row:
    python -m rembert.jobs.predict answer runs/finetune_own/best faq.jsonl answers.jsonl

MODEL is a workdir, a checkpoint, or a Hugging Face model with its weights and sentencepiece.model: a directory,
or a Hub id, ORG/NAME[@REVISION].
"""


# --- command line -----------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
  flags = command_parser('rembert.jobs.predict', 'Predict tokens, embeddings or labels with a trained model.', EPILOG)
  commands = flags.add_subparsers(
    dest='command', required=True, metavar=f'{{{",".join(["fill_mask", "embed", *_TABLE_COMMANDS])}}}'
  )
  fill = commands.add_parser('fill_mask', help='print the most probable tokens for every [MASK]', allow_abbrev=False)
  embed = commands.add_parser('embed', help='write one vector per line of text to an .npz file', allow_abbrev=False)
  tables = [_add_table_command(commands, name) for name in _TABLE_COMMANDS]
  for command in (fill, embed, *tables):
    command.add_argument(
      'model', metavar='MODEL', help='workdir, checkpoint, or Hugging Face model directory or Hub id'
    )
  fill.add_argument('text', nargs='*', metavar='TEXT', help='text with [MASK] (default: lines of standard input)')
  fill.add_argument('--top_k', type=number(Count), default=5, metavar='K', help='candidates per mask (default: 5)')
  embed.add_argument('lines', metavar='LINES', help='text file with one sentence per line; - is standard input')
  embed.add_argument('output', metavar='NPZ', help='output file: `embeddings` [lines, H], `layer`')
  embed.add_argument('--layer', type=number(CountOrZero), metavar='L', help='0 is the embeddings (default: the last)')
  for command in tables:
    command.add_argument('table', metavar='TABLE', help='input file: .csv, .tsv, .jsonl or .parquet')
    command.add_argument('output', metavar='PREDICTIONS', help='output file: .jsonl or .tsv')
  batch_help = 'sequences of 64 tokens per batch (default: %(default)s)'
  dtype_help = (
    'dtype of the computation; bfloat16 is faster on GPUs, TPUs and CPUs with AMX or AVX512_BF16, where auto takes it, '
    'with two to three significant digits (default: %(default)s)'
  )
  for command in (embed, *tables):
    command.add_argument('--batch_size', type=number(Count), default=BATCH_SIZE, metavar='B', help=batch_help)
    command.add_argument('--dtype', choices=DTYPES, default=DTYPES[0], help=dtype_help)
  for command in (fill, embed, *tables):
    command.add_argument('--vocabulary', metavar='FILE', help='SentencePiece model (default: next to the model)')
    command.add_argument('--step', type=number(CountOrZero), help='checkpoint of a workdir (default: the newest)')
    command.add_argument('--traceback', action='store_true', help='print the full traceback of an error')
  return flags


def _add_table_command(commands: Any, name: str) -> argparse.ArgumentParser:
  """The parser of `classify`, `regress`, `tag`, `answer` or `choose`, with the columns of its kind."""
  _, columns, text = _TABLE_COMMANDS[name]
  command = commands.add_parser(name, help=text, allow_abbrev=False)
  for column in columns:
    default = getattr(DatasetConfig, column)
    text = f'name of the {column.replace("_", " ")} column'
    if column == 'choices':
      default, text = (','.join(default), 'column of lists of choices, or one column for each, with commas')
    shown = ' (default: %(default)s)' if default else ', for pairs'
    command.add_argument(f'--{column}_column', default=default, metavar='COLUMN', help=text + shown)
  return command


def _fill_mask(options: argparse.Namespace, console: Console) -> None:
  texts = options.text or [line.rstrip('\n') for line in sys.stdin if line.strip()]
  from rembert.inference.model import fill_masks, load, text_encoder

  model = load(options.model, 'mlm', step=options.step)
  encoder = text_encoder(model, options.vocabulary)
  for text in texts:
    for mask, candidates in enumerate(fill_masks(model, encoder, text, options.top_k), 1):
      rows = [(_filled(text, mask, found.piece), found.piece, f'{found.probability:.2%}') for found in candidates]
      console.table(text if mask == 1 else f'mask {mask}', ('text', 'token', 'probability'), rows)


def _filled(text: str, number: int, piece: str) -> str:
  """The text with its n-th mask filled in, counted from 1; `▁` begins a word."""
  parts = text.split(MASK)
  before, after = MASK.join(parts[:number]), MASK.join(parts[number:])
  return before.rstrip() + piece.replace('▁', ' ') + after


def _embed(options: argparse.Namespace, console: Console) -> None:
  check_output(options.output, 'NPZ')
  lines = _read_lines(options.lines)
  if not lines:
    raise UsageError('no lines to embed', where=options.lines, fix='write one sentence per line')
  from rembert.inference.embed import embed_lines
  from rembert.inference.model import load, text_encoder

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
    'Done',
    {'lines': f'{len(lines):,}', 'vectors': f'{vectors.shape[1]}-dimensional, layer {layer}', 'file': options.output},
  )


def _read_lines(path: str) -> list[str]:
  try:
    text = sys.stdin.read() if path == '-' else read_text(path, fix='name a UTF-8 file with one sentence per line')
  except UnicodeDecodeError as error:
    raise UsageError(f'standard input is not UTF-8: {error.reason}', where='-', fix='iconv -f … -t UTF-8 |') from error
  return text.removesuffix('\n').split('\n') if text else []  # not at Unicode's other line ends


def _predict_table(options: argparse.Namespace, console: Console) -> None:
  """Writes each row of a table with its prediction; holds some thousand rows in memory, for tables of any length."""
  check_output(options.output, 'PREDICTIONS')
  is_json = str(options.output).endswith('.jsonl')
  if not is_json and not str(options.output).endswith('.tsv'):
    raise UsageError('unknown output format', where=options.output, fix='PREDICTIONS.jsonl or PREDICTIONS.tsv')
  from rembert.inference.model import load, text_encoder

  kind, names, _ = _TABLE_COMMANDS[options.command]
  model = load(options.model, HEAD_OF_KIND[kind], step=options.step, execution=Execution(options.dtype))
  text_encoder(model, options.vocabulary)  # raises an error for another model's vocabulary
  from tasks.tables.registry import Tables, add_tables

  columns = {column: getattr(options, f'{column}_column') for column in names}
  config = DatasetConfig(kind=kind, test=options.table, name='predict', label=None, **columns)
  with console.task('reading the table'):
    tables = Tables(config, labels=model.labels)
  add_tables(tables, vocabulary=options.vocabulary or model.vocabulary)
  total, done = tables.examples['test', config.language], 0
  as_json = functools.partial(json.dumps, ensure_ascii=False, default=str)
  with console.task('predicting') as progress, whole_file(options.output) as file:
    writer = None
    for row, prediction in _predicted_rows(model, tables, options.batch_size):
      if clash := row.keys() & prediction.keys():
        raise UsageError(f'the table already has a column {min(clash)!r}', where=options.table, fix='rename it')
      line = {**row, **prediction}
      if is_json:
        file.write(as_json(line) + '\n')
      else:
        cells = {key: value if isinstance(value, str) else as_json(value) for key, value in line.items()}
        if writer is None:
          writer = csv.DictWriter(file, list(cells), delimiter='\t', lineterminator='\n')
          writer.writeheader()
        writer.writerow(cells)
      done += 1
      progress(done / total, f'{done:,} rows')
  console.facts('Done', {'rows': f'{done:,}', 'predictions': options.output})


def _predicted_rows(
  model: 'LoadedModel', tables: 'Tables', batch_size: int
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
  """Yields each row of the table with its prediction, in order."""
  from rembert.data.finetune_batches import eval_batches
  from rembert.model.heads import POOLED
  from tasks.registration import find
  from tasks.rows import stream_rows

  config, kind = tables.config, tables.kind
  length = model.config.max_position_embeddings
  rows = stream_rows(find(f'{config.name}.{config.language}'), 'test', kind.head, max_length=length)
  examples = enumerate(kind.read(config.files('test')[config.language], needs_labels=False))
  by_example = itertools.groupby(rows, key=lambda row: int(row.example['example']))
  while of_examples := list(itertools.islice(((index, list(group)) for index, group in by_example), _ROWS_AT_ONCE)):
    chunk = [row for _, group in of_examples for row in group]
    outputs: list[np.ndarray] = [np.empty(0)] * len(chunk)
    pad = model.config.pad_token_id
    for chosen, batch in eval_batches(chunk, kind.head, batch_size=batch_size, longest=length, pad=pad):
      logits = np.asarray(model(batch['input_ids'], batch['token_type_ids'], batch['segment_ids']).logits)
      for place, of_row in zip(chosen.tolist(), logits, strict=False):  # the rest of the batch is padding
        outputs[place] = of_row if kind.head in POOLED else of_row[: len(chunk[place].input_ids)]
    predictions = kind.predict([row.example for row in chunk], outputs)
    for index, example in examples:  # a sentence without words has no sequences
      yield example.row, predictions.get(index, {'prediction': [], 'probability': []})
      if index == of_examples[-1][0]:
        break
  for _, example in examples:
    yield example.row, {'prediction': [], 'probability': []}


def main(argv: Sequence[str] | None = None) -> int:
  """The command line; errors that a user can fix are printed without a traceback."""
  options = _parser().parse_args(argv)
  command = {'fill_mask': _fill_mask, 'embed': _embed}.get(options.command, _predict_table)
  return run_command('rembert.jobs.predict', lambda: command(options, Console()), show_traceback=options.traceback)


if __name__ == '__main__':
  sys.exit(main())
