"""A tracker that keeps everything in a list."""


class MemoryTracker:
  """See `rembert.tracking.metric_writers.Tracker`."""

  def __init__(self):
    self.rows = []

  def log(self, metrics, *, step):
    """Keeps a copy."""
    self.rows.append({'step': step, **metrics})

  def close(self):
    """Nothing to let go of."""
