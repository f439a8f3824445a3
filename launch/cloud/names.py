"""Names of projects, zones and machines, looked at before anything is asked of anybody; labels that say whose it is."""

import getpass
import re

from rembert.errors import UsageError

LABEL, OWNER_LABEL = 'rembert-launch', 'rembert-owner'

# Compute Engine's rule for names (RFC 1035), which is the narrowest of those that a name has to pass.
_NAME = re.compile(r'[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?')
_ZONE = re.compile(r'[a-z]+-[a-z]+\d+-[a-z0-9]+')
_PROJECT = re.compile(r'(?:[a-z0-9.-]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]')
_BUCKET_PATH = re.compile(r'gs://[a-z0-9][-_.a-z0-9]{1,220}[a-z0-9](?:/.*)?')


def checked_name(name: str, *, longest: int = 63) -> str:
  """The name of a machine or of a job; UsageError if Google Cloud would not take it."""
  if not _NAME.fullmatch(name) or len(name) > longest:
    raise UsageError(
      f'{name!r} cannot be a name',
      where='NAME',
      fix=f'a small letter, then small letters, digits and dashes, up to {longest}: rembert-large',
    )
  return name


def checked_zone(zone: str | None) -> str | None:
  """A zone, or None for the one that gcloud is configured with."""
  if zone is not None and not _ZONE.fullmatch(zone):
    raise UsageError(
      f'{zone!r} is no zone', where='--zone', fix='such as us-west4-a: gcloud compute tpus locations list'
    )
  return zone


def checked_project(project: str | None) -> str | None:
  """The id of a project, or None for the one that gcloud is configured with."""
  if project is not None and not _PROJECT.fullmatch(project):
    raise UsageError(
      f'{project!r} is no id of a project', where='--project', fix='the id, not the title: gcloud projects list'
    )
  return project


def owner_of(asked_for: str | None) -> str:
  """Whose machines these are, as the value of a label: small letters, digits, dashes, up to 63."""
  name = re.sub(r'[^a-z0-9_-]+', '-', (asked_for or getpass.getuser()).lower()).strip('-')[:63]
  if not name:
    raise UsageError(f'{asked_for!r} cannot be a label', where='--owner', fix='letters and digits: --owner=anna')
  return name


def own_labels(owner: str) -> dict[str, str]:
  """What is written on all that these launchers create, and looked for before they delete anything."""
  return {LABEL: '1', OWNER_LABEL: owner}


def check_own(labels: dict[str, str], owner: str, what: str) -> None:
  """UsageError unless the labels say that this owner created it with these launchers."""
  if labels.get(LABEL) != '1':
    raise UsageError(
      f'{what} was not created by these launchers, and is not deleted by them',
      where=f'it has no label {LABEL}=1',
      fix='whoever created it can delete it with gcloud',
    )
  if labels.get(OWNER_LABEL) != owner:
    raise UsageError(
      f'{what} belongs to {labels.get(OWNER_LABEL)!r}, and you are {owner!r}',
      where=f'label {OWNER_LABEL}',
      fix=f'if that is right: --owner={labels.get(OWNER_LABEL)}',
    )


def checked_workdir(command: list[str], *, is_shared: bool) -> None:
  """UsageError for a workdir on the disk of one machine, where several take part or the machine may vanish."""
  for argument in command:
    key, _, value = argument.partition('=')
    if is_shared and key == '--workdir' and not _BUCKET_PATH.fullmatch(value):
      raise UsageError(
        f'the workdir {value!r} is on the disk of a machine that does not last',
        where='--workdir',
        fix='a folder in a bucket of the same region: --workdir=gs://BUCKET/large',
      )
