/*
 * owner_move.pml - one range with one key that moves between two owners, 1 and 2: the map's entry, its version on the
 * board, adoption, read lease, fencing at two memory nodes (the home node, and the one that holds the leaf),
 * reconnects, cached values, reads of a third node from the pool (docs/internals/ownership.md; src/owner/,
 * src/tree/rights.h, src/fabric/peers.h). What is left out and why: docs/internals/models.md.
 *
 * Written values only grow, so a history is linearizable if no read returns less than what was acknowledged, or
 * returned by a read, before that read began; and a write that lands on a greater value is another owner's.
 *
 * MUTANT=n takes one rule away; each must be refuted:
 *   1 the initiator does not wait for the end of the read lease
 *   2 a cached value is an answer without a look at the lease (O2)
 *   3 a version is adopted with a write under way (O1)
 *   4 the owner that does not adopt is not fenced where the leaf lies
 *   5 it is not fenced at the home node, which lets its lease run out all the same
 *   6 readers do not wait for a write under way
 *   7 a new value is shown before its write is done
 *   8 a value stays in the cache when its write's outcome is unknown
 *   9 what is cached is not dropped when a version is adopted
 *  10 bytes are admitted to the cache though the leaf was written since they were fetched
 *  11 a version is adopted while a reader may still admit what it fetched
 *  12 echoes give the lease back though the map was not fetched after the reconnect
 *  13 an operation carries the incarnation of its own begin, not that of the table
 *  14 the version is read after the entry
 *  15 the version is published before the entry is written
 *  16 a finisher waits for the last version on the board instead of one of its own
 *  17 the epoch is not compared: a range that comes back is taken for the same
 *  18 the map names an id without an instance: a new process under an old id owns what that did
 *  19 the initiator waits for nothing once it has fenced: entries change before the old owner's lists are cut
 *  20 a range of a later epoch is the same if the map that is fetched is of that version: not the installed one
 *  21 ranges that become one get the earlier epoch
 */
#ifndef MUTANT
#define MUTANT 0
#endif
#ifndef W /* values written at most */
#define W 2
#endif
#ifndef MOVES /* of the range: there, and back */
#define MOVES 1
#endif
#ifndef GROWS /* in the end so many other ranges, which its owner gets later, become one with it */
#define GROWS 0
#endif
#ifndef FENCES /* of process 1, since it does not answer, at most */
#define FENCES 1
#endif
#ifndef LOSSES /* connections to the leaf's memory node that are lost while both ends live on */
#define LOSSES 0
#endif
#ifndef DEATHS /* of an initiator */
#define DEATHS 1
#endif
#ifndef REBORN /* process 1 ends at any moment, and another one with its id and another instance joins */
#define REBORN 0
#endif
#define max(a, b) ((a) > (b) -> (a) : (b))
#define NEW 3 /* the instance of the process that took the place of the first one, where REBORN */

/* ---- the pool and the board ---- */

byte pool, next_value = 1;
byte known; /* for the judge: the greatest value acknowledged or returned */
byte owner = 1, next, epoch; /* the map's entry; next: moving to that */
byte version, adopted[3];
byte map_lock;
byte moves_left = MOVES, grows_left = GROWS, fences_left = FENCES, losses_left = LOSSES, deaths_left = DEATHS;

/* ---- processes 1 and 2 ---- */

bool home[3] = 1, linked[3] = 1; /* connections to the home node, and to the leaf's memory node */
byte incarnation[3], since_home[3], since_leaf[3];
byte instance[3];
bool mine[3];  /* the installed table: the row's right, */
byte table[3]; /* version, epoch and incarnation */
byte table_epoch[3], table_incarnation[3], resumed[3];
bool lease[3] = 1; /* as the process counts */
bool has[3];
byte cache[3];
mtype = { NONE, SENT, DONE, LOST };
mtype list[3] = NONE;
byte value[3];
bool writing[3], reading[3];
bool undisturbed[3]; /* no write has begun since the reader fetched the leaf */

