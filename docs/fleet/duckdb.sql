-- DuckDB over what sink `s3` wrote. Set the folder first:  SET VARIABLE runs = 's3://my-bucket/runs';

-- One row for each sample. Only the columns that are asked for are kept, and only the days.
CREATE OR REPLACE VIEW samples AS
SELECT date, job, host_name, run_id, timestamp_ms, elapsed_secs, cpu, run, host, outcome
FROM read_json(
    getvariable('runs') || '/**/*.jsonl.gz', hive_partitioning = true, format = 'newline_delimited',
    columns = {
        timestamp_ms: 'UBIGINT', elapsed_secs: 'DOUBLE',
        cpu: 'STRUCT(process_cores_used DOUBLE, process_utime_secs DOUBLE, process_stime_secs DOUBLE, process_rss_mib DOUBLE,
              process_peak_memory_mib DOUBLE, process_cpu_limit_cores DOUBLE, process_memory_limit_mib DOUBLE)',
        run: 'STRUCT(id VARCHAR, labels STRUCT(team VARCHAR, project_name VARCHAR), tags MAP(VARCHAR, VARCHAR))',
        host: 'STRUCT(host_vcpus UBIGINT, host_memory_mib UBIGINT)',
        outcome: 'STRUCT(exit_code INTEGER, signal INTEGER, wall_secs DOUBLE)'
    });

-- One row for each run, worked out once: a table of the site's own.
CREATE OR REPLACE TABLE runs AS
SELECT
    run_id, any_value(job) AS job, any_value(host_name) AS host_name, min(date) AS date,
    any_value(run.labels.team) AS team, any_value(run.labels.project_name) AS project,
    any_value(run.tags['version']) AS version, any_value(run.tags['cost_centre']) AS cost_centre,
    count(*) AS samples, sum(elapsed_secs) AS secs,
    sum(coalesce(cpu.process_utime_secs, 0) + coalesce(cpu.process_stime_secs, 0)) AS cpu_secs,
    max(greatest(cpu.process_peak_memory_mib, cpu.process_rss_mib)) AS peak_mib,
    max(cpu.process_memory_limit_mib) AS limit_mib, max(cpu.process_cpu_limit_cores) AS limit_cores,
    any_value(outcome.exit_code) AS exit_code
FROM samples GROUP BY run_id;

-- Peak memory by job over time.
SELECT job, date_trunc('week', date) AS week, count(*) AS runs, max(peak_mib) AS peak_mib, quantile_cont(peak_mib, 0.95) AS p95_mib
FROM runs GROUP BY ALL ORDER BY peak_mib DESC LIMIT 20;

-- Over-allocation by team: what was asked for and not used, in GiB hours and core hours.
SELECT
    team, count(*) AS runs,
    sum((limit_mib - peak_mib) / 1024 * secs / 3600) AS unused_gib_hours,
    sum(limit_cores * secs - cpu_secs) / 3600 AS unused_core_hours,
    sum(peak_mib * secs) / sum(limit_mib * secs) AS memory_used_share, sum(cpu_secs) / sum(limit_cores * secs) AS cpu_used_share
FROM runs GROUP BY team ORDER BY unused_gib_hours DESC;

-- Cost by label: 4 cents for a core hour and half a cent for a GiB hour that were asked for.
SELECT cost_centre, project, sum(limit_cores * secs / 3600 * 0.04 + limit_mib / 1024 * secs / 3600 * 0.005) AS cost
FROM runs GROUP BY ALL ORDER BY cost DESC LIMIT 20;

-- Regressions between versions: jobs whose newest version takes a tenth more memory than the one before.
WITH each AS (SELECT job, version, median(peak_mib) AS mib, count(*) AS runs FROM runs WHERE exit_code = 0 GROUP BY ALL)
SELECT job, version, mib, lag(mib) OVER before AS before_mib, mib / lag(mib) OVER before AS ratio, runs
FROM each WINDOW before AS (PARTITION BY job ORDER BY version)
QUALIFY ratio > 1.1 ORDER BY ratio DESC LIMIT 20;
