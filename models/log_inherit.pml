/*
 * log_inherit.pml - a logged range with one key that goes from process to process: owners that live or die, fencing,
 * heirs in the map, a successor that reads their streams above their watermarks, logs again under its own epoch, serves,
 * and takes the heirs off the map; ranges that come back, become shared, or become one with another (L7,
 * docs/internals/log.md; src/log/, src/owner/). A commit is one step here (log_commit.pml), so is a merge
 * (log_merge.pml); adopting and the map's lock are owner_move.pml's and owner_map.pml's. What is left out and why:
 * docs/internals/models.md.
 *
 * Written values only grow. No read returns less than what was acknowledged, or returned by a read, before it.
 *
 * MUTANT=n takes one rule away; each must be refuted:
 *   1 the owner that does not adopt is not fenced
 *   2 the heirs are taken off before what they had is logged again
 *   3 the successor serves before it has logged again, and logs again all the same
 *   4 the successor's watermark passes what it logged newly while the heirs stand
 *   5 a living former owner's watermark passes while it is an heir
 *   6 a dead process's segments are released while it is an heir
 *   7 an heir has no epoch: all that its streams have of the range counts
 *   8 two ranges become one before what was logged under the earlier epoch is merged
 *   9 instead of the heirs' epochs, an entry that is logged when a range was gained makes void what was logged before
 *  10 entries of several processes are put in the order of their sequences alone
 *  11 the last owner alone becomes an heir
 *  12 what is logged again carries the epoch that it had
 *  13 a range becomes shared before its owner has merged
 *  14 a range is given up with a write under way
 *  15 what the table has of a range stays when the range goes
 *  16 a dead owner's range becomes shared at once
 *  17 a successor that is its own heir does not read its own streams
 *  18 heirs are taken off by a process that has lost the range since
 *  19 the next owner begins while the entry says "moving"
 *  20 the successor does not log again
 *  21 a range with heirs becomes shared
 *  22 an owner serves though the list of heirs has no room for it
 */
#ifndef MUTANT
#define MUTANT 0
#endif
#ifndef W /* values written, at most */
#define W 2
#endif
#ifndef MOVES
#define MOVES 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef FENCES /* of an owner that lives, but does not answer */
#define FENCES 0
#endif
#ifndef SHARED /* the range may become shared, too */
#define SHARED 0
#endif
#ifndef JOINS /* with a range of the same owner, which it has had since a later epoch */
#define JOINS 0
#endif
#ifndef HEIRS /* for which the map's entry has room */
#define HEIRS 3
#endif
#define L 8 /* entries of a stream */
#define AT(p, i) (L * (p) + (i))
#define max(a, b) ((a) > (b) -> (a) : (b))

/* ---- the pool: the leaf, streams ---- */

byte leaf, next_value = 1, known;
byte value[4 * L], epoch_of[4 * L]; /* value 0: mutation 9's entry */
byte count[4], watermark[4];

/* ---- the map ---- */

byte owner = 1, next, epoch = 1;
bool moving;
byte heirs, heir[4], heir_epoch[4];

/* ---- processes ---- */

#define NO_RIGHT 0
#define INHERITING 1
#define SERVING 2
#define INHERITED 3 /* it serves when the heirs are off */
byte right[4], my_epoch[4], table[4], again[4]; /* again: the entries up to the end of what was logged again */
bool busy[4], dead[4], fenced[4];
bool owes[4]; /* mutation 3: it serves, and has not logged again */
byte moves_left = MOVES, deaths_left = DEATHS, fences_left = FENCES, joins_left = JOINS;

#define GONE(p) (dead[p] || fenced[p])
#define HEIR(p) \
    (heirs > 0 && heir[0] == p || heirs > 1 && heir[1] == p || heirs > 2 && heir[2] == p || heirs > 3 && heir[3] == p)
