/*
 * leaf_reuse.pml - a leaf that loses its last entry dies, is unlinked and freed, and its memory becomes another leaf
 * under a fresh tag, while others hold stale links to it (docs/internals/tree.md, R1, R2, R4, R5, R6, "Memory reuse";
 * src/tree/unlink.c, parent.c, split.c, modify.c, lookup.c, scan.c). What is left out and why: docs/internals/models.md.
 *
 * Address 0 is the leftmost leaf, which never dies; 1 and 2 are memory for a leaf to its right. One parent names the
 * leftmost leaf always, and by its entry for separator M that other one. All is about key D, beyond M. A split of
 * the leftmost leaf is one step here: leaf_split.pml.
 *
 * MUTANT=n takes one rule away; each must be refuted:
 *   1 memory is used again under the tag that it had
 *   2 a leaf dies with its last entry's slot still in it
 *   3 a leaf is given up without being marked dead
 *   4 a separator is posted without reading the child under the parent's lock
 *   5 the left neighbour takes over a dead leaf's range without being its neighbour any more
 *   6 a leaf may die that its parent does not name yet
 *   7 the parent's entry goes before the left neighbour is widened
 *   8 every session that helps to unlink frees the leaf, whether it removed its entry or not
 *   9 a miss does not compare the header's tag with the link's
 *  10 a miss may come from a dead leaf
 *  11 a writer does not look under the lock whether the leaf is dead
 *  12 a leaf is freed as soon as it is dead
 *  13 a scan delivers a leaf that is not the one that its link was made for
 *  14 a scan delivers what lies beyond the upper fence of the header that it has
 *  15 the session that replaces an entry of the parent leaves the node that it named to others
 */
#ifndef MUTANT
#define MUTANT 0
#endif
#ifndef OPERATIONS /* of the first writer, and of the second */
#define OPERATIONS 2
#endif
#ifndef OPERATIONS2
#define OPERATIONS2 1
#endif
#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef CUTS /* deaths, each at any step */
#define CUTS 1
#endif
#ifndef READS /* 0 any, 1 lookups, 2 scans */
#define READS 0
#endif
#ifndef JOINED /* at first D lies in the leftmost leaf, and 1 is what a dead leaf left */
#define JOINED 0
#endif
#define LEAF 0
#define NOTHING 0 /* an address: of no entry, of no sibling */

/* ---- memory: a header, and the slot of D; each with a check of its own, written and read as one ---- */

mtype = { LIVE, DEAD };
mtype state[3];
byte tag[3];
byte version[3];                        /* of 0 alone does it change */
byte sibling = 1, sibling_tag = 2;      /* of 0; NOTHING: 0 has no upper fence, and D belongs there */
bool taken[3];
byte value[3], slot_tag[3], slot_version[3];
byte entry = 1, entry_tag = 2;          /* of the parent, for M */
byte lock[3], parent_lock;              /* freed at their owner's death: lock.pml */
bool free[3];
byte fresh = 3; /* the next tag */

/* ---- the truth about D, for the judge ---- */

bool present = 1;
byte last = 1, absences = 0;
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
inline release(a) {
    assert(!free[a] && a != LEAF); /* a block with two owners would be far worse than one that is lost */
    free[a] = 1
}

/* ---- the parent ---- */

inline post(a, t) {
    atomic { parent_lock == 0 -> parent_lock = _pid }
    lives = 0;
    if
    :: entry == a && entry_tag == t
    :: else ->
       lives = (tag[a] == t && state[a] == LIVE || MUTANT == 4)
    fi;
    may_die();
    replaced = NOTHING;
    if
    :: lives -> d_step { replaced = entry; entry = a; entry_tag = t }
    :: else
    fi;
    may_die();
    parent_lock = 0;
    if
    :: replaced != NOTHING && MUTANT != 15 -> atomic { release(replaced); replaced = NOTHING }
    :: else -> replaced = NOTHING
    fi
}
inline drop(a, t) {
    atomic { parent_lock == 0 -> parent_lock = _pid }
    may_die();
    dropped = 0;
    if
    :: entry == a && entry_tag == t -> d_step { entry = NOTHING; entry_tag = 0; dropped = 1 }
    :: else -> dropped = (MUTANT == 8)
    fi;
    may_die();
    parent_lock = 0;
    if
    :: dropped && MUTANT != 12 -> atomic { dropped = 0; release(a) }
    :: else -> dropped = 0
    fi
}

