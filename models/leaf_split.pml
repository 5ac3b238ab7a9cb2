/*
 * leaf_split.pml - one leaf that is split, cut at any step, finished by the next session that locks it, read by lookups and a
 * scan that fetch its words in any order (docs/internals/tree.md, R1, R2, R3, R5; src/tree/split.c, modify.c, lookup.c,
 * scan.c). What is left out and why: docs/internals/models.md.
 *
 * The leaf has one bucket of three slots. Key K lies beyond the separator and moves to the sibling, J stays and is
 * there all the time, I is the addition that makes the split necessary and stays too. K may be deleted and put
 * again, into any free slot; each write of it has a number of its own, which is its value.
 *
 * MUTANT=n takes one rule away; each must be refuted:
 *   1 a split writes the final header before the slots
 *   2 a miss needs the bucket's version to be the header's, and not each slot
 *   3 a split leaves out the mark
 *   4 a session that meets a marked leaf follows its link and posts it to the parent
 *   5 a split moves the entries that stay to other slots
 *   6 the session that finishes a split takes slots of the old version for empty
 *   7 a write puts its key into another slot and clears the old one
 *   8 a scan delivers a leaf without looking at its slots' versions
 *   9 a scan delivers a leaf in which it saw a key twice
 *  10 the sibling is written after the mark
 *  11 a session that meets the mark under the lock follows the new link and leaves the split as it is
 *  12 a split leaves the leaf's version as it is
 */
#ifndef MUTANT
#define MUTANT 0
#endif
#ifndef WRITES /* of each writer */
#define WRITES 2
#endif
#ifndef WRITERS
#define WRITERS 1
#endif
#ifndef READS /* 0 either, 1 lookups, 2 scans */
#define READS 0
#endif
#ifndef CUTS /* deaths, each at any step */
#define CUTS 2
#endif
#define EMPTY 0
#define K 1
#define J 2
#define I 3

/* ---- memory; a slot is fetched and written as one: its check tells when it is not ---- */

mtype = { WIDE, MARKED, NARROW };
mtype header = WIDE; /* version 0, live; version 1, splitting; version 1, live: each with a check of its own */
byte head = 0;       /* the version for a reader that has not the header */
byte key[3], value[3], version[3];
byte sibling_key = EMPTY, sibling_value = 0;
bool posted = 0; /* the parent names the sibling */
byte lock = 0, sibling_lock = 0; /* the memory node frees them at their owner's death: lock.pml */
#if MUTANT == 12
#define NEW 0
#else
#define NEW 1
#endif
#define VERSION(h) (h == WIDE -> 0 : NEW)

/* ---- the truth about K, for the judge ---- */

bool present = 1;
byte last = 1;     /* its last write */
byte absences = 0; /* how often it went */
byte cuts_left = CUTS;

/* ---- under the lock ---- */

inline may_die() {
#if CUTS
    if
    :: atomic { cuts_left > 0 -> cuts_left--; goto gone }
    :: skip
    fi
#else
    skip
#endif
}
#define KEPT(k) (k == K -> EMPTY : k)

/* The entries that stay, where they are: what steps 2 to 4 will write. */
inline plan_narrow(finishing) {
    d_step {
#if MUTANT == 5
        to[0] = KEPT(key[1]); to[1] = KEPT(key[2]); to[2] = KEPT(key[0]);
        if
        :: finishing -> to[0] = KEPT(key[0]); to[1] = KEPT(key[1]); to[2] = KEPT(key[2])
        :: else
        fi
#elif MUTANT == 6
        to[0] = (finishing && version[0] != NEW -> EMPTY : KEPT(key[0]));
        to[1] = (finishing && version[1] != NEW -> EMPTY : KEPT(key[1]));
        to[2] = (finishing && version[2] != NEW -> EMPTY : KEPT(key[2]))
#else
        to[0] = KEPT(key[0]); to[1] = KEPT(key[1]); to[2] = KEPT(key[2])
#endif
    }
}
/* One long WRITE: its words land in any order, and it may be cut between any two. */
inline write_slots() {
    do
    :: d_step { !done[0] -> key[0] = to[0]; value[0] = 0; version[0] = NEW; done[0] = 1 }
    :: d_step { !done[1] -> key[1] = to[1]; value[1] = 0; version[1] = NEW; done[1] = 1 }
    :: d_step { !done[2] -> key[2] = to[2]; value[2] = 0; version[2] = NEW; done[2] = 1 }
    :: d_step { !done[3] -> head = NEW; done[3] = 1 }
    :: atomic { cuts_left > 0 -> cuts_left--; goto gone }
    :: d_step { done[0] && done[1] && done[2] && done[3] ->
           done[0] = 0; done[1] = 0; done[2] = 0; done[3] = 0; to[0] = 0; to[1] = 0; to[2] = 0 } break
    od
}
inline finish() {
    plan_narrow(1);
    write_slots();
    may_die();
    header = NARROW;
    may_die()
}
#define SLOT_OF(k) (key[0] == k -> 0 : (key[1] == k -> 1 : (key[2] == k -> 2 : 3)))

