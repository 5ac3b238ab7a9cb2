/* recorder.c - see recorder.h. */
#include "swarm/recorder.h"

#include <stdio.h>
#include <stdlib.h>

#include "swarm/recorder_state.h"

void *recorder_allocate(void *old, size_t bytes)
{
    void *memory = realloc(old, bytes);
    if (!memory)
        abort();
    return memory;
}

/* Any record may be the first after a change of these. */
void recorder_note_state(struct recorder *recorder)
{
    const struct driver_setting *setting = &recorder->world->setting;
    recorder->recording->blamed = setting->blamed;
    if (setting->calm_ns && !recorder->calm && recorder->recording->texts) {
        struct record *record = recording_add(recorder->recording, RECORD_EVENT, setting->calm_ns);
        record->concern = RECORD_CHOOSES;
        record_add(record, "faults stop");
    }
    recorder->calm = setting->calm_ns != 0;
}

static void begin(void *context, struct world *world)
{
    struct recording *recording = context;
    struct error error;
    struct recorder *recorder = calloc(1, sizeof *recorder);
    if (!recorder)
        abort();
    recorder->recording = recording;
    recorder->world = world;
    recording->recorder = recorder;
    if (recording->more && recording->more->begin)
        recording->more->begin(recording->more->context, world);
    if (!world->sim || format_layout_init(&recorder->layout, &world->options.geometry, &error))
        return;
    const struct format_geometry *geometry = &recorder->layout.geometry;
    recorder->entries = recorder_allocate(NULL, FORMAT_ENTRIES_MAX * sizeof *recorder->entries);
    recorder->image = recorder_allocate(NULL, geometry->leaf_bytes + geometry->internal_bytes + 1024);
    recorder->key = (struct format_key){
        recorder->key_bytes,
        (uint32_t)driver_key(&world->setting.shape, recording->focus.key, recorder->key_bytes)};
    world->setting.look = recorder_look;
    world->setting.looker = recorder;
    sim_observe(world->sim, recorder_see, recorder);
}

static void end(void *context, struct world *world, const struct swarm_result *result)
{
    struct recording *recording = context;
    struct recorder *recorder = recording->recorder;
    recording->blamed = world->setting.blamed;
    recording->culprit = world->culprit;
    snprintf(recording->failure, sizeof recording->failure, "%s", world->error.text);
    world->setting.look = NULL;
    if (world->sim)
        sim_observe(world->sim, NULL, NULL);
    if (recording->more && recording->more->end)
        recording->more->end(recording->more->context, world, result);
    if (!recorder)
        return;
    format_layout_free(&recorder->layout);
    free(recorder->lanes);
    free(recorder->lane_of);
    free(recorder->image);
    free(recorder->entries);
    free(recorder);
    recording->recorder = NULL;
}

struct swarm_watch recorder_watch(struct recording *recording)
{
    return (struct swarm_watch){.begin = begin, .end = end, .context = recording};
}
