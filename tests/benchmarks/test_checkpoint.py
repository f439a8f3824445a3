import dataclasses

import pytest

from benchmarks import checkpoint
from benchmarks.settings import SMALL
from rembert.errors import RunError

TINY = checkpoint.Setting(
  dataclasses.replace(
    SMALL, vocab_size=500, hidden_size=32, num_hidden_layers=1, intermediate_size=64, output_embedding_size=48
  )
)


def test_each_run_saves_a_whole_checkpoint_and_one_is_kept(tmp_path):
  run = checkpoint.prepare_ours(TINY, tmp_path)
  for step in 2, 3:
    assert run()['stall s'] > 0
    assert [path.name for path in (tmp_path / 'written').iterdir()] == [str(step)]


def test_what_is_read_back_was_written_before(tmp_path):
  run = checkpoint.prepare_ours(TINY, tmp_path, reads=True)
  run()
  for array in (tmp_path / 'read' / '1' / 'state').rglob('d/*'):
    array.write_bytes(bytes(array.stat().st_size))
  with pytest.raises(RunError, match='there is no valid checkpoint'):
    run()


@pytest.mark.slow
def test_torch_writes_parameters_and_two_moments(tmp_path):
  pytest.importorskip('torch', reason='`make bench` installs torch')
  checkpoint.prepare_torch(TINY, tmp_path)()
  assert (tmp_path / 'torch.pt').stat().st_size == pytest.approx(1e6 * TINY.megabytes, rel=0.2)
