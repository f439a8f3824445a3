"""Evaluation of a trained model on XTREME, in every language that has data, or on a mixture; nothing is learned."""

import contextlib

import jax
import optax
from etils import epath

import rembert
from rembert import configuration
from rembert.convert.importing import open_source
from rembert.errors import UsageError
from rembert.inference.model import load
from rembert.jobs import finetune_config, retrieve
from rembert.jobs import workdir as workdirs
from rembert.jobs.description import show_hosts, show_model
from rembert.jobs.finetune_config import FinetuneConfig
from rembert.jobs.finetune_tasks import (
  baseline_examples,
  check_vocabulary_of_tasks,
  open_folder,
  open_tasks,
  register,
)
from rembert.jobs.initial_parameters import open_initial
from rembert.jobs.judging import Judge, Report, judge_tasks
from rembert.jobs.predict import text_encoder
from rembert.jobs.training_run import begun, hold_workdir
from rembert.jobs.workdir_lock import locked
from rembert.model.heads import build_model
from rembert.runtime.consensus import Hosts
from rembert.runtime.signals import StopSignal
from rembert.tokenizer import SpecialIds
from rembert.tracking.console import Console
from rembert.train import sharding, state
from tasks.xtreme.benchmark import get_task


def configured() -> FinetuneConfig:
  """The configuration that gin has been told, for the architecture of the model to be judged."""
  return finetune_config.configured(lambda train, evaluate: evaluate.model)


def run(config: FinetuneConfig, workdir: epath.Path, stop: StopSignal) -> int:
  """Evaluates. Each language is written as soon as it is there; a repeated command resumes with the next."""
  if config.evaluate.model is None:
    raise UsageError(
      'which model?', where='evaluate.model', fix='--gin.evaluate.model=WORKDIR, or a folder of Hugging Face'
    )
  if config.finetune.mixture is None and config.xtreme.task in retrieve.TASKS:
    return _retrieve(config, workdir, stop)
  with begun(config) as (hosts, console, stack):
    return _run(config, workdir, hosts, stack, console)


def _run(
  config: FinetuneConfig, workdir: epath.Path, hosts: Hosts, stack: contextlib.ExitStack, console: Console
) -> int:
  # --- workdir ---------------------------------------------------------------
  hold_workdir(workdir, hosts, console, stack)

  # --- model and data ----------------------------------------------------------
  path = config.evaluate.model
  source = open_source(path)
  is_mixture = config.finetune.mixture is not None
  tasks = open_tasks(config, is_trained=False) if is_mixture else None
  for task in (tasks,) if tasks else map(get_task, config.xtreme.judged):
    if (source.head, tuple(source.labels)) != (task.head, task.labels):
      raise UsageError(
        f'the model has {_in_words(source.head, source.labels)}, and {task.name} needs '
        f'{_in_words(task.head, task.labels)}',
        where=f'evaluate.model = {path}',
        fix='name a model that was fine-tuned for the task: gin/finetune_*.gin',
      )
  tasks = tasks or open_tasks(config, is_trained=False)
  vocabulary = config.vocabulary.path or source.vocabulary
  if vocabulary is None:
    raise UsageError('no vocabulary beside the model', where=str(path), fix='--gin.vocabulary.path=sentencepiece.model')
  check_vocabulary_of_tasks(tasks, vocabulary)
  register(config, vocabulary)
  head, labels = source.head, len(source.labels) or None
  initial = open_initial(path, 'all', config.model, head=head, num_labels=labels)

  # --- devices ---------------------------------------------------------------
  mesh = sharding.make_mesh(config.mesh)
  build = lambda rngs: build_model(head, config.model, config.execution, num_labels=labels, rngs=rngs)
  trainable = state.trainable(build, config.execution, optax.identity(), mesh)
  console.say(f'rembert {rembert.__version__} · evaluating {path}')
  show_model(console, config.model)
  show_hosts(console, hosts)
  stack.enter_context(jax.set_mesh(mesh))
  with console.task('reading parameters') as progress:
    params = initial.put_into(trainable.init(0), progress).params
  if hosts.is_first:
    configuration.save(workdir)

  # --- evaluation --------------------------------------------------------------
  judge = Judge(
    trainable,
    head,
    batch_size=config.finetune.judge_batch_size,
    longest=config.train.sequence_length,
    pad=SpecialIds().pad,
  )
  report = Report(workdir, {'model': source.path, 'split': config.xtreme.split}, is_writer=hosts.is_first)
  judge_tasks(
    judge,
    params,
    tasks,
    config=config,
    train=baseline_examples(config, is_required=False, is_drawn=False),  # without it there is no baseline
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
    folder, model = open_folder(config), load(config.evaluate.model)
    configuration.save(workdir)
    encoder = text_encoder(model, config.vocabulary.path)
    retrieve.run(
      model, encoder, folder, config.xtreme, workdir, console, stop, batch_size=config.finetune.judge_batch_size
    )
  return 0


def _in_words(head: str | None, labels) -> str:
  name = 'no head' if head is None else f'a head for {head}'
  return f'{name} of {len(labels)} labels' if labels else name