#define NAMED(p) (owner == p || HEIR(p) && !(MUTANT == 5 && !dead[p]) && !(MUTANT == 6 && dead[p]))
#define HOLDS(p) (owner == p && (!moving || MUTANT == 19) || MUTANT == 19 && moving && next == p)
#define append(p, e, v) assert(count[p] < L); value[AT(p, count[p])] = v; epoch_of[AT(p, count[p])] = e; count[p]++

#define COUNTS(p, i, h) (MUTANT == 9 -> i >= voided : epoch_of[AT(p, i)] == heir_epoch[h] || MUTANT == 7)
#define NEWER(p, i) (MUTANT == 10 -> i > s : epoch_of[AT(p, i)] > e || epoch_of[AT(p, i)] == e && i >= s)
/* What the heirs' streams have: of the entries that count, the one with the greatest epoch and sequence. */
inline inherit(p) {
    h = 0;
    do
    :: h < heirs && (heir[h] != p || MUTANT != 17) ->
#if MUTANT == 9
       voided = 0;
       i = 0;
       do
       :: i < count[heir[h]] -> voided = (value[AT(heir[h], i)] == 0 -> i : voided); i++
       :: else -> break
       od;
#endif
       i = watermark[heir[h]];
       do
       :: i < count[heir[h]] ->
          if
          :: value[AT(heir[h], i)] && COUNTS(heir[h], i, h) && NEWER(heir[h], i) ->
             e = epoch_of[AT(heir[h], i)]; s = i; v = value[AT(heir[h], i)]
          :: else
          fi;
          i++
       :: else -> break
       od;
       h++
    :: h < heirs && heir[h] == p && MUTANT == 17 -> h++
    :: h == heirs -> break
    od;
    h = 0; i = 0; s = 0; voided = 0
}

/* A write: posted, arrived or cut, acknowledged. */
proctype Writer(byte p) {
    byte v;
end: do
    :: atomic { right[p] == SERVING && !busy[p] && !dead[p] && next_value <= W -> v = next_value; next_value++; busy[p] = 1 };
       atomic {
           if
           :: !fenced[p] -> append(p, my_epoch[p], v)
           :: fenced[p] -> v = 0
           fi
       };
       atomic { !dead[p] ->
           table[p] = (v && right[p] -> v : table[p]); known = max(known, v);
           v = 0; busy[p] = 0
       }
    od
}

/* L7: it has gained the range. */
#define GOES_ON(p) (!GONE(p) && right[p])
proctype Inheritor(byte p) {
    byte v, e, s, h, i, voided;
end: do
    :: atomic { !right[p] && !dead[p] && !fenced[p] && HOLDS(p) ->
           right[p] = INHERITING; my_epoch[p] = epoch;
           d_step { inherit(p); heirs = (MUTANT == 2 -> 0 : heirs) };
#if MUTANT == 3
           table[p] = v; right[p] = SERVING; owes[p] = 1;
#endif
           s = (MUTANT == 12 -> e : my_epoch[p]); e = 0
       };
#if MUTANT == 9
       atomic {
           if
           :: GOES_ON(p) -> append(p, my_epoch[p], 0)
           :: else
           fi
       };
#endif
       atomic {
           if
           :: GOES_ON(p) && v && MUTANT != 20 -> append(p, s, v)
           :: else
           fi;
           s = 0
       };
       atomic {
           if
           :: GOES_ON(p) ->
#if MUTANT != 3
              table[p] = (v -> v : table[p]);
#endif
              again[p] = count[p]; owes[p] = 0;
              right[p] = (heirs < HEIRS || MUTANT == 22 -> SERVING : INHERITED)
           :: else
           fi;
           v = 0
       }
    od
}

