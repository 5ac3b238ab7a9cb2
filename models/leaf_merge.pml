/*
 * leaf_merge.pml - two neighbouring leaves become one (docs/internals/tree.md, R7, R1, R2, R5; src/tree/merge.c, modify.c,
 * unlink.c, lookup.c, scan.c). What is left out and why: docs/internals/models.md.
 *
 * L is a live leaf with key C, and names R, its right neighbour, with key D. A merge moves D into L and gives R up. C has
 * one slot; D may lie in either of two slots of L. All writes of a merge are steps of their own, those of a leaf's body in
 * any order, so the model does not ask whether the leaves share a memory node. A lock may be lost to a task that lives on
 * (its memory node has fenced it): then that memory node refuses what the task still sends under it.
 *
 * MUTANT=n takes one rule away; each must be refuted:
 *   1 R is not marked as frozen
 *   2 a writer changes a frozen leaf
 *   3 L is not marked while its slots are written
 *   4 R is emptied under the version that it had
 *   5 who finishes a merge puts the entries into other slots
 *   6 L covers R's range before R is emptied
 *   7 who finishes a merge copies again from R, though that is half empty
 *   8 a frozen leaf is made live again without a look at its left neighbour
 *   9 a merge does without R's lock
 *  10 R is dead before it is empty
 *  11 R leaves its parent while L is still marked
 *  12 L keeps its version
 *  13 R is emptied though the list to L was refused
 *  14 a miss may come from an R that is dead
 *  15 a frozen leaf is made live again though its left neighbour's lock may have been lost before its own was taken
 */
#ifndef MUTANT
#define MUTANT 0
#endif
#ifndef OPERATIONS /* of the writer */
#define OPERATIONS 1
#endif
#ifndef CUTS /* deaths */
#define CUTS 1
#endif
#ifndef LOSSES /* of one lock each */
#define LOSSES 0
#endif
#ifndef READS /* 0 any, 1 lookups, 2 scans, 3 none */
#define READS 0
#endif
#ifndef MERGERS
#define MERGERS 1
#endif
#ifndef WRITERS
#define WRITERS 1
#endif
#ifndef SPARE /* 1: another merger, which may do what the first one leaves by its death */
#define SPARE 0
#endif
#ifndef OWN /* 1: C is written and read, 0: D */
#define OWN 0
#endif

/* ---- memory ---- */

mtype = { LIVE, FROZEN, MERGING, DEAD };
#define L 0
#define R 1
mtype state[2];
byte version[2]; /* in the header */
byte head[2];    /* in the bucket */
bool wide;       /* L's header: it covers D's range, and does not name R */
/* Slots: C's in L, two for D in L, D's in R. A torn one is of no version. */
#define SC 0
#define SD 1
#define SE 2
#define SR 3
#define TORN 99
bool taken[4];
byte value[4], of_version[4];
bool entry = 1; /* of the parent, to R */
bool freed;     /* R */
byte lock[2];

/* ---- the truth about the key that is written ---- */

bool present = 1;
byte last = 1, absences = 0;
byte cuts_left = CUTS, losses_left = LOSSES;

inline may_die() {
#if CUTS
    if
    :: atomic { cuts_left > 0 -> cuts_left--; goto gone }
    :: skip
    fi;
#endif
#if LOSSES
    if
    :: atomic { losses_left > 0 && lock[L] == _pid -> losses_left--; lock[L] = 0; lost[L] = 1 }
    :: atomic { losses_left > 0 && lock[R] == _pid -> losses_left--; lock[R] = 0; lost[R] = 1 }
    :: skip
    fi
#else
    skip
#endif
}
inline unlock(a) {
    d_step {
        if
        :: lock[a] == _pid -> lock[a] = 0
        :: else
        fi;
        lost[a] = 0
    }
}
/* The right leaf's, while the left one's is held: if it is free at once. */
inline try_right() {
#if MUTANT == 9
    held = 1
#else
    d_step {
        if
        :: lock[R] == 0 -> lock[R] = _pid; held = 1
        :: else -> held = 0
        fi
    }
#endif
}
#define WHOLE (head[R] == version[R] && of_version[SR] == version[R])
#define NEW_R (MUTANT == 4 -> version[R] : version[R] + 1)

