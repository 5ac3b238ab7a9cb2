/*
 * lock.pml - one global lock word and the leaf that it guards: acquiring, handover with the leaf's image, release
 * together with the write-back, lost connections, fencing, death (docs/internals/locks.md, src/tree/lock.c,
 * src/fabric/remote_node.h, src/memoryd/fence.c). What is left out and why: docs/internals/models.md.
 *
 * The leaf is a counter: each write makes the next value of the one it was decided by, so a write that lands on
 * any other value has overwritten another session's.
 *
 * MUTANT=n takes one rule away; each must be refuted:
 *   1 the memory node frees the locks of the fenced before their connections are gone (G6)
 *   2 it lets a compute node connect again before it has freed its locks
 *   3 a list is posted whatever connections were lost since its operation began
 *   4 a loss raises the incarnation before it ends the group
 *   5 a lock is handed over from one incarnation to another
 *   6 a decision by a handed image counts without an answer to the own unlock
 *   7 a lock is handed over before the write-back is known to be done
 *   8 the unlock stands before the write in its list
 *   9 there is no limit to handovers in a row
 *  10 a release that could not be sent is not repeated
 *  11 an endpoint that gets no connection does not give up those of the others
 *  12 the memory node does not free the locks of the dead
 *  13 the image goes along although the word was freed
 *  14 lock and image are handed on although the write failed
 *  15 each list takes the incarnation of its own time, not of its operation's begin
 *  16 a decision that wrote nothing counts whatever the answer to the unlock is
 */
#ifndef MUTANT
#define MUTANT 0
#endif
#ifndef OPS1 /* operations of each session of compute node 1, and of compute node 2's only one */
#define OPS1 2
#endif
#ifndef OPS1B
#define OPS1B OPS1
#endif
#ifndef OPS2
#define OPS2 1
#endif
#ifndef LOSSES /* connections lost while both ends live on */
#define LOSSES 1
#endif
#ifndef REFUSALS /* endpoints that get no connection to a new group */
#define REFUSALS 1
#endif
#ifndef DEATHS /* of either compute node */
#define DEATHS 1
#endif
#ifndef LIMIT /* handovers in a row */
#define LIMIT 1
#endif
#ifndef SESSIONS1
#define SESSIONS1 2
#endif
#define SESSIONS (SESSIONS1 + 1)
#define CN(s) ((s) < SESSIONS1 -> 1 : 2)
#define NOBODY 15

/* ---- the memory node ---- */

byte word;   /* 0 free, else the holder */
byte val;    /* what the leaf holds */
byte in_row; /* handovers since the word was taken: for the judge alone */
mtype = { LIVE, FENCED, SHUT, GONE };
/* FENCED: no endpoint joins any more; SHUT: its connections are gone; GONE: its locks are free, too */
mtype lease[3] = LIVE;
bool grave[3]; /* mutant 2: locks that are freed later than a new group joins */

/* ---- a compute node's fabric ---- */

byte group[3] = 1, incarnation[3] = 1, since[3] = 1; /* a group lives while its number is odd */
byte losing[3];                                      /* steps of a loss that are done */
byte offered[SESSIONS] = 1;                          /* the group for which the endpoint was given a connection */
byte link_group[SESSIONS] = 1, link_since[SESSIONS] = 1; /* what the endpoint took over with it */
byte refused = NOBODY; /* the session whose endpoint the memory node has no connection for */
bool refusal_left = REFUSALS, death_left = DEATHS;
byte losses_left = LOSSES;
bool dead[3];

/* ---- lists under way: at most one of each session ---- */

mtype = { NONE, TAKE, LOOK, PUT, PUT_FREE, FREE, DONE, LOST };
mtype list[SESSIONS] = NONE;
bool first_done[SESSIONS]; /* of a list of two commands */
byte seen[SESSIONS];       /* what its READ returned */
byte base[SESSIONS];       /* by what its WRITE was decided: it writes base + 1 */

/* ---- local locks ---- */

bool held[3];
byte depth[3];
chan queue[3] = [SESSIONS1] of { byte };
byte number[SESSIONS]; /* the operation's incarnation */
byte image[SESSIONS];
bool granted[SESSIONS], handed[SESSIONS], snapshot[SESSIONS];
byte finished[3]; /* sessions that have done all that they wanted */

/* ---- what arrives: command by command, in any order between lists, while their connections are there ---- */

