"""Files of predictions scored from the command line: official figures of all nine tasks, and files that do not fit."""

import itertools
import json

import pytest
from seqeval_cases import GOLDEN_FILE, IOB

from tasks.metrics.__main__ import GROUPS, LANGUAGES, main

TOLERANCE = 1e-9


class Files:
  """A folder of predictions and one of labels."""

  def __init__(self, root):
    self.root = root

  def write(self, kind: str, name: str, content) -> None:
    path = self.root / kind / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding='utf-8')

  def score(self, *flags: str):
    """Exit code of the command, and what it wrote."""
    output = self.root / 'scores.json'
    code = main(
      [f'--predictions={self.root}/predictions', f'--labels={self.root}/labels', f'--output={output}', *flags]
    )
    return code, json.loads(output.read_text()) if output.exists() else None


@pytest.fixture
def files(tmp_path):
  return Files(tmp_path)


def lines(*values) -> str:
  return ''.join(f'{value}\n' for value in values)


def squad(**answers_by_id) -> dict:
  """A file of questions with gold answers."""
  paragraphs = [
    {'context': ' | '.join(answers), 'qas': [{'id': id_, 'question': '?', 'answers': _at(answers)}]}
    for id_, answers in answers_by_id.items()
  ]
  return {'version': '1.1', 'data': [{'title': 't', 'paragraphs': paragraphs}]}


def _at(answers):
  starts = itertools.accumulate((len(answer) + 3 for answer in answers), initial=0)
  return [{'text': answer, 'answer_start': start} for answer, start in zip(answers, starts, strict=False)]


# --- the official figures ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize('task', ['xnli', 'pawsx'])
def test_labels_are_scored_by_accuracy(files, task):
  files.write('labels', f'{task}/test-de.tsv', lines('0', '1', '1', '0'))
  files.write('predictions', f'{task}/test-de.tsv', lines('0', '1', '0', '0 '))
  _, found = files.score()
  assert found['tasks'][task]['languages'] == {'de': {'accuracy': 75.0}}
  assert found['tasks'][task]['score'] == 75.0


def test_tags_have_the_scores_of_seqeval(files):
  cases = json.loads(GOLDEN_FILE.read_text())
  whole = [case for case in cases if all(case['gold']) and case['gold']]  # a file cannot say where an empty one stands
  for case in whole[::20]:
    task = 'panx' if {tag for tags in case['gold'] for tag in tags} <= set(IOB) else 'udpos'
    for kind, of_case in (('labels', 'gold'), ('predictions', 'predicted')):
      files.write(kind, f'{task}/test-de.tsv', '\n'.join(lines(*tags) for tags in case[of_case]))
    _, found = files.score(f'--task={task}')
    expected = {name: pytest.approx(100 * case[name], abs=1e-6) for name in ('f1', 'precision', 'recall')}
    assert found['tasks'][task]['languages']['de'] == expected
    assert found['tasks'][task]['score'] == expected['f1']


@pytest.mark.parametrize(('task', 'language'), [('xquad', 'de'), ('tydiqa', 'fi')])
def test_answers_have_the_scores_of_squads_script(files, task, language):
  gold = {'a': ['the clock tower'], 'b': ['four bells'], 'c': ['four', 'four bells', 'bells of bronze'], 'd': ['four']}
  files.write('labels', f'{task}/test-{language}.json', squad(**gold))
  answers = {'a': 'A clock tower', 'b': 'four old bells', 'c': 'bells of', 'd': 'five', 'z': 'nobody asked'}
  files.write('predictions', f'{task}/test-{language}.json', answers)
  _, found = files.score()
  f1 = 100 * (1 + 2 * (2 / 3 * 1) / (2 / 3 + 1) + 0.8 + 0) / 4
  assert found['tasks'][task]['mean'] == pytest.approx({'exact_match': 25, 'f1': f1}, abs=TOLERANCE)
  assert found['tasks'][task]['score'] == pytest.approx((25 + f1) / 2, abs=TOLERANCE)


def test_mlqa_has_the_articles_of_its_language_and_the_characters_of_chinese(files):
  files.write('labels', 'mlqa/test-de.json', squad(a=['Webstuhl']))
  files.write('labels', 'mlqa/test-zh.json', squad(a=['北京大学']))
  files.write('predictions', 'mlqa/test-de.json', {'a': 'der Webstuhl'})
  files.write('predictions', 'mlqa/test-zh.json', {'a': '北京'})
  _, found = files.score()
  languages = found['tasks']['mlqa']['languages']
  assert languages['de'] == {'f1': 100, 'exact_match': 100}
  assert languages['zh'] == pytest.approx({'f1': 200 / 3, 'exact_match': 0}, abs=TOLERANCE)


def test_a_question_without_an_answer_is_worth_nothing(files):
  files.write('labels', 'xquad/test-de.json', squad(a=['one'], b=['two']))
  files.write('predictions', 'xquad/test-de.json', {'a': 'one'})
  _, found = files.score()
  assert found['tasks']['xquad']['mean'] == {'f1': 50, 'exact_match': 50}


