"""Published archives, changed at will, and what becomes of them: files as XTREME's preprocessing writes them."""

import csv
import io
import json

import pytest
import xtreme_archives
from hypothesis import given
from hypothesis import strategies as st
from xtreme_archives import CONLLU, QUESTIONS, tar_of

from tasks.xtreme.convert import (
  CONVERSIONS,
  blanked_test_files,
  pairs_files,
  panx_sentences,
  tagging_files,
  tatoeba_files,
  udpos_sentences,
)
from tasks.xtreme.files import XtremeFolder
from tasks.xtreme.retrieval import Tatoeba


@pytest.fixture
def convert(tmp_path):
  """Function (task, **archives that are otherwise) → {path: content}."""

  def run(task: str, changed: dict[str, bytes] | None = None) -> dict[str, str]:
    archives = {}
    for name, content in (xtreme_archives.published(task) | (changed or {})).items():
      archives[name] = tmp_path / name
      archives[name].write_bytes(content)
    files = list(CONVERSIONS[task](archives))
    assert len(dict(files)) == len(files)
    return dict(files)

  return run


# --- what is written --------------------------------------------------------------------------------------------------


def test_real_files_are_written_as_they_are(shared_data):
  root = shared_data / 'xtreme'
  read = lambda name: (root / name).read_bytes().decode()
  rows = list(csv.reader(io.StringIO(read('pawsx/dev-de.tsv'), newline=''), delimiter='\t'))
  assert dict(pairs_files('pawsx', 'dev', 'de', rows)) == {'pawsx/dev-de.tsv': read('pawsx/dev-de.tsv')}
  names = ['panx/test-sw.tsv', 'labels/panx/test-sw.tsv']
  blocks = [[block.splitlines() for block in read(name).split('\n\n')] for name in names]
  sentences = [list(zip(tokens, tags, strict=True)) for tokens, tags in zip(*blocks, strict=True)]
  assert dict(tagging_files('panx', 'test', 'sw', sentences)) == {name: read(name) for name in names}


# --- every task -------------------------------------------------------------------------------------------------------


def asked(content: str) -> list[tuple[str, str, list]]:
  """Ids, contexts and answers of a file."""
  return [
    (question['id'], paragraph['context'], [answer['text'] for answer in question['answers']])
    for article in json.loads(content)['data']
    for paragraph in article['paragraphs']
    for question in paragraph['qas']
  ]


MILL, SNOW = 'Die Mühle steht seit 1720 am Bach.', 'Im Mai fiel Schnee.'
ENGLISH_TRAIN = 'It rains.\tIt is dry.\tcontradiction\r\nHe sleeps.\tHe rests.\tentailment\r\n'
XNLI_SW = (
  'Ein Satz (sw).\t"Ein ""anderer"" Satz."\tneutral\r\n'
  'Es regnet.\tEs ist trocken.\tcontradiction\r\n'
  'Es regnet.\tEs ist nass.\tentailment\r\n'
)
MLQA = 'mlqa/MLQA_V1/{0}/{0}-context-hi-question-hi.json'
TYDIQA = 'tydiqa/tydiqa-goldp-v1.1-{0}/tydiqa.goldp.ko.{0}.json'
FILES = {  # how many there are, and what is in some of them; of questions as `asked` has it
  'xnli': (1 + 15 * 3, {'xnli/train-en.tsv': ENGLISH_TRAIN, 'xnli/dev-sw.tsv': XNLI_SW}),
  'pawsx': (1 + 7 * 3, {'pawsx/dev-ja.tsv': '"""Ja"", sagte er ."\tEr sagte ja .\t1\r\nA vor B\tB vor A\t0\r\n'}),
  'panx': (
    40 * 4,
    {'panx/train-jv.tsv': 'Anna\tB-PER\na:b\tO\n\nRom\tB-LOC\n', 'panx/test-jv.tsv': 'Anna\na:b\n\nRom\n'},
  ),
  'squad': (2, {'squad/train-v1.1.json': asked(json.dumps(QUESTIONS))}),
  # An article for each question, without its answer.
  'xquad': (2 * 11, {'xquad/xquad.th.json': [('q1', MILL, ['']), ('q2', MILL, ['']), ('q3', SNOW, [''])]}),
  'mlqa': (7 * 3, {MLQA.format('dev'): asked(json.dumps(QUESTIONS))}),
  'tydiqa': (
    9 * 3,
    {TYDIQA.format('train'): [('0', MILL, ['1720'])], TYDIQA.format('dev'): [('korean-77-0', MILL, [''])]},
  ),
  'tatoeba': (3 * 36, {'tatoeba/sw-en.sw': 'drei (sw)\neins\nzwei\n', 'tatoeba/sw-en.en': 'one\nthree\ntwo\n'}),
  # The sample is dev, and the training set is test.
  'bucc2018': (6 * 4, {'bucc2018/ru-en.dev.ru': 'ru-1\teins\nru-2\tzwei\n', 'bucc2018/ru-en.dev.gold': 'ru-1\ten-2\n'}),
}
LABELS = {
  'xnli': ('sw.tsv', 'neutral\ncontradiction\nentailment\n'),
  'pawsx': ('ja.tsv', '1\n0\n'),
  'panx': ('jv.tsv', 'B-PER\nO\n\nB-LOC\n'),
  'xquad': ('th.json', asked(json.dumps(QUESTIONS))),
  'mlqa': ('hi.json', asked(json.dumps(QUESTIONS))),
  'tydiqa': ('ko.json', [('korean-77-0', MILL, ['1720'])]),
  'tatoeba': ('sw.tsv', '1\n0\n2\n'),
  'bucc2018': ('ru.tsv', 'ru-1\ten-2\n'),
}


