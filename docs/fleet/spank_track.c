/* Runs every task of every job under the tracker: a plugin for Slurm's plug-in stack (SPANK).
 *
 *   cc -shared -fPIC -o spank_track.so spank_track.c
 *   plugstack.conf:  required /usr/lib/slurm/spank_track.so /usr/local/bin/resource-tracker /var/lib/runs
 *
 * It is called in the task, as its user, just before Slurm would execute the command. If the tracker cannot be executed, the task
 * runs without it. Where recordings go, and how often samples are taken, is said in /etc/resource-tracker.toml as well.
 */
#include <slurm/spank.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SPANK_PLUGIN(resource_tracker, 1);

int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
    char **command, **environment, file[4096], step_name[24];
    int words = 0, n = 0;
    uint32_t job = 0, step = 0, rank = 0;

    if (count < 2 || spank_get_item(spank, S_JOB_ARGV, &words, &command) || words < 1
        || spank_get_item(spank, S_JOB_ENV, &environment) || spank_get_item(spank, S_JOB_ID, &job)
        || spank_get_item(spank, S_JOB_STEPID, &step) || spank_get_item(spank, S_TASK_GLOBAL_ID, &rank))
        return ESPANK_SUCCESS;
    /* The script of a batch job is a step of its own. */
    if (step == 0xfffffffbu)
        strcpy(step_name, "batch");
    else
        snprintf(step_name, sizeof step_name, "%u", step);
    snprintf(file, sizeof file, "%s/%u-%s-%u.jsonl", arguments[1], job, step_name, rank);

    char **tracked = calloc(words + 6, sizeof *tracked);
    if (!tracked)
        return ESPANK_SUCCESS;
    tracked[n++] = arguments[0];
    tracked[n++] = "-q";
    tracked[n++] = "-o";
    tracked[n++] = file;
    tracked[n++] = "--";
    memcpy(tracked + n, command, words * sizeof *tracked);
    execve(arguments[0], tracked, environment);
    return ESPANK_SUCCESS;
}
