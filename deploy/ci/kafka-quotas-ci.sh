#!/bin/sh
# Plan a document of quotas in a pipeline, and apply it where KAFKA_QUOTAS_APPLY is true.
#
#   KAFKA_CLIENT_QUOTAS_SERVER  the service
#   KAFKA_QUOTAS_TOKEN          a bearer token; it stands in no command line and in no log
#   KAFKA_QUOTAS_FILE           the document
#   KAFKA_QUOTAS_OPTIONS        such as "--owner team-a --prune --scope user^=team-a-"
#   KAFKA_QUOTAS_REASON         for the audit log, such as the commit
#
# A plan ends with 0 whether or not there are changes, and with the exit code of the command where
# the document is refused or the service cannot be asked.
set -euf
umask 077
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
printf %s "$KAFKA_QUOTAS_TOKEN" > "$folder/token"
export KAFKA_CLIENT_QUOTAS_TOKEN_FILE="$folder/token"

code=0
# shellcheck disable=SC2086 - the options are several words
kafka-client-quotas plan "$KAFKA_QUOTAS_FILE" ${KAFKA_QUOTAS_OPTIONS-} > "$folder/plan" || code=$?
cat "$folder/plan"
if [ -n "${GITHUB_STEP_SUMMARY-}" ] && [ -s "$folder/plan" ]; then
    { echo '```'; cat "$folder/plan"; echo '```'; } >> "$GITHUB_STEP_SUMMARY"
fi
# 1 with a plan means that there are changes; without one that the document is refused.
if [ "$code" -gt 1 ] || { [ "$code" -eq 1 ] && [ ! -s "$folder/plan" ]; }; then
    exit "$code"
fi
if [ "${KAFKA_QUOTAS_APPLY-}" = true ]; then
    # shellcheck disable=SC2086
    kafka-client-quotas apply "$KAFKA_QUOTAS_FILE" ${KAFKA_QUOTAS_OPTIONS-} --yes \
        --reason "${KAFKA_QUOTAS_REASON-applied by a pipeline}"
    # Whatever is left to do now has failed.
    # shellcheck disable=SC2086
    kafka-client-quotas plan "$KAFKA_QUOTAS_FILE" ${KAFKA_QUOTAS_OPTIONS-}
fi