#define CUT(n) if :: list[n] != NONE -> list[n] = LOST :: else fi

/* A write takes effect at the memory node while its connection stands. */
proctype Network() {
end: do
    :: d_step { list[1] == SENT -> assert(pool < value[1]); pool = value[1]; list[1] = DONE }
    :: d_step { list[2] == SENT -> assert(pool < value[2]); pool = value[2]; list[2] = DONE }
    od
}

proctype Writer(byte n) {
    byte number;
end: do
    :: atomic { mine[n] && next_value <= W && !writing[n] ->
           writing[n] = 1;
           value[n] = next_value;
           next_value++;
           undisturbed[n] = 0;
           number = table_incarnation[n] }
#if MUTANT == 7
       cache[n] = value[n];
#endif
       atomic {
#if MUTANT == 13
           number = incarnation[n];
#endif
           if
           :: linked[n] && number >= since_leaf[n] -> list[n] = SENT
           :: else -> list[n] = LOST /* refused, or into a connection that is gone */
           fi;
           number = 0
       };
       atomic {
           list[n] == DONE || list[n] == LOST;
           if
           :: list[n] == DONE ->
              if
              :: has[n] -> cache[n] = value[n]
              :: else
              fi;
              known = max(known, value[n])
           :: else ->
#if MUTANT != 8
              has[n] = 0; cache[n] = 0
#else
              skip
#endif
           fi;
           list[n] = NONE; value[n] = 0; writing[n] = 0
       }
    od
}

/* A read that begins late is the strictest to judge: the look and the begin are one step. */
proctype Reader(byte n) {
    byte seen;
    bool old, fetched;
end: do
    :: atomic { mine[n] && has[n] && (!writing[n] || MUTANT == 6 || MUTANT == 7 && cache[n] == value[n]) -> reading[n] = 1; seen = cache[n]; old = (seen < known) };
       goto answer
    :: atomic { mine[n] && !has[n] ->
           reading[n] = 1; fetched = 1; seen = pool; old = (seen < known); undisturbed[n] = !writing[n] };
answer: atomic {
           if
           :: fetched || lease[n] || MUTANT == 2 -> assert(!old); known = max(known, seen)
           :: else /* a pause: it begins anew */
           fi;
           if
           :: fetched && linked[n] && (undisturbed[n] || MUTANT == 10) -> has[n] = 1; cache[n] = seen
           :: else
           fi;
           reading[n] = 0; seen = 0; old = 0; fetched = 0; undisturbed[n] = 0
       }
    od
}

/* O1, and G7's lease: heartbeats, reconnects. */
#define OWNED(n) (o == n && !x && (instance[n] != NEW || MUTANT == 18))
proctype Keeper(byte n) {
    byte v, i, o, x, e;
end: do
    :: atomic { version > table[n] || incarnation[n] != table_incarnation[n] ->
           i = incarnation[n];
           v = version };
       atomic {
           o = owner; x = next; e = epoch;
#if MUTANT == 14
       };
       atomic {
           v = version;
#endif
       };
       atomic {
           if
           :: OWNED(n) && mine[n] && (e == table_epoch[n] || e <= (MUTANT == 20 -> v : table[n]) || MUTANT == 17)
           :: else -> mine[n] = 0
           fi
       };
       atomic {
           mine[n] || (!writing[n] || MUTANT == 3) && (!reading[n] || MUTANT == 11);
           if
           :: !mine[n] && MUTANT != 9 -> has[n] = 0; cache[n] = 0; undisturbed[n] = 0
           :: else
           fi;
           mine[n] = OWNED(n);
           table[n] = v; table_epoch[n] = e; table_incarnation[n] = i; resumed[n] = i;
           if
           :: home[n] && v > adopted[n] -> adopted[n] = v
           :: else
           fi;
           o = 0; x = 0; e = 0; v = 0; i = 0
       }
    :: d_step { n == 1 && lease[1] && FENCES -> lease[n] = 0 } /* silent for longer than the lease, and may not know it */
    :: atomic { !lease[n] && home[n] && (resumed[n] >= since_home[n] || MUTANT == 12) -> lease[n] = 1 }
    :: d_step { !home[n] -> home[n] = 1; incarnation[n]++; since_home[n] = incarnation[n] }
    :: d_step { !linked[n] -> linked[n] = 1; incarnation[n]++; since_leaf[n] = incarnation[n] }
    :: d_step { home[n] && table[n] > adopted[n] && table_incarnation[n] == incarnation[n] -> adopted[n] = table[n] }
    :: d_step { losses_left > 0 && linked[n] -> losses_left--; linked[n] = 0; CUT(n) }
#if REBORN
    :: d_step { n == 1 && !instance[1] && !writing[1] && !reading[1] -> /* what it had under way is in Network's hands or cut */
           instance[1] = NEW; mine[1] = 0; has[1] = 0; cache[1] = 0; table[1] = 0; table_epoch[1] = 0;
           incarnation[1] = 1; table_incarnation[1] = 0; since_home[1] = 0; since_leaf[1] = 0; resumed[1] = 0;
           home[1] = 1; linked[1] = 1; lease[1] = 0; adopted[1] = 0 }
#endif
    od
}