@pytest.mark.parametrize('task', FILES)
def test_every_archive_becomes_files_of_all_languages_and_labels_of_test(convert, task):
  files, (count, expected) = convert(task), FILES[task]
  if task in LABELS:
    name, content = LABELS[task]
    expected = expected | {f'labels/{task}/test-{name}': content}
  assert len(files) == count
  assert {path: asked(files[path]) if path.endswith('json') else files[path] for path in expected} == expected


# --- tagging ----------------------------------------------------------------------------------------------------------


def test_sentences_end_at_empty_lines_and_at_the_end():
  content = b'de:a\tO\n\n\nde:b\tO\nde:\xc2\xa0\tO\n\nde: \tO\n\nde:c\tB-ORG'
  assert panx_sentences(content) == [[('a', 'O')], [('b', 'O')], [('c', 'B-ORG')]]


def conllu(*rows: tuple[str, str, str, int | str], enhanced: dict[str, str] | None = None) -> bytes:
  """Rows of (id, form, tag, head) as a sentence."""
  lines = []
  for number, form, tag, head in rows:
    lines.append('\t'.join([number, form, '_', tag, '_', '_', str(head), '_', (enhanced or {}).get(number, '_'), '_']))
  return '\n'.join([*lines, '', '']).encode()


def test_a_multiword_token_is_one_token():
  assert udpos_sentences(CONLLU.encode(), 'de') == [
    [('Im', 'ADP'), ('Haus', 'NOUN'), ('wohnt', 'VERB'), ('niemand', 'PRON'), ('.', 'PUNCT')],
    [('Ja', 'INTJ')],
  ]


@pytest.mark.parametrize(
  ('language', 'tags', 'tag'),
  [
    ('pt', ('ADP', 'DET'), 'ADP'),
    ('pt', ('PRON', 'ADV'), 'PRON'),
    ('it', ('PRON', 'ADV'), 'ADV'),
    ('fr', ('ADP', 'ADJ'), 'ADJ'),
    ('es', ('NOUN', 'DET'), 'DET'),  # NOUN has no rank there
    ('de', ('SYM', 'X'), 'X'),
  ],
)
def test_of_words_equally_near_the_rank_of_the_tag_decides(language, tags, tag):
  rows = [('1-2', 'ab', '_', '_'), ('1', 'a', tags[0], 3), ('2', 'b', tags[1], 3), ('3', 'c', 'VERB', 0)]
  assert udpos_sentences(conllu(*rows), language) == [[('ab', tag), ('c', 'VERB')]]


def test_enhanced_dependencies_count():
  rows = [
    ('1-2', 'ab', '_', '_'),
    ('1', 'a', 'ADP', 3),
    ('2', 'b', 'DET', 3),
    ('3', 'c', 'VERB', 0),
    ('4', 'd', 'X', 3),
  ]
  assert udpos_sentences(conllu(*rows), 'de')[0][0] == ('ab', 'ADP')
  assert udpos_sentences(conllu(*rows, enhanced={'1': '3:case|4:conj'}), 'de')[0][0] == ('ab', 'DET')


def plain_height(number, heads):
  """Steps to the root of a tree."""
  return 0 if number == 0 else 1 + plain_height(heads[number], heads)


