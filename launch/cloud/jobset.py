"""A run on GKE as a JobSet: a Job for every slice, a Pod for every machine of it, all of them started again together.

Sources: JobSet's API and examples (github.com/kubernetes-sigs/jobset: config/components/crd, and failure-policy and
tpu-multislice in site/static/examples), Kubernetes' page on pod failure policies, GKE's pages on TPUs and Multislice,
and what xpk generates. What JAX reads in a Pod (TPU_WORKER_ID, TPU_WORKER_HOSTNAMES, MEGASCALE_*) GKE adds to it.
"""

import dataclasses
import math
import signal
from typing import Any

import yaml

from launch.cloud.accelerators import GENERATIONS, Generation
from rembert.errors import UsageError
from rembert.training.preemption import EXIT_STOPPED
from rembert.training.topology import Topology

_CONTAINER = 'rembert'
# What `launch.supervise` would repeat: stopped and saved, or killed. Whatever else a program ends with is its error.
_KILLED = (signal.SIGABRT, signal.SIGBUS, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM)
REPEATED_CODES = (EXIT_STOPPED, *sorted(128 + number for number in _KILLED))


@dataclasses.dataclass(frozen=True)
class Job:
  """What is to run, and on what.

  Attributes:
    name: of the JobSet.
    namespace: that it lives in; None for that of kubectl's context.
    topology: one or several equal slices.
    image: that has the project in it.
    command: on every machine.
    labels: of the JobSet.
    chips_per_machine: of the node pool's machines: four, but for machines of one or eight chips.
    max_restarts: of all Pods together.
    save_seconds: between SIGTERM and SIGKILL.
    spot: on nodes that may be taken away.
    service_account: of Kubernetes, with the right to write to the bucket; None for that of the namespace.
    queue: Kueue's LocalQueue; None where there is no Kueue.
  """

  name: str
  topology: Topology
  image: str
  command: tuple[str, ...]
  labels: dict[str, str]
  namespace: str | None = None
  chips_per_machine: int = 4
  max_restarts: int = 100
  save_seconds: int = 600
  spot: bool = False
  service_account: str | None = None
  queue: str | None = None

  def __post_init__(self):
    generation, chips = self.generation, math.prod(self.topology.shape)
    where = f'--topology={self.topology.name}'
    if len(self.topology.shape) != generation.dimensions:
      example = {2: '8x8', 3: '4x4x4'}[generation.dimensions]
      raise UsageError(
        f'slices of {generation.name} have {generation.dimensions} dimensions',
        where=where,
        fix=f'--topology={generation.name}:{example}',
      )
    if chips % self.chips_per_machine:
      raise UsageError(
        f'{chips} chips do not fill machines of {self.chips_per_machine}',
        where=where,
        fix='--chips_per_machine=1 for a machine of one chip (ct5lp-hightpu-1t, ct6e-standard-1t), 8 for one of eight',
      )
    if self.topology.slices > 1 and self.machines == 1:
      raise UsageError(
        'several slices work together only if each has several machines',
        where=where,
        fix='GKE, Multislice: node pools of one machine cannot take part; take larger slices',
      )

  @property
  def generation(self) -> Generation:
    """Of its chips; UsageError if GKE has none such."""
    found = next((each for each in GENERATIONS if each.name == self.topology.family), None)
    if found is None:
      known = ', '.join(each.name for each in GENERATIONS)
      raise UsageError(f'no TPU {self.topology.family!r}', where=f'--topology={self.topology.name}', fix=known)
    return found

  @property
  def machines(self) -> int:
    """Of each slice."""
    return math.prod(self.topology.shape) // self.chips_per_machine


def manifest(job: Job) -> dict:
  """The JobSet."""
  labels = dict(job.labels)
  metadata: dict[str, Any] = {'name': job.name, 'labels': labels}
  if job.namespace:
    metadata['namespace'] = job.namespace
  if job.queue:
    labels['kueue.x-k8s.io/queue-name'] = job.queue
  if job.machines > 1:
    # All Pods of a Job go to one node pool, which is one slice, and no other Job goes there.
    metadata['annotations'] = {'alpha.jobset.sigs.k8s.io/exclusive-topology': 'cloud.google.com/gke-nodepool'}
  return {
    'apiVersion': 'jobset.x-k8s.io/v1alpha2',
    'kind': 'JobSet',
    'metadata': metadata,
    'spec': {
      # A headless service with the name of the JobSet, by which the machines find each other before they are ready.
      'network': {'enableDNSHostnames': True, 'publishNotReadyAddresses': True},
      'failurePolicy': {
        'maxRestarts': job.max_restarts,
        # A Job that its pod failure policy has ended has met an error. All other failures start everything again.
        'rules': [
          {'name': 'errorsAreNotRepeated', 'action': 'FailJobSet', 'onJobFailureReasons': ['PodFailurePolicy']}
        ],
      },
      'replicatedJobs': [
        {'name': 'slice', 'replicas': job.topology.slices, 'template': {'spec': _job_of_a_slice(job)}},
      ],
    },
  }


def _job_of_a_slice(job: Job) -> dict:
  return {
    'completionMode': 'Indexed',
    'parallelism': job.machines,
    'completions': job.machines,
    'backoffLimit': 0,  # one Pod alone is of no use again: the JobSet starts all of them
    'podFailurePolicy': {
      'rules': [
        # A node that goes away (preemption, maintenance): whatever code the program had time for, it is no error.
        {'action': 'Count', 'onPodConditions': [{'type': 'DisruptionTarget', 'status': 'True'}]},
        {
          'action': 'FailJob',
          'onExitCodes': {'containerName': _CONTAINER, 'operator': 'NotIn', 'values': list(REPEATED_CODES)},
        },
      ]
    },
    'template': {'metadata': {'labels': dict(job.labels)}, 'spec': _pod(job)},
  }


def _pod(job: Job) -> dict:
  selector = {
    'cloud.google.com/gke-tpu-accelerator': job.generation.gke_accelerator,
    'cloud.google.com/gke-tpu-topology': 'x'.join(map(str, job.topology.shape)),
  }
  spot = {'key': 'cloud.google.com/gke-spot', 'operator': 'Equal', 'value': 'true', 'effect': 'NoSchedule'}
  return {
    'restartPolicy': 'Never',  # pod failure policies want it
    'terminationGracePeriodSeconds': job.save_seconds,
    **({'serviceAccountName': job.service_account} if job.service_account else {}),
    # GKE's advice for several slices: the data-centre network without another layer.
    'hostNetwork': True,
    'dnsPolicy': 'ClusterFirstWithHostNet',
    'nodeSelector': selector | ({'cloud.google.com/gke-spot': 'true'} if job.spot else {}),
    **({'tolerations': [spot]} if job.spot else {}),
    'containers': [
      {
        'name': _CONTAINER,
        'image': job.image,
        # args, not command: the image's entry point (tini) stays, and passes signals on.
        # Kubernetes would put variables in the place of $(NAME), and makes $ of $$.
        'args': [argument.replace('$', '$$') for argument in job.command],
        # As in JobSet's and xpk's manifests for TPUs; chips belong to root.
        'securityContext': {'privileged': True, 'runAsUser': 0},
        'resources': {'limits': {'google.com/tpu': job.chips_per_machine}},
      }
    ],
  }


def as_text(document: dict) -> str:
  """YAML, in the order in which it was written down."""
  return yaml.safe_dump(document, sort_keys=False, width=120, allow_unicode=True)