/* A transfer, begun or finished. Its death frees the map lock; what it had sent is owner_map.pml's. */
#define may_die() \
    if \
    :: skip \
    :: atomic { deaths_left > 0 -> deaths_left--; map_lock = 0; goto end } \
    fi
#define GONE (REBORN && owner == 1 && instance[1] == NEW) /* the entry names a process that is not there */
#define OVER(n) (GONE || !lease[n] && (!home[n] || MUTANT == 5))
proctype Initiator(byte id) {
    byte v;
    bool begins;
    do
    :: atomic { map_lock == 0 && !next && !moves_left && grows_left > 0 ->
           grows_left--;
           map_lock = id;
           version++ }; /* with it another range has become its owner's, */
       atomic { epoch = (MUTANT == 21 -> 0 : version) }; /* and the two become one: the later epoch */
       atomic { version++; map_lock = 0 }
    :: atomic { map_lock == 0 && (next || moves_left > 0) -> map_lock = id };
       if
       :: next -> skip /* begun by another node */
       :: atomic { !next && moves_left > 0 ->
              moves_left--; begins = 1;
#if MUTANT == 15
              version++; v = version
          };
          atomic {
#endif
              next = 3 - owner }
       :: atomic { !next && moves_left == 0 -> map_lock = 0; goto end }
       fi;
       may_die();
       atomic {
           if
           :: MUTANT == 15 && v
           :: MUTANT == 16 && !begins -> v = version
           :: else -> version++; v = version
           fi
       };
       may_die();
       if
       :: atomic { !GONE && adopted[owner] >= v }
       :: atomic { fences_left > 0 && owner == 1 -> fences_left-- };
#if MUTANT != 5
          d_step { if :: !GONE -> home[owner] = 0 :: else fi };
#endif
          may_die();
#if MUTANT != 4 && MUTANT != 19
          d_step { if :: !GONE -> linked[owner] = 0; CUT(owner) :: else fi };
#endif
          may_die();
#if MUTANT != 1
          (OVER(owner) || !GONE && adopted[owner] >= v);
#endif
       fi;
       atomic { owner = next; next = 0; epoch = version + 1 }
#if MUTANT == 19
       d_step { linked[3 - owner] = 0; CUT(3 - owner) };
#endif
       may_die();
       atomic { version++; map_lock = 0; v = 0; begins = 0 }
    od;
end:
    skip
}

proctype Other() { /* reads the leaf in the pool: allowed while it is written through */
end: do
    :: d_step { pool != known -> assert(pool > known); known = pool }
    od
}

init {
    atomic {
        mine[1] = 1; has[1] = 1;
        run Network();
        run Writer(1);
        run Writer(2);
        run Reader(1);
        run Reader(2);
        run Keeper(1);
        run Keeper(2);
        run Initiator(1);
#if DEATHS
        run Initiator(2);
#endif
        run Other()
    }
}
