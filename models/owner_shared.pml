/*
 * owner_shared.pml - a leaf whose range is shared, then process 1's, then shared again: two processes write it under the
 * global lock, a third one joins at any moment, all that are on the board's table adopt, those that do not are fenced
 * (docs/internals/ownership.md; src/memory/board.c, src/owner/, src/tree/rights.h). What is left out and why:
 * docs/internals/models.md.
 *
 * The leaf is a counter: each write makes the next value of the one it was decided by, so a write that lands on any
 * other value has overwritten another process's.
 *
 * MUTANT=n takes one rule away; each must be refuted:
 *   1 a process that joins fetches the map before it is entered in the board's table
 *   2 the table is read before the entry says "moving"
 *   3 those must adopt that are connected to the home node, not those in the table
 *   4 a version is adopted with an operation under the global lock under way
 *   5 a process that does not adopt is fenced at the home node alone
 *   6 the next owner begins while the entry says "moving"
 *   7 others begin, under the global lock, while the entry says "moving" to shared
 *   8 a process that was fenced goes on with the table that it had, under a new connection
 *   9 a fenced process that connects anew fetches the map without being entered anew
 *  10 what is cached stays when the owner's range becomes shared
 *  11 goodbye is said with an operation under way
 *  12 a range that became shared is fetched into the cache
 *  13 a process that was entered anew while it was being fenced is taken off the table
 */
#ifndef MUTANT
#define MUTANT 0
#endif
#ifndef W /* writes, at most */
#define W 3
#endif
#ifndef MOVES /* shared to owned, and back */
#define MOVES 2
#endif
#ifndef FENCES /* processes 2 and 3, since they do not answer, at most */
#define FENCES 1
#endif
#ifndef LOSSES /* of process 2's connection to the home node */
#define LOSSES 1
#endif
#ifndef JOINS
#define JOINS 1
#endif
#ifndef GOODBYES /* of process 2 */
#define GOODBYES 0
#endif
#define PROCESSES (2 + JOINS)
#define BIT(n) (1 << (n))

/* ---- the pool and the board ---- */

byte pool, word; /* the leaf, and its global lock's holder */
byte known;      /* for the judge: the greatest value acknowledged */
byte owner, epoch; /* 0: shared */
bool moving;
byte version, adopted[4], members;
byte entered[4]; /* by which incarnation: what a process that came back has is another entry */

/* ---- processes ---- */

mtype = { NO_RIGHT, SHARED, OWNED, NONE, SENT, DONE, LOST };
mtype right[4] = NO_RIGHT;
byte table[4], table_epoch[4], table_incarnation[4];
bool joined[4];
bool home[4], linked[4]; /* connections to the home node, and to the leaf's memory node */
byte incarnation[4], since_leaf[4];
bool busy[4];
bool has[4];
byte cache[4];
mtype list[4] = NONE;
byte base[4]; /* by what the write was decided: it writes base + 1 */
bool free_too[4]; /* the list frees the lock behind its write */
byte fences_left = FENCES, losses_left = LOSSES, moves_left = MOVES, goodbyes_left = GOODBYES;

inline arrive(n) {
    assert(pool == base[n]);
    assert(!free_too[n] || word == n);
    pool++;
    if
    :: free_too[n] -> word = 0; free_too[n] = 0
    :: else
    fi;
    list[n] = DONE
}
proctype Network() {
end: do
    :: d_step { list[1] == SENT -> arrive(1) }
    :: d_step { list[2] == SENT -> arrive(2) }
    :: d_step { list[3] == SENT -> arrive(3) }
    od
}
inline fence_leaf(n) { /* G6: connections first, then its locks */
    linked[n] = 0;
    if
    :: list[n] != NONE -> list[n] = LOST; free_too[n] = 0
    :: else
    fi;
    if
    :: word == n -> word = 0
    :: else
    fi
}

#define ADMITTED(n) (linked[n] && (number >= since_leaf[n] || MUTANT == 8))
proctype Worker(byte n) {
    byte number;
    bool owned;
end: do
    :: atomic { right[n] != NO_RIGHT && pool < W ->
           busy[n] = 1; number = table_incarnation[n]; owned = (right[n] == OWNED) };
       if
       :: atomic { owned -> base[n] = (has[n] -> cache[n] : pool) }
       :: atomic { !owned && !ADMITTED(n) -> goto out }
       :: atomic { !owned && ADMITTED(n) && word == 0 ->
              word = n; base[n] = (MUTANT == 12 && has[n] -> cache[n] : pool) }
       fi;
       atomic {
           if
           :: ADMITTED(n) -> list[n] = SENT; free_too[n] = !owned
           :: else -> list[n] = LOST
           fi
       };
       atomic {
           list[n] == DONE || list[n] == LOST;
           if
           :: list[n] == DONE ->
              known = (base[n] + 1 > known -> base[n] + 1 : known);
              if
              :: owned || MUTANT == 12 -> has[n] = 1; cache[n] = base[n] + 1
              :: else
              fi
           :: else -> has[n] = 0; cache[n] = 0
           fi
       };
out:   atomic { busy[n] = 0; list[n] = NONE; base[n] = 0; owned = 0; number = 0 }
    od
}

