"""TensorFlow Datasets to XTREME's layout: from datasets prepared on disk, and by the names that TFDS gives them."""

import json

import pytest
from prepared_datasets import prepare_splits

from rembert.errors import UsageError
from tasks.xtreme import download, prepared, verify
from tasks.xtreme.layout import XtremeFolder
from tasks.xtreme.verify import LANGUAGES

QA = {
  'id': 'q1',
  'title': 'Orte',
  'context': 'Die Mühle steht seit 1720 am Bach.',
  'question': 'Seit wann?',
  'answers': {'text': ['1720', '1720 am Bach'], 'answer_start': [21, 21]},
}


class Fake:
  """Rows by name and split, and what was asked for."""

  def __init__(self, **rows):
    self._rows, self.asked = {name.replace('__', '/'): row for name, row in rows.items()}, []

  def __call__(self, name, split):
    self.asked.append((name, split))
    return self._rows[name.partition('/')[0]]


def made(task, rows):
  return dict(prepared.convert(task, rows))


def test_xnli_is_split_by_language_and_learned_from_english():
  row = {
    'premise': {language: f'Satz {language}'.encode() for language in LANGUAGES['xnli']},
    'hypothesis': {
      'language': [language.encode() for language in reversed(LANGUAGES['xnli'])],
      'translation': [f'Folge {language}'.encode() for language in reversed(LANGUAGES['xnli'])],
    },
    'label': 2,
  }
  rows = Fake(xnli=[row], xtreme_xnli=[row])
  files = made('xnli', rows)
  assert files['xnli/dev-sw.tsv'] == 'Satz sw\tFolge sw\tcontradiction\r\n'
  assert files['xnli/test-sw.tsv'] == 'Satz sw\tFolge sw\r\n'
  assert files['labels/xnli/test-sw.tsv'] == 'contradiction\n'
  assert files['xnli/train-en.tsv'] == 'Satz en\tFolge en\tcontradiction\r\n'
  assert 'xnli/train-de.tsv' not in files
  assert rows.asked == [('xnli', 'validation'), ('xnli', 'test'), ('xtreme_xnli', 'train')]


def test_pawsx():
  files = made('pawsx', Fake(paws_x_wiki=[{'sentence1': b'a', 'sentence2': b'b', 'label': 1}]))
  assert files['pawsx/train-en.tsv'] == files['pawsx/dev-ko.tsv'] == 'a\tb\t1\r\n'
  assert files['labels/pawsx/test-ko.tsv'] == '1\n'
  assert len(files) == 1 + 7 * 3


def test_panx_has_no_empty_tokens():
  rows = [{'tokens': [b'Anna', b'\xc2\xa0', b'lacht'], 'tags': [1, 0, 0]}, {'tokens': [b' '], 'tags': [0]}]
  files = made('panx', Fake(wikiann=rows))
  assert files['panx/train-en.tsv'] == 'Anna\tB-PER\nlacht\tO\n'
  assert files['labels/panx/test-yo.tsv'] == 'B-PER\nO\n'
  assert len(files) == 40 * 4


def test_tamil_and_tagalog_change_places():
  rows = Fake(xtreme_pos=[{'tokens': ['می\u200cرود'.encode(), b'1 0'], 'upos': [15, 8]}])
  files = made('udpos', rows)
  assert files['udpos/test-fa.tsv'] == 'میرود\n10\n'
  assert files['labels/udpos/test-fa.tsv'] == 'VERB\nNUM\n'
  asked = rows.asked
  assert ('xtreme_pos/xtreme_pos_tl', 'validation') in asked  # Tamil: it has a dev split
  assert ('xtreme_pos/xtreme_pos_ta', 'validation') not in asked  # Tagalog: it has none
  assert 'udpos/dev-ta.tsv' in files
  assert 'udpos/dev-tl.tsv' not in files
  assert ('xtreme_pos/xtreme_pos_kk', 'train') in asked


def test_questions_of_a_context_are_together_and_test_files_have_no_answers():
  other = QA | {'id': 'q2', 'question': b'Wo?', 'answers': {'text': [b'am Bach'], 'answer_start': [26]}}
  files = made(
    'xquad',
    Fake(
      xquad=[
        QA,
        QA
        | {'id': 'q3', 'context': '1720 1720 1720 1720 1720 1720 am Bach'}
        | {'answers': {'text': [], 'answer_start': []}},
        other,
      ]
    ),
  )
  labels = json.loads(files['labels/xquad/test-el.json'])
  assert [[qa['id'] for qa in part['qas']] for part in labels['data'][0]['paragraphs']] == [['q1', 'q2'], ['q3']]
  assert labels['data'][0]['paragraphs'][0]['qas'][0]['answers'][1] == {'answer_start': 21, 'text': '1720 am Bach'}
  test = json.loads(files['xquad/xquad.el.json'])
  assert [article['paragraphs'][0]['qas'][0]['id'] for article in test['data']] == ['q1', 'q2', 'q3']
  assert '1720 am Bach' not in json.dumps([article['paragraphs'][0]['qas'] for article in test['data']])


