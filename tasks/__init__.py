"""SeqIO sources, preprocessors, vocabularies and metrics. Importing this package does not import TensorFlow.

`import tasks.mixtures` registers this project's SeqIO tasks and mixtures; the functions here register them over other
data.
"""


def add_wikipedia(**arguments) -> None:
  """Registers `wikipedia.{language}` and mixtures over a corpus or TFDS: `tasks.mixtures.add_wikipedia`."""
  from tasks import mixtures  # first, as it registers under the same names

  mixtures.add_wikipedia(**arguments)


def add_xtreme(**arguments) -> None:
  """Registers `xtreme.{task}.{language}` and mixtures over XTREME's files: `tasks.xtreme.registry.add_xtreme`."""
  from tasks import mixtures  # first, as it registers under the same names

  mixtures.add_xtreme(**arguments)


def add_table(**arguments):
  """Registers `NAME.{language}` and the mixture NAME over the user's tables: `tasks.tables.registry.add_table`."""
  from tasks.tables import registry

  return registry.add_table(**arguments)
