"""TensorFlow, imported without its chatter and kept away from the accelerator.

  from tasks.tensorflow_import import tensorflow as tf

has to come before the import of SeqIO or t5, which import TensorFlow their own way.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')


@contextlib.contextmanager
def without_chatter() -> Iterator[None]:
  """Turns file descriptor 2 aside: TensorFlow's C++ side logs there before it reads any log level.

  If the block raises, what was written is shown after all.
  """
  sys.stderr.flush()
  shown = os.dup(2)
  with tempfile.TemporaryFile() as aside:
    os.dup2(aside.fileno(), 2)
    try:
      yield
    except BaseException:
      aside.seek(0)
      os.write(shown, aside.read())
      raise
    finally:
      os.dup2(shown, 2)
      os.close(shown)


with without_chatter():
  import tensorflow

  tensorflow.config.set_visible_devices([], 'GPU')  # the accelerator belongs to JAX
