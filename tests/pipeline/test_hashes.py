"""Ids are the hashes that Spark makes of the same columns."""

import random

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from app.pipeline.hashes import hash_numbers, hash_texts


@pytest.mark.small
def test_hashes_are_those_of_spark(spark: SparkSession):
    chosen = random.Random(1)
    texts = ["", "é😀", *("x" * number for number in range(1, 100))]
    texts += ["".join(chosen.choices("abc é😀\x00", k=chosen.randrange(90))) for _ in range(300)]
    numbers = [0, -1, 2**63 - 1, -(2**63), *(chosen.getrandbits(64) - 2**63 for _ in texts[4:])]
    rows = spark.createDataFrame(list(zip(texts, numbers, strict=True)), "text string, n bigint")
    columns = rows.select(
        sf.xxhash64("text").alias("text"),
        sf.xxhash64("n").alias("number"),
        sf.xxhash64("text", "n", "text").alias("all"),
    ).toArrow()
    array = pa.array(texts)
    by_number = hash_numbers(np.array(numbers), hash_texts(array))
    found = {
        "text": hash_texts(array),
        "number": hash_numbers(np.array(numbers)),
        "all": hash_texts(array, by_number),
    }
    assert {name: values.tolist() for name, values in found.items()} == columns.to_pydict()
    some = hash_texts(array.slice(50, 200), by_number[50:250])
    assert some.tolist() == columns["all"].to_pylist()[50:250]
    assert len(hash_texts(array.slice(0, 0))) == 0
