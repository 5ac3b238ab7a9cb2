/*
 * log_commit.pml - two worker threads of one process write two keys of a logged range: sequences, frames, copies on two
 * memory nodes, acknowledgement, values that are not committed, outcomes that are unknown, connections that are lost,
 * death anywhere, and what a successor finds in the streams (L1 to L3, docs/internals/log.md; src/log/,
 * src/tree/logged.c). Nothing is merged here: that is log_merge.pml's. What is left out and why: docs/internals/models.md.
 *
 * Each write is a bit, and adds it to the value that it was decided by; a write of key 1 may depend on key 0, and takes
 * its bits along. So a value tells of all writes that it rests on. What was acknowledged or read must be in what the
 * successor finds; what was refused must not; and what key 1 took from key 0 must be in key 0.
 *
 * MUTANT=n takes one rule away; each must be refuted:
 *   1 acknowledged before the last copy is whole
 *   2 the sequence is drawn before the latch is taken
 *   3 a pending value is shown
 *   4 a write builds on a pending value of another frame
 *   5 a write depends on another key's pending value (in the same frame, too)
 *   6 a torn frame is believed
 *   7 a hole hides what lies behind it
 *   8 `committed` passes a hole
 *   9 a doubtful value is shown without being logged again
 *  10 told as refused though one copy may have it
 *  11 a refused write's value stays in the table
 *  12 after a refusal the table has nothing, instead of what it had before
 *  13 a record goes in a list of its own, not ahead of its frame
 *  14 what is doubtful counts as committed as soon as a refusal puts it back
 *  15 acknowledged when the frame is posted
 */
#ifndef MUTANT
#define MUTANT 0
#endif
#ifndef W /* writes */
#define W 3
#endif
#ifndef AGAIN /* doubtful values that a reader has logged again */
#define AGAIN 1
#endif
#ifndef LOSSES /* of connections to one of the two memory nodes */
#define LOSSES 2
#endif
#ifndef COPIES
#define COPIES 2
#endif
#ifndef NODE_LOSSES /* memory nodes that are gone, with their copies, when the successor reads */
#define NODE_LOSSES 1
#endif
#define F (W + AGAIN + 1)
#define BIT(n) (1 << (n))
#define IN(f, k) (2 * (f) + (k))

/* ---- the pool: a frame's state in each copy ---- */

#define NONE 0
#define SENT 1
#define WHOLE 2
#define REFUSED 3
#define LOST 4 /* nothing of it arrived */
#define TORN 5
#define UNHEARD 6 /* whole, and the connection was lost before the answer */
#define BARE 7    /* whole, without its record: mutation 13 */
byte copy[2 * F];
byte at[2 * F];     /* sequences of the frame's entries; 0: it has none of this key */
byte value[2 * F];  /* what they say */
byte writes_in[F], committed[F];
bool complete[F];

/* ---- the process ---- */

byte frames = 1, sequence, written, depends, again_left = AGAIN, losses_left = LOSSES;
bool linked[2] = 1;
bool over; /* it is dead: the successor has read */
#define COMMITTED 0
#define PENDING 1
#define DOUBTFUL 2
byte table[2], state[2], frame_of[2];     /* by key */
byte older[2], older_state[2];            /* what a refusal puts back */
byte open[2];                             /* by thread: its frame */
bool posted[2];

/* ---- the judge ---- */

byte known[2], refused, of_key[2];

#define AT(n, f) ((n) * F + (f))
#define BOTH(f, s) (copy[AT(0, f)] == s && copy[AT(1, f)] == s)
#define ONE(f, s) (copy[AT(0, f)] == s || copy[AT(1, f)] == s)
/* The connection to memory node n is lost, or cut. */
inline cut(n) {
    f = 1;
    do
    :: f < F && copy[AT(n, f)] == SENT ->
       if
       :: copy[AT(n, f)] = LOST
       :: copy[AT(n, f)] = TORN
       :: MUTANT == 13 -> copy[AT(n, f)] = BARE
       fi;
       f++
    :: f < F && copy[AT(n, f)] != SENT ->
       copy[AT(n, f)] = (copy[AT(n, f)] == WHOLE && !complete[f] -> UNHEARD : copy[AT(n, f)]);
       f++
    :: f == F -> break
    od;
    f = 0
}