/* ---- R4: the two steps, which any session may take ---- */

inline widen(a, t) {
    atomic { lock[LEAF] == 0 -> lock[LEAF] = _pid }
    may_die();
    if
    :: sibling == a && sibling_tag == t -> d_step { sibling = NOTHING; sibling_tag = 0 }
#if MUTANT == 5
    :: else -> d_step { sibling = NOTHING; sibling_tag = 0 }
#else
    :: else
#endif
    fi;
    may_die();
    lock[LEAF] = 0
}
inline unlink_finish(a, t) {
#if MUTANT == 7
    drop(a, t);
    widen(a, t)
#else
    widen(a, t);
    drop(a, t)
#endif
}

/* ---- writers ---- */

#define DUE_HERE(a) (a != LEAF || sibling == NOTHING)

proctype Writer(byte left) {
    byte at, link_tag, cached = 1, cached_tag = 2, replaced, made, made_tag;
    bool direct, looked, walks, lives, dropped, put, wrote_slot, wrote_header;
    do
    :: left == 0 -> break
    :: else ->
       left--;
       if
       :: put = 1
       :: put = 0
       fi;
descend: /* by the parent that it has cached, however stale, or by one that it fetches */
       if
       :: atomic { at = cached; link_tag = cached_tag; looked = 0 }
       :: atomic { at = LEAF; link_tag = 0; cached = LEAF; cached_tag = 0; looked = 0 } /* it does not know the entry */
       :: atomic { at = entry; link_tag = entry_tag; cached = at; cached_tag = link_tag; looked = 1 }
       fi;
       direct = 1;
       if
       :: at == NOTHING -> link_tag = 1
       :: else
       fi;
again:
       atomic { lock[at] == 0 -> lock[at] = _pid }
       may_die();
       if
       :: tag[at] != link_tag -> /* stale: forget it */
          atomic { lock[at] = 0; cached = LEAF; cached_tag = 0; goto descend }
       :: tag[at] == link_tag && state[at] == DEAD && MUTANT != 11 ->
          lock[at] = 0;
          unlink_finish(at, link_tag);
          atomic { cached = LEAF; cached_tag = 0; goto descend }
       :: tag[at] == link_tag && state[at] == LIVE && !DUE_HERE(at) -> /* walk right */
          atomic {
              lock[at] = 0; made = sibling; made_tag = sibling_tag; walks = 1;
              if
              :: looked -> goto posting
              :: else -> goto right
              fi
          }
       :: tag[at] == link_tag && (state[at] == LIVE || MUTANT == 11) && DUE_HERE(at) -> skip
       fi;
       if
       :: put && at == LEAF && taken[LEAF] && (free[1] || free[2]) -> goto split
       :: put ->
          d_step {
              last++; present = 1;
              taken[at] = 1; value[at] = last; slot_tag[at] = link_tag; slot_version[at] = version[at]
          }
          may_die();
          lock[at] = 0
       :: !put && !taken[at] -> lock[at] = 0
       :: !put && taken[at] && (at == LEAF || !direct && MUTANT != 6) ->
          d_step { taken[at] = 0; value[at] = 0; present = 0; absences++ }
          may_die();
          lock[at] = 0
       :: !put && taken[at] && at != LEAF && (direct || MUTANT == 6) -> /* the last entry: one list */
#if MUTANT == 2
          present = 0; absences++;
#else
          d_step { taken[at] = 0; value[at] = 0; present = 0; absences++ }
#endif
          may_die();
#if MUTANT != 3
          state[at] = DEAD;
#endif
          may_die();
          lock[at] = 0;
#if MUTANT == 12
          atomic { release(at) }
#endif
          unlink_finish(at, link_tag)
       fi;
       goto next;

split: /* of the leftmost leaf: D moves to a sibling in memory that is free */
       atomic {
           if
           :: free[1] -> made = 1
           :: free[2] -> made = 2
           fi;
           free[made] = 0;
#if MUTANT == 1
           made_tag = tag[made];
           if
           :: made_tag == 0 -> made_tag = fresh; fresh++
           :: else
           fi
#else
           made_tag = fresh;
           fresh++
#endif
       }
       do /* the sibling's words, without its lock: no link leads to it yet */
       :: d_step { !wrote_slot ->
              taken[made] = 1; value[made] = value[LEAF]; slot_tag[made] = made_tag; slot_version[made] = 0;
              wrote_slot = 1 }
       :: d_step { !wrote_header -> state[made] = LIVE; tag[made] = made_tag; version[made] = 0; wrote_header = 1 }
       :: atomic { cuts_left > 0 -> cuts_left--; goto gone }
       :: atomic { wrote_slot && wrote_header -> wrote_slot = 0; wrote_header = 0; break }
       od;
       atomic {
           version[LEAF]++; sibling = made; sibling_tag = made_tag;
           taken[LEAF] = 0; value[LEAF] = 0; slot_version[LEAF] = version[LEAF]
       }
       may_die();
       lock[LEAF] = 0;
       may_die();
posting:
       post(made, made_tag);
right:
       atomic {
           if
           :: walks ->
              at = made; link_tag = made_tag; direct = 0; looked = 0; walks = 0; made = 0; made_tag = 0;
              goto again
           :: else
           fi
       };
next:
       atomic { made = 0; made_tag = 0; at = 0; link_tag = 0; direct = 0; looked = 0; put = 0; lives = 0 }
    od;
    goto end;
gone:
    atomic {
        if :: lock[0] == _pid -> lock[0] = 0 :: else fi;
        if :: lock[1] == _pid -> lock[1] = 0 :: else fi;
        if :: lock[2] == _pid -> lock[2] = 0 :: else fi;
        if :: parent_lock == _pid -> parent_lock = 0 :: else fi
    };
end:
    skip
}

