"""Every message that docs/guides/troubleshooting.md quotes is one that the program says; some are made to be said."""

import ast
import functools
import pathlib
import re

import jax
import pytest

from rembert import configuration
from rembert.data.mixture import sampling_rates
from rembert.data.token_store import TokenStore
from rembert.errors import UsageError
from rembert.inference import model
from rembert.model.config import Execution, RemBertConfig
from rembert.report import load
from rembert.train import sharding
from rembert.train.anomaly_detection import GuardsConfig, LossGuard
from rembert.train.losses import LossSums
from rembert.train.step import StepMetrics
from rembert.train.trainer import TrainConfig
from tasks.wikipedia.dumps import find_dumps
from tasks.xtreme.benchmark import get_task
from tasks.xtreme.files import XtremeFolder

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = ROOT / 'docs' / 'guides' / 'troubleshooting.md'
# Of a message as it is quoted, the share that the source must have verbatim; names and numbers are the rest.
LEAST_SHARE = 0.25

Parts = tuple[str | None, ...]


def quoted() -> list[str]:
  return re.findall(r'^### `+ ?(.+?) ?`+$', PAGE.read_text(encoding='utf-8'), re.MULTILINE)


def parts_of(node: ast.AST) -> Parts:
  """A string as the source has it; None for whatever is put into it."""
  match node:
    case ast.Constant(value=str(text)):
      return (text,)
    case ast.JoinedStr(values=values):
      return tuple(part for value in values for part in parts_of(value))
    case ast.BinOp(left=left, op=ast.Add(), right=right):
      return parts_of(left) + parts_of(right)
  return (None,)


def first_line_of(parts: Parts) -> Parts:
  """Up to the first end of a line: the page quotes no more."""
  kept = []
  for part in parts:
    kept.append(part if part is None else part.partition('\n')[0])
    if part is not None and '\n' in part:
      break
  return tuple(kept)


@functools.cache
def said() -> list[Parts]:
  """All strings of the program that are more than a word."""
  found = []
  for folder in ('rembert', 'tasks', 'launch'):
    for file in (ROOT / folder).rglob('*.py'):
      for node in ast.walk(ast.parse(file.read_text(encoding='utf-8'))):
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp):
          parts = parts_of(node)
          if ' ' in ''.join(part or '' for part in parts):
            found.append(first_line_of(parts))
  return found


def is_said_by(message: str, parts: Parts) -> bool:
  """Whether a message is `parts` with something put into it."""
  at, is_free, letters = 0, False, 0
  for part in parts:
    if part is None:
      is_free = True
      continue
    found = message.find(part, at)
    if found < 0 or (found != at and not is_free):
      return False
    at, is_free, letters = found + len(part), False, letters + len(part)
  return (is_free or at == len(message)) and letters >= LEAST_SHARE * len(message)


def test_a_message_is_told_by_its_fixed_parts():
  parts = ('the store has rows of ', None, ' tokens, and training has ', None)
  assert is_said_by('the store has rows of 128 tokens, and training has 512', parts)
  assert not is_said_by('the store has rows of 128 pieces, and training has 512', parts)
  assert not is_said_by('a long name of something that is nowhere to be found is missing', (None, ' is missing'))
  assert not is_said_by('no token store here', ('no token store',))


@pytest.mark.parametrize('message', quoted())
def test_quoted_messages_are_in_the_code(message):
  assert any(is_said_by(text, parts) for parts in said() for text in (message, f'rembert: {message}'))


def test_no_message_is_explained_twice():
  assert len(set(quoted())) == len(quoted()) > 50


# --- made to be said --------------------------------------------------------------------------------------------------


def not_finite(step: int) -> StepMetrics:
  del step
  nan = float('nan')
  return StepMetrics(LossSums(nan, 0.0, 1.0), 1.0, nan, False)


def skip_eleven_updates():
  guard = LossGuard(GuardsConfig())
  for step in range(1200, 1211):
    guard.check(step, not_finite(step))


def load_gin(*files_and_bindings: str):
  files = [each for each in files_and_bindings if each.endswith('.gin')]
  configuration.load(files, [each for each in files_and_bindings if each not in files])
  return configuration.build(RemBertConfig)


RAISED = {
  'unknown name train.step': lambda folder: load_gin('gin/pretrain_smoke.gin', 'train.step=3'),
  'nothing refers to STEP': lambda folder: load_gin('gin/pretrain_smoke.gin', 'STEP=3'),
  '1000 attention heads do not divide a hidden size of 1152': lambda folder: RemBertConfig(num_attention_heads=1000),
  'tied embeddings need one width, not 128 in and 768 out': lambda folder: RemBertConfig(
    tie_word_embeddings=True, input_embedding_size=128, output_embedding_size=768
  ),
  'these devices are cpu, not tpu': lambda folder: sharding.make_mesh(sharding.MeshConfig(require_platform='tpu')),
  'a mesh of data 3 · fsdp 1 · tensor 1 does not cover 8 device(s)': lambda folder: sharding.make_mesh(
    sharding.MeshConfig(data=3, fsdp=1, tensor=1)
  ),
  'cudnn attention computes in bfloat16, not float32': lambda folder: Execution(attention='cudnn'),
  'no dump found': lambda folder: find_dumps(str(folder / 'nothing')),
  '12 language(s) within their limits have probabilities that sum to less than 1': lambda folder: sampling_rates(
    {str(number): 1.0 for number in range(12)}, 0.5, max_share=0.05
  ),
  'no token store': lambda folder: TokenStore(folder),
  'the loss of step 1210 is not finite, after 10 skipped updates in a row': lambda folder: skip_eleven_updates(),
  'xtreme.data_dir is not set': lambda folder: XtremeFolder(None),
  'a file of the data is missing': lambda folder: XtremeFolder(folder).file('xnli/test-de.tsv'),
  "unknown task 'mnli'": lambda folder: get_task('mnli'),
  'nothing to load': lambda folder: model.load(folder),
  'there are no results of a run, sweep or benchmark here': lambda folder: load.read([str(folder)]),
}


@pytest.mark.parametrize('message', RAISED)
def test_messages_are_said_as_they_are_quoted(message, tmp_path):
  assert jax.device_count() == 8
  assert message in quoted()
  with pytest.raises(UsageError) as error:
    RAISED[message](tmp_path)
  assert error.value.what == message


def test_the_example_of_a_whole_message_is_one():
  shown = 'a batch of 32 rows does not divide over 3 device group(s)'
  with pytest.raises(UsageError) as error:
    TrainConfig(batch_size=32).check_divides(3)
  text = PAGE.read_text(encoding='utf-8')
  assert error.value.what == shown
  assert '\n'.join(f'    {line}' for line in f'rembert: {error.value}'.splitlines()) in text


def test_an_update_that_is_skipped_is_said_as_it_is_quoted():
  said_of_it = LossGuard(GuardsConfig()).check(1200, not_finite(1200))
  assert said_of_it in quoted()
