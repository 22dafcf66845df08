"""The same quota metrics of alice's etl, as the exporters and collectors in use spell them."""

from collections.abc import Mapping

EXPORTERS: Mapping[str, str] = {
    "the JMX exporter's example for Kafka": """\
kafka_server_quota_byte_rate{resource="Produce",user="a%2Cb",clientId="etl",} 4194304.0
kafka_server_quota_throttle_time{resource="Produce",user="a%2Cb",clientId="etl",} 12.5
kafka_server_quota_request_time{resource="Request",user="a%2Cb",clientId="etl",} 33.5
kafka_server_quota_tokens{resource="ControllerMutation",user="a%2Cb",clientId="etl",} 7.0
""",
    "the JMX exporter without a rule": """\
kafka_server_Produce_byte_rate{user="a%2Cb",client_id="etl",} 4194304.0
kafka_server_Produce_throttle_time{user="a%2Cb",client_id="etl",} 12.5
kafka_server_Request_request_time{user="a%2Cb",client_id="etl",} 33.5
kafka_server_ControllerMutation_tokens{user="a%2Cb",client_id="etl",} 7.0
""",
    "rules with the resource in the name": """\
kafka_server_quota_Produce_byte_rate{user="a%2Cb",client="etl"} 4194304.0
kafka_server_quota_Produce_throttle_time{user="a%2Cb",client="etl"} 12.5
kafka_server_quota_Request_request_time{user="a%2Cb",client="etl"} 33.5
kafka_server_quota_ControllerMutation_tokens{user="a%2Cb",client="etl"} 7.0
""",
    "rules with the type of the quota": """\
kafka_server_quota_byte_rate{quota_type="Produce",user="a%2Cb",client_id="etl"} 4194304
kafka_server_quota_throttle_time_ms{quota_type="Produce",user="a%2Cb",client_id="etl"} 12.5
kafka_server_quota_request_time{quota_type="Request",user="a%2Cb",client_id="etl"} 33.5
kafka_server_quota_tokens{quota_type="ControllerMutation",user="a%2Cb",client_id="etl"} 7
""",
    "Strimzi's metrics reporter": """\
kafka_server_produce_byte_rate{client_id="etl",user="a%2Cb"} 4194304.0
kafka_server_produce_throttle_time{client_id="etl",user="a%2Cb"} 12.5
kafka_server_request_request_time{client_id="etl",user="a%2Cb"} 33.5
kafka_server_controllermutation_tokens{client_id="etl",user="a%2Cb"} 7.0
""",
    "Telegraf's jolokia2_agent": """\
kafka_user_byte_rate{client_id="etl",jolokia_agent_url="http://k1/j",type="Produce",user="a%2Cb"} 4.194304e+06
kafka_user_throttle_time{client_id="etl",jolokia_agent_url="http://k1/j",type="Produce",user="a%2Cb"} 12.5
kafka_user_request_time{client_id="etl",jolokia_agent_url="http://k1/j",user="a%2Cb"} 33.5
kafka_user_tokens{client_id="etl",jolokia_agent_url="http://k1/j",type="ControllerMutation",user="a%2Cb"} 7
""",  # noqa: E501
    "an OpenTelemetry collector by OTLP": """\
kafka_server_quota_byte_rate_bytes_per_second{type="Produce",user_name="a%2Cb",messaging_client_id="etl"} 4194304
kafka_server_quota_throttle_time_milliseconds{type="Produce",user_name="a%2Cb",messaging_client_id="etl"} 12.5
kafka_server_quota_request_time_percent{type="Request",user_name="a%2Cb",messaging_client_id="etl"} 33.5
kafka_server_quota_tokens{type="ControllerMutation",user_name="a%2Cb",messaging_client_id="etl"} 7
""",  # noqa: E501
}
"""An exporter to its text."""

MEANT = [
    ("producer_byte_rate", "rate", "a,b", "etl", 4194304.0),
    ("producer_byte_rate", "throttle", "a,b", "etl", 12.5),
    ("request_percentage", "rate", "a,b", "etl", 33.5),
    ("controller_mutation_rate", "tokens", "a,b", "etl", 7.0),
]
"""What each of them says: key, attribute, user, client-id, value."""
