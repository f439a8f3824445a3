"""What comes from outside, altered at random: one clear error or the right result, in seconds, all drops counted."""

import contextlib
import copy
import dataclasses
import json
import shutil

import pytest
from etils import epath
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rembert import configuration
from rembert.convert.huggingface import config_json, read_description
from rembert.data.token_store import TokenStore
from rembert.errors import UsageError
from rembert.model.config import RemBertConfig
from tasks.tables.files import read_questions
from tasks.wikipedia.dumps import Dump
from tasks.xtreme.benchmark import get_task

pytestmark = pytest.mark.slow

# An exception that is no UsageError would be a traceback: it fails the test. So does an example that takes ten seconds.
fuzzed = settings(
  max_examples=300, deadline=10_000, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

scalars = st.one_of(
  st.none(),
  st.booleans(),
  st.integers(-(1 << 70), 1 << 70),
  st.floats(),
  st.text(max_size=20),
  st.sampled_from(['0', '-1', 'nan', '1e999', 'true', '', '\0', '../x', 'gs://x']),
)
anything = st.recursive(
  scalars,
  lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
  max_leaves=8,
)


@contextlib.contextmanager
def told(where, *others):
  """Lets pass an error that names the file, in words."""
  try:
    yield
  except UsageError as error:
    assert any(str(place) in error.where for place in (where, *others)), error  # noqa: PT017
    assert error.what  # noqa: PT017


def places(content):
  """Every place in a JSON tree, as the way to it."""
  yield ()
  items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
  for key, value in items:
    yield from ((key, *rest) for rest in places(value))


def altered(draw, content):
  """A JSON tree with some of its values replaced, removed, or joined by others."""
  content = copy.deepcopy(content)
  for _ in range(draw(st.integers(1, 3))):
    *way, last = draw(st.sampled_from([place for place in places(content) if place] or [('x',)]))
    parent = content
    for key in way:
      parent = parent[key]
    if not isinstance(parent, dict | list):
      continue
    if draw(st.booleans()) or not isinstance(parent, dict):
      parent[last] = draw(anything)
    else:
      parent.pop(last, None)
  return content


def altered_bytes(draw, content: bytes) -> bytes:
  """A file with a piece cut out, put in, or flipped; or cut short."""
  content = bytearray(content)
  for _ in range(draw(st.integers(1, 3))):
    at = draw(st.integers(0, len(content)))
    kind = draw(st.sampled_from(['cut', 'put', 'flip', 'end']))
    if kind == 'cut':
      del content[at : at + draw(st.integers(1, 40))]
    elif kind == 'put':
      content[at:at] = draw(
        st.binary(max_size=20) | st.sampled_from([b'\t', b'\n', b'\r', b'<page>', b'</', b'"', b'\xff'])
      )
    elif kind == 'flip' and at < len(content):
      content[at] ^= draw(st.integers(1, 255))
    elif kind == 'end':
      del content[at:]
  return bytes(content)


FIELDS = [
  f'{name}.{field.name}' for name, cls in configuration.CONFIGURABLES.items() for field in dataclasses.fields(cls)
]
values = st.one_of(
  scalars.map(repr),
  anything.map(repr),
  st.text(max_size=20),
  st.sampled_from(['%X', '@x', '@gin.macro()', '(', '"', '#']),
)


@fuzzed
@given(name=st.sampled_from(FIELDS) | st.text(max_size=20), value=values)
def test_bindings(name, value):
  with told(''):
    configuration.load(['gin/pretrain_smoke.gin'], [f'{name}={value}'])
    for cls in configuration.CONFIGURABLES.values():
      configuration.build(cls)


@fuzzed
@given(data=st.data())
def test_gin_files(tmp_path, data):
  file = tmp_path / 'run.gin'
  file.write_bytes(
    altered_bytes(data.draw, b"train.steps = 3\nRemBertConfig.hidden_act = 'gelu'\ndata.languages = ('de', 'sw')\n")
  )
  with told(file, '%'):
    configuration.load([str(file)], [])


@fuzzed
@given(data=st.data())
def test_descriptions_of_models(tmp_path, data):
  content = config_json(RemBertConfig(), 'classification', ('no', 'yes'))
  file = tmp_path / 'config.json'
  file.write_text(json.dumps(altered(data.draw, content)))
  with told(file):
    try:
      config = read_description(tmp_path).config
    except UsageError as error:
      assert '--gin' not in str(error)  # noqa: PT017
      raise
    assert max(config.pad_token_id, config.bos_token_id, config.eos_token_id) < config.vocab_size


XNLI = b''.join(b'Ein Satz %d.\tNoch einer.\tentailment\n' % number for number in range(4))
PANX = b'Bonn\tB-LOC\nliegt\tO\n\nam\tO\nRhein\tB-LOC\n\n'


@fuzzed
@given(data=st.data(), task=st.sampled_from(['xnli', 'panx']))
def test_tables(tmp_path, data, task):
  file = tmp_path / 'dev-de.tsv'
  content = altered_bytes(data.draw, {'xnli': XNLI, 'panx': PANX}[task])
  file.write_bytes(content)
  with told(file):
    examples = get_task(task).read(epath.Path(file), get_task(task).labels)
    lines = content.removesuffix(b'\n').split(b'\n')
    if task == 'panx':
      assert sum(len(sentence.features['words']) for sentence in examples) == sum(
        bool(line.strip(b' \t\r')) for line in lines
      )
    elif b'"' not in content:
      assert len(examples) == len(lines)


SQUAD = {
  'data': [
    {
      'title': 'Bonn',
      'paragraphs': [
        {
          'context': 'Bonn liegt am Rhein.',
          'qas': [{'id': 'a', 'question': 'Wo?', 'answers': [{'text': 'am Rhein', 'answer_start': 11}]}],
        }
      ],
    }
  ]
}


@fuzzed
@given(data=st.data())
def test_questions(tmp_path, data):
  file, content = tmp_path / 'xquad.de.json', altered(data.draw, SQUAD)
  file.write_text(json.dumps(content))
  with told(file):
    questions = read_questions(epath.Path(file))
    assert len(questions) == sum(len(each['qas']) for article in content['data'] for each in article['paragraphs'])


DUMP = (
  b'<mediawiki xml:lang="de"><siteinfo><namespaces><namespace key="6">Datei</namespace></namespaces></siteinfo>\n'
  + b''.join(
    b'<page><title>Ort %d</title><ns>0</ns><id>%d</id><revision><text>Bonn &amp; K\xc3\xb6ln</text></revision></page>\n'
    % (n, n)
    for n in range(5)
  )
  + b'</mediawiki>\n'
)


@fuzzed
@given(data=st.data())
def test_dumps(tmp_path, data):
  file = tmp_path / 'dewiki-pages-articles.xml'
  content = altered_bytes(data.draw, DUMP)
  file.write_bytes(content)
  with told(file):
    dump = Dump(file)
    pages = list(dump.pages())
    # A page that is not read is counted, or the file says that it was cut.
    assert len(pages) + dump.broken_pages >= content.count(b'<page>') or dump.is_truncated


@fuzzed
@given(data=st.data())
def test_manifests_of_stores(small_store, tmp_path, data):
  folder = tmp_path / 'store'
  if not folder.exists():
    shutil.copytree(small_store.folder, folder)
  manifest = json.loads((small_store.folder / 'manifest.json').read_text())
  (folder / 'manifest.json').write_text(json.dumps(altered(data.draw, manifest)))
  with told(folder):
    store = TokenStore(folder)
    for language in store.languages:
      store.read(language, 'train', range(min(2, store.rows(language, 'train'))))