/* What is one step. */
#define ACTIVE(p) (right[p] == SERVING && !GONE(p))
#define SETTLED(p) (owner == p && !moving && epoch == my_epoch[p])
#define ANSWER (table[p] -> table[p] : leaf)
proctype Owner(byte p) {
    bool off;
end: do
    /* merging, and the watermark */
    :: d_step { ACTIVE(p) && !busy[p] && table[p] -> leaf = table[p]; table[p] = 0 }
    :: d_step { ACTIVE(p) && !busy[p] && !table[p] && watermark[p] < count[p] &&
           (!heirs || count[p] == again[p] || MUTANT == 4) ->
           watermark[p] = count[p] }
    :: d_step { !NAMED(p) && !right[p] && watermark[p] < count[p] -> watermark[p] = count[p] }
    /* O1: it gives up the range */
    :: d_step { right[p] && !dead[p] && !HOLDS(p) && (!busy[p] || MUTANT == 14) &&
           (next || !moving || right[p] == SERVING && !table[p] || fenced[p] || MUTANT == 13) ->
           right[p] = NO_RIGHT;
           table[p] = (MUTANT == 15 -> table[p] : 0) }
    /* under the map's lock */
    :: d_step { (ACTIVE(p) || right[p] == INHERITED && !GONE(p)) && heirs && SETTLED(p) && !owes[p] && MUTANT != 18 ->
           heirs = 0; right[p] = SERVING }
    :: atomic { MUTANT == 18 && ACTIVE(p) && heirs && SETTLED(p) && !off -> off = 1 }
    :: d_step { MUTANT == 18 && off && !dead[p] && !fenced[p] -> off = 0; heirs = 0 }
    /* two ranges become one, under the later epoch of both */
    :: d_step { joins_left > 0 && ACTIVE(p) && SETTLED(p) && !busy[p] && !heirs &&
           (watermark[p] == count[p] && !table[p] || MUTANT == 8) ->
           joins_left--; epoch++; my_epoch[p] = epoch }
    /* a lookup; others ask the owner */
    :: d_step { ACTIVE(p) && !busy[p] && ANSWER != known -> assert(ANSWER > known); known = ANSWER }
    :: d_step { deaths_left > 0 && !dead[p] -> deaths_left--; dead[p] = 1 }
    od
}

proctype Mover() {
end: do
    :: atomic { moves_left > 0 ->
           if
           :: owner != 1 && !GONE(1) -> next = 1
           :: owner != 2 && !GONE(2) -> next = 2
           :: owner != 3 && !GONE(3) -> next = 3
           :: SHARED && owner && (!GONE(owner) || MUTANT == 16) && (!heirs || MUTANT == 21) -> next = 0
           fi;
           moves_left--; moving = 1
       };
       if
       :: atomic { owner == 0 || !dead[owner] && !right[owner] } /* adopted */
       :: atomic { owner && dead[owner] -> fenced[owner] = (MUTANT != 1) }
       :: atomic { owner && !dead[owner] && fences_left > 0 -> fences_left--; fenced[owner] = (MUTANT != 1) }
       fi;
       atomic {
           if
           :: !next && owner && GONE(owner) && MUTANT != 16 -> /* a dead owner's range goes to one that lives first */
              if
              :: !GONE(1) -> next = 1
              :: !GONE(2) -> next = 2
              :: !GONE(3) -> next = 3
              fi
           :: else
           fi;
           heirs = (MUTANT == 11 || !next || !owner -> 0 : heirs);
           if
           :: owner && next && heirs < HEIRS -> heir[heirs] = owner; heir_epoch[heirs] = epoch; heirs++
           :: else
           fi;
           owner = next; epoch++; next = 0; moving = 0
       }
    /* a write to the shared range, and a look */
    :: atomic { SHARED && owner == 0 && !moving && next_value <= W -> leaf = next_value; known = leaf; next_value++ }
    :: d_step { SHARED && owner == 0 && !moving && leaf != known -> assert(leaf > known); known = leaf }
    od
}

/* A range that has a living owner is served. */
proctype Judge() {
    timeout -> assert(!owner || GONE(owner) || moving || right[owner] == SERVING)
}

init {
    atomic {
        right[1] = SERVING; my_epoch[1] = 1;
        run Writer(1);
        run Writer(2);
        run Writer(3);
        run Inheritor(1);
        run Inheritor(2);
        run Inheritor(3);
        run Owner(1);
        run Owner(2);
        run Owner(3);
        run Mover();
        run Judge()
    }
}
