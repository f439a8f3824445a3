# A run on Cloud TPUs, for xpk (docs/guides/kubernetes.md). In the project's directory:
#
#   docker build --file=launch/docker/tpu.Dockerfile --tag=REGION-docker.pkg.dev/PROJECT/images/rembert .
#   docker push REGION-docker.pkg.dev/PROJECT/images/rembert
#
# libtpu includes its dependencies, so a plain Python image is enough.
FROM python:3.12-slim

# tini: the first process of a container gets no SIGTERM without a handler, and its orphans are not reaped.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends tini \
  && rm -rf /var/lib/apt/lists/* \
  && useradd --create-home --uid=1000 rembert

# The lock file first, in its own layer, since it changes less often than the code. --no-deps: see CONTRIBUTING.md.
COPY requirements.txt /opt/rembert/
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps --requirement=/opt/rembert/requirements.txt
# libtpu at the version that the locked JAX requires, and the client with which Orbax deletes in a bucket.
RUN pip install --no-cache-dir --disable-pip-version-check --constraint=/opt/rembert/requirements.txt \
  'jax[tpu]' 'google-cloud-storage>=2.18'

# Code runs in this directory, next to the gin files.
COPY gin /opt/rembert/gin
COPY launch /opt/rembert/launch
COPY tasks /opt/rembert/tasks
COPY rembert /opt/rembert/rembert
WORKDIR /opt/rembert
ENV PYTHONPATH=/opt/rembert PYTHONUNBUFFERED=1

# Runs write to a bucket, or to a mounted directory. xpk keeps this user; if only root can use a node's TPU devices,
# set USER root.
USER rembert
ENTRYPOINT ["tini", "--"]
CMD ["python", "-m", "rembert.main", "--help"]