/* ---- writers and mergers ---- */

mtype = { FREEZE, COPY, EMPTY, CONCLUDE };

proctype Task(byte left; bool merger) {
    byte at, target;
    bool put, held, lost[2], seen, unlinks, did_own, did_first, did_second, did_head, tore;
    mtype stage = FREEZE;
    do
    :: left == 0 -> break
    :: else ->
       left--;
       if
       :: merger ->
          atomic { lock[L] == 0 -> lock[L] = _pid }
          seen = (state[L] == LIVE && !wide);
          may_die();
          try_right();
          if
          :: held && seen && state[R] == LIVE ->
             stage = FREEZE; goto writing
          :: else -> goto give_up
          fi
       :: !merger
       fi;
       if
       :: put = 1
       :: put = 0
       fi;
again: /* by whatever link it has */
       if
       :: at = L
       :: !OWN && !freed -> at = R
       fi;
       atomic { lock[at] == 0 -> lock[at] = _pid }
       may_die();
       if
       :: lost[at] -> unlock(at); goto again
       :: else
       fi;
       if
       :: at == R && (state[R] == DEAD || freed) -> unlock(R); unlinks = 1; goto left_leaf
       :: at == R && state[R] == FROZEN && MUTANT != 2 -> unlock(R); goto left_leaf
       :: at == R && (state[R] == LIVE || MUTANT == 2 && state[R] == FROZEN) ->
          assert(WHOLE && present == taken[SR] && (!present || value[SR] == last)); /* it decides by this */
          if
          :: put -> d_step { last++; present = 1; taken[SR] = 1; value[SR] = last; of_version[SR] = version[R] }
          :: else -> d_step { if :: present -> present = 0; absences++ :: else fi; taken[SR] = 0; of_version[SR] = version[R] }
          fi;
          goto give_up
       :: at == L && state[L] == MERGING -> goto finish
       :: at == L && state[L] == LIVE && (wide || OWN) ->
          if
          :: OWN -> target = SC
          :: !OWN && taken[SE] -> target = SE
          :: !OWN && !taken[SE] -> target = SD
          fi;
          assert(head[L] == version[L] && of_version[target] == version[L] && present == (taken[SD] && !OWN || taken[target]) &&
                 (!present || value[target] == last));
          if
          :: put ->
             d_step { last++; present = 1; taken[target] = 1; value[target] = last; of_version[target] = version[L] }
          :: else -> d_step { if :: present -> present = 0; absences++ :: else fi; taken[target] = 0; of_version[target] = version[L] }
          fi;
          goto give_up
       :: at == L && state[L] == LIVE && !wide && !OWN -> /* walk right, in time */
          unlock(L); goto again
       fi;

left_leaf: /* R is frozen or dead: what has become of the merge? */
#if MUTANT == 8
       if
       :: state[R] == FROZEN ->
          atomic { lock[R] == 0 -> lock[R] = _pid }
          d_step { if :: state[R] == FROZEN -> state[R] = LIVE :: else fi }
          unlock(R);
          goto again
       :: else
       fi;
#endif
       atomic { lock[L] == 0 -> lock[L] = _pid }
       may_die();
       if
       :: lost[L] -> goto yield
       :: !lost[L] && state[L] == MERGING && !(MUTANT == 11 && unlinks) -> goto finish
       :: !lost[L] && (state[L] != MERGING || MUTANT == 11 && unlinks) && unlinks ->
          unlock(L);
          goto drop
       :: !lost[L] && state[L] == LIVE && !unlinks -> skip
       fi;
       if
       :: wide -> goto yield
       :: else
       fi;
       may_die();
       try_right();
       if
       :: !held || lost[L] && MUTANT != 15 -> goto yield /* R's lock is held: only now is it certain that L is as it was */
       :: else
       fi;
       may_die();
       if
       :: atomic { !lost[R] && state[R] == FROZEN -> state[R] = LIVE }
       :: else
       fi;
yield:
       unlock(R);
       unlock(L);
       goto again;

finish: /* L's lock is held, and it is marked */
       may_die();
       try_right();
       if
       :: !held -> goto yield
       :: held && state[R] == DEAD -> stage = CONCLUDE
       :: held && state[R] != DEAD && (WHOLE || MUTANT == 7) -> stage = COPY
       :: held && state[R] != DEAD && !(WHOLE || MUTANT == 7) -> stage = EMPTY
       fi;

writing: /* both locks are held */
       target = SD;
       if
       :: stage == FREEZE ->
          may_die();
          if
          :: lost[R] -> goto give_up
          :: else
          fi;
#if MUTANT != 1
          state[R] = FROZEN;
#endif
          may_die();
          if
          :: atomic { !lost[L] ->
#if MUTANT != 3
             state[L] = MERGING;
#endif
#if MUTANT != 12
             version[L]++;
#endif
             stage = COPY }
          :: lost[L] ->
#if MUTANT == 13
             stage = EMPTY
#else
             goto give_up
#endif
          fi
       :: else ->
#if MUTANT == 5
          target = SE
#else
          skip
#endif
       fi;
       if
       :: stage == COPY ->
          do
          :: d_step { !lost[L] && !did_own -> of_version[SC] = version[L]; did_own = 1 }
          :: d_step { !lost[L] && !did_head -> head[L] = version[L]; did_head = 1 }
          :: d_step { !lost[L] && !did_second ->
                 taken[3 - target] = 0; of_version[3 - target] = version[L]; did_second = 1 }
          :: d_step { !lost[L] && !did_first && !tore && taken[SR] && of_version[target] != version[L] ->
                 taken[target] = 1; of_version[target] = TORN; tore = 1 }
          :: d_step { !lost[L] && !did_first && (tore || !taken[SR] || of_version[target] == version[L]) ->
                 taken[target] = taken[SR]; value[target] = value[SR]; of_version[target] = version[L]; did_first = 1 }
          :: atomic { lost[L] -> goto give_up }
#if CUTS
          :: atomic { cuts_left > 0 -> cuts_left--; goto gone }
#endif
#if LOSSES
          :: d_step { losses_left > 0 && lock[L] == _pid -> losses_left--; lock[L] = 0; lost[L] = 1 }
          :: d_step { losses_left > 0 && lock[R] == _pid -> losses_left--; lock[R] = 0; lost[R] = 1 }
#endif
          :: atomic { did_own && did_head && did_first && did_second -> break }
          od;
          atomic { did_own = 0; did_head = 0; did_first = 0; did_second = 0; tore = 0; stage = EMPTY }
       :: else
       fi;
#if MUTANT == 6
       if
       :: atomic { !lost[L] -> state[L] = LIVE; wide = 1 }
       :: lost[L] -> goto give_up
       fi;
#endif
       if
       :: stage == EMPTY ->
#if MUTANT == 10
          may_die();
          if
          :: atomic { !lost[R] -> state[R] = DEAD }
          :: lost[R] -> goto give_up
          fi;
#endif
          do
          :: d_step { !lost[R] && !did_head -> head[R] = NEW_R; did_head = 1 }
          :: d_step { !lost[R] && !did_first -> taken[SR] = 0; of_version[SR] = NEW_R; did_first = 1 }
          :: atomic { lost[R] -> goto give_up }
#if CUTS
          :: atomic { cuts_left > 0 -> cuts_left--; goto gone }
#endif
#if LOSSES
          :: d_step { losses_left > 0 && lock[L] == _pid -> losses_left--; lock[L] = 0; lost[L] = 1 }
          :: d_step { losses_left > 0 && lock[R] == _pid -> losses_left--; lock[R] = 0; lost[R] = 1 }
#endif
          :: atomic { did_head && did_first -> break }
          od;
          atomic { did_head = 0; did_first = 0 };
          may_die();
          if
          :: atomic { !lost[R] -> state[R] = DEAD; version[R] = NEW_R }
          :: lost[R] -> goto give_up
          fi;
          stage = CONCLUDE
       :: else
       fi;
       may_die();
       unlock(R);
       may_die();
       if
       :: atomic { !lost[L] -> state[L] = LIVE; wide = 1 }
       :: lost[L] -> goto give_up
       fi;
       may_die();
       unlock(L);
       if
       :: merger || unlinks -> goto drop
       :: else -> goto again
       fi;

drop: /* the parent's entry goes, under the parent's lock; who removes it frees R */
       may_die();
       atomic {
           if
           :: entry ->
              entry = 0;
              assert(wide); /* L does not name it any more */
              assert(!freed);
              freed = 1
           :: else
           fi;
           unlinks = 0
       };
       if
       :: merger -> goto give_up
       :: else -> goto again
       fi;
give_up:
       unlock(R);
       unlock(L);
       atomic { at = 0; target = 0; put = 0; held = 0; seen = 0; unlinks = 0; stage = FREEZE;
                did_own = 0; did_head = 0; did_first = 0; did_second = 0; tore = 0 }
    od;
    goto end;
gone:
    atomic {
        if :: lock[L] == _pid -> lock[L] = 0 :: else fi;
        if :: lock[R] == _pid -> lock[R] = 0 :: else fi
    };
end:
    skip
}