inline run_take(s) {
    word = CN(s);
    in_row = 0
}
inline run_free(s) {
    assert(word == CN(s)); /* an unlock is a plain write: it must find its own lock */
    word = 0
}
inline run_put(s) {
    assert(word == CN(s));  /* mutual exclusion: a write lands while its compute node has the lock, and */
    assert(val == base[s]); /* on what it was decided by: no write is lost, whether acknowledged or not */
    val++;
    base[s] = 0
}
inline carry_out(s) {
    if
    :: list[s] == TAKE && !first_done[s] -> run_take(s); first_done[s] = 1
    :: list[s] == TAKE && first_done[s] -> seen[s] = val; first_done[s] = 0; list[s] = DONE
    :: list[s] == LOOK -> seen[s] = val; list[s] = DONE
    :: list[s] == PUT -> run_put(s); list[s] = DONE
#if MUTANT == 8
    :: list[s] == PUT_FREE && !first_done[s] -> run_free(s); first_done[s] = 1
    :: list[s] == PUT_FREE && first_done[s] -> run_put(s); first_done[s] = 0; list[s] = DONE
#else
    :: list[s] == PUT_FREE && !first_done[s] -> run_put(s); first_done[s] = 1
    :: list[s] == PUT_FREE && first_done[s] -> run_free(s); first_done[s] = 0; list[s] = DONE
#endif
    :: list[s] == FREE -> run_free(s); list[s] = DONE
    fi
}
/* A CAS that fails changes nothing and is sent again: here it waits for the word instead. */
#define RUNS(s) (lease[CN(s)] == LIVE || lease[CN(s)] == FENCED)
#define DUE(s) (list[s] == TAKE && (first_done[s] || !word) || list[s] == LOOK || list[s] == PUT || \
                list[s] == PUT_FREE || list[s] == FREE)

proctype Network() {
end: do
    :: d_step { RUNS(0) && DUE(0) -> carry_out(0) }
    :: d_step { RUNS(1) && DUE(1) -> carry_out(1) }
    :: d_step { RUNS(2) && DUE(2) -> carry_out(2) }
#if SESSIONS1 > 2
    :: d_step { RUNS(3) && DUE(3) -> carry_out(3) }
#endif
    od
}

/* ---- groups ---- */

#define OF(s, c) (s < SESSIONS && CN(s) == c)
#define CUT(s, c) if :: OF(s, c) && list[s] != NONE && list[s] != DONE -> list[s] = LOST; first_done[s] = 0; base[s] = 0 :: else fi
#define FREE_LOCKS(c) if :: word == c -> word = 0 :: else fi

inline group_over(c) {
    losing[c] = 1;
#if MUTANT == 4
    incarnation[c]++
#else
    group[c]++
#endif
}

/* For one compute node: its lease at the memory node, its reconnects, its death. */
proctype Group(byte c) {
end: do
    /* memory node: the lease runs out, or a connection breaks as it sees it; or the other side has hung up */
    :: d_step { lease[c] == LIVE && group[c] % 2 == 1 && !dead[c] && c == 1 && losses_left > 0 ->
           losses_left--; lease[c] = FENCED }
    :: d_step { lease[c] == LIVE && (dead[c] || group[c] % 2 == 0) -> lease[c] = FENCED }
    :: d_step { lease[c] == FENCED -> /* connections gone: what was under way is cut wherever it is */
           lease[c] = SHUT; CUT(0, c); CUT(1, c); CUT(2, c); CUT(3, c) }
#if MUTANT == 1
    :: d_step { lease[c] == FENCED && word == c -> word = 0 }
#endif
    :: d_step { lease[c] == SHUT ->
           lease[c] = GONE;
           if
           :: MUTANT == 12 && dead[c] -> skip
           :: else -> FREE_LOCKS(c)
           fi }
#if MUTANT == 2
    :: d_step { lease[c] == SHUT && group[c] % 2 == 0 && losing[c] == 0 && !dead[c] ->
           lease[c] = LIVE; group[c]++; grave[c] = 1 }
    :: d_step { grave[c] -> grave[c] = 0; FREE_LOCKS(c) }
#endif
    /* compute node: it notices, at once or late */
    :: d_step { group[c] % 2 == 1 && !dead[c] && losing[c] == 0 && lease[c] != LIVE -> group_over(c) }
    :: d_step { group[c] % 2 == 1 && !dead[c] && losing[c] == 0 && lease[c] == LIVE && c == 1 && losses_left > 0 ->
           losses_left--; group_over(c) }
#if MUTANT == 4
    :: d_step { losing[c] == 1 -> losing[c] = 2; group[c]++ }
#else
    :: d_step { losing[c] == 1 -> losing[c] = 2; incarnation[c]++ }
#endif
    :: d_step { losing[c] == 2 -> losing[c] = 0; since[c] = incarnation[c] }
    /* and connects anew: the group first, then an endpoint at a time */
    :: d_step { group[c] % 2 == 0 && losing[c] == 0 && lease[c] == GONE && !dead[c] ->
           lease[c] = LIVE; group[c]++ }
    :: d_step { OF(0, c) && group[c] % 2 == 1 && offered[0] != group[c] && refused != 0 -> offered[0] = group[c] }
    :: d_step { OF(1, c) && group[c] % 2 == 1 && offered[1] != group[c] && refused != 1 -> offered[1] = group[c] }
    :: d_step { OF(2, c) && group[c] % 2 == 1 && offered[2] != group[c] && refused != 2 -> offered[2] = group[c] }
#if SESSIONS1 > 2
    :: d_step { OF(3, c) && group[c] % 2 == 1 && offered[3] != group[c] && refused != 3 -> offered[3] = group[c] }
#endif
    :: d_step { c == 1 && group[c] % 2 == 1 && offered[1] != group[c] && refusal_left ->
           refusal_left = 0; refused = 1 }
    /* death */
    :: d_step { death_left && !dead[c] -> death_left = 0; dead[c] = 1 }
    od
}

