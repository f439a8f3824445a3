import dataclasses

import pytest

from benchmarks import cleaning
from benchmarks.turns import NotHere
from rembert.training.console import Console
from tasks.corpus.documents import CorpusConfig
from tasks.corpus.local import make_corpus
from tasks.corpus.sources import find_parts


@pytest.fixture(scope='module')
def swahili():
  sample = cleaning.SETTINGS['sample']
  return dataclasses.replace(sample, pattern=f'{sample.pattern}/swwiki-*', passes=2)


def test_what_is_counted_is_one_pass_and_a_corpus_holds_the_same(swahili, tmp_path):
  config = CorpusConfig(held_out=0, dedupe='documents')
  corpus = make_corpus(find_parts('dumps', swahili.pattern), tmp_path, config, Console(is_quiet=True))
  texts = list(corpus.texts('sw', 'train'))
  assert cleaning.prepare_ours(swahili)() == {
    'articles': swahili.size.articles,
    'documents': len(texts),
    'characters kept': sum(map(len, texts)),
  }


def test_both_sides_of_a_ratio_have_the_same_work(tmp_path):
  ours, *others = cleaning.contestants('sample', tmp_path)
  assert ours.work['MB'] > 1
  assert all(other.work == ours.work and other.one_core for other in (ours, *others))


@pytest.mark.parametrize('read_templates', [True, False])
def test_wikiextractor_reads_the_same_articles(swahili, read_templates):
  pytest.importorskip('wikiextractor', reason='`make bench` installs wikiextractor')
  facts = cleaning.prepare_wikiextractor(swahili, read_templates)()
  assert facts['articles'] == swahili.size.articles
  assert facts['characters kept'] > 0.8 * cleaning.prepare_ours(swahili)()['characters kept']


@pytest.mark.parametrize(
  ('pattern', 'message'), [('', cleaning.DUMPS_VARIABLE), ('/no/such/folder', '/no/such/folder')]
)
def test_without_dumps_it_says_what_is_missing(monkeypatch, tmp_path, pattern, message):
  monkeypatch.setitem(cleaning.SETTINGS, 'dumps', cleaning.Setting(pattern, passes=1))
  with pytest.raises(NotHere, match=message):
    cleaning.contestants('dumps', tmp_path)
