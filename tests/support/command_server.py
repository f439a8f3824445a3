"""Runs `python -m MODULE …` in processes that have what is slow to import already: a fork for each command.

It reads lines of JSON {arguments, folder, log, timeout} and answers each with {exit_code, seconds}. TensorFlow, SeqIO
and t5 take longer to import than most commands take at a small scale; nothing of them, and no device of JAX, is in use
when a process is forked.
"""

import importlib
import json
import os
import runpy
import select
import signal
import sys
import time
import traceback
import warnings

IMPORTED = (
  *('jax', 'flax.nnx', 'optax', 'orbax.checkpoint', 'matplotlib.pyplot'),
  *('tasks.tensorflow_import', 'seqio', 't5.data.preprocessors'),
)


def serve(requests, answers) -> None:
  """Until there are no more requests."""
  for line in requests:
    request = json.loads(line)
    began = time.monotonic()
    process = os.fork()
    if process == 0:
      _run(request)
    code = _wait(process, request['timeout'])
    answers.write(json.dumps({'exit_code': code, 'seconds': time.monotonic() - began}) + '\n')
    answers.flush()


def _wait(process: int, timeout: float) -> int:
  end = select.select([os.pidfd_open(process)], [], [], timeout)[0]
  if not end:
    os.killpg(process, signal.SIGKILL)
  return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _run(request: dict) -> None:
  """In the new process; does not return."""
  code = 1
  try:
    os.setpgid(0, 0)
    log = os.open(request['log'], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for here, there in ((nothing, 0), (log, 1), (log, 2)):
      os.dup2(here, there)
    os.chdir(request['folder'])
    module, *arguments = request['arguments']
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name='__main__', alter_sys=True)
    code = 0
  except SystemExit as end:
    code = end.code if isinstance(end.code, int) else int(end.code is not None)
  except BaseException:
    traceback.print_exc()
  finally:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == '__main__':
  sys.path.insert(0, '')  # the folder of each command
  warnings.simplefilter('ignore')
  for name in IMPORTED:
    importlib.import_module(name)
  answers = os.fdopen(os.dup(1), 'w')
  os.dup2(2, 1)
  serve(sys.stdin, answers)