/* ---- a session ---- */

mtype = { OK, ENET, EFENCED };

inline admit() {
    if
    :: offered[s] == group[c] && link_group[s] != group[c] ->
       link_group[s] = group[c]; link_since[s] = since[c]
    :: else
    fi;
#if MUTANT == 15
    number[s] = incarnation[c];
#endif
    if
#if MUTANT == 3
    :: link_group[s] != group[c] -> status = ENET
    :: else -> status = OK
#else
    :: link_group[s] != group[c] && number[s] < since[c] -> status = EFENCED
    :: link_group[s] != group[c] && number[s] >= since[c] -> status = ENET
    :: link_group[s] == group[c] && number[s] < link_since[s] -> status = EFENCED
    :: link_group[s] == group[c] && number[s] >= link_since[s] -> status = OK
#endif
    fi
}
inline post(commands) {
    d_step {
        !dead[c];
        admit();
        if
        /* into a connection that is gone already, without our knowing: it is never read */
        :: status == OK -> list[s] = (RUNS(s) -> commands : LOST); first_done[s] = 0; seen[s] = 0; base[s] = (writes -> image[s] : 0)
        :: else
        fi
    }
}
/* The answer; or none, once the loss of its group has been noticed, whether the list was done or not. */
#define ANSWERED(s) (!dead[c] && (status != OK || list[s] == DONE || link_group[s] != group[c]))
inline answer() {
    if
    :: status != OK
    :: status == OK && list[s] == DONE -> list[s] = NONE
    :: status == OK && link_group[s] != group[c] -> status = ENET
    fi
}

inline free_word_surely() {
    do
    :: post(FREE);
       atomic {
           ANSWERED(s);
           answer();
           if
           :: status != ENET || MUTANT == 10 -> break
           :: else
           fi
       };
       if /* until another try may hear something else */
       :: number[s] < since[c]
       :: offered[s] == group[c] && link_group[s] != group[c]
#if MUTANT != 11
       :: d_step { refused == s && group[c] % 2 == 1 && losing[c] == 0 -> refused = NOBODY; group_over(c) }
#endif
       fi
    od
}

inline local_acquire() {
    d_step {
        granted[s] = 0; handed[s] = 0; snapshot[s] = 0;
        if
        :: !held[c] -> held[c] = 1; granted[s] = 1
        :: else -> queue[c] ! s
        fi
    }
}
inline local_release_begin() {
    d_step {
        handing = 0;
        if
        :: queue[c] ? [h] ->
           queue[c] ? <h>;
           handing = (number[h] == number[s] || MUTANT == 5) && (depth[c] < LIMIT || MUTANT == 9) &&
                     (!(unheard && !writes) || MUTANT == 6)
        :: else
        fi;
        depth[c] = (handing -> depth[c] + 1 : 0);
        h = 0
    }
}
inline local_release_end() {
    d_step {
        if
        :: queue[c] ? [h] ->
           queue[c] ? h;
           handed[h] = handing;
           snapshot[h] = (handing || MUTANT == 13) && have_image;
           if
           :: snapshot[h] -> image[h] = image[s] + writes
           :: else
           fi;
           in_row = in_row + handing;
           assert(in_row <= LIMIT); /* others get their turn */
           granted[h] = 1
        :: else -> held[c] = 0
        fi;
        h = 0; handing = 0
    }
}

