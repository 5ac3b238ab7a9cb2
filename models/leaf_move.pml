/*
 * leaf_move.pml - a leaf moves to another memory node, cut at any step, finished by the next session that meets it, read by
 * lookups through links of any age that fetch its words in any order (docs/internals/tree.md, R8, R1, R2, R4;
 * src/tree/move.c, split.c, unlink.c, parent.c, modify.c, lookup.c). What is left out and why: docs/internals/models.md.
 *
 * The leaf N has one slot, of key K, which may be deleted and put again; each write of it has a number of its own, which
 * is its value. C is N's copy. The left neighbour's sibling link and the parent's entry name N at first, and C in the end.
 *
 * MUTANT=n takes one rule away; each must be refuted:
 *   1 the slots of N stay as they are
 *   2 N is emptied under the version that it had
 *   3 N is not marked while its slots are written
 *   4 the copy is written after the mark
 *   5 a session that meets the mark follows the link to the copy
 *   6 N is dead before it is empty
 *   7 the parent names the copy before the left neighbour does
 *   8 who finishes frees N without a look at the parent's entry
 *   9 who has the lock of N takes a marked leaf for a live one
 *  10 who finishes a move leaves N live, as after a split
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
#ifndef CUTS /* deaths, each at any step */
#define CUTS 1
#endif
#ifndef READERS
#define READERS 1
#endif

/* ---- memory ---- */

mtype = { LIVE, MARKED, DEAD };
mtype header = LIVE; /* of N: its version is 0 while it is live, and NEW from the mark on */
byte head = 0;       /* the version for a reader that has not the header */
bool taken = 1;      /* N's slot: K is in it */
byte value = 1, version = 0;
bool copied = 0;     /* C is there */
bool copy_taken = 0;
byte copy_value = 0;
bool left_new = 0, entry_new = 0; /* the left neighbour, the parent name C */
byte freed = 0;                   /* how often N went back to its memory node */
byte lock = 0, copy_lock = 0, left_lock = 0, parent_lock = 0; /* the memory node frees them at their owner's death */
#if MUTANT == 2
#define NEW 0
#else
#define NEW 1
#endif

/* ---- the truth about K, for the judge ---- */

bool present = 1;
byte last = 1;     /* its last write */
byte absences = 0; /* how often it went */
byte cuts_left = CUTS;

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

/* ---- under N's lock ---- */

/* One WRITE: its words land in any order. */
inline empty_slots() {
#if MUTANT == 1
    skip
#else
    if
    :: head = NEW; may_die(); d_step { taken = 0; version = NEW }
    :: d_step { taken = 0; version = NEW } may_die(); head = NEW
    fi
#endif
}
inline write_copy() {
    d_step { copied = 1; copy_taken = taken; copy_value = value }
}
/* The mark is there: the rest of the leaf's own writes. */
inline finish_leaf() {
#if MUTANT == 6
    header = DEAD;
    may_die();
    empty_slots();
#elif MUTANT == 10
    empty_slots();
    may_die();
    header = LIVE;
#else
    empty_slots();
    may_die();
    header = DEAD;
#endif
    may_die()
}

/* ---- what any session does that meets N dead ---- */

inline name_left() {
    atomic { left_lock == 0 -> left_lock = _pid }
    may_die();
    if
    :: !left_new -> assert(copied); left_new = 1
    :: else
    fi;
    may_die();
    left_lock = 0
}
inline name_entry() {
    atomic { parent_lock == 0 -> parent_lock = _pid }
    may_die();
#if MUTANT == 8
    mine = 1;
#else
    mine = !entry_new;
#endif
    entry_new = 1;
    may_die();
    parent_lock = 0;
    if
    :: mine -> freed++; mine = 0; assert(freed == 1); assert(left_new) /* no link leads to N any more */
    :: else
    fi
}
inline finish_links() {
#if MUTANT == 7
    name_entry();
    name_left()
#else
    name_left();
    name_entry()
#endif
}

/* ---- R8 ---- */

proctype Mover() {
    bool mine;
    atomic { lock == 0 -> lock = _pid }
    if
    :: header != LIVE -> goto gone
    :: else
    fi;
#if MUTANT != 4
    may_die();
    write_copy();
#endif
    may_die();
#if MUTANT != 3
    header = MARKED;
#endif
#if MUTANT == 4
    may_die();
    write_copy();
#endif
    may_die();
    finish_leaf();
    lock = 0;
    finish_links();
gone:
    skip;
    d_step {
        if :: lock == _pid -> lock = 0 :: else fi;
        if :: left_lock == _pid -> left_lock = 0 :: else fi;
        if :: parent_lock == _pid -> parent_lock = 0 :: else fi
    }
}