/* ---- R3 ---- */

proctype Splitter() {
    byte to[3], moved;
    bool done[4], moves;
    atomic { lock == 0 -> lock = _pid }
    if
    :: header != WIDE -> goto gone
    :: else
    fi;
    plan_narrow(0);
    d_step {
        if
        :: key[0] == K -> moved = value[0]; moves = 1
        :: key[1] == K -> moved = value[1]; moves = 1
        :: key[2] == K -> moved = value[2]; moves = 1
        :: else
        fi
    }
#if MUTANT != 10
    may_die();
    d_step { if :: moves -> sibling_key = K; sibling_value = moved :: else fi }
#endif
    may_die();
#if MUTANT != 3
    header = MARKED;
#endif
#if MUTANT == 10
    may_die();
    d_step { if :: moves -> sibling_key = K; sibling_value = moved :: else fi }
#endif
#if MUTANT == 1
    may_die();
    header = NARROW;
#endif
    write_slots();
    may_die();
    header = NARROW;
    may_die();
    /* 5: the addition, into a slot that is free now */
    if
    :: d_step { key[0] == EMPTY -> key[0] = I; value[0] = 0; version[0] = NEW }
    :: d_step { key[1] == EMPTY -> key[1] = I; value[1] = 0; version[1] = NEW }
    :: d_step { key[2] == EMPTY -> key[2] = I; value[2] = 0; version[2] = NEW }
    fi;
gone:
    lock = 0
}

/* ---- writers of K, wherever it belongs ---- */

inline put_here() {
    d_step {
        if
        :: key[n] == EMPTY -> key[n] = K; present = 1; version[n] = VERSION(header)
        :: else
        fi;
        last++;
        value[n] = last
    }
}
inline write_leaf() {
    n = SLOT_OF(K);
    if
    :: n < 3 -> /* update */
#if MUTANT == 7
       m = SLOT_OF(EMPTY);
       if
       :: m < 3 ->
          d_step { last++; key[m] = K; value[m] = last; version[m] = VERSION(header) }
          d_step { key[n] = EMPTY; value[n] = 0 }
       :: else -> put_here()
       fi
#else
       put_here()
#endif
    :: n < 3 -> /* delete */
       d_step { key[n] = EMPTY; value[n] = 0; present = 0; absences++ }
    :: n == 3 && key[0] == EMPTY -> n = 0; put_here()
    :: n == 3 && key[1] == EMPTY -> n = 1; put_here() /* J has it: never here */
    :: n == 3 && key[2] == EMPTY -> n = 2; put_here()
    :: n == 3 && SLOT_OF(EMPTY) == 3 -> skip /* full: it would split the leaf */
    fi
}
inline write_sibling() {
    if
    :: d_step { last++; sibling_key = K; sibling_value = last; present = 1 }
    :: d_step { sibling_key == K -> sibling_key = EMPTY; sibling_value = 0; present = 0; absences++ }
    fi
}

proctype Writer() {
    byte to[3], n, m, left = WRITES;
    bool done[4];
    do
    :: left == 0 -> break
    :: else ->
       left--;
       if
       :: posted -> goto beyond
       :: skip /* by what it has cached */
       fi;
       atomic { lock == 0 -> lock = _pid }
       may_die();
       if
#if MUTANT == 11
       :: header == MARKED -> goto right
#else
       :: header == MARKED -> finish()
#endif
       :: else
       fi;
       if
       :: header == WIDE ->
          write_leaf();
          d_step { n = 0; m = 0; lock = 0 }
       :: header == NARROW ->
right:
          lock = 0;
          posted = 1;
beyond:
          atomic { sibling_lock == 0 -> sibling_lock = _pid }
          may_die();
          write_sibling();
          sibling_lock = 0
#if MUTANT == 3
       :: header == MARKED -> skip
#endif
       fi
    od;
    goto end;
gone:
    if
    :: lock == _pid -> lock = 0
    :: else -> sibling_lock = 0
    fi;
end:
    skip
}

/* A session that walks right makes the sibling known to all. */
proctype Traverser() {
end:
    header == NARROW || header == MARKED && MUTANT == 4;
    posted = 1
}

/* ---- readers: one is enough, they do not hinder each other ---- */

