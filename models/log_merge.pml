/*
 * log_merge.pml - two keys of a logged range on their way from the streams to the leaf: the table of what is not merged,
 * merging, the watermark in two control blocks, slots of segments that are used again, records that are freed, and what
 * a successor makes of it when the process dies (L4 to L6, docs/internals/log.md; src/log/, src/tree/unmerged.c,
 * src/tree/logged.c). A commit is two steps here: the rest of it is log_commit.pml's. There are two mergers of each
 * entry, with THERE: the owner, which writes the leaf, and the memory node, which it asks to (MERGE; W7 to W10,
 * docs/internals/walks.md; src/tree/merging.c, src/memoryd/walks.c), with a queue in which requests may wait.
 * What is left out and why: docs/internals/models.md.
 *
 * Each write has a record, whose number is its value too: a key's values grow. No read returns less than what was
 * acknowledged, or returned, before it began, nor does the successor find less. A segment has one slot, for one entry.
 * No record is freed twice, or while the leaf, the table or the entry that a successor takes names it; without deaths
 * and losses none is left over.
 *
 * MUTANT=n takes one rule away; each must be refuted:
 *   1 a lookup looks into the leaf first, then into the table
 *   2 the table forgets an entry before the leaf has it
 *   3 the table forgets an entry though a newer one came
 *   4 the watermark counts an entry whose merging has begun
 *   5 the watermark is the greatest sequence that was merged
 *   6 a segment is used again as soon as its entries are merged
 *   7 a segment is used again before the watermark is published
 *   8 a segment is used again when one of the control blocks has the watermark
 *   9 a stream is read above the watermark of its own control block
 *  10 an entry below the watermark is done again
 *  11 the watermark passes an entry that a pending one is to replace
 *  12 the last sequence is read after the table
 *  13 a record is freed before the commit of what replaces it
 *  14 the write that replaces an entry frees its record though that is being merged
 *  15 a merge frees what it takes out of the leaf though it is what it puts there
 *  16 the successor frees the records of entries that newer ones replace
 *  17 two merges of a leaf at once: an older entry arrives behind a newer one
 *  18 an entry is chosen before the leaf's lock is taken
 *  19 a write does not free what it replaces in the table
 *  20 a merge does not free what it takes out of the leaf
 *  21 a blind write does not wait for a pending one
 *  22 a lookup of a logged range looks into the pool alone
 *  23 a record whose merge's outcome is unknown is freed by the write that replaces it
 *  24 the record of a write that was refused is not freed
 *  25 a segment is used again with a frame of it under way
 *  26 a frame does not say that its sequences are being drawn
 *  27 a request to merge that has not begun when its connection is lost is carried out all the same (W10)
 *  28 ... when its process is fenced, and the successor has begun
 *  29 the leaf's lock is let go of before the memory node has answered (W7)
 *  30 an entry whose request was refused counts as merged (W9)
 *  31 an entry whose request has an unknown outcome counts as merged (W9)
 *  32 the answer does not tell what the leaf held
 */
#ifndef MUTANT
#define MUTANT 0
#endif
#ifndef W /* writes */
#define W 3
#endif
#ifndef LOSSES /* frames with another outcome than "done" */
#define LOSSES 0
#endif
#ifndef MERGE_LOSSES /* merges with an unknown outcome */
#define MERGE_LOSSES 0
#endif
#ifndef AGAIN /* doubtful values that are logged again */
#define AGAIN 1
#endif
#ifndef MERGERS
#define MERGERS 1
#endif
#ifndef THERE /* the owner may ask the memory node to merge an entry */
#define THERE 0
#endif
#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef READS
#define READS 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef NODE_LOSSES /* control blocks that are gone when the successor reads; all else has copies */
#define NODE_LOSSES 0
#endif
#define S 3 /* slots; the stream of slot i is i % 2 */
#define BIT(n) (1 << (n))
#define max(a, b) ((a) > (b) -> (a) : (b))

/* ---- the pool ---- */

byte leaf[2];                /* by key: the record that it names */
byte at[S], key[S], entry[S]; /* by slot: sequence, key, record */
byte control[2];             /* the published watermark */
byte freed;                  /* records */

/* The memory node's queue: of each task that merges its one request; and one of a connection that is no more. */
#define IDLE 0
#define QUEUED 1
#define ANSWERED 2
#define BUSY 3
byte request[MERGERS], request_key[MERGERS], request_entry[MERGERS], request_took[MERGERS];
byte stray_key, stray; /* mutation 27 */

/* ---- the process ---- */