/* ---- a reader ---- */

#define HIT_JUST(v) (v > last_then || v == last_then && present_then)
#define MISS_JUST (!present_then || absences != absences_then)

proctype Reader() {
    byte last_then, absences_then;
    bool present_then, scan;
    byte at, l_version, l_head, r_version, r_head, c_value, c_of, d_value, d_of, e_value, e_of, r_value, r_of;
    bool l_wide, c_taken, d_taken, e_taken, r_taken, got_lh, got_lv, got_c, got_d, got_e, got_rh, got_rv, got_r;
    mtype l_state = LIVE, r_state = LIVE;

    d_step { present_then = present; last_then = last; absences_then = absences };
    if
#if READS != 2
    :: at = L
    :: !OWN -> at = R /* a stale link, or not */
#endif
#if READS != 1
    :: scan = 1
#endif
    fi;
fetch: /* in any order */
    do
    :: d_step { (at == L || scan) && !got_lh -> l_head = head[L]; got_lh = 1 }
    :: d_step { (at == L || scan) && !got_lv -> l_state = state[L]; l_version = version[L]; l_wide = wide; got_lv = 1 }
    :: d_step { (at == L || scan) && OWN && !got_c -> c_taken = taken[SC]; c_value = value[SC]; c_of = of_version[SC]; got_c = 1 }
    :: d_step { (at == L || scan) && !OWN && !got_d -> d_taken = taken[SD]; d_value = value[SD]; d_of = of_version[SD]; got_d = 1 }
    :: d_step { (at == L || scan) && !OWN && !got_e -> e_taken = taken[SE]; e_value = value[SE]; e_of = of_version[SE]; got_e = 1 }
    :: d_step { (at == R || scan && !OWN) && !got_rh -> r_head = head[R]; got_rh = 1 }
    :: d_step { (at == R || scan && !OWN) && !got_rv -> r_state = state[R]; r_version = version[R]; got_rv = 1 }
    :: d_step { (at == R || scan && !OWN) && !got_r -> r_taken = taken[SR]; r_value = value[SR]; r_of = of_version[SR]; got_r = 1 }
    :: atomic { (at == R && !scan || got_lh && got_lv && (OWN && got_c || !OWN && got_d && got_e)) &&
                (at == L && !scan || OWN || got_rh && got_rv && got_r) -> break }
    od;
    if
    :: scan -> goto deliver
    :: !scan && at == L && OWN ->
       if
       :: c_taken && c_of == l_head -> assert(HIT_JUST(c_value))
       :: else ->
          assert(!(l_state == LIVE && l_version == l_head && c_of == l_version && !c_taken) || MISS_JUST)
       fi
    :: !scan && at == L && !OWN ->
       if
       :: d_taken && d_of == l_head -> assert(HIT_JUST(d_value))
       :: !(d_taken && d_of == l_head) && e_taken && e_of == l_head -> assert(HIT_JUST(e_value))
       :: else ->
          if
          :: l_state == LIVE && !l_wide -> /* walk right */
             atomic { at = R; got_lh = 0; got_lv = 0; got_d = 0; got_e = 0; l_head = 0; l_version = 0; d_of = 0; e_of = 0;
                      d_value = 0; e_value = 0; d_taken = 0; e_taken = 0; goto fetch }
          :: else ->
             assert(!(l_state == LIVE && l_version == l_head && d_of == l_version &&
                      e_of == l_version && !d_taken && !e_taken) || MISS_JUST)
          fi
       fi
    :: !scan && at == R ->
       if
       :: r_taken && r_of == r_head -> assert(HIT_JUST(r_value)) /* R1 */
       :: else -> /* R2 */
          assert(!((r_state == LIVE || r_state == FROZEN || MUTANT == 14) && r_version == r_head && r_of == r_version &&
                   !r_taken) || MISS_JUST)
       fi
    fi;
    goto end;
deliver: /* R5: L, then what its fence leaves */
    if
    :: l_state == LIVE && l_version == l_head && (OWN && c_of == l_version || !OWN && d_of == l_version && e_of == l_version) ->
       assert(!OWN || (c_taken && HIT_JUST(c_value) || !c_taken && MISS_JUST));
       if
       :: OWN -> skip
       :: !OWN && l_wide ->
          assert(d_taken && e_taken || d_taken && HIT_JUST(d_value) || e_taken && HIT_JUST(e_value) ||
                 !d_taken && !e_taken && MISS_JUST) /* both: it is read again */
       :: !OWN && !l_wide ->
          assert(!d_taken && !e_taken); /* beyond the fence: it would come twice */
          if
          :: (r_state == LIVE || r_state == FROZEN) && r_version == r_head && r_of == r_version ->
             assert(r_taken && HIT_JUST(r_value) || !r_taken && MISS_JUST)
          :: else -> skip /* located anew: a lookup's story */
          fi
       fi
    :: else -> skip
    fi;
end:
    skip
}

