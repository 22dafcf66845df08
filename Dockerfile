# The service alone: no broker, no database, no Java. docker-compose.yml puts them beside it.
# `docker build --target cli .` is the command kafka-client-quotas alone, without the server.

FROM python:3.11-slim AS wheel
WORKDIR /build
COPY requirements/bootstrap.txt requirements/client.txt requirements/dev.txt requirements/service.txt requirements/
RUN pip install --no-cache-dir --require-hashes --requirement requirements/bootstrap.txt \
    && python -m venv --without-pip /opt/quotas
COPY pyproject.toml README.md ./
COPY app app
RUN uv build --wheel --require-hashes --build-constraint requirements/dev.txt --out-dir dist

FROM wheel AS client-packages
RUN pip --python /opt/quotas/bin/python install --no-cache-dir --require-hashes \
        --only-binary :all: --requirement requirements/client.txt \
    && pip --python /opt/quotas/bin/python install --no-cache-dir --no-deps --no-index dist/*.whl

FROM wheel AS service-packages
RUN pip --python /opt/quotas/bin/python install --no-cache-dir --require-hashes \
        --only-binary :all: --requirement requirements/service.txt \
    && pip --python /opt/quotas/bin/python install --no-cache-dir --no-deps --no-index dist/*.whl

FROM python:3.11-slim AS cli
COPY --from=client-packages /opt/quotas /opt/quotas
COPY --chmod=755 deploy/ci/kafka-quotas-ci.sh /opt/quotas/bin/
WORKDIR /work
ENV PATH=/opt/quotas/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
ENTRYPOINT ["kafka-client-quotas"]

FROM python:3.11-slim AS service
COPY --from=service-packages /opt/quotas /opt/quotas
WORKDIR /srv/quotas
COPY migrations migrations
ENV PATH=/opt/quotas/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    QUOTAS_HOST=0.0.0.0
USER 10001:10001
EXPOSE 8080
# Where TLS alone is served the certificate is of another name, so it is not verified.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s CMD ["python", "-c", "import http.client, os, ssl, sys; env = os.environ.get; operations = env('QUOTAS_OPERATIONS_PORT'); tls = env('QUOTAS_TLS_CERT_FILE') and not env('QUOTAS_TLS_PORT') and not operations; more = {'context': ssl._create_unverified_context()} if tls else {}; probe = (http.client.HTTPSConnection if tls else http.client.HTTPConnection)('127.0.0.1', int(operations or env('QUOTAS_PORT') or 8080), timeout=2, **more); probe.request('GET', '/livez'); sys.exit(probe.getresponse().status != 200)"]
ENTRYPOINT ["kafka-quota-service"]
CMD ["serve"]
