import socket

from app.localdev.ports import HOST, free_ports, is_free


def test_a_port_with_a_server_is_not_free():
    with socket.create_server((HOST, 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_a_port_is_free_again_at_once_when_its_server_closed_a_connection():
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection((HOST, port))
        accepted, _ = server.accept()
        accepted.close()  # the closing side keeps the port in TIME_WAIT
        client.close()
    assert is_free(port)


def test_free_ports_are_distinct_and_free():
    ports = free_ports(5)
    assert len(set(ports)) == 5
    assert all(is_free(port) for port in ports)