/* When all have ended: no lock is left, and what was written last is where a search finds it, or where the session that
 * finishes the merge does. */
#define IN_L ((taken[SD] && of_version[SD] == version[L]) || (taken[SE] && of_version[SE] == version[L]))
#define D_OF_L (taken[SD] -> value[SD] : value[SE])
#define L_WHOLE (head[L] == version[L] && of_version[SC] == version[L] && of_version[SD] == version[L] && of_version[SE] == version[L])
proctype Judge() {
    timeout ->
        assert(lock[L] == 0 && lock[R] == 0);
        assert(state[R] == DEAD || WHOLE || state[L] == MERGING);
        assert(state[L] != MERGING || !wide && (state[R] == FROZEN || state[R] == DEAD));
        assert(state[L] != LIVE || L_WHOLE);
        assert(CUTS || LOSSES || state[L] == LIVE && state[R] != FROZEN && (state[R] != DEAD || freed && !entry && wide));
        if
        :: OWN ->
           assert(present == taken[SC] && (!present || value[SC] == last));
           assert(of_version[SC] == version[L] || state[L] == MERGING && of_version[SC] == version[L] - 1)
        :: !OWN && (wide || state[L] == MERGING && (state[R] == DEAD || !WHOLE)) ->
           assert(L_WHOLE && present == IN_L && !(taken[SD] && taken[SE]) && (!present || D_OF_L == last))
        :: !OWN && !wide && !(state[L] == MERGING && (state[R] == DEAD || !WHOLE)) ->
           assert(present == taken[SR] && (!present || value[SR] == last))
        fi
}

init {
    atomic {
        state[L] = LIVE; state[R] = LIVE;
        version[L] = 1; version[R] = 1; head[L] = 1; head[R] = 1;
        of_version[SC] = 1; of_version[SD] = 1; of_version[SE] = 1; of_version[SR] = 1;
        taken[SC] = 1; value[SC] = 1; taken[SR] = 1; value[SR] = 1;
        run Task(MERGERS, 1);
        run Task(OPERATIONS, 0);
#if WRITERS > 1
        run Task(1, 0);
#endif
#if SPARE
        run Task(1, 1);
#endif
#if READS != 3
        run Reader();
#endif
        run Judge()
    }
}
