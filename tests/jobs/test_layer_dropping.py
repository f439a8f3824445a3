"""Figure 1 and footnote 4: fine-tuning begins with the bottom layers of a pre-trained run, its embeddings frozen."""

import numpy as np
import pytest

from rembert.saved_models import open_saved


@pytest.mark.slow
def test_the_top_layer_is_dropped_and_the_input_embedding_stays(program, saved, xtreme_vocabulary, root, tmp_path):
  before = saved('mlm', vocab_size=2000, max_position_embeddings=64)
  (before.workdir / 'vocabulary').mkdir()
  (before.workdir / 'vocabulary' / 'sentencepiece.model').write_bytes(xtreme_vocabulary.read_bytes())
  values = {
    'xtreme.data_dir': root / 'tests' / 'data' / 'xtreme',
    'train.init_from': before.workdir,
    'RemBertConfig.num_hidden_layers': 2,  # of 3
    'optimizer.freeze_embeddings': True,
    'optimizer.learning_rate': 1e-4,
    'optimizer.weight_decay': 0.0,
    'finetune.epochs': 1,
    'finetune.judge_batch_size': 16,
    'train.batch_size': 8,
    'train.sequence_length': 64,
  }
  result = program.of_files(tmp_path / 'tuned', 'gin/finetune_udpos.gin', values).run()
  assert result.returncode == 0, result.stderr
  after = open_saved(tmp_path / 'tuned' / 'best')
  assert after.config.num_hidden_layers == 2
  word = 'encoder/embeddings/word/embedding'
  np.testing.assert_array_equal(after.read(word), before.read(word))
  for path in ('encoder/layers/feed_forward/up/kernel', 'encoder/layers/attention/qkv/kernel'):
    kept, learned = before.read(path), after.read(path)
    assert len(learned) == 2
    np.testing.assert_allclose(learned, kept[:2], atol=0.02)  # the bottom ones, a few small steps later
    assert np.abs(learned - kept[:2]).max() > 0
