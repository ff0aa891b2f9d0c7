/* A plugin in C: the temperature of every thermal zone of the machine, /sys/class/thermal/thermal_zoneN. */

#include "resource_tracker_plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ZONES 256

/* What an open source knows: where the zones are, and what each measures. */
struct thermal {
    char root[256];
    int count;
    struct zone { int number; char type[64]; } zones[ZONES];
};

static void fail(const rt_reply *reply, const char *message)
{
    rt_text text = { (const uint8_t *)message, strlen(message) };
    reply->fail(reply->context, text);
}

/* The first line of a file of a zone; empty when it cannot be read. */
static void read_line(const struct thermal *thermal, int number, const char *name, char *line, int size)
{
    char path[400];
    line[0] = 0;
    snprintf(path, sizeof path, "%s/class/thermal/thermal_zone%d/%s", thermal->root, number, name);
    FILE *file = fopen(path, "re");
    if (file && !fgets(line, size, file))
        line[0] = 0;
    if (file)
        fclose(file);
    line[strcspn(line, "\n")] = 0;
}

static int32_t thermal_open(const rt_source *own, const rt_host *host, rt_text config, void **state, const rt_reply *reply)
{
    (void)own, (void)config;
    struct thermal *thermal = calloc(1, sizeof *thermal);
    if (!thermal || host->sysfs.length >= sizeof thermal->root) {
        free(thermal);
        fail(reply, "no memory, or a path that is too long");
        return RT_FAILED;
    }
    memcpy(thermal->root, host->sysfs.bytes, host->sysfs.length);
    for (int number = 0; number < ZONES; number++) {
        struct zone *zone = &thermal->zones[thermal->count];
        read_line(thermal, number, "type", zone->type, sizeof zone->type);
        zone->number = number;
        /* It becomes JSON: what would have to be escaped is no name that a driver gives. */
        if (zone->type[0] && !strpbrk(zone->type, "\"\\"))
            thermal->count++;
    }
    if (thermal->count == 0) {
        free(thermal);
        return RT_ABSENT; /* no such hardware, which is no error */
    }
    *state = thermal;
    return RT_OK;
}

static int32_t thermal_collect(void *state, const rt_tick *tick, const rt_reply *reply)
{
    (void)tick;
    struct thermal *thermal = state;
    char text[160], line[32];
    for (int index = 0; index < thermal->count; index++) {
        struct zone *zone = &thermal->zones[index];
        read_line(thermal, zone->number, "temp", line, sizeof line);
        int length = snprintf(text, sizeof text, "%s{\"zone\":%d,\"type\":\"%s\",\"celsius\":",
                              index ? "," : "{\"thermal\":[", zone->number, zone->type);
        /* A zone that is switched off cannot be read. */
        length += line[0] ? snprintf(text + length, sizeof text - length, "%.3f}", atol(line) / 1000.0)
                          : snprintf(text + length, sizeof text - length, "null}");
        reply->write(reply->context, (rt_text){ (const uint8_t *)text, (size_t)length });
    }
    return reply->write(reply->context, (rt_text)RT_TEXT("]}")) ? RT_FAILED : RT_OK;
}

static const rt_source thermal = {
    .size = sizeof(rt_source),
    .name = RT_TEXT("thermal"),
    .description = RT_TEXT("Temperature of the machine's thermal zones"),
    .default_config = RT_TEXT("{}"),
    .flags = RT_SOURCE_ON_BY_DEFAULT,
    .order = 1000,
    .cadence_ns = RT_EVERY_TICK,
    .open = thermal_open,
    .collect = thermal_collect,
    .close = free,
};

static const rt_source *const sources[] = { &thermal };

static const rt_plugin plugin = {
    .size = sizeof(rt_plugin),
    .abi_major = RT_ABI_MAJOR,
    .abi_minor = RT_ABI_MINOR,
    .name = RT_TEXT("thermal"),
    .version = RT_TEXT("1.0.0"),
    .sections = RT_TEXT("{\"thermal\": {\"description\": \"Thermal zones.\", \"type\": \"array\", \"items\": {"
                        "\"type\": \"object\", \"properties\": {"
                        "\"zone\": {\"description\": \"Number of the zone.\", \"type\": \"integer\", \"kind\": \"info\"},"
                        "\"type\": {\"description\": \"What it measures.\", \"type\": \"string\", \"kind\": \"info\"},"
                        "\"celsius\": {\"description\": \"Its temperature.\", \"type\": [\"number\", \"null\"],"
                        " \"unit\": \"celsius\", \"kind\": \"gauge\"}}}}}"),
    .sources = sources,
    .source_count = 1,
};

const rt_plugin *resource_tracker_plugin(uint32_t abi_version)
{
    return abi_version >> 16 == RT_ABI_MAJOR ? &plugin : NULL;
}
