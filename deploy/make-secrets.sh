#!/bin/sh
# Make the passwords and tokens that docker-compose.yml needs. What was made before stays.
#
# usage: sh deploy/make-secrets.sh [DIRECTORY]     (default: deploy/secrets, which git ignores)
set -eu
umask 077

directory=${1:-$(dirname "$0")/secrets}
if [ -e "$directory/tokens.json" ]; then
    echo "$directory is there already; remove it and the volumes to begin anew." >&2
    exit 0
fi
mkdir -p "$directory"
cd "$directory"

random() { head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }
sha256() { { sha256sum 2>/dev/null || shasum -a 256; } | cut -d ' ' -f 1; }

admin=$(random) account=$(random) owner=$(random) service=$(random)
plain=org.apache.kafka.common.security.plain.PlainLoginModule

# The broker's accounts. Only its own user can read these files; containers get what they need.
cat >kafka.env <<END
KAFKA_LISTENER_NAME_CLIENTS_PLAIN_SASL_JAAS_CONFIG='$plain required username="admin" password="$admin" user_admin="$admin" user_quotas="$account";'
END
cat >admin.properties <<END
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=$plain required username="admin" password="$admin";
END
cat >postgres.env <<END
POSTGRES_PASSWORD='$(random)'
QUOTAS_OWNER_PASSWORD='$owner'
QUOTAS_SERVICE_PASSWORD='$service'
END
cat >migrate.env <<END
QUOTAS_MIGRATION_DATABASE_URL='postgresql://quotas_owner:$owner@postgres:5432/quotas'
QUOTAS_DATABASE_URL='postgresql://quotas_service:$service@postgres:5432/quotas'
END
cat >service.env <<END
QUOTAS_DATABASE_URL='postgresql://quotas_service:$service@postgres:5432/quotas'
QUOTAS_KAFKA_SASL_PASSWORD='$account'
END

# Of a service with several clusters (docker-compose.clusters.yml): the password is in a file.
cat >service-clusters.env <<END
QUOTAS_DATABASE_URL='postgresql://quotas_service:$service@postgres:5432/quotas'
END
printf '%s' "$account" >kafka.password

# A token for each example principal, good until this month of the next year.
expires_at=$(($(date -u +%Y) + 1))$(date -u +-%m-01T00:00:00.000Z)
entries=
for name in alice bob mallory auditor; do
    random >"$name.token"
    digest=$(sha256 <"$name.token")
    entries="$entries${entries:+,}
  {\"principal\": \"User:$name\", \"token_sha256\": \"$digest\", \"expires_at\": \"$expires_at\"}"
done
# Containers run as other users: what they mount must be readable inside this private directory.
chmod 644 admin.properties kafka.password
printf '[%s\n]\n' "$entries" >tokens.json
chmod 644 tokens.json
echo "Made $directory; the tokens are in its files *.token." >&2
