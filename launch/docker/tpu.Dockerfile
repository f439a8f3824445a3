# A run on Cloud TPUs, for xpk (docs/guides/kubernetes.md). From the project's folder:
#
#   docker build --file=launch/docker/tpu.Dockerfile --tag=REGION-docker.pkg.dev/PROJECT/images/rembert .
#   docker push REGION-docker.pkg.dev/PROJECT/images/rembert
#
# What libtpu needs of a machine it brings along: a plain Python image is enough.
FROM python:3.12-slim

# tini: as the first process of a container a program gets no SIGTERM before it asks for it, nor are its orphans reaped.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends tini \
  && rm -rf /var/lib/apt/lists/* \
  && useradd --create-home --uid=1000 rembert

# The lock first, in a layer of its own: it changes less often than the code. --no-deps: see CONTRIBUTING.md.
COPY requirements.txt /opt/rembert/
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps --requirement=/opt/rembert/requirements.txt
# libtpu at the version that the locked JAX asks for, and what Orbax asks before it deletes in a bucket.
RUN pip install --no-cache-dir --disable-pip-version-check --constraint=/opt/rembert/requirements.txt \
  'jax[tpu]' 'google-cloud-storage>=2.18'

# Code is run where it lies, gin files beside it.
COPY gin /opt/rembert/gin
COPY launch /opt/rembert/launch
COPY tasks /opt/rembert/tasks
COPY rembert /opt/rembert/rembert
WORKDIR /opt/rembert
ENV PYTHONPATH=/opt/rembert PYTHONUNBUFFERED=1

# Runs write to a bucket, or to a mounted folder. xpk keeps this user; where the TPU devices of a node belong to root alone,
# take USER root.
USER rembert
ENTRYPOINT ["tini", "--"]
CMD ["python", "-m", "rembert.main", "--help"]