/* The list that gives the lock up: what it holds was settled by local_release_begin(). */
inline post_unlock() {
    if
    :: writes && !handing -> post(PUT_FREE)
    :: writes && handing -> post(PUT)
    :: !writes && !handing -> post(FREE)
    :: !writes && handing -> skip
    fi
}
inline end_operation() {
    d_step {
        if
        :: outcome == EFENCED -> /* it begins again, and not for ever */
           assert(number[s] != incarnation[c] || MUTANT == 15)
        :: outcome == ENET -> operations-- /* what was written may have taken effect, or not: the answer is unknown */
        :: outcome == OK && writes -> /* acknowledged: it was done */
           assert(val > image[s]);
           operations--
        :: outcome == OK && !writes -> /* what was told was the truth at some instant of the operation */
           assert(image[s] >= start);
           operations--
        fi;
        start = 0; outcome = OK; status = OK; unheard = 0; have_image = 0; writes = 0; granted[s] = 0;
        handed[s] = 0; snapshot[s] = 0; image[s] = 0; number[s] = 0
    }
}

/*
 * What one task does between two waits is one step where the order of its parts cannot matter to others: an answer
 * that has come stays, so reading it late is as good as reading it early.
 */
proctype Session(byte s; byte c; byte operations) {
    byte h, start;
    mtype status = OK, outcome = OK;
    bool handing, writes, unheard, have_image, early;
    do
    :: operations == 0 -> break
    :: else ->
       d_step { number[s] = incarnation[c]; start = val /* for the judge */ };
       local_acquire();
       atomic {
           granted[s];
           if
           :: handed[s] && snapshot[s] -> have_image = 1; unheard = 1
           :: handed[s] -> post(LOOK) /* another bucket than what came along, or nothing came */
           :: !handed[s] -> post(TAKE)
           fi
       };
       atomic {
           have_image || ANSWERED(s);
           if
           :: have_image
           :: else -> answer()
           fi;
           if
           :: status == OK ->
              if /* the callback decides */
              :: writes = 1
              :: writes = 0
              fi;
              if
              :: !have_image && !(MUTANT == 13 && snapshot[s]) -> image[s] = seen[s]; seen[s] = 0
              :: else
              fi;
              have_image = 1
           :: else -> outcome = status
           fi;
           if
           :: outcome != OK && !handed[s] -> /* what the list may have taken is freed by the fencing */
              local_release_end();
              goto over
           :: else -> local_release_begin() /* what failed under a lock that was handed over: still ours */
           fi
       };
       post_unlock();
#if MUTANT == 7
       atomic {
           if
           :: handing -> early = 1; local_release_end()
           :: else
           fi
       };
#endif
       atomic {
           handing && !writes || ANSWERED(s);
           if
           :: handing && !writes -> status = OK
           :: else -> answer()
           fi;
           if
           :: outcome == OK && !(MUTANT == 16 && !writes) -> outcome = status
           :: else
           fi;
           if
           :: status != OK && MUTANT != 14 -> have_image = 0; handing = 0
           :: else
           fi;
           if /* EFENCED: the word is free, or will be */
           :: status == ENET && !handing && !early -> skip
           :: else -> goto released
           fi
       };
       free_word_surely();
released:
       atomic {
           if
           :: early -> early = 0
           :: else -> local_release_end()
           fi;
over:
           end_operation()
       }
    od;
    finished[c]++
}

/* When nothing can happen any more, no session waits, no lock is left behind, and none by the dead. */
proctype Judge() {
    timeout ->
        assert(word == 0);
        assert(dead[1] || finished[1] == SESSIONS1 && !held[1]);
        assert(dead[2] || finished[2] == 1 && !held[2])
}

init {
    atomic {
        run Network(); run Group(1); run Group(2);
        run Session(0, 1, OPS1); run Session(1, 1, OPS1B);
#if SESSIONS1 > 2
        run Session(2, 1, 1); run Session(3, 2, OPS2);
#else
        run Session(2, 2, OPS2);
#endif
        run Judge()
    }
}