#define MAY_BUILD(k, t) (state[k] != PENDING || frame_of[k] == open[t] || MUTANT == 4)
#define SAME(k, t) (state[k] == PENDING && frame_of[k] == open[t])
/* The entry of key k with the value v goes into thread t's frame. */
inline append(t, k, v) {
    frames = (open[t] -> frames : frames + 1);
    open[t] = (open[t] -> open[t] : frames - 1);
    older[k] = (SAME(k, t) -> older[k] : table[k]);
    older_state[k] = (SAME(k, t) -> older_state[k] : (state[k] == PENDING -> COMMITTED : state[k]));
    table[k] = v; state[k] = PENDING; frame_of[k] = open[t];
    at[IN(open[t], k)] = 1; value[IN(open[t], k)] = v
}
/* A frame's outcome, for its entry of key k. */
#define HAS(f, k) (at[IN(f, k)] && frame_of[k] == (f))
inline settle(f, k) {
    known[k] = known[k] | (all == COMMITTED -> value[IN(f, k)] : 0);
    d_step {
        if
        :: HAS(f, k) ->
           table[k] = (all != REFUSED || MUTANT == 11 -> table[k] : (MUTANT == 12 -> 0 : older[k]));
           state[k] = (all != REFUSED -> all : (MUTANT == 11 || MUTANT == 12 || MUTANT == 14 -> COMMITTED : older_state[k]));
           older[k] = 0; older_state[k] = 0; frame_of[k] = 0
        :: else
        fi
    }
}

