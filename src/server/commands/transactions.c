/*
 * transactions.c - MULTI and its kin, which are refused such that nothing of a transaction happens: MULTI is
 * accepted, so that every client is in the state that it expects; each command after it is answered by an
 * error that says so (execute.c); EXEC is EXECABORT. An error in reply to MULTI itself would leave clients
 * that then send no EXEC with a connection that does nothing, and others would carry on outside of any
 * transaction. On a fiber of the connection's thread; errors in the words of Redis 7.
 */
#include "server/commands/functions.h"
#include "server/connection.h"

void multi_run(struct server_call *call)
{
    if (call->connection->multi) {
        resp_error(call->reply, "ERR MULTI calls can not be nested");
        return;
    }
    call->connection->multi = true;
    resp_simple(call->reply, "OK");
}

void exec_run(struct server_call *call)
{
    if (!call->connection->multi) {
        resp_error(call->reply, "ERR EXEC without MULTI");
        return;
    }
    call->connection->multi = false;
    resp_error(call->reply, "EXECABORT Transaction discarded because of previous errors.");
}

void discard_run(struct server_call *call)
{
    if (!call->connection->multi) {
        resp_error(call->reply, "ERR DISCARD without MULTI");
        return;
    }
    call->connection->multi = false;
    resp_simple(call->reply, "OK");
}

void watch_run(struct server_call *call)
{
    if (call->connection->multi)
        resp_error(call->reply, "ERR WATCH inside MULTI is not allowed");
    else
        resp_error(call->reply, "ERR WATCH is not supported, as transactions are not");
}

/* Nothing is watched, so this is true. */
void unwatch_run(struct server_call *call)
{
    resp_simple(call->reply, "OK");
}
