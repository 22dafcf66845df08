import pytest
from pyspark.sql import SparkSession

from app.pipeline.progress import Progress, Stage, describe


@pytest.mark.parametrize(
    ("stages", "line"),
    [
        ([Stage(3, 8, 0, 0, 1.0)], "stage 3: 0 of 8 tasks done"),
        ([Stage(3, 8, 2, 1500, 4.0)], "stage 3: 2 of 8 tasks done, 1,500 rows, about 12 s left"),
        (
            [Stage(3, 8, 2, 1500, 4.0), Stage(4, 2, 1, 0, 20.0)],
            "stage 3, stage 4: 3 of 10 tasks done, 1,500 rows, about 20 s left",
        ),
    ],
)
def test_a_line_has_tasks_rows_and_the_time_that_is_left(stages: list[Stage], line: str):
    assert describe(stages) == line


def test_between_jobs_no_stage_runs(spark: SparkSession):
    assert list(Progress(spark, print)._stages()) == []
