/* logged_store.c - see logged_store.h. */
#include "logged_store.h"

void logged_store_begin(struct logged_store *opened, struct processes *processes, const char *index,
                        uint64_t seed)
{
    struct error error = {0};
    struct process *process = process_begin(processes);
    *opened = (struct logged_store){.process = process};
    process_check(process,
                  store_open(&opened->store, process->session, index, process == &processes->all[0]));
    if (store_session_create(&opened->records, opened->store, process->session, &error))
        fail_msg("%s", error.text);
    store_session_seed(opened->records, seed);
    process_attach(process, store_tree(opened->store));
}

void logged_store_open(struct logged_store *opened, struct processes *processes, const char *index,
                       uint64_t seed)
{
    logged_store_begin(opened, processes, index, seed);
    process_own(processes, opened->process);
}

void logged_store_close(struct logged_store *opened)
{
    store_session_destroy(opened->records);
    store_close(opened->store);
    opened->process->tree = NULL; /* it was the store's */
}