#define NONE 0
#define PENDING 1
#define COMMITTED 2
#define DOUBTFUL 3
#define UNDRAWN 0 /* sequences are drawn when a frame has its room; it says so before the counter moves */
#define DRAWING 254
byte state[2], table[2], sequence_of[2]; /* by key: the entry not merged yet */
bool begun[2];                           /* a merge of it was begun, so the leaf may name it */
byte older[2], older_sequence[2];        /* what it replaces, until its commit */
bool older_begun[2];
bool merging[2], latch[2];
byte own[S];      /* by slot: the sequence for which it is taken */
bool under_way[S];
bool done[S];     /* mutation 6 */
byte sequence, written, watermark, merged_last;
byte losses_left = LOSSES, merge_losses_left = MERGE_LOSSES, again_left = AGAIN;
bool over;
byte known[2];

#define FREED(r) (freed & BIT(r))
inline free_record(r) {
    assert(!FREED(r));
    assert(leaf[0] != r && leaf[1] != r && table[0] != r && table[1] != r && older[0] != r && older[1] != r);
    freed = freed | BIT(r)
}
#define USED_AGAIN(i) (MUTANT == 7 && own[i] <= watermark || MUTANT == 6 && done[i])
#define PUBLISHED(i) (own[i] <= control[0] && (own[i] <= control[1] || MUTANT == 8) || USED_AGAIN(i))
#define FREE(i) ((!under_way[i] || MUTANT == 25) && PUBLISHED(i))
#define SOME_FREE (FREE(0) || FREE(1) || FREE(2))
inline take_slot() {
    if
    :: FREE(0) -> i = 0
    :: FREE(1) -> i = 1
    :: FREE(2) -> i = 2
    fi;
    under_way[i] = 1; done[i] = 0
}
#define OK 0
#define UNKNOWN 1
#define REFUSED 2

/* The frame: it arrives or not, and what the process hears of it. */
inline transmit(k, r) {
    if
    :: at[i] = own[i]; key[i] = k; entry[i] = r; outcome = OK
    :: losses_left > 0 -> losses_left--; at[i] = own[i]; key[i] = k; entry[i] = r; outcome = UNKNOWN
    :: losses_left > 0 -> losses_left--; outcome = UNKNOWN
    :: losses_left > 0 -> losses_left--; outcome = REFUSED
    fi
}

/* The leaf may name what a write replaces in the table: the next merge takes it out. */
#define LEFT_TO_MERGE(k) (older_begun[k] && MUTANT != 14 && (merging[k] || MUTANT != 23))
#define SETTLED(k) (state[k] == NONE || state[k] == COMMITTED || state[k] == PENDING && MUTANT == 21)
#define MAY(k) (written < W && !latch[k] && SETTLED(k))
#define MUST(k) (again_left > 0 && !latch[k] && state[k] == DOUBTFUL)
proctype Writer() {
    byte k, i, mine, outcome, gone;
    bool again;
end: do
    :: atomic { !over && (MAY(0) || MAY(1) || MUST(0) || MUST(1)) ->
           if
           :: MAY(0) -> k = 0
           :: MAY(1) -> k = 1
           :: MUST(0) -> k = 0; again = 1
           :: MUST(1) -> k = 1; again = 1
           fi;
           if
           :: again -> again_left--; mine = table[k]
           :: else ->
              written++; mine = written;
              older[k] = table[k]; older_sequence[k] = sequence_of[k]; older_begun[k] = begun[k];
              begun[k] = 0
           fi;
           table[k] = mine; sequence_of[k] = UNDRAWN; state[k] = PENDING;
#if MUTANT == 13
           if
           :: older[k] && !older_begun[k] && !again -> gone = older[k]; older[k] = 0; free_record(gone); gone = 0
           :: else
           fi
#endif
       };
       atomic { !over && SOME_FREE -> /* room is reserved */
           take_slot();
           sequence_of[k] = (MUTANT == 26 -> UNDRAWN : DRAWING) };
       atomic { !over -> sequence++; own[i] = sequence };
       atomic { !over -> sequence_of[k] = own[i]; assert(!FREED(mine)); transmit(k, mine) };
       atomic { !over ->
           under_way[i] = 0;
           if
           :: outcome == OK ->
              known[k] = max(known[k], mine);
              if
              :: table[k] == mine ->
                 state[k] = COMMITTED;
                 gone = (LEFT_TO_MERGE(k) || MUTANT == 19 -> 0 : older[k]);
                 older[k] = 0; older_sequence[k] = 0; older_begun[k] = 0
              :: else
              fi
           :: outcome == UNKNOWN -> state[k] = DOUBTFUL
           :: outcome == REFUSED && !again ->
              if
              :: table[k] == mine ->
                 table[k] = older[k]; sequence_of[k] = older_sequence[k]; begun[k] = older_begun[k];
                 state[k] = (older[k] -> COMMITTED : NONE);
                 older[k] = 0; older_sequence[k] = 0; older_begun[k] = 0
              :: else
              fi;
              gone = (MUTANT == 24 -> 0 : mine)
           :: outcome == REFUSED && again -> state[k] = DOUBTFUL
           fi;
           if
           :: gone -> free_record(gone)
           :: else
           fi;
           k = 0; i = 0; mine = 0; outcome = 0; gone = 0; again = 0
       }
    od
}