def test_tydiqa_mlqa_squad_and_tatoeba():
  row = QA | {'id': 'korean-77-0'}
  rows = Fake(tydi_qa=[row], mlqa=[row], squad=[row])
  files = made('tydiqa', rows)
  train = json.loads(files['tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.ko.train.json'])
  assert train['data'][0]['paragraphs'][0]['qas'][0]['id'] == '0'
  assert 'tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.te.dev.json' in files
  assert ('tydi_qa/goldp', 'validation-te') in rows.asked
  assert len(made('mlqa', rows)) == 7 * 3
  assert set(made('squad', rows)) == {'squad/train-v1.1.json', 'squad/dev-v1.1.json'}
  pairs = [
    {'source_sentence': b'zwei\n', 'target_sentence': b'two\n'},
    {'source_sentence': b'eins\n', 'target_sentence': b'one\n'},
  ]
  files = made('tatoeba', Fake(tatoeba=pairs))
  assert files['tatoeba/de-en.de'] == 'zwei\neins\n'
  assert files['tatoeba/de-en.en'] == 'one\ntwo\n'
  assert files['labels/tatoeba/test-de.tsv'] == '1\n0\n'


def test_bucc_cannot_be_made():
  with pytest.raises(UsageError, match='without the sentences that they are to be found among'):
    made('bucc2018', Fake())


# --- with TFDS itself ---------------------------------------------------------


def test_tfds_has_datasets_of_these_names_with_these_fields():
  from tasks.tensorflow_import import tensorflow  # noqa: F401

  # isort: split
  import tensorflow_datasets as tfds

  names = lambda feature: tuple(feature.feature.names)
  features = lambda name: tfds.builder(name).info.features
  assert names(features('wikiann/sw')['tags']) == prepared._NER
  assert names(features('xtreme_pos/xtreme_pos_yo')['upos']) == prepared._UPOS
  for name in ('xnli', 'xtreme_xnli'):
    assert tuple(features(name)['label'].names) == prepared._NLI
    assert set(features(name)['premise'].keys()) == set(LANGUAGES['xnli'])
    assert set(features(name)['hypothesis'].keys()) == {'language', 'translation'}
  assert features('paws_x_wiki/ko')['label'].names == ['different_meaning', 'paraphrase']
  for name in ('squad/v1.1', 'xquad/el', 'mlqa/vi', 'tydi_qa/goldp'):
    assert {'id', 'title', 'context', 'question', 'answers'} <= set(features(name).keys())
  assert {'source_sentence', 'target_sentence'} <= set(features('tatoeba/tatoeba_sw').keys())
  configs = {
    'wikiann': LANGUAGES['panx'],
    'paws_x_wiki': LANGUAGES['pawsx'],
    'xquad': LANGUAGES['xquad'],
    'mlqa': LANGUAGES['mlqa'],
    'tatoeba': [f'tatoeba_{language}' for language in LANGUAGES['tatoeba']],
    'xtreme_pos': [f'xtreme_pos_{language}' for language in LANGUAGES['udpos']],
  }
  for name, languages in configs.items():
    assert set(languages) <= set(tfds.builder_cls(name).builder_configs), name


def test_tfds_still_has_tamil_and_tagalog_the_wrong_way_round():
  from tasks.tensorflow_import import tensorflow  # noqa: F401

  # isort: split
  from tensorflow_datasets.datasets.xtreme_pos import xtreme_pos_dataset_builder

  assert (xtreme_pos_dataset_builder._LANGS['ta'], xtreme_pos_dataset_builder._LANGS['tl']) == ('Tagalog', 'Tamil')


def test_prepared_datasets_become_a_complete_task(tmp_path, monkeypatch, capsys):
  def features():
    import numpy as np
    import tensorflow_datasets as tfds

    texts = {name: tfds.features.Text() for name in ('id', 'title', 'context', 'question')}
    answer = {'text': tfds.features.Text(), 'answer_start': np.int32}
    return texts | {'answers': tfds.features.Sequence(answer)}

  configs = {language: {'test': [QA, QA | {'id': 'q2'}]} for language in LANGUAGES['xquad']}
  prepare_splits('xquad', configs, features, tmp_path / 'tfds')
  monkeypatch.setattr(verify, 'expected_counts', lambda: {'xquad': {'test': dict.fromkeys(LANGUAGES['xquad'], 2)}})
  flags = ['--tasks=xquad', '--from_tfds', f'--tfds_data_dir={tmp_path / "tfds"}']
  assert download.main([f'--data_dir={tmp_path / "xtreme"}', *flags]) == 0
  assert '11 of 11: 2 (11)' in capsys.readouterr().out
  assert verify.take_inventory(XtremeFolder(tmp_path / 'xtreme'), 'xquad').is_complete


def test_what_tfds_cannot_give_is_one_error(tmp_path, monkeypatch, capsys):
  from tasks.tensorflow_import import tensorflow  # noqa: F401

  # isort: split
  import tensorflow_datasets as tfds

  def unreachable(*_, **__):
    raise ConnectionError('no way to the server')

  monkeypatch.setattr(tfds.core.DatasetBuilder, 'download_and_prepare', unreachable)
  flags = ['--tasks=mlqa', '--from_tfds', f'--tfds_data_dir={tmp_path / "tfds"}']
  assert download.main([f'--data_dir={tmp_path / "xtreme"}', *flags]) == 2
  shown = capsys.readouterr().out
  assert 'TensorFlow Datasets cannot give mlqa/en, split validation: no way to the server' in shown
  assert 'tfds build mlqa/en' in shown
  assert not (tmp_path / 'xtreme' / 'mlqa').exists()
