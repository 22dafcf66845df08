"""Sum up client quotas by the hour, as a DAG of Airflow 3: a run does the whole hour before it."""

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, CronTriggerTimetable

LAKE = "s3a://lake/usage"
PIPELINE = "quota-pipeline"
HOUR_BEGINS = "{{ (logical_date - macros.timedelta(hours=1)).strftime('%Y-%m-%dT%H:00:00Z') }}"
HOUR_ENDS = "{{ logical_date.strftime('%Y-%m-%dT%H:00:00Z') }}"

with DAG(
    "quota_pipeline",
    # Five past each hour: the last minute of the hour is scraped by then. The interval of such a
    # run is empty in Airflow 3, so its hour follows from the time that it is for.
    schedule=CronTriggerTimetable("5 * * * *", timezone="UTC"),
    start_date=datetime(2026, 11, 1, tzinfo=UTC),
    catchup=True,
    # A snapshot writes the quotas of the whole cluster.
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
) as dag:
    snapshot = BashOperator(
        task_id="snapshot",
        bash_command=f"{PIPELINE} snapshot --server https://quotas.example:8080 "
        f"--token-file /run/secrets/quotas/token --out {LAKE}",
    )
    run = BashOperator(
        task_id="run",
        bash_command=f"{PIPELINE} run --format prometheus --input http://prometheus:9090 "
        f"--from '{HOUR_BEGINS}' --to '{HOUR_ENDS}' "
        f"--cluster 4L6g3nShT-eMCtK--X86sw --quotas {LAKE} --out {LAKE} --pg",
    )
    snapshot >> run
