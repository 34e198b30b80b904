# The main job in an image: docker build -t ropecheck . && docker run --rm ropecheck
# The reports: docker run --rm -v "$PWD/out:/out" ropecheck run --out /out --report html,junit,json
# BASE: any Debian with CPython 3.11 or newer, such as your registry's copy.
ARG BASE=docker.io/library/python:3.12-slim
FROM $BASE
RUN apt-get update && apt-get install -y --no-install-recommends git make g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /ropecheck
COPY requirements requirements
COPY pyproject.toml README.md LICENSE ./
COPY spec spec
COPY reference reference
COPY adapters adapters
COPY conformance conformance
COPY vectors vectors
COPY ropecheck ropecheck
RUN requirements/setup.sh
ENTRYPOINT ["/ropecheck/.venv/bin/ropecheck"]
CMD ["run"]
