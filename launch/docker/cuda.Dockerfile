# A run on NVIDIA GPUs. In the project's directory:
#
#   docker build --file=launch/docker/cuda.Dockerfile --tag=rembert:cuda .
#   docker run --rm --gpus=all --shm-size=8g --volume=rembert_runs:/opt/rembert/runs rembert:cuda \
#     python -m rembert.main --gin_file=gin/pretrain_base.gin --gin_file=gin/hardware/h200.gin --workdir=runs/base
#
# No image of NVIDIA's: jax[cuda12] installs CUDA, cuDNN and NCCL as wheels, of the versions that it was built with. The
# host provides the driver and the container toolkit, which adds the driver's libraries (--gpus=all).
FROM python:3.12-slim

# tini: the first process of a container gets no SIGTERM without a handler, and its orphans are not reaped.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends tini \
  && rm -rf /var/lib/apt/lists/* \
  && useradd --create-home --uid=1000 rembert

# The lock file first, in its own layer, since it changes less often than the code. --no-deps: see CONTRIBUTING.md.
COPY requirements.txt /opt/rembert/
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps --requirement=/opt/rembert/requirements.txt
# CUDA at the version that the locked JAX requires, and the client with which Orbax deletes in a bucket.
RUN pip install --no-cache-dir --disable-pip-version-check --constraint=/opt/rembert/requirements.txt \
  'jax[cuda12]' 'google-cloud-storage>=2.18'

# Code runs in this directory, next to the gin files.
COPY gin /opt/rembert/gin
COPY launch /opt/rembert/launch
COPY tasks /opt/rembert/tasks
COPY rembert /opt/rembert/rembert
WORKDIR /opt/rembert
# A volume gets the owner of the directory that it is mounted on.
RUN install --directory --owner=rembert /opt/rembert/runs
ENV PYTHONPATH=/opt/rembert PYTHONUNBUFFERED=1
# Settings of the container toolkit for containers that request GPUs.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

USER rembert
ENTRYPOINT ["tini", "--"]
CMD ["python", "-m", "rembert.main", "--help"]
