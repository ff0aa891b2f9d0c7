-- ClickHouse over what sink `s3` wrote. {objects} is the table function of the bucket, such as
--   s3('https://my-bucket.s3.amazonaws.com/runs/**/*.jsonl.gz', 'JSONEachRow', '{columns}')
-- with these columns:
--   timestamp_ms UInt64, elapsed_secs Float64,
--   cpu Tuple(process_utime_secs Nullable(Float64), process_stime_secs Nullable(Float64), process_rss_mib Nullable(Float64),
--     process_peak_memory_mib Nullable(Float64), process_cpu_limit_cores Nullable(Float64), process_memory_limit_mib Nullable(Float64)),
--   run Tuple(labels Tuple(team Nullable(String), project_name Nullable(String)), tags Map(String, String)),
--   outcome Tuple(exit_code Nullable(Int32))

-- One row for each run, worked out once: a table of the site's own.
CREATE TABLE runs ENGINE = MergeTree ORDER BY (job, date) AS
SELECT
    run_id, any(job) AS job, any(host_name) AS host_name, min(toDate(date)) AS date,
    any(run.labels.team) AS team, any(run.labels.project_name) AS project,
    anyIf(run.tags['version'], mapContains(run.tags, 'version')) AS version,
    anyIf(run.tags['cost_centre'], mapContains(run.tags, 'cost_centre')) AS cost_centre,
    count() AS samples, sum(elapsed_secs) AS secs,
    sum(ifNull(cpu.process_utime_secs, 0) + ifNull(cpu.process_stime_secs, 0)) AS cpu_secs,
    max(greatest(ifNull(cpu.process_peak_memory_mib, 0), ifNull(cpu.process_rss_mib, 0))) AS peak_mib,
    max(cpu.process_memory_limit_mib) AS limit_mib, max(cpu.process_cpu_limit_cores) AS limit_cores,
    any(outcome.exit_code) AS exit_code
FROM {objects} GROUP BY run_id
SETTINGS use_hive_partitioning = 1, input_format_skip_unknown_fields = 1;

-- Peak memory by job over time.
SELECT job, toMonday(date) AS week, count() AS runs, max(peak_mib) AS peak, quantile(0.95)(peak_mib) AS p95_mib
FROM runs GROUP BY job, week ORDER BY peak DESC LIMIT 20;

-- Over-allocation by team: what was asked for and not used, in GiB hours and core hours.
SELECT
    team, count() AS runs,
    sum((limit_mib - peak_mib) / 1024 * secs / 3600) AS unused_gib_hours,
    sum(limit_cores * secs - cpu_secs) / 3600 AS unused_core_hours,
    sum(peak_mib * secs) / sum(limit_mib * secs) AS memory_used_share, sum(cpu_secs) / sum(limit_cores * secs) AS cpu_used_share
FROM runs GROUP BY team ORDER BY unused_gib_hours DESC;

-- Cost by label: 4 cents for a core hour and half a cent for a GiB hour that were asked for.
SELECT cost_centre, project, sum(limit_cores * secs / 3600 * 0.04 + limit_mib / 1024 * secs / 3600 * 0.005) AS cost
FROM runs GROUP BY cost_centre, project ORDER BY cost DESC LIMIT 20;

-- Regressions between versions: jobs whose newest version takes a tenth more memory than the one before.
SELECT job, version, mib, before_mib, mib / before_mib AS ratio, runs
FROM (
    SELECT job, version, mib, runs, lagInFrame(mib) OVER (PARTITION BY job ORDER BY version) AS before_mib
    FROM (SELECT job, version, median(peak_mib) AS mib, count() AS runs FROM runs WHERE exit_code = 0 GROUP BY job, version)
)
WHERE before_mib > 0 AND ratio > 1.1 ORDER BY ratio DESC LIMIT 20;
