"""TensorFlow, imported without its chatter and kept away from the accelerator.

  from tasks.tensorflow_import import tensorflow as tf

has to come before the import of SeqIO or t5, which import TensorFlow their own way.
"""

import os

from rembert.command_line import quiet_stderr

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')

with quiet_stderr(show_on_error=True):  # its C++ side logs there before it reads any log level
  import tensorflow

  tensorflow.config.set_visible_devices([], 'GPU')  # the accelerator belongs to JAX