/* What the entry gives process n; while it moves, `owner` has whom it goes to. */
#define GIVES(n) ((n) == o && (!m || MUTANT == 6) -> OWNED : (!o && (!m || MUTANT == 7) -> SHARED : NO_RIGHT))
proctype Keeper(byte n) {
    byte v, i, o, e;
    bool m;
end: do
    :: atomic { joined[n] && (version > table[n] || incarnation[n] != table_incarnation[n] || right[n] == NO_RIGHT && table[n] == 0) &&
               home[n] && !v && !i ->
#if MUTANT != 1
           if
           :: MUTANT != 9 || n == 3 && !table_incarnation[n] -> members = members | BIT(n); entered[n] = incarnation[n]
           :: else
           fi;
#endif
           i = incarnation[n];
           v = version };
       atomic {
           o = owner; m = moving; e = epoch
       };
#if MUTANT == 1
       d_step { members = members | BIT(n); entered[n] = incarnation[n] };
#endif
       atomic {
           if
           :: GIVES(n) == right[n] && e == table_epoch[n] -> skip
           :: else -> right[n] = NO_RIGHT
           fi
       };
       atomic {
           right[n] != NO_RIGHT || !busy[n] || MUTANT == 4;
           if
           :: right[n] == NO_RIGHT && MUTANT != 10 -> has[n] = 0; cache[n] = 0
           :: else
           fi;
           right[n] = GIVES(n);
           table[n] = v; table_epoch[n] = e; table_incarnation[n] = i;
           if
           :: v > adopted[n] -> adopted[n] = v
           :: else
           fi;
           o = 0; m = 0; e = 0; v = 0; i = 0
       }
    :: d_step { joined[n] && !home[n] -> home[n] = 1; incarnation[n]++ }
    :: d_step { joined[n] && !linked[n] -> linked[n] = 1; incarnation[n]++; since_leaf[n] = incarnation[n] }
    :: d_step { n == 2 && losses_left > 0 && home[n] -> losses_left--; home[n] = 0 }
    :: d_step { n == 3 && !joined[n] -> joined[n] = 1; home[n] = 1; linked[n] = 1; incarnation[n] = 1 }
    :: atomic { n == 2 && goodbyes_left > 0 && !v && !i && joined[n] && home[n] -> goodbyes_left--; joined[n] = 0; right[n] = NO_RIGHT };
       d_step { !busy[n] || MUTANT == 11 -> members = members & ~BIT(n) };
       break
    od
}

#define MUST(n) (who & BIT(n) && !(adopted[n] >= v))
inline wait_for(n) {
    if
    :: atomic { !MUST(n) }
    :: atomic { MUST(n) && fences_left > 0 -> fences_left--; stamp = entered[n]; home[n] = 0 };
#if MUTANT != 5
       d_step { fence_leaf(n) };
#endif
       d_step { if :: entered[n] == stamp || MUTANT == 13 -> members = members & ~BIT(n) :: else fi; stamp = 0 }
    fi
}
#define CONNECTED (home[1] * BIT(1) + home[2] * BIT(2) + home[3] * BIT(3))
proctype Initiator() {
    byte who, v, stamp;
    do
    :: moves_left == 0 -> break
    :: else ->
#if MUTANT == 2
       who = members;
#endif
       atomic { moves_left--; moving = 1; owner = 1 - owner };
       atomic { version++; v = version };
       if
       :: atomic { owner == 0 -> who = BIT(1) }
       :: atomic { owner == 1 ->
              if
              :: MUTANT == 2
              :: MUTANT == 3 -> who = CONNECTED
              :: else -> who = members
              fi }
       fi;
       atomic { !MUST(1) };
       wait_for(2);
       wait_for(3);
       atomic { moving = 0; epoch++ };
       atomic { version++; who = 0; v = 0 }
    od
}

/* The owner answers from its cache. */
proctype Reader() {
end: do
    :: d_step { right[1] == OWNED && has[1] && !busy[1] && cache[1] != known -> assert(cache[1] > known); known = cache[1] }
    od
}

init {
    atomic {
        right[1] = SHARED; right[2] = SHARED;
        joined[1] = 1; joined[2] = 1; home[1] = 1; home[2] = 1; linked[1] = 1; linked[2] = 1;
        members = BIT(1) | BIT(2);
        run Network();
        run Worker(1);
        run Worker(2);
        run Keeper(1);
        run Keeper(2);
#if JOINS
        run Worker(3);
        run Keeper(3);
#endif
        run Reader();
        run Initiator()
    }
}
