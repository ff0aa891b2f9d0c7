"""Sums over all objects of sink `s3` in a bucket, by an engine that reads them where they are.

Usage: sums.py ENGINE ENDPOINT BUCKET FOLDER

ENGINE is duckdb, clickhouse or spark. Keys are in the environment. FOLDER is where the server keeps the bucket: Spark, whose
connector for S3 is on no package index, reads the same objects there. Prints one line of JSON: for each job the number of runs
and rows, CPU seconds of the machine in user mode, and the highest memory in use. Exits with 77 where the engine is not installed.
"""

import json
import os
import pathlib
import sys


def duckdb(endpoint, bucket, _):
    import duckdb
    import duckdb_ext

    connection = duckdb.connect()
    # The wheel `duckdb-ext-httpfs` has the extension of one version of DuckDB.
    for folder in duckdb_ext.__path__:
        for extension in pathlib.Path(folder).glob(f"extensions/v{duckdb.__version__}/*/httpfs.duckdb_extension"):
            connection.execute(f"LOAD '{extension}'")
    key, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    connection.execute(f"""
        CREATE SECRET (TYPE s3, KEY_ID '{key}', SECRET '{secret}', REGION 'eu-north-1', URL_STYLE 'path', USE_SSL false,
            ENDPOINT '{endpoint.removeprefix("http://")}')""")
    return connection.sql(f"""
        SELECT job, count(DISTINCT run_id), count(*), sum(cpu.utime_secs), max(memory.used_mib)
        FROM read_json('s3://{bucket}/runs/**/*.jsonl.gz', hive_partitioning = true, union_by_name = true)
        WHERE date >= DATE '2026-01-01' GROUP BY job ORDER BY job""").fetchall()


def clickhouse(endpoint, bucket, _):
    import chdb

    key, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    answer = chdb.query(f"""
        SELECT job, uniqExact(run_id), count(), sum(cpu.utime_secs), max(memory.used_mib)
        FROM s3('{endpoint}/{bucket}/runs/**/*.jsonl.gz', '{key}', '{secret}', 'JSONEachRow',
                'cpu Tuple(utime_secs Float64), memory Tuple(used_mib Float64)')
        WHERE date >= '2026-01-01' GROUP BY job ORDER BY job
        SETTINGS use_hive_partitioning = 1, input_format_skip_unknown_fields = 1
        FORMAT JSONCompactEachRow""").data()
    return [json.loads(line) for line in answer.splitlines()]


def spark(_, bucket, folder):
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    runs = session.read.option("basePath", f"{folder}/runs").json(f"{folder}/runs")
    runs.createOrReplaceTempView("runs")
    return [
        tuple(row)
        for row in session.sql("""
        SELECT job, count(DISTINCT run_id), count(*), sum(cpu.utime_secs), max(memory.used_mib)
        FROM runs WHERE date >= DATE '2026-01-01' GROUP BY job ORDER BY job""").collect()
    ]


def main():
    engine, endpoint, bucket, folder = sys.argv[1:]
    try:
        rows = {"duckdb": duckdb, "clickhouse": clickhouse, "spark": spark}[engine](endpoint, bucket, folder)
    except ImportError as missing:
        print(missing, file=sys.stderr)
        sys.exit(77)
    names = ["job", "runs", "rows", "utime_secs", "used_mib"]
    print(json.dumps([dict(zip(names, row)) for row in rows]))


main()
