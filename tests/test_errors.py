"""Errors: what they say of a storage, and that the settings which they name are a way out."""

import errno
import types

import pytest
from small_vocabularies import vocabulary_file

from rembert import configuration
from rembert.errors import Setting, UsageError, storage_fix
from rembert.jobs import pretrain, pretrain_data
from rembert.tokenizer import check_vocabulary


def configured(bindings):
  configuration.load(['gin/pretrain_smoke.gin'], bindings)
  return pretrain.configured()


def open_store(config):
  store = types.SimpleNamespace(sequence_length=128, vocab_size=6000, folder='store')
  pretrain_data._refuse_other_model(store, config.train.sequence_length, config.model.vocab_size)


@pytest.mark.parametrize(
  ('call', 'bindings'),
  [
    (lambda config: None, ['train.sequence_length=4096']),
    (lambda config: None, ['optimizer.freeze_layers=9']),
    (lambda config: None, ['train.batch_size=30', 'train.accumulation_steps=4']),
    (lambda config: None, ['train.checkpoint_every=50', 'train.keep_every=70']),
    (lambda config: None, ['train.steps=0']),
    (lambda config: None, ['masking.rate=nan']),
    (lambda config: None, ['execution.dtype=float64']),
    (lambda config: config.train.check_divides(7), []),
    (open_store, ['RemBertConfig.vocab_size=6000', 'RemBertConfig.max_position_embeddings=512']),
    (open_store, ['train.sequence_length=128', 'RemBertConfig.max_position_embeddings=512']),
  ],
)
def test_the_setting_that_an_error_names_lets_the_same_call_pass(call, bindings):
  with pytest.raises(UsageError) as caught:
    call(configured(bindings))
  settings = [fix for fix in caught.value.fix if isinstance(fix, Setting)]
  assert settings, caught.value.fix
  call(configured([*bindings, *(str(setting).removeprefix('--gin.') for setting in settings)]))


def test_a_vocabulary_names_the_size_that_it_takes():
  file = vocabulary_file('rembert')
  with pytest.raises(UsageError) as caught:
    check_vocabulary(file, 400)
  check_vocabulary(file, caught.value.fix[0].value)


@pytest.mark.parametrize(
  ('error', 'fix'),
  [
    (OSError(errno.ENOSPC, 'no space'), 'df -h /data'),
    (PermissionError(errno.EACCES, 'denied'), 'ls -ld /data'),
    (IsADirectoryError(errno.EISDIR, 'a folder'), 'another name'),
    (OSError(errno.ELOOP, 'Too many levels of symbolic links'), 'rm /data'),
    (ValueError('of TensorStore'), 'has room'),
  ],
)
def test_the_fix_is_one_for_what_a_storage_says(error, fix):
  assert fix in storage_fix(error, '/data')