/* ---- readers: one is enough, they do not hinder each other ---- */

#define HIT_JUST(v) (v > last_then || v == last_then && present_then)
#define MISS_JUST (!present_then || absences != absences_then)

proctype Reader() {
    byte at, link_tag, slot_t, slot_v, seen_value, header_t, header_v, seen_sibling, seen_sibling_tag;
    byte last_then, absences_then;
    mtype header_s = LIVE;
    bool got_slot, got_header, seen_taken, present_then, scan;
    /* of the leftmost leaf, for a scan that reads both together */
    byte left_value, left_version, left_slot_version, left_sibling;
    bool got_left_slot, got_left_header, left_taken;

    d_step { present_then = present; last_then = last; absences_then = absences };
    if
#if READS != 2
    :: atomic { at = 1; link_tag = 2 }              /* a stale link */
    :: atomic { at = entry; link_tag = entry_tag }  /* a parent fetched now */
    :: atomic { at = LEAF }                         /* a parent that does not know the entry */
#endif
#if READS != 1
    :: atomic { at = 1; link_tag = 2; scan = 1 }
    :: atomic { entry != NOTHING -> at = entry; link_tag = entry_tag; scan = 1 }
#endif
    fi;
    if
    :: at == LEAF -> link_tag = 1
    :: else
    fi;
fetch:
    do
    :: d_step { !got_slot ->
           seen_taken = taken[at]; slot_t = slot_tag[at]; slot_v = slot_version[at]; seen_value = value[at]; got_slot = 1 }
    :: d_step { !got_header ->
           header_s = state[at]; header_t = tag[at]; header_v = version[at];
           seen_sibling = (at == LEAF -> sibling : 0); seen_sibling_tag = (at == LEAF -> sibling_tag : 0); got_header = 1 }
    :: d_step { scan && !got_left_slot ->
           left_taken = taken[LEAF]; left_value = value[LEAF]; left_slot_version = slot_version[LEAF]; got_left_slot = 1 }
    :: d_step { scan && !got_left_header -> left_version = version[LEAF]; left_sibling = sibling; got_left_header = 1 }
    :: atomic { got_slot && got_header && (!scan || got_left_slot && got_left_header) -> break }
    od;
    if
    :: scan -> goto deliver
    :: else
    fi;
    if
    :: seen_taken && slot_t == link_tag -> assert(HIT_JUST(seen_value)) /* R1 */
    :: else -> /* R2 */
       if
       :: header_t != link_tag && MUTANT != 9 -> skip
       :: header_s == DEAD && MUTANT != 10 -> skip
       :: else ->
          if
          :: seen_sibling != NOTHING -> /* walk right */
             atomic {
                 at = seen_sibling; link_tag = seen_sibling_tag; got_slot = 0; got_header = 0;
                 seen_sibling = 0; seen_sibling_tag = 0; goto fetch
             }
          :: else ->
             assert(!(slot_t == link_tag && slot_v == header_v && !seen_taken) || MISS_JUST)
          fi
       fi
    fi;
    goto end;
deliver: /* R5: first the leftmost leaf, then what its fence leaves */
    if
    :: left_slot_version != left_version -> skip /* again */
    :: left_slot_version == left_version && left_sibling == NOTHING ->
       assert(left_taken && HIT_JUST(left_value) || !left_taken && MISS_JUST)
    :: left_slot_version == left_version && left_sibling != NOTHING ->
       /* D in this slot came after the header was fetched and widened: it is not delivered from here */
       assert(!left_taken || MUTANT != 14); /* it would come twice */
       if
       :: (header_t == link_tag && slot_t == link_tag || MUTANT == 13) && header_s == LIVE && slot_v == header_v ->
          assert(seen_taken && HIT_JUST(seen_value) || !seen_taken && MISS_JUST)
       :: else -> skip /* located anew from M on: a lookup's story */
       fi
    fi;
end:
    skip
}

