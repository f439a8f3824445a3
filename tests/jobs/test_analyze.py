"""Every analysis from the command line to its JSON and picture, on a small random model."""

import functools
import json
import lzma

import jax
import numpy as np
import pytest

import rembert
from rembert import main
from rembert.analysis.word_similarity import read_word_pairs
from rembert.data.store_source import StoredBatches
from rembert.data.token_store import TokenStore
from rembert.inference.model import text_encoder
from rembert.jobs.analyze import model_name, plain

PNG = b'\x89PNG\r\n\x1a\n'


@pytest.fixture
def model(saved, small_store):
  """The workdir of a random model whose vocabulary is that of `small_store`."""
  workdir = saved('mlm', vocab_size=1500, max_position_embeddings=64).workdir
  (workdir / 'vocabulary').mkdir()
  (workdir / 'vocabulary' / 'sentencepiece.model').write_bytes(small_store.vocabulary.read_bytes())
  return workdir


@pytest.fixture
def analyze(root, model, tmp_path, capsys):
  """Function (name, *bindings) → the content of `analysis.json` and what was printed."""

  def run(name: str, *bindings: str):
    arguments = [f'--gin_file={root}/gin/analyze_{name}.gin', f'--workdir={tmp_path}/{name}']
    bindings = (f'analyze.model={model}', *bindings)
    assert main.main([*arguments, *(f'--gin.{binding}' for binding in bindings)]) == 0
    content = json.loads((tmp_path / name / 'analysis.json').read_text())
    assert (content['analysis'], content['model']) == (name, str(model))
    assert content['model_name'] == 'run'
    assert (tmp_path / name / f'{name}.png').read_bytes().startswith(PNG)
    assert (tmp_path / name / 'operative_config.gin').exists()
    return content['results'], capsys.readouterr().out

  return run


def test_masked_accuracy_is_that_of_the_logits(analyze, small_store, model):
  store = ('data.source=store', f'data.store={small_store.folder}', 'train.sequence_length=64', 'train.seed=5')
  results, shown = analyze('masked_accuracy', *store, 'analyze.rows=3', 'analyze.batch_size=8')
  assert list(results['languages']) == ['el', 'sw', 'th']

  # The same rows and masks, one row at a time, through logits of the whole vocabulary.
  rates = dict.fromkeys(('el', 'sw', 'th'), 1 / 3)
  held_out = StoredBatches(
    store=TokenStore(small_store.folder), rates=rates, batch_size=8, vocab_size=1500, seed=5, evaluation_rows=3
  )
  module, seen = rembert.load(model, 'mlm').module, {language: [] for language in rates}
  logits_of = jax.jit(lambda inputs: module(**inputs).logits)
  for batch in held_out.evaluation_batches():
    inputs = {name: batch[name] for name in ('input_ids', 'segment_ids', 'position_ids')}
    logits = np.asarray(logits_of(inputs), np.float64)[..., :1500]
    for row, slot in np.argwhere(batch['weights'] > 0):
      scores, target = logits[row, batch['masked_positions'][row, slot]], batch['targets'][row, slot]
      loss = np.log(np.exp(scores - scores.max()).sum()) + scores.max() - scores[target]
      seen[list(rates)[batch['language'][row]]].append((loss, scores.argmax() == target))
  for language, found in results['languages'].items():
    losses, right = zip(*seen[language], strict=True)
    assert found['positions'] == len(losses)
    assert found['loss'] == pytest.approx(np.mean(losses), rel=1e-4)
    assert found['accuracy'] == pytest.approx(100 * np.mean(right))
  assert results['all']['positions'] == sum(map(len, seen.values()))
  assert results['mean']['loss'] == pytest.approx(np.mean([found['loss'] for found in results['languages'].values()]))
  assert 'Masked-token accuracy' in shown


def test_layer_retrieval_reads_two_files(analyze, tmp_path):
  lines = ['mji mkubwa', 'maji ya bahari', 'mto mrefu sana', 'kitabu', 'nyumba na mti']
  (tmp_path / 'a.sw').write_text('\n'.join(lines) + '\n')
  (tmp_path / 'a.en').write_text('\n'.join(lines) + '\n')
  files = (f'analyze.source={tmp_path}/a.sw', f'analyze.target={tmp_path}/a.en')
  results, shown = analyze('layer_retrieval', *files)
  assert results['layers'] == [0, 1, 2, 3]
  [(name, found)] = results['pairs'].items()
  assert (name, found['pairs'], found['chance']) == ('sw-en', 5, 20)
  assert found['accuracy'] == results['mean'] == [100] * 4  # a line is its own translation
  assert 'sw-en' in shown


def test_layer_retrieval_reads_tatoeba_with_its_labels(analyze, root):
  data = f'xtreme.data_dir={root}/tests/data/xtreme'
  results, _ = analyze('layer_retrieval', data, "xtreme.languages=('de', 'sw')")
  assert list(results['pairs']) == ['de-en', 'sw-en']
  expected = [np.mean([found['accuracy'][layer] for found in results['pairs'].values()]) for layer in range(4)]
  assert results['mean'] == pytest.approx(expected)


