"""A trained model judged on a task of XTREME, in every language that has data; nothing is learned."""

import contextlib

import jax
import optax
from etils import epath

import rembert
from rembert import configuration
from rembert.convert.importing import open_source
from rembert.errors import UsageError
from rembert.hosts.together import Hosts
from rembert.jobs import finetune_config, retrieve
from rembert.jobs import workdir as workdirs
from rembert.jobs.description import show_hosts, show_model
from rembert.jobs.finetune_config import FinetuneConfig
from rembert.jobs.initial_parameters import open_initial
from rembert.jobs.judging import (
  Judge,
  Report,
  judge_tasks,
  open_folder,
  rows_reader,
  tasks_with_data,
)
from rembert.jobs.predict import text_encoder
from rembert.jobs.training_run import begun, hold_workdir
from rembert.jobs.workdir_lock import locked
from rembert.loading import load
from rembert.model.heads import build_model
from rembert.training import sharding, state
from rembert.training.console import Console
from rembert.training.preemption import StopSignal
from tasks.xtreme.layout import MissingFileError
from tasks.xtreme.pieces import Pieces
from tasks.xtreme.tasks import get_task


def configured() -> FinetuneConfig:
  """The configuration that gin has been told, for the architecture of the model to be judged."""
  return finetune_config.configured(lambda train, evaluate: evaluate.model)


def run(config: FinetuneConfig, workdir: epath.Path, stop: StopSignal) -> int:
  """Judges. Each language is written as soon as it is there; a repeated command goes on with the next."""
  if config.evaluate.model is None:
    raise UsageError(
      'which model?', where='evaluate.model', fix='--gin.evaluate.model=WORKDIR, or a folder of Hugging Face'
    )
  if config.xtreme.task in retrieve.TASKS:
    return _retrieve(config, workdir, stop)
  with begun(config) as (hosts, console, stack):
    return _run(config, workdir, hosts, stack, console)


def _run(
  config: FinetuneConfig, workdir: epath.Path, hosts: Hosts, stack: contextlib.ExitStack, console: Console
) -> int:
  # --- workdir ---------------------------------------------------------------
  hold_workdir(workdir, hosts, console, stack)

  # --- model and data ----------------------------------------------------------
  xtreme, path = config.xtreme, config.evaluate.model
  folder = open_folder(xtreme)
  tasks = [get_task(name) for name in xtreme.judged]
  source = open_source(path)
  for task in tasks:
    if (source.head, tuple(source.labels)) != (task.head, task.labels):
      raise UsageError(
        f'the model has {_in_words(source.head, source.labels)}, and {task.name} needs '
        f'{_in_words(task.head, task.labels)}',
        where=f'evaluate.model = {path}',
        fix='name a model that was fine-tuned for the task: gin/finetune_*.gin',
      )
  by_task = tasks_with_data(tasks, folder, xtreme)
  vocabulary = config.vocabulary.path or source.vocabulary
  if vocabulary is None:
    raise UsageError('no vocabulary beside the model', where=str(path), fix='--gin.vocabulary.path=sentencepiece.model')
  pieces = Pieces(vocabulary)
  head, labels = source.head, len(source.labels) or None
  initial = open_initial(path, 'all', config.model, head=head, num_labels=labels)

  # --- devices ---------------------------------------------------------------
  mesh = sharding.make_mesh(config.mesh)
  build = lambda rngs: build_model(head, config.model, config.execution, num_labels=labels, rngs=rngs)
  trainable = state.trainable(build, config.execution, optax.identity(), mesh)
  console.say(f'rembert {rembert.__version__} · judging {path}')
  show_model(console, config.model)
  show_hosts(console, hosts)
  stack.enter_context(jax.set_mesh(mesh))
  with console.task('reading parameters') as progress:
    params = initial.put_into(trainable.init(0), progress).params
  if hosts.is_first:
    configuration.save(workdir)

  # --- judge -------------------------------------------------------------------
  learned = get_task(xtreme.task)
  train: list = []
  with contextlib.suppress(MissingFileError):  # without it there is no baseline, and everything else
    train = learned.examples(folder, 'train', xtreme.train_language, needs_labels=True)
  judge = Judge(
    trainable,
    head,
    batch_size=config.finetune.judge_batch_size,
    longest=config.train.sequence_length,
    pad=pieces.special.pad,
  )
  report = Report(workdir, {'model': source.path, 'split': xtreme.split}, is_writer=hosts.is_first)
  judge_tasks(
    judge,
    params,
    tasks,
    by_task,
    rows_reader(folder, pieces, max_length=config.train.sequence_length, config=xtreme),
    train=train,
    config=xtreme,
    report=report,
    console=console,
  )
  console.facts('Done', {'results': f'{workdir}/results.json', 'predictions': f'{workdir}/predictions'})
  return 0


def _retrieve(config: FinetuneConfig, workdir: epath.Path, stop: StopSignal) -> int:
  """Sentences find their translations by the embeddings of the model, on one device."""
  workdirs.prepare(workdir)
  console = Console()
  with locked(workdir, console.say):
    folder, model = open_folder(config.xtreme), load(config.evaluate.model)
    configuration.save(workdir)
    encoder = text_encoder(model, config.vocabulary.path)
    retrieve.run(
      model, encoder, folder, config.xtreme, workdir, console, stop, batch_size=config.finetune.judge_batch_size
    )
  return 0


def _in_words(head: str | None, labels) -> str:
  name = 'no head' if head is None else f'a head for {head}'
  return f'{name} of {len(labels)} labels' if labels else name