/* A request that waits is carried out, or finds no room in the queue. With the connection, and at the latest before the
 * next owner begins, those go that have not begun (W10). */
inline serve(m) {
    if
    :: assert(!FREED(request_entry[m]));
       request_took[m] = leaf[request_key[m]]; leaf[request_key[m]] = request_entry[m];
       request[m] = ANSWERED;
       assert(!over || leaf[request_key[m]] >= known[request_key[m]])
    :: !over -> request[m] = BUSY
    fi
}
#define MAY_SERVE(m) (request[m] == QUEUED && (!over || MUTANT == 28))
proctype Node() {
end: do
    :: atomic { MAY_SERVE(0) -> serve(0) }
#if MERGERS > 1
    :: atomic { MAY_SERVE(1) -> serve(1) }
#endif
#if MUTANT == 27
    :: atomic { !over && stray -> leaf[stray_key] = stray; stray = 0; stray_key = 0 }
#endif
    od
}

/* Under the leaf's local lock. */
#define READY(k) (state[k] == COMMITTED && (!merging[k] || MUTANT == 17 || MUTANT == 18))
#define HEARD(m) (request[m] != QUEUED || merge_losses_left > 0)
proctype Merger(byte m) {
    byte k, mine, number, took;
    bool asks, lost, answered;
end: do
    :: atomic { !over && (READY(0) || READY(1)) ->
           if
           :: READY(0) -> k = 0
           :: READY(1) -> k = 1
           fi;
           mine = table[k]; number = sequence_of[k];
#if MUTANT == 18
       };
       atomic { !merging[k];
#endif
           merging[k] = 1;
           begun[k] = begun[k] || table[k] == mine;
#if THERE
           if
           :: asks = 1; request_key[m] = k; request_entry[m] = mine; request[m] = QUEUED;
              merging[k] = (MUTANT == 29 -> 0 : 1)
           :: true
           fi;
#endif
#if MUTANT == 2
           table[k] = 0; state[k] = NONE; sequence_of[k] = 0; begun[k] = 0
#endif
       };
#if THERE
       atomic { !over && (!asks || HEARD(m)) ->
           if
           :: asks && request[m] == ANSWERED -> answered = 1; took = (MUTANT == 32 -> 0 : request_took[m])
           :: asks && request[m] == BUSY -> answered = (MUTANT == 30 -> 1 : 0)
           :: asks && merge_losses_left > 0 ->
              merge_losses_left--; answered = 1; lost = (MUTANT == 31 -> 0 : 1);
#if MUTANT == 27
              if
              :: request[m] == QUEUED -> stray = mine; stray_key = k
              :: else
              fi
#endif
           :: !asks
           fi;
           request[m] = IDLE; request_key[m] = 0; request_entry[m] = 0; request_took[m] = 0; asks = 0
       };
#endif
       atomic { !over ->
           assert(!FREED(mine));
           if
           :: answered
           :: !answered -> took = leaf[k]; leaf[k] = mine
           :: !answered && merge_losses_left > 0 -> merge_losses_left--; lost = 1
           :: !answered && merge_losses_left > 0 -> merge_losses_left--; lost = 1; leaf[k] = mine
           fi
       };
       atomic { !over ->
           if
           :: !lost && state[k] == COMMITTED && (table[k] == mine || MUTANT == 3) ->
              table[k] = 0; state[k] = NONE; sequence_of[k] = 0; begun[k] = 0
           :: !lost && older[k] == mine ->
              older[k] = 0; older_sequence[k] = 0; older_begun[k] = 0
           :: else
           fi;
           merged_last = (lost -> merged_last : max(merged_last, number));
           done[0] = done[0] || !lost && own[0] == number;
           done[1] = done[1] || !lost && own[1] == number;
           done[2] = done[2] || !lost && own[2] == number;
           merging[k] = 0;
           if
           :: !lost && took && (took != mine || MUTANT == 15) && MUTANT != 20 -> free_record(took)
           :: else
           fi;
           k = 0; mine = 0; number = 0; took = 0; lost = 0; answered = 0
       }
    od
}

