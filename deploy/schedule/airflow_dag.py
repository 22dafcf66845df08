"""Sum up client quotas by the hour, as a DAG of Airflow: each run does the hour of its interval."""

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

LAKE = "s3a://lake/usage"
PIPELINE = "quota-pipeline"

with DAG(
    "quota_pipeline",
    schedule="5 * * * *",
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
        "--from '{{ data_interval_start | ts }}' --to '{{ data_interval_end | ts }}' "
        f"--cluster 4L6g3nShT-eMCtK--X86sw --quotas {LAKE} --out {LAKE} --pg",
    )
    snapshot >> run