/* ---- writers of K ---- */

proctype Writer() {
    bool mine, at_copy;
    byte left = WRITES;
    do
    :: left == 0 -> break
    :: else ->
again:
       if
       :: at_copy = 0 /* by what it has cached */
       :: at_copy = entry_new
       :: at_copy = left_new
       fi;
       if
       :: at_copy -> goto copy
       :: else
       fi;
       atomic { lock == 0 -> lock = _pid }
       may_die();
       if
       :: freed > 0 -> lock = 0; goto copy /* another node's tag: from the parent again */
       :: freed == 0 && header == LIVE ->
          /* under the lock of a live leaf every slot is valid */
          assert(version == 0 && head == 0);
          if
          :: d_step { last++; taken = 1; value = last; present = 1 }
          :: d_step { taken -> taken = 0; present = 0; absences++ }
          fi;
          lock = 0;
          left--
       :: freed == 0 && header == MARKED ->
#if MUTANT == 5
          lock = 0;
          goto copy
#elif MUTANT == 9
          d_step { last++; taken = 1; value = last; present = 1; version = head }
          lock = 0;
          left--
#else
          finish_leaf();
          lock = 0;
          finish_links();
          goto again
#endif
       :: freed == 0 && header == DEAD ->
          lock = 0;
          finish_links();
          goto again
       fi;
       goto next;
copy:
       atomic { copy_lock == 0 -> copy_lock = _pid }
       may_die();
       assert(copied);
       if
       :: d_step { last++; copy_taken = 1; copy_value = last; present = 1 }
       :: d_step { copy_taken -> copy_taken = 0; present = 0; absences++ }
       fi;
       copy_lock = 0;
       left--;
next:
       skip
    od;
    goto end;
gone:
    skip;
    d_step {
        if :: lock == _pid -> lock = 0 :: else fi;
        if :: copy_lock == _pid -> copy_lock = 0 :: else fi;
        if :: left_lock == _pid -> left_lock = 0 :: else fi;
        if :: parent_lock == _pid -> parent_lock = 0 :: else fi
    }
end:
    skip
}

/* ---- a lookup of K ---- */

#define HIT_JUST(v) (v > last_then || v == last_then && present_then)
#define MISS_JUST (!present_then || absences != absences_then)

proctype Reader() {
    mtype seen_header;
    byte seen_head, seen_value, seen_version;
    bool got[3], seen_taken, present_then, at_copy;
    byte last_then, absences_then;
    d_step { present_then = present; last_then = last; absences_then = absences }
    if
    :: at_copy = 0 /* a link of any age */
    :: at_copy = entry_new
    :: at_copy = left_new
    fi;
    if
    :: at_copy -> goto copy
    :: else
    fi;
    do
    :: d_step { !got[0] -> seen_header = header; got[0] = 1 }
    :: d_step { !got[1] -> seen_head = head; got[1] = 1 }
    :: d_step { !got[2] -> seen_taken = taken; seen_value = value; seen_version = version; got[2] = 1 }
    :: got[0] && got[1] && got[2] -> break
    od;
    if
    :: seen_taken && seen_version == seen_head -> assert(HIT_JUST(seen_value)) /* R1 */
    :: else ->
       if
       :: seen_header == LIVE && !seen_taken && seen_version == 0 -> assert(MISS_JUST) /* R2 */
       :: else /* again, or from the parent */
       fi
    fi;
    goto end;
copy:
    atomic {
        if
        :: copy_taken -> assert(HIT_JUST(copy_value))
        :: else -> assert(MISS_JUST)
        fi
    };
end:
    skip
}

/* When all have ended: no lock is left, nothing is lost, and N is freed once or still named. */
proctype Judge() {
    timeout ->
        assert(lock == 0 && copy_lock == 0 && left_lock == 0 && parent_lock == 0);
        assert(freed <= 1 && (freed == 0 || left_new && entry_new));
        if
        :: header == LIVE -> assert(present == taken && (!present || value == last))
        :: else -> assert(copied && present == copy_taken && (!present || copy_value == last))
        fi
}

init {
    atomic {
        run Mover();
        run Writer();
#if WRITERS > 1
        run Writer();
#endif
#if READERS
        run Reader();
#endif
        run Judge()
    }
}