def test_translations_are_scored_by_accuracy(files):
  files.write('labels', 'tatoeba/test-de.tsv', lines(0, 1, 2, 3))
  files.write('predictions', 'tatoeba/test-de.tsv', lines(0, 1, 3, 2))
  _, found = files.score()
  assert found['tasks']['tatoeba']['languages'] == {'de': {'accuracy': 50.0}}


def test_mined_pairs_are_scored_by_f1(files):
  files.write('labels', 'bucc2018/test-fr.tsv', lines('a\t1', 'b\t2', 'c\t3', 'd\t4'))
  files.write('predictions', 'bucc2018/test-fr.tsv', lines('a\t1', 'b\t3', 'a\t1'))
  _, found = files.score()
  assert found['tasks']['bucc2018']['mean'] == pytest.approx(
    {'precision': 50, 'recall': 25, 'f1': 100 / 3}, abs=TOLERANCE
  )
  files.write('predictions', 'bucc2018/test-fr.tsv', '')
  assert files.score()[1]['tasks']['bucc2018']['mean'] == {'precision': 0, 'recall': 0, 'f1': 0}


# --- averages ---------------------------------------------------------------------------------------------------------


def test_gold_labels_score_100_in_all_nine_tasks_of_the_samples(files, xtreme_samples, capsys):
  labels = xtreme_samples.root / 'labels'
  for file in sorted(labels.glob('*/test-*')):
    text = file.read_text(encoding='utf-8')
    if file.suffix == '.json':
      paragraphs = [each for article in json.loads(text)['data'] for each in article['paragraphs']]
      text = {question['id']: question['answers'][0]['text'] for each in paragraphs for question in each['qas']}
    files.write('predictions', str(file.relative_to(labels)), text)
  code, found = files.score(f'--labels={labels}')
  assert code == 0
  assert set(found['tasks']) == set(LANGUAGES)
  assert {summary['score'] for summary in found['tasks'].values()} == {100.0}
  assert found['mean'] == dict.fromkeys(GROUPS, 100.0)
  assert 'mean of 3 of 15' in capsys.readouterr().out


def test_a_task_is_its_mean_over_languages_and_a_group_is_only_averaged_whole(files, capsys):
  for language, predicted in (('de', ('0', '0')), ('fr', ('0', '1'))):
    files.write('labels', f'pawsx/test-{language}.tsv', lines('0', '0'))
    files.write('predictions', f'pawsx/test-{language}.tsv', lines(*predicted))
  _, found = files.score()
  assert found['tasks']['pawsx']['mean'] == {'accuracy': 75.0}
  assert set(found['tasks']['pawsx']['missing']) == set(LANGUAGES['pawsx']) - {'de', 'fr'}
  assert found['mean'] == {}
  assert 'no predictions for en' in capsys.readouterr().out
  files.write('labels', 'xnli/test-de.tsv', lines('neutral'))
  files.write('predictions', 'xnli/test-de.tsv', lines('entailment'))
  assert files.score()[1]['mean'] == {'sentence pairs': 37.5}
  assert set(files.score('--task=xnli')[1]['tasks']) == {'xnli'}


# --- files that do not fit --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('predictions', 'labels', 'what'),
  [
    ({}, {}, 'there are no predictions'),
    ({'xnli/test-xx.tsv': 'a\n'}, {}, 'there are no predictions for xnli'),
    ({'xnli/test-de.tsv': 'a\n'}, {}, 'gold labels of xnli in de are missing'),
    ({'xnli/test-de.tsv': 'a\n'}, {'xnli/test-de.tsv': 'a\nb\n'}, '1 predictions for 2 labels'),
    ({'xnli/test-de.tsv': ''}, {'xnli/test-de.tsv': 'a\n'}, 'the file is empty'),
    ({'panx/test-de.tsv': 'O\n'}, {'panx/test-de.tsv': 'O\nO\n'}, '1 tags are predicted for a sentence of 2'),
    ({'panx/test-de.tsv': 'O\n'}, {'panx/test-de.tsv': 'O\n\nO\n'}, '1 predictions for 2 labels'),
    ({'xquad/test-de.json': '[]'}, {'xquad/test-de.json': squad(a=['x'])}, 'answers are an object'),
    ({'xquad/test-de.json': '{"b": "x"}'}, {'xquad/test-de.json': squad(a=['x'])}, 'none of the questions'),
    ({'xquad/test-de.json': '{"a": "x"'}, {'xquad/test-de.json': squad(a=['x'])}, 'not JSON'),
    ({'tatoeba/test-de.tsv': 'x\n'}, {'tatoeba/test-de.tsv': '0\n'}, 'not the number of a line'),
    ({'bucc2018/test-de.tsv': 'a b\n'}, {'bucc2018/test-de.tsv': 'a\tb\n'}, 'two ids with a tab'),
  ],
)
def test_what_does_not_fit_is_one_error(files, capsys, predictions, labels, what):
  for kind, contents in (('predictions', predictions), ('labels', labels)):
    for name, content in contents.items():
      files.write(kind, name, content)
  code, found = files.score()
  assert (code, found) == (2, None)
  assert what in capsys.readouterr().err


def test_an_unknown_task_is_an_error_that_names_the_nine(files, capsys):
  assert files.score('--task=squad')[0] == 2
  assert 'xnli, pawsx, panx, udpos, xquad, mlqa, tydiqa, tatoeba, bucc2018' in capsys.readouterr().err
