import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from app.localdev.kafka import LocalKafka
from app.localdev.kafka_properties import LocalTls


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> LocalTls:
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *subject, *files], check=True, capture_output=True)
    keystore = folder / "keystore.pem"
    keystore.write_text(key.read_text() + certificate.read_text())
    return LocalTls(keystore, certificate)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_both_tls_listeners_answer(tls: LocalTls, tmp_path: Path, protocol: str):
    with LocalKafka(tmp_path, tls=tls, plain_users={"alice": "alice-secret"}) as kafka:
        addresses = {
            "SSL": kafka.ssl_bootstrap_servers,
            "SASL_SSL": kafka.sasl_ssl_bootstrap_servers,
        }
        client = AdminClient(
            {
                "bootstrap.servers": addresses[protocol],
                "security.protocol": protocol,
                "ssl.ca.location": str(tls.truststore_file),
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": "alice-secret",
                "log_level": 0,
            }
        )
        assert client.list_topics(timeout=30).cluster_id == kafka.cluster_id
