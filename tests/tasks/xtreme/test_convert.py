"""Published archives, changed at will, and what becomes of them: files as XTREME's preprocessing writes them."""

import csv
import io
import json

import pytest
import xtreme_archives
from hypothesis import given
from hypothesis import strategies as st
from xtreme_archives import CONLLU, QUESTIONS, tar_of

from rembert.errors import UsageError
from tasks.xtreme.config import LANGUAGES
from tasks.xtreme.convert import (
  CONVERSIONS,
  PUBLISHED_NAMES,
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

# What a line of a published file can hold: anything but the ends of lines and columns.
TEXT = st.text(st.characters(exclude_characters='\r\n\t', codec='utf-8'), min_size=1)


def test_pairs_have_csv_quotes_and_carriage_returns():
  (file,) = pairs_files('xnli', 'dev', 'de', [('Er sagte "ja".', 'Ja.', 'entailment')])
  assert file == ('xnli/dev-de.tsv', '"Er sagte ""ja""."\tJa.\tentailment\r\n')


@given(st.lists(st.tuples(TEXT, TEXT, st.sampled_from('01'))))
def test_pairs_come_back_as_they_were(rows):
  ((_, content),) = pairs_files('pawsx', 'dev', 'de', rows)
  assert [tuple(row) for row in csv.reader(io.StringIO(content, newline=''), delimiter='\t')] == rows


def test_real_files_are_written_as_they_are(shared_data):
  root = shared_data / 'xtreme'
  read = lambda name: (root / name).read_bytes().decode()
  rows = list(csv.reader(io.StringIO(read('pawsx/dev-de.tsv'), newline=''), delimiter='\t'))
  assert dict(pairs_files('pawsx', 'dev', 'de', rows)) == {'pawsx/dev-de.tsv': read('pawsx/dev-de.tsv')}
  names = ['panx/test-sw.tsv', 'labels/panx/test-sw.tsv']
  blocks = [[block.splitlines() for block in read(name).split('\n\n')] for name in names]
  sentences = [list(zip(tokens, tags, strict=True)) for tokens, tags in zip(*blocks, strict=True)]
  assert dict(tagging_files('panx', 'test', 'sw', sentences)) == {name: read(name) for name in names}


# --- pairs of sentences -----------------------------------------------------------------------------------------------


def test_xnli_is_split_by_language(convert):
  files = convert('xnli')
  languages = LANGUAGES['xnli']
  assert set(files) == {
    'xnli/train-en.tsv',
    *(f'xnli/{split}-{language}.tsv' for split in ('dev', 'test') for language in languages),
    *(f'labels/xnli/test-{language}.tsv' for language in languages),
  }
  assert files['xnli/dev-sw.tsv'] == (
    'Ein Satz (sw).\t"Ein ""anderer"" Satz."\tneutral\r\n'
    'Es regnet.\tEs ist trocken.\tcontradiction\r\n'
    'Es regnet.\tEs ist nass.\tentailment\r\n'
  )
  assert files['xnli/test-sw.tsv'].splitlines()[1] == 'Es regnet.\tEs ist trocken.'
  assert files['labels/xnli/test-sw.tsv'] == 'neutral\ncontradiction\nentailment\n'
  assert files['xnli/train-en.tsv'] == 'It rains.\tIt is dry.\tcontradiction\r\nHe sleeps.\tHe rests.\tentailment\r\n'


def test_pawsx_is_trained_on_in_english_alone(convert):
  files = convert('pawsx')
  languages = LANGUAGES['pawsx']
  assert set(files) == {
    'pawsx/train-en.tsv',
    *(f'pawsx/{split}-{language}.tsv' for split in ('dev', 'test') for language in languages),
    *(f'labels/pawsx/test-{language}.tsv' for language in languages),
  }
  assert files['pawsx/dev-ja.tsv'] == '"""Ja"", sagte er ."\tEr sagte ja .\t1\r\nA vor B\tB vor A\t0\r\n'
  assert files['labels/pawsx/test-ja.tsv'] == '1\n0\n'


def test_an_empty_sentence_of_pawsx_stays(convert):
  table = 'id\tsentence1\tsentence2\tlabel\n1\t\tb\t1\n'
  files = convert('pawsx', {'x-final.tar.gz': tar_of({'x-final/de/dev_2k.tsv': table})})
  assert files['pawsx/dev-de.tsv'] == '\tb\t1\r\n'


# --- tagging: PAN-X ---------------------------------------------------------------------------------------------------


def test_forty_languages_come_out(convert):
  files = convert('panx')
  assert len(files) == 40 * 4
  assert {path.split('-')[-1] for path in files} == {f'{language}.tsv' for language in LANGUAGES['panx']}
  assert files['panx/train-jv.tsv'] == 'Anna\tB-PER\na:b\tO\n\nRom\tB-LOC\n'
  assert files['panx/test-jv.tsv'] == 'Anna\na:b\n\nRom\n'
  assert files['labels/panx/test-jv.tsv'] == 'B-PER\nO\n\nB-LOC\n'


def test_sentences_end_at_empty_lines_and_at_the_end():
  content = b'de:a\tO\n\n\nde:b\tO\nde:\xc2\xa0\tO\n\nde: \tO\n\nde:c\tB-ORG'
  assert panx_sentences(content, 'f') == [[('a', 'O')], [('b', 'O')], [('c', 'B-ORG')]]


# --- tagging: Universal Dependencies ----------------------------------------------------------------------------------


def conllu(*rows: tuple[str, str, str, int | str], enhanced: dict[str, str] | None = None) -> bytes:
  """Rows of (id, form, tag, head) as a sentence."""
  lines = []
  for number, form, tag, head in rows:
    lines.append('\t'.join([number, form, '_', tag, '_', '_', str(head), '_', (enhanced or {}).get(number, '_'), '_']))
  return '\n'.join([*lines, '', '']).encode()


def test_a_multiword_token_is_one_token():
  assert udpos_sentences(CONLLU.encode(), 'f', 'de') == [
    [('Im', 'ADP'), ('Haus', 'NOUN'), ('wohnt', 'VERB'), ('niemand', 'PRON'), ('.', 'PUNCT')],
    [('Ja', 'INTJ')],
  ]


def test_the_word_nearest_to_the_root_gives_the_tag():
  rows = [('1-2', 'dámelo', '_', '_'), ('1', 'da', 'PRON', 2), ('2', 'me', 'X', 0)]
  assert udpos_sentences(conllu(*rows), 'f', 'de') == [[('dámelo', 'X')]]


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
  assert udpos_sentences(conllu(*rows), 'f', language) == [[('ab', tag), ('c', 'VERB')]]


def test_enhanced_dependencies_count():
  rows = [
    ('1-2', 'ab', '_', '_'),
    ('1', 'a', 'ADP', 3),
    ('2', 'b', 'DET', 3),
    ('3', 'c', 'VERB', 0),
    ('4', 'd', 'X', 3),
  ]
  assert udpos_sentences(conllu(*rows), 'f', 'de')[0][0] == ('ab', 'ADP')
  assert udpos_sentences(conllu(*rows, enhanced={'1': '3:case|4:conj'}), 'f', 'de')[0][0] == ('ab', 'DET')


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
  (sentence,) = udpos_sentences(conllu(*rows), 'f', 'de')
  assert sentence == [
    *((f'w{n}', tags[n]) for n in range(1, first)),
    ('fused', tags[expected]),
    *((f'w{n}', tags[n]) for n in range(last + 1, count + 1)),
  ]


def test_zero_width_non_joiners_and_spaces_go():
  assert udpos_sentences(conllu(('1', 'می\u200cرود', 'VERB', 0), ('2', '1 000', 'NUM', 1)), 'f', 'fa') == [
    [('میرود', 'VERB'), ('1000', 'NUM')]
  ]


@pytest.mark.parametrize(
  ('forms', 'stays'),
  [(['_', '_', '_'], False), (['_', '_', 'c'], False), (['_', 'b', 'c'], True), (['a'], True), (['_'], False)],
)
def test_sentences_without_words_are_left_out(forms, stays):
  rows = [(str(n), form, 'X', n - 1) for n, form in enumerate(forms, 1)]
  assert bool(udpos_sentences(conllu(*rows), 'f', 'en')) == stays


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


def asked(content: str) -> list[tuple[str, str, list]]:
  """Ids, contexts and answers of a file."""
  return [
    (question['id'], paragraph['context'], [answer['text'] for answer in question['answers']])
    for article in json.loads(content)['data']
    for paragraph in article['paragraphs']
    for question in paragraph['qas']
  ]


MILL, SNOW = 'Die Mühle steht seit 1720 am Bach.', 'Im Mai fiel Schnee.'


def test_squad_stays_as_it_is(convert):
  files = convert('squad')
  assert set(files) == {'squad/train-v1.1.json', 'squad/dev-v1.1.json'}
  assert json.loads(files['squad/train-v1.1.json']) == QUESTIONS


def test_xquad_has_an_article_for_each_question_without_its_answer(convert):
  files = convert('xquad')
  assert len(files) == 2 * 11
  assert asked(files['xquad/xquad.th.json']) == [('q1', MILL, ['']), ('q2', MILL, ['']), ('q3', SNOW, [''])]
  assert len(json.loads(files['xquad/xquad.th.json'])['data']) == 3
  assert json.loads(files['labels/xquad/test-th.json']) == QUESTIONS


def test_mlqa_is_evaluated_if_question_and_context_are_in_one_language(convert):
  files = convert('mlqa')
  assert set(files) == {
    *(
      f'mlqa/MLQA_V1/{s}/{s}-context-{code}-question-{code}.json' for s in ('dev', 'test') for code in LANGUAGES['mlqa']
    ),
    *(f'labels/mlqa/test-{code}.json' for code in LANGUAGES['mlqa']),
  }
  assert asked(files['mlqa/MLQA_V1/test/test-context-hi-question-hi.json'])[0] == ('q1', MILL, [''])
  assert asked(files['mlqa/MLQA_V1/dev/dev-context-hi-question-hi.json'])[0] == ('q1', MILL, ['1720'])
  assert asked(files['labels/mlqa/test-hi.json'])[0] == ('q1', MILL, ['1720'])


def test_tydiqa_is_split_by_language_and_named_as_xtreme_names_it(convert):
  files = convert('tydiqa')
  assert set(files) == {
    *(f'tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.{code}.train.json' for code in LANGUAGES['tydiqa']),
    *(f'tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.{code}.dev.json' for code in LANGUAGES['tydiqa']),
    *(f'labels/tydiqa/test-{code}.json' for code in LANGUAGES['tydiqa']),
  }
  assert sorted(PUBLISHED_NAMES['tydiqa'].values()) == sorted(LANGUAGES['tydiqa'])
  assert asked(files['tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.ko.train.json']) == [('0', MILL, ['1720'])]
  assert asked(files['tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.ko.dev.json']) == [('korean-77-0', MILL, [''])]
  assert asked(files['labels/tydiqa/test-ko.json']) == [('korean-77-0', MILL, ['1720'])]


def test_a_malformed_file_is_an_error(convert):
  with pytest.raises(UsageError, match=r'not the form of SQuAD v1\.1: no object') as error:
    convert('xquad', {'xquad.de.json': b'[1]'})
  assert 'xquad.de.json' in error.value.where


@pytest.mark.parametrize(('task', 'name'), [('xquad', 'xquad/xquad.zh.json'), ('tydiqa', 'tydiqa.goldp.te.dev.json')])
def test_real_test_files_are_made_from_their_labels(shared_data, task, name):
  root = shared_data / 'xtreme'
  language = name.split('.')[-2 if task == 'xquad' else -3]
  path = name if task == 'xquad' else f'tydiqa/tydiqa-goldp-v1.1-dev/{name}'
  labels = (root / 'labels' / task / f'test-{language}.json').read_bytes()
  (made_path, content), _ = blanked_test_files(labels, 'labels', task, language)
  assert made_path == path
  assert json.loads(content) == json.loads((root / path).read_text('utf-8'))


# --- retrieval --------------------------------------------------------------------------------------------------------

LINE = st.text(st.characters(categories=['L', 'N', 'P', 'Zs']), min_size=1).map(str.strip).filter(bool)


def test_translations_are_sorted_and_labels_find_them(convert):
  files = convert('tatoeba')
  assert len(files) == 3 * 36
  assert files['tatoeba/sw-en.sw'] == 'drei (sw)\neins\nzwei\n'
  assert files['tatoeba/sw-en.en'] == 'one\nthree\ntwo\n'
  assert files['labels/tatoeba/test-sw.tsv'] == '1\n0\n2\n'


@given(st.lists(LINE, min_size=1))
def test_a_label_is_the_line_of_the_translation(english):
  _, texts, labels = dict(tatoeba_files('de', english, english)).values()
  lines = texts.split('\n')[:-1]
  assert lines == sorted(english)
  places = [int(label) for label in labels.split()]
  assert sorted(places) == list(range(len(english)))
  assert [lines[place] for place in places] == english


def test_the_sample_is_dev_and_the_training_set_is_test(convert):
  files = convert('bucc2018')
  assert len(files) == 6 * 4
  assert files['bucc2018/ru-en.dev.ru'] == 'ru-1\teins\nru-2\tzwei\n'
  assert files['bucc2018/ru-en.dev.gold'] == files['labels/bucc2018/test-ru.tsv'] == 'ru-1\ten-2\n'
  assert 'bucc2018/ru-en.test.gold' not in files


@pytest.mark.parametrize('language', ['de', 'jv', 'zh'])
def test_real_files_are_made_from_pairs_in_their_order(shared_data, language):
  folder = XtremeFolder(shared_data / 'xtreme')
  examples = Tatoeba().examples(folder, language)
  english = [examples.english[line] for line in examples.gold]
  for path, content in tatoeba_files(language, examples.source, english):
    assert content == (shared_data / 'xtreme' / path).read_text('utf-8')
