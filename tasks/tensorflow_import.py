"""Imports TensorFlow without its log output, and without access to the accelerator.

  from tasks.tensorflow_import import tensorflow as tf

must come before the import of SeqIO or t5, which import TensorFlow directly.
"""

import os

from rembert.command_line import quiet_stderr, without_modules

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
# Pipelines have nothing for it to speed up, and it reports an error for integers where there is no harm.
os.environ.setdefault('TF_ENABLE_ONEDNN_OPTS', '0')

# Its C++ code logs before it reads the log level. Its Keras, of which nothing is used, would import the other modules:
# a third of the time.
with quiet_stderr(show_on_error=True), without_modules('matplotlib', 'pandas', 'sklearn'):
  import tensorflow

  tensorflow.config.set_visible_devices([], 'GPU')  # the accelerator belongs to JAX
