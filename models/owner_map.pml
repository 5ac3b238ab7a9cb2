/*
 * owner_map.pml - the map lock, a word on the board of the home node, and an entry of the map that lies at another
 * memory node: compute nodes that hold the lock, are fenced at the home node, and wake up or whose writes arrive late
 * (docs/internals/ownership.md; src/memory/board.c, src/owner/). What is left out and why: docs/internals/models.md.
 *
 * The entry is a counter: each write makes the next value of the one it was decided by, so a write that lands on any
 * other value is a late one.
 *
 * MUTANT=n takes one rule away; each must be refuted:
 *   1 the next holder does not fence its predecessor at the entry's memory node
 *   2 the board forgets the fenced holders as soon as it has told the next one of them
 *   3 it keeps the last of them alone
 *   4 an unlock does not name its grant
 *   5 the entry is read before the predecessors are fenced
 *   6 a list carries the incarnation of its own time, not of its operation's begin
 *   7 the board takes the word of a former holder that predecessors are fenced
 *   8 a holder that is fenced keeps the lock for ever
 */
#ifndef MUTANT
#define MUTANT 0
#endif
#ifndef FENCES /* of some compute node at the home node */
#define FENCES 3
#endif
#ifndef ROUNDS /* changes of the entry by each compute node */
#define ROUNDS 1
#endif
#ifndef NODES
#define NODES 3
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#define BIT(n) (1 << (n))

/* ---- the board, and the entry ---- */

byte holder, grant;
byte orphans; /* holders that were fenced, a bit each, until they are fenced everywhere */
byte entry;
byte fences_left = FENCES, deaths_left = DEATHS;

/* ---- compute nodes ---- */

bool home[4] = 1, linked[4] = 1; /* connections to the home node, and to the entry's memory node */
byte incarnation[4], since_entry[4];
bool dead[4];
mtype = { NONE, SENT, DONE, LOST };
mtype list[4] = NONE;
byte base[4]; /* by what the write was decided: it writes base + 1 */

inline arrive(n) {
    assert(entry == base[n]);
    entry++;
    list[n] = DONE;
    base[n] = 0
}
proctype Network() {
end: do
    :: d_step { list[1] == SENT -> arrive(1) }
    :: d_step { list[2] == SENT -> arrive(2) }
    :: d_step { list[3] == SENT -> arrive(3) }
    od
}

#define LET_GO(n) \
    if \
    :: holder == n && MUTANT != 8 -> holder = 0; orphans = (MUTANT == 3 -> BIT(n) : orphans | BIT(n)) \
    :: else \
    fi

/* The home node fences: a lease ran out, a connection was lost, the process is dead. */
proctype Home(byte n) {
end: do
    :: d_step { home[n] && fences_left > 0 -> fences_left--; home[n] = 0; LET_GO(n) }
    :: d_step { home[n] && dead[n] -> home[n] = 0; LET_GO(n) }
    :: d_step { !home[n] && !dead[n] -> home[n] = 1; incarnation[n]++ }
    :: d_step { !linked[n] && !dead[n] -> linked[n] = 1; incarnation[n]++; since_entry[n] = incarnation[n] }
    od
}

#define may_die() \
    if \
    :: skip \
    :: atomic { deaths_left > 0 -> deaths_left--; dead[id] = 1; goto end } \
    fi
inline fence(n) {
    d_step {
        if
        :: told & BIT(n) && id != n && MUTANT != 1 ->
           linked[n] = 0;
           if
           :: list[n] != NONE -> list[n] = LOST; base[n] = 0
           :: else
           fi
        :: else
        fi
    }
}

proctype Initiator(byte id) {
    byte number, mine, told, left = ROUNDS;
    do
    :: left == 0 -> break
    :: else ->
       left--;
       number = incarnation[id];
       atomic {
           home[id] && holder == 0 ->
           holder = id;
           grant++;
           mine = grant;
           told = orphans;
           if
           :: MUTANT == 2 -> orphans = 0
           :: else
           fi
       };
       may_die();
#if MUTANT == 5
       base[id] = entry;
#endif
       fence(1);
       fence(2);
       fence(3);
       may_die();
       d_step { /* a call to the home node, which does nothing where the caller was fenced */
           if
           :: home[id] && holder == id && grant == mine -> orphans = orphans & ~told
           :: home[id] && !(holder == id && grant == mine) && MUTANT == 7 -> orphans = 0
           :: else
           fi
       };
#if MUTANT != 5
       base[id] = entry;
#endif
       may_die();
       d_step {
#if MUTANT == 6
           number = incarnation[id];
#endif
           if
           :: linked[id] && number >= since_entry[id] -> list[id] = SENT
           :: else -> list[id] = LOST; base[id] = 0
           fi
       };
       may_die();
       atomic { list[id] == DONE || list[id] == LOST -> list[id] = NONE };
       may_die();
       d_step { /* it is repeated until the home node has heard it, if need be after a reconnect */
           home[id] ->
           if
           :: MUTANT == 4 || holder == id && grant == mine -> holder = 0
           :: else
           fi;
           number = 0; mine = 0; told = 0
       }
    od;
end:
    skip
}

/* When all have ended the lock is free. */
proctype Judge() { timeout -> assert(holder == 0) }

init {
    atomic {
        run Network();
        run Home(1);
        run Home(2);
        run Initiator(1);
        run Initiator(2);
#if NODES > 2
        run Home(3);
        run Initiator(3);
#endif
        run Judge()
    }
}
