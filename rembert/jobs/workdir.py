"""The workdir: made, checked, and kept to one run."""

from etils import epath

from rembert import configuration
from rembert.checkpoint.load import config_meta
from rembert.data.config import DataConfig
from rembert.data.masking import MaskingConfig
from rembert.data.packing import PackingConfig
from rembert.errors import UsageError, first_line
from rembert.files import check_bucket_client, check_folder
from rembert.jobs.description import PretrainConfig
from rembert.model.config import RemBertConfig
from rembert.train.optimizer import OptimizerConfig

# What decides which numbers a run produces, beside the model: resuming with another value would be another run.
_DATA_FIELDS = ('source', 'languages', 'alpha', 'held_out', 'min_characters', 'shuffle_rows')
_TRAIN_FIELDS = ('seed', 'batch_size', 'sequence_length')
_OPTIMIZER_FIELDS = ('freeze_embeddings', 'freeze_layers')
# A field that did not exist when a checkpoint was written had the effect of its default.
_DEFAULTS = {
  **config_meta('RemBertConfig', RemBertConfig()),
  **config_meta('masking', MaskingConfig()),
  **config_meta('packing', PackingConfig()),
  **config_meta('optimizer', OptimizerConfig()),
}


def check(workdir: epath.Path) -> None:
  """Raises UsageError unless the workdir can be made and written to; nothing of it is left."""
  check_bucket_client(workdir)
  check_folder(workdir, 'the workdir', fix='choose another: --workdir=DIR')


def prepare(workdir: epath.Path) -> None:
  """Creates the workdir and makes sure that it can be written to."""
  check_bucket_client(workdir)
  probe = workdir / '.writable'
  try:
    workdir.mkdir(parents=True, exist_ok=True)
    probe.write_text('')
    probe.unlink()
  except Exception as error:  # local, gs:// and s3:// have no exception in common
    reason = first_line(error)
    raise UsageError(
      f'the workdir cannot be written to: {reason}', where=str(workdir), fix='choose another: --workdir=DIR'
    ) from error


def identity(config: PretrainConfig) -> dict:
  """What a checkpoint of this run is a checkpoint of, by gin name; JSON."""
  return {
    **config_meta('RemBertConfig', config.model),
    **config_meta('masking', config.masking),
    **config_meta('packing', config.packing),
    **config_meta('data', config.data, _DATA_FIELDS),
    **config_meta('optimizer', config.optimizer, _OPTIMIZER_FIELDS),
    **config_meta('train', config.train, _TRAIN_FIELDS),
  }


def refuse_old_stream(before: dict, data: DataConfig, workdir: epath.Path) -> None:
  """Raises UsageError if a run streamed text before there were corpora: its documents came in another order."""
  if data.source != 'store' and not {'corpus', 'store', 'tasks'} & set(before):
    raise UsageError(
      'the run in the workdir streamed documents in the order of the dumps; they are now streamed in that of a corpus',
      where=f'{workdir}; data.source = {data.source}',
      fix=[
        'start a new run in another directory: --workdir=DIR',
        f'it can begin with these parameters: --gin.train.init_from={workdir}',
        'or continue with the version that began the run',
      ],
    )


def refuse_other_run(before: dict, now: dict, workdir: epath.Path) -> None:
  """Raises UsageError with the differences if the workdir's checkpoints belong to another model or other data."""
  differing = configuration.differences({name: before.get(name, _DEFAULTS.get(name)) for name in now}, now)
  if differing:
    raise UsageError(
      'the workdir holds checkpoints of another run',
      where=f'{workdir}; ' + '; '.join(differing),
      fix=[
        'take the old values to go on with that run',
        'or another folder for a new one: --workdir=DIR',
        f'which can begin with these parameters, if they fit: --gin.train.init_from={workdir}',
      ],
    )
