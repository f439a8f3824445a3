"""The table of XTREME's tasks: languages, labels and scores of each."""

import subprocess
import sys

import pytest

from rembert.errors import UsageError
from rembert.model.heads import HEADS
from tasks.xtreme import leaderboard
from tasks.xtreme.benchmark import TASKS, get_task
from tasks.xtreme.files import XtremeFolder

# From XTREME's evaluate.py, which lists them in this order.
LANGUAGES = {
  'pawsx': 'de,en,es,fr,ja,ko,zh',
  'xnli': 'ar,bg,de,el,en,es,fr,hi,ru,sw,th,tr,ur,vi,zh',
  'panx': 'ar,he,vi,id,jv,ms,tl,eu,ml,ta,te,af,nl,en,de,el,bn,hi,mr,ur,fa,fr,it,pt,es,bg,ru,ja,ka,ko,th,sw,yo,my,zh,kk,'
  'tr,et,fi,hu',
  'udpos': 'af,ar,bg,de,el,en,es,et,eu,fa,fi,fr,he,hi,hu,id,it,ja,kk,ko,mr,nl,pt,ru,ta,te,th,tl,tr,ur,vi,yo,zh',
  'squad': 'en',
  'xquad': 'en,es,de,el,ru,tr,ar,vi,th,zh,hi',
  'mlqa': 'en,es,de,ar,hi,vi,zh',
  'tydiqa': 'en,ar,bn,fi,id,ko,ru,sw,te',
}
SCORES = {'classification': ('accuracy',), 'tagging': ('f1', 'precision', 'recall'), 'qa': ('f1', 'exact_match')}


@pytest.mark.parametrize('name', LANGUAGES)
def test_languages_head_and_scores_are_xtremes(name):
  task = get_task(name)
  assert task.name == name
  assert task.languages == tuple(LANGUAGES[name].split(','))
  assert task.head in HEADS
  assert task.scores == SCORES[task.head]
  assert task.suffix == ('json' if task.head == 'qa' else 'tsv')


def test_the_leaderboard_counts_the_languages_of_the_paper():
  assert leaderboard.NUM_LANGUAGES == {  # table 11
    **{'xnli': 15, 'pawsx': 7, 'udpos': 33, 'panx': 40, 'xquad': 11, 'mlqa': 7, 'tydiqa': 9},
    **{'tatoeba': 36, 'bucc2018': 4},
  }


def test_labels_are_those_of_xtreme_in_its_order():
  assert get_task('xnli').labels == ('contradiction', 'entailment', 'neutral')
  assert get_task('pawsx').labels == ('0', '1')
  assert get_task('panx').labels == ('B-LOC', 'B-ORG', 'B-PER', 'I-LOC', 'I-ORG', 'I-PER', 'O')
  assert get_task('udpos').labels == tuple(sorted(get_task('udpos').labels))
  assert len(set(get_task('udpos').labels)) == 17


@pytest.mark.parametrize('name', ['tatoeba', 'bucc2018'])
def test_retrieval_is_no_task(name):
  with pytest.raises(UsageError, match=f'{name} is retrieval: it has no training') as error:
    get_task(name)
  assert 'xnli' in error.value.fix[0]


def test_an_unknown_task_is_an_error_that_names_the_known_ones():
  with pytest.raises(UsageError, match="unknown task 'mnli'") as error:
    get_task('mnli')
  assert 'xnli, pawsx, panx, udpos, squad, xquad, mlqa, tydiqa' in error.value.fix[0]


def test_the_table_is_read_without_tensorflow():
  code = 'import sys, tasks.xtreme.benchmark; assert not {"tensorflow", "jax", "seqio", "t5"} & set(sys.modules)'
  subprocess.run([sys.executable, '-c', code], check=True, timeout=60)


def test_gold_labels_are_read_where_there_are_any(xtreme_samples, tmp_path):
  task, bare = TASKS['panx'], XtremeFolder(xtreme_samples.root, tmp_path)
  assert task.examples(xtreme_samples, 'test', 'de', needs_labels=None)[0].tags is not None
  assert task.examples(bare, 'test', 'de', needs_labels=None)[0].tags is None
  with pytest.raises(UsageError, match='no gold labels'):
    task.examples(bare, 'test', 'de', needs_labels=True)


def test_data_are_there_if_a_file_of_any_language_is(xtreme_samples):
  assert TASKS['xnli'].has_data(xtreme_samples, 'test')
  assert TASKS['xnli'].has_data(xtreme_samples, 'train', ('en',))
  assert not TASKS['xnli'].has_data(xtreme_samples, 'train', ('de', 'zh'))