/* What a lookup or scan says of K must have been so at some instant since it began. */
#define HIT_JUST(v) (v > last_then || v == last_then && present_then)
#define MISS_JUST (!present_then || absences != absences_then)

proctype Reader() {
    mtype seen_header;
    byte seen_head, seen_key[3], seen_value[3], seen_version[3], n;
    bool got[5], present_then, proven;
    byte last_then, absences_then, wanted;
    if
#if READS != 2
    :: wanted = K
    :: wanted = J
#endif
#if READS != 1
    :: wanted = 0 /* a scan */
#endif
    fi;
    d_step { present_then = present; last_then = last; absences_then = absences }
    do
    :: d_step { !got[0] -> seen_header = header; got[0] = 1 }
    :: d_step { !got[1] && wanted -> seen_head = head; got[1] = 1 }
    :: d_step { !got[2] -> seen_key[0] = key[0]; seen_value[0] = value[0]; seen_version[0] = version[0]; got[2] = 1 }
    :: d_step { !got[3] -> seen_key[1] = key[1]; seen_value[1] = value[1]; seen_version[1] = version[1]; got[3] = 1 }
    :: d_step { !got[4] -> seen_key[2] = key[2]; seen_value[2] = value[2]; seen_version[2] = version[2]; got[4] = 1 }
    :: got[0] && (got[1] || !wanted) && got[2] && got[3] && got[4] -> break
    od;
    atomic {
#if MUTANT == 2
        proven = seen_head == VERSION(seen_header);
#elif MUTANT == 8
        proven = !wanted || seen_version[0] == VERSION(seen_header) && seen_version[1] == VERSION(seen_header) &&
                 seen_version[2] == VERSION(seen_header);
#else
        proven = seen_version[0] == VERSION(seen_header) && seen_version[1] == VERSION(seen_header) &&
                 seen_version[2] == VERSION(seen_header);
#endif
        n = (seen_key[0] == wanted -> 0 : (seen_key[1] == wanted -> 1 : (seen_key[2] == wanted -> 2 : 3)))
    };
    if
    :: wanted == 0 -> goto scan
    :: wanted && n < 3 && seen_version[n] == seen_head -> /* R1 */
       assert(wanted != K || HIT_JUST(seen_value[n]));
       goto end
    :: wanted && n < 3 && seen_version[n] != seen_head -> goto end /* again: another reader's story */
    :: wanted && n == 3 -> skip
    fi;
    /* R2 */
    if
    :: seen_header == MARKED -> goto end
    :: wanted == K && seen_header == NARROW -> goto sibling
    :: else
    fi;
    if
    :: proven -> assert(wanted == K && MISS_JUST)
    :: else
    fi;
    goto end;
scan: /* R5 */
    if
    :: !proven || seen_header == MARKED -> goto end
    :: else
    fi;
    n = (seen_key[0] == K -> 0 : (seen_key[1] == K -> 1 : (seen_key[2] == K -> 2 : 3)));
    assert((seen_key[0] == J) + (seen_key[1] == J) + (seen_key[2] == J) == 1);
    if /* it has moved meanwhile: deleted and put again */
    :: (seen_key[0] == K) + (seen_key[1] == K) + (seen_key[2] == K) > 1 && MUTANT != 9 -> goto end
    :: else
    fi;
    assert((seen_key[0] == K) + (seen_key[1] == K) + (seen_key[2] == K) <= 1);
    if
    :: n < 3 -> assert(HIT_JUST(seen_value[n]))
    :: else
    fi;
    if
    :: seen_header == WIDE -> assert(n < 3 || MISS_JUST); goto end
    :: else -> assert(n == 3) /* it would come a second time, or lies outside of the fences */
    fi;
sibling:
    /* its header never changes here, and it has one slot: one look */
    atomic {
        if
        :: sibling_key == K -> assert(HIT_JUST(sibling_value))
        :: else -> assert(MISS_JUST)
        fi
    };
end:
    skip
}

/* When all have ended, with or without the help of others: no lock is left, nothing is lost. */
proctype Judge() {
    timeout ->
        assert(lock == 0 && sibling_lock == 0);
        assert(SLOT_OF(J) < 3);
        if
        :: header != WIDE -> assert(present == (sibling_key == K) && (!present || sibling_value == last))
        :: header == WIDE -> assert(present == (SLOT_OF(K) < 3) && (!present || value[SLOT_OF(K)] == last))
        fi
}

init {
    atomic {
        key[0] = K; value[0] = 1; key[1] = J;
        run Splitter();
        run Writer();
#if WRITERS > 1
        run Writer();
#endif
        run Traverser();
        run Reader();
        run Judge()
    }
}