proctype Worker(byte t) {
    byte f, k, all, bits;
#if MUTANT == 2
    byte mine;
#endif
end: do
#if MUTANT == 2
    :: atomic { !over && !posted[t] && written < W && !mine -> sequence++; mine = sequence }
    :: atomic { mine && !over && !posted[t] && written < W && (MAY_BUILD(0, t) || MAY_BUILD(1, t)) ->
#else
    :: atomic { !over && !posted[t] && written < W && (MAY_BUILD(0, t) || MAY_BUILD(1, t)) ->
#endif
           if
           :: MAY_BUILD(0, t) -> k = 0; bits = table[0] | BIT(written)
           :: MAY_BUILD(1, t) -> k = 1; bits = table[1] | BIT(written)
           :: MAY_BUILD(1, t) && (state[0] == COMMITTED || state[0] == PENDING && MUTANT == 5) ->
              k = 1; bits = table[1] | BIT(written) | table[0]
           fi;
           append(t, k, bits);
#if MUTANT == 2
           at[IN(open[t], k)] = mine;
#endif
           writes_in[open[t]] = writes_in[open[t]] | BIT(written);
           of_key[k] = of_key[k] | BIT(written);
           written++;
#if MUTANT == 2
           mine = 0;
#endif
           k = 0; bits = 0
       }
    :: atomic { !over && !posted[t] && again_left > 0 && MUTANT != 2 && (state[0] == DOUBTFUL || state[1] == DOUBTFUL) ->
           if
           :: state[0] == DOUBTFUL -> k = 0
           :: state[1] == DOUBTFUL -> k = 1
           fi;
           again_left--;
           append(t, k, table[k]);
           k = 0
       }
    :: atomic { !over && open[t] && !posted[t] -> /* group commit */
           posted[t] = 1;
#if MUTANT != 2
           sequence++; at[IN(open[t], 0)] = (at[IN(open[t], 0)] -> sequence : 0);
           sequence++; at[IN(open[t], 1)] = (at[IN(open[t], 1)] -> sequence : 0);
#endif
           copy[AT(0, open[t])] = (linked[0] -> SENT : REFUSED);
           copy[AT(1, open[t])] = (COPIES == 1 -> WHOLE : (linked[1] -> SENT : REFUSED));
           f = 1;
           do
           :: complete[f] || MUTANT == 8 && f < open[t] -> committed[open[t]] = f; f++
           :: else -> break
           od;
           f = 0;
#if MUTANT == 15
           known[0] = known[0] | value[IN(open[t], 0)];
           known[1] = known[1] | value[IN(open[t], 1)]
#endif
       }
    :: atomic { !over && posted[t] && (!ONE(open[t], SENT) || MUTANT == 1 && ONE(open[t], WHOLE)) ->
           f = open[t];
           if
           :: BOTH(f, WHOLE) || MUTANT == 1 && ONE(f, WHOLE) ->
              complete[f] = (MUTANT != 1);
              all = COMMITTED
           :: BOTH(f, REFUSED) || copy[AT(0, f)] == REFUSED && (COPIES == 1 || MUTANT == 10) ->
              refused = refused | writes_in[f];
              all = REFUSED
           :: else -> all = DOUBTFUL
           fi;
           settle(f, 0);
           settle(f, 1);
           open[t] = 0; posted[t] = 0; f = 0; all = 0
       }
    od
}

/* What a lookup answers. */
#define SHOWN(k) (state[k] == COMMITTED || state[k] == PENDING && MUTANT == 3 || state[k] == DOUBTFUL && MUTANT == 9)
#define LOOK(k) \
    d_step { !over && SHOWN(k) && table[k] != known[k] -> \
        assert((known[k] & table[k]) == known[k] && !(table[k] & refused)); \
        known[k] = table[k] }
proctype Reader() {
end: do
    :: LOOK(0)
    :: LOOK(1)
    od
}

#define ARRIVE(f) :: d_step { copy[AT(0, f)] == SENT && f < frames -> copy[AT(0, f)] = WHOLE } \
    :: d_step { copy[AT(1, f)] == SENT && f < frames -> copy[AT(1, f)] = WHOLE }
proctype Network() {
    byte f;
end: do
    ARRIVE(1)
    ARRIVE(2)
    ARRIVE(3)
#if F > 4
    ARRIVE(4)
#endif
    :: atomic { !over && losses_left > 0 && linked[0] -> losses_left--; linked[0] = 0; cut(0) }
    :: atomic { !over && losses_left > 0 && linked[1] && COPIES > 1 -> losses_left--; linked[1] = 0; cut(1) }
    :: d_step { !over && !linked[0] -> linked[0] = 1 }
    :: d_step { !over && !linked[1] -> linked[1] = 1 }
    od
}

/* It finds a frame where one of the copies that it reads has it whole; what is torn has no value. */
#define READ(s) (s == WHOLE || s == UNHEARD || s == BARE || s == TORN && MUTANT == 6)
#define THERE(f) (first && READ(copy[AT(0, f)]) || second && READ(copy[AT(1, f)]))
#define SOUND(s) (s == WHOLE || s == UNHEARD)
#define GOOD(f) (first && SOUND(copy[AT(0, f)]) || second && SOUND(copy[AT(1, f)]))
inline take(k) {
    if
    :: at[IN(f, k)] > seen[k] -> seen[k] = at[IN(f, k)]; found[k] = (GOOD(f) -> value[IN(f, k)] : 0)
    :: else
    fi
}
proctype Successor() {
    byte f, found[2], seen[2], top;
    bool first = 1, second = (COPIES > 1);
    atomic {
        over = 1;
        cut(0);
        cut(1);
        if
        :: skip
        :: COPIES > 1 && NODE_LOSSES -> first = 0
        :: COPIES > 1 && NODE_LOSSES -> second = 0
        fi;
        f = 1;
        do
        :: f < frames && THERE(f) ->
           take(0);
           take(1);
           top = (committed[f] > top -> committed[f] : top);
           f++
        :: f < frames && !THERE(f) && MUTANT != 7 -> f++
        :: f == frames || f < frames && !THERE(f) && MUTANT == 7 -> break
        od;
        assert((found[0] & known[0]) == known[0] && (found[1] & known[1]) == known[1]);
        assert(!(found[0] & refused) && !(found[1] & refused));
        assert((found[1] & of_key[0] & found[0]) == (found[1] & of_key[0]));
        f = 1;
        do
        :: f <= top -> assert(THERE(f)); f++ /* else: corrupt in the middle */
        :: else -> break
        od;
        f = 0; top = 0
    }
}

init {
    atomic {
        run Worker(0);
        run Worker(1);
        run Reader();
        run Network();
        run Successor()
    }
}