def test_word_similarity_is_that_of_the_tables_of_the_checkpoint(analyze, root, model):
  file = root / 'tests' / 'data' / 'analysis' / 'word_pairs.txt'
  results, shown = analyze('word_similarity', f'analyze.words={file}', 'analyze.samples=20')
  assert results['tables'] == {'input': 18, 'output': 43}
  found = results['sets']['word_pairs']
  assert (found['pairs'], found['covered']) == (44, 44)
  loaded = rembert.load(model, 'mlm')
  encoder, table = text_encoder(loaded), np.asarray(loaded.encoder.embeddings.word.embedding[...], np.float64)
  vector = functools.cache(lambda word: np.mean([table[piece] for piece in encoder.encode(word)[1:-1]], axis=0))
  pairs = read_word_pairs(file)
  similarity = [vector(pair.first) @ vector(pair.second) for pair in pairs]
  ranks = lambda values: [sum(a < b for a in values) + (values.count(b) - 1) / 2 for b in values]
  expected = np.corrcoef(ranks(similarity), ranks([pair.score for pair in pairs]))[0, 1]
  assert found['input']['rho'] == pytest.approx(100 * expected, abs=1e-6)
  assert '44 of 44' in shown


@pytest.mark.slow
def test_edge_probing_reads_udpos_and_files_of_spans(analyze, root, tmp_path):
  small = ('probe.epochs=2', 'probe.projection=8', 'probe.hidden=8', 'probe.batch_size=4')
  results, shown = analyze('edge_probing', f'xtreme.data_dir={root}/tests/data/xtreme', *small)
  assert results['task'] == 'udpos'
  assert 'de' in results['encoders']['random']['tests']
  assert 'centre of gravity' in shown
  for found in results['encoders'].values():
    assert sum(found['mix']) == pytest.approx(1, abs=1e-5)
    assert found['expected_layer'] == pytest.approx(np.dot(found['mix'], results['layers']))

  target = {'span1': [0, 2], 'span2': [2, 3], 'label': ['x', 'y']}
  (tmp_path / 'spans.json').write_text(json.dumps({'text': 'maji ya bahari', 'targets': [target]}) + '\n')
  files = [f'analyze.{part}={tmp_path}/spans.json' for part in ('train', 'dev', 'test')]
  results, _ = analyze('edge_probing', *files, *small, 'analyze.control=False')
  assert (results['task'], results['spans'], results['labels']) == ('spans', 2, 2)
  assert results['encoders']['random'] is None


def test_fertility_is_of_each_language_of_the_text(analyze, tmp_path):
  text = {'sw': 'maji ya bahari ni mengi', 'el': 'το νερό της θάλασσας', 'th': 'น้ำทะเล', 'xx': ''}
  (tmp_path / 'text').mkdir()
  for language, words in text.items():
    with lzma.open(tmp_path / 'text' / f'{language}.txt.xz', 'wt') as file:
      file.write(words)
  results, shown = analyze('fertility', f'analyze.text={tmp_path}/text')
  assert set(results['languages']) == {'sw', 'el', 'th'}
  assert results['languages']['th']['pieces_per_word'] is None
  assert results['languages']['sw']['pieces_per_word'] > 1
  assert '/character' in shown


@pytest.mark.parametrize(
  ('name', 'bindings', 'what'),
  [
    ('layer_retrieval', [], 'no parallel text'),
    ('layer_retrieval', ['analyze.source=a'], 'must be set together'),
    ('word_similarity', [], 'word_similarity needs analyze.words'),
    ('edge_probing', [], 'no probing data'),
    ('edge_probing', ['analyze.train=missing.json'], 'needs analyze.dev'),
    ('fertility', [], 'fertility needs analyze.text'),
    ('fertility', ['analyze.what=dance'], 'what must be one of'),
    ('fertility', ['analyze.wht=fertility'], 'unknown name analyze.wht'),
  ],
)
def test_a_missing_setting_is_one_error_without_a_traceback(root, model, tmp_path, capsys, name, bindings, what):
  arguments = [f'--gin_file={root}/gin/analyze_{name}.gin', f'--workdir={tmp_path}/out']
  bindings = [f'--gin.analyze.model={model}', *(f'--gin.{binding}' for binding in bindings)]
  assert main.main([*arguments, *bindings]) == 2
  assert what in capsys.readouterr().err


def test_a_dry_run_says_what_it_would_do_and_without_a_model_nothing_is_begun(root, tmp_path, capsys):
  flags = [f'--gin_file={root}/gin/analyze_edge_probing.gin', f'--workdir={tmp_path}/out']
  assert main.main(flags) == 2
  assert 'analyze.model is not set' in capsys.readouterr().err
  assert main.main([*flags, '--dry_run', '--gin.analyze.model=nowhere']) == 0
  assert 'nowhere' in capsys.readouterr().out
  assert not (tmp_path / 'out').exists()


def test_a_model_is_called_by_its_workdir():
  assert model_name('runs/large') == 'large'
  assert model_name('gs://bucket/runs/large/checkpoints/4000') == 'large'
  assert model_name(None) == 'vocabulary'


def test_what_json_has_not_becomes_what_it_has():
  content = {'a': np.float32(1.5), 'b': (np.int64(2), float('nan')), 3: [float('inf'), None, 'x', True]}
  assert plain(content) == {'a': 1.5, 'b': [2, None], '3': [None, None, 'x', True]}
