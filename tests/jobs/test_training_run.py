"""What a run is known by: what changes its numbers is held against its checkpoints, and nothing older is refused."""

import pytest
from etils import epath

from rembert import configuration
from rembert.data.config import DataConfig
from rembert.errors import UsageError
from rembert.jobs.pretrain import configured, refuse_old_stream
from rembert.jobs.training_run import refuse_other_run

WORKDIR = epath.Path('runs/some')
BINDINGS = ['RemBertConfig.num_hidden_layers = 2', 'masking.rate = 0.2']


def identity(*bindings):
  configuration.load([], [*BINDINGS, *bindings])
  return configured().identity()


@pytest.mark.parametrize(
  ('binding', 'difference'),
  [
    ('masking.rate = 0.3', 'masking.rate'),
    ('masking.mask_share = 0.7', 'masking.mask_share'),
    ('masking.random_share = 0.2', 'masking.random_share'),
    ('masking.whole_word = True', 'masking.whole_word'),
    ('masking.ngram = 3', 'masking.ngram'),
  ],
)
def test_other_masks_are_another_run(binding, difference):
  with pytest.raises(UsageError, match='another run') as error:
    refuse_other_run(identity(), identity(binding), WORKDIR)
  assert difference in error.value.where
  refuse_other_run(identity(binding), identity(binding), WORKDIR)


def test_a_checkpoint_from_before_whole_words_chose_piece_by_piece():
  before = {name: value for name, value in identity().items() if name not in ('masking.whole_word', 'masking.ngram')}
  refuse_other_run(before, identity(), WORKDIR)
  for binding in 'masking.whole_word = True', 'masking.ngram = 2':
    with pytest.raises(UsageError, match='another run'):
      refuse_other_run(before, identity(binding), WORKDIR)


@pytest.mark.parametrize(('meta', 'source'), [({'store': 'abc'}, 'store'), ({'corpus': 'abc'}, 'dumps'), ({}, 'store')])
def test_a_run_over_a_store_or_a_corpus_is_resumed(meta, source):
  refuse_old_stream(meta, DataConfig(source=source, store='store'), WORKDIR)


@pytest.mark.parametrize('source', ['dumps', 'tfds'])
def test_a_run_that_streamed_dumps_in_their_own_order_is_refused_with_the_reason(source):
  with pytest.raises(UsageError, match='in the order of the dumps') as error:
    refuse_old_stream(identity(), DataConfig(source=source), WORKDIR)
  assert str(WORKDIR) in error.value.where
  assert any('--workdir=DIR' in fix for fix in error.value.fix)