/* When all have ended: no lock is left; a search from the parent, or from the left, finds D where it is; nothing names
 * memory that is free or another's. */
proctype Judge() {
    timeout ->
        assert(lock[0] == 0 && lock[1] == 0 && lock[2] == 0 && parent_lock == 0);
        assert(entry == NOTHING || tag[entry] == entry_tag && !free[entry]);
        assert(sibling == NOTHING || tag[sibling] == sibling_tag && !free[sibling]);
        assert(CUTS || free[1] || entry == 1 && sibling == 1); /* without deaths no memory is lost */
        assert(CUTS || free[2] || entry == 2 && sibling == 2);
        assert(entry == NOTHING || state[entry] == DEAD || sibling == entry && sibling_tag == entry_tag);
        if
        :: sibling == NOTHING -> assert(present == taken[LEAF] && (!present || value[LEAF] == last))
        :: sibling != NOTHING && state[sibling] == LIVE ->
           assert(present == taken[sibling] && (!present || value[sibling] == last))
        :: sibling != NOTHING && state[sibling] == DEAD -> assert(!present)
        fi
}

init {
    atomic {
        state[0] = LIVE; state[2] = DEAD; free[2] = 1;
        tag[0] = 1; tag[1] = 2; slot_tag[0] = 1; slot_tag[1] = 2;
#if JOINED
        state[1] = DEAD; free[1] = 1; sibling = NOTHING; sibling_tag = 0; entry = NOTHING; entry_tag = 0;
        taken[0] = 1; value[0] = 1;
#else
        state[1] = LIVE;
        taken[1] = 1; value[1] = 1;
#endif
        run Writer(OPERATIONS);
#if WRITERS > 1
        run Writer(OPERATIONS2);
#endif
        run Reader();
        run Judge()
    }
}