@given(st.data())
def test_in_a_tree_the_nearest_is_the_one_with_the_shortest_way(data):
  count = data.draw(st.integers(2, 8))
  heads = {n: data.draw(st.integers(0, n - 1)) for n in range(1, count + 1)}
  tags = {n: data.draw(st.sampled_from(['VERB', 'NOUN', 'ADP', 'SYM'])) for n in heads}
  first = data.draw(st.integers(1, count - 1))
  last = data.draw(st.integers(first + 1, count))
  rows = [(str(n), f'w{n}', tags[n], heads[n]) for n in heads]
  rows.insert(first - 1, (f'{first}-{last}', 'fused', '_', '_'))
  rank = ['VERB', 'NOUN', 'ADP', 'SYM']
  expected = min(range(first, last + 1), key=lambda n: (plain_height(n, heads), rank.index(tags[n])))
  (sentence,) = udpos_sentences(conllu(*rows), 'de')
  assert sentence == [
    *((f'w{n}', tags[n]) for n in range(1, first)),
    ('fused', tags[expected]),
    *((f'w{n}', tags[n]) for n in range(last + 1, count + 1)),
  ]


def test_zero_width_non_joiners_and_spaces_go():
  assert udpos_sentences(conllu(('1', 'می\u200cرود', 'VERB', 0), ('2', '1 000', 'NUM', 1)), 'fa') == [
    [('میرود', 'VERB'), ('1000', 'NUM')]
  ]


@pytest.mark.parametrize(
  ('forms', 'stays'),
  [(['_', '_', '_'], False), (['_', '_', 'c'], False), (['_', 'b', 'c'], True), (['a'], True), (['_'], False)],
)
def test_sentences_without_words_are_left_out(forms, stays):
  rows = [(str(n), form, 'X', n - 1) for n, form in enumerate(forms, 1)]
  assert bool(udpos_sentences(conllu(*rows), 'en')) == stays


def test_treebanks_come_in_the_order_of_their_names(convert):
  members = {
    'ud/UD_English-PUD/en_pud-ud-test.conllu': conllu(('1', 'pud', 'X', 0)),
    'ud/UD_English-EWT/en_ewt-ud-test.conllu': conllu(('1', 'ewt', 'X', 0)),
    'ud/UD_English-EWT/en_ewt-ud-train.conllu': conllu(('1', 'train', 'X', 0)),
    'ud/UD_Old_French-SRCMF/fro_srcmf-ud-test.conllu': conllu(('1', 'fro', 'X', 0)),
  }
  files = convert('udpos', {'ud-treebanks-v2.5.tgz': tar_of(members)})
  assert files == {
    'udpos/test-en.tsv': 'ewt\n\npud\n',
    'labels/udpos/test-en.tsv': 'X\n\nX\n',
    'udpos/train-en.tsv': 'train\tX\n',
  }


def test_real_tokens_are_written_as_they_are(convert, shared_data):
  root = shared_data / 'xtreme'
  name = 'udpos/dev-mr.tsv'
  blocks = [block.splitlines() for block in (root / name).read_text('utf-8').split('\n\n')]
  rows = [[(str(n), *line.split('\t'), n - 1) for n, line in enumerate(block, 1)] for block in blocks]
  content = b''.join(conllu(*sentence) for sentence in rows)
  files = convert('udpos', {'ud-treebanks-v2.5.tgz': tar_of({'ud/UD_Marathi-UFAL/mr_ufal-ud-dev.conllu': content})})
  assert files[name] == (root / name).read_text('utf-8')


# --- questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(('task', 'name'), [('xquad', 'xquad/xquad.zh.json'), ('tydiqa', 'tydiqa.goldp.te.dev.json')])
def test_real_test_files_are_made_from_their_labels(shared_data, task, name):
  root = shared_data / 'xtreme'
  language = name.split('.')[-2 if task == 'xquad' else -3]
  path = name if task == 'xquad' else f'tydiqa/tydiqa-goldp-v1.1-dev/{name}'
  labels = (root / 'labels' / task / f'test-{language}.json').read_bytes()
  (made_path, content), _ = blanked_test_files(labels, task, language)
  assert made_path == path
  assert json.loads(content) == json.loads((root / path).read_text('utf-8'))


# --- retrieval --------------------------------------------------------------------------------------------------------

LINE = st.text(st.characters(categories=['L', 'N', 'P', 'Zs']), min_size=1).map(str.strip).filter(bool)


@given(st.lists(LINE, min_size=1))
def test_a_label_is_the_line_of_the_translation(english):
  _, texts, labels = dict(tatoeba_files('de', english, english)).values()
  lines = texts.split('\n')[:-1]
  assert lines == sorted(english)
  places = [int(label) for label in labels.split()]
  assert sorted(places) == list(range(len(english)))
  assert [lines[place] for place in places] == english


def test_real_files_are_made_from_pairs_in_their_order(shared_data):
  language, folder = 'zh', XtremeFolder(shared_data / 'xtreme')
  examples = Tatoeba().examples(folder, language)
  english = [examples.english[line] for line in examples.gold]
  for path, content in tatoeba_files(language, examples.source, english):
    assert content == (shared_data / 'xtreme' / path).read_text('utf-8')
