"""What an example is: SeqIO sources, preprocessors, vocabularies and metrics. Importing this package alone is light."""


def add_xtreme(**options) -> None:
  """Registers XTREME's tasks, see `tasks.xtreme.registry.add_xtreme`; TensorFlow and SeqIO are imported now."""
  from tasks.xtreme import registry

  registry.add_xtreme(**options)
