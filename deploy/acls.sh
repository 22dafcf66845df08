#!/bin/sh
# Give the service's own account what it needs, and the example principals what they may do.
set -eu

allow() {
    principal=$1
    shift
    /opt/kafka/bin/kafka-acls.sh --bootstrap-server "${BOOTSTRAP_SERVERS:-kafka:9092}" \
        --command-config /run/secrets/admin.properties \
        --add --cluster --allow-principal "$principal" "$@"
}

allow User:quotas --operation Describe --operation DescribeConfigs --operation AlterConfigs
allow User:alice --operation AlterConfigs
allow User:bob --operation DescribeConfigs