/* All up to which sequence is merged? */
#define NOT_MERGED(k) (older[k] && MUTANT != 11 -> older_sequence[k] : sequence_of[k])
#define LEAST(k) (state[k] == NONE || NOT_MERGED(k) == UNDRAWN || MUTANT == 4 && begun[k] -> 255 : NOT_MERGED(k))
#define LEAST_OF_ALL (LEAST(0) < LEAST(1) -> LEAST(0) : LEAST(1))
proctype Publisher() {
    byte last, least;
end: do
    :: atomic { !over && control[1] < sequence -> last = sequence };
       atomic { !over && LEAST(0) != DRAWING && LEAST(1) != DRAWING ->
           least = LEAST_OF_ALL;
#if MUTANT == 12
       };
       atomic { !over ->
           last = sequence;
#endif
           last = (MUTANT == 5 -> merged_last : (least <= last -> least - 1 : last));
           watermark = max(watermark, last);
           last = 0; least = 0
       };
       if
       :: atomic { !over && watermark > control[1] -> control[0] = watermark };
          atomic { !over -> control[1] = watermark }
       :: atomic { !over && watermark <= control[1] }
       fi
    od
}

proctype Reader() {
    byte k, start, seen, left = READS;
    bool hit;
end: do
    :: atomic { !over && left > 0 -> left--;
           if
           :: k = 0
           :: k = 1
           fi;
           start = known[k];
#if MUTANT == 1
           seen = leaf[k];
#endif
       };
       atomic { !over && (state[k] == COMMITTED || state[k] == NONE || MUTANT == 22) ->
           if
           :: state[k] == COMMITTED && MUTANT != 22 -> seen = table[k]; hit = 1
           :: else
           fi
       };
       atomic { !over ->
#if MUTANT != 1
           if
           :: !hit -> seen = leaf[k]
           :: else
           fi;
#endif
           assert(seen >= start);
           known[k] = max(known[k], seen);
           k = 0; start = 0; seen = 0; hit = 0
       }
    od
}

#define ABOVE(i) (at[i] && (at[i] > (MUTANT == 9 -> control[i % 2] : mark) || MUTANT == 10))
inline take(k) {
    i = 0;
    do
    :: i < S ->
       if
       :: ABOVE(i) && key[i] == k && at[i] > number -> number = at[i]; found = entry[i]
       :: else
       fi;
       i++
    :: i == S -> break
    od;
    assert((found -> found : leaf[k]) >= known[k] && !FREED(found -> found : leaf[k]));
#if MUTANT == 16
    i = 0;
    do
    :: i < S ->
       if
       :: ABOVE(i) && key[i] == k && entry[i] && entry[i] != found && entry[i] != leaf[k] -> free_record(entry[i])
       :: else
       fi;
       i++
    :: i == S -> break
    od;
#endif
    if /* and merged */
    :: found ->
       took = leaf[k]; leaf[k] = found;
       if
       :: took && (took != found || MUTANT == 15) -> free_record(took)
       :: else
       fi
    :: else
    fi;
    i = 0; number = 0; found = 0; took = 0
}
proctype Successor() {
    byte i, mark, number, found, took;
    atomic {
        over = 1;
        table[0] = 0; table[1] = 0; older[0] = 0; older[1] = 0;
        if
        :: mark = max(control[0], control[1])
        :: NODE_LOSSES -> mark = control[0]
        :: NODE_LOSSES -> mark = control[1]
        fi;
        take(0);
        take(1)
    }
}

/* All is merged, and each record is in the leaf or freed. */
proctype Judge() {
    byte r = 1;
    timeout ->
    atomic {
        assert(state[0] == NONE && state[1] == NONE && leaf[0] == known[0] && leaf[1] == known[1]);
        do
        :: r <= written -> assert((FREED(r) != 0) != (leaf[0] == r || leaf[1] == r)); r++
        :: else -> break
        od
    }
}

init {
    atomic {
        run Writer();
#if WRITERS > 1
        run Writer();
#endif
        run Merger(0);
#if MERGERS > 1
        run Merger(1);
#endif
#if THERE
        run Node();
#endif
        run Publisher();
        run Reader();
#if DEATHS
        run Successor()
#else
        run Judge()
#endif
    }
}
