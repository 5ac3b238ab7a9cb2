/*
 * owner_border.pml - a range that process 1 owns is split in two, the upper part moves to process 3, comes back, and
 * the two are one again; process 1 may die while it is split, and process 2 succeeds it (O3,
 * docs/internals/ownership.md; src/owner/, src/tree/rights.h, tree/unlink.c, merge.c, split.c). Leaf L holds the lower
 * range's keys, leaf R begins at the border; R dies where it may, and L covers its keys from then on. What is left out
 * and why: docs/internals/models.md.
 *
 * Each leaf is a counter: each write makes the next value of the one it was decided by. Owners take no global lock, so
 * a write that lands on any other value is that of a second owner, who should have no part in this leaf.
 *
 * MUTANT=n takes one rule away; each must be refuted:
 *   1 the first leaf of a range may die: an unlink or a merge reaches across the border
 *   2 the border is made before the row is written and adopted
 *   3 a row moves though no leaf begins at its bound
 *   4 a row whose border is not made yet moves without its left neighbour
 *   5 a row is adopted while an unlink across its bound is under way
 *   6 the row is taken away before the left one's owner has the leaves
 *   7 a border's maker asks for the leaf without the latch
 */
#ifndef MUTANT
#define MUTANT 0
#endif
#ifndef W /* writes, at most */
#define W 2
#endif
#ifndef DEATHS /* of process 1 */
#define DEATHS 1
#endif
#define L 0
#define R 1
#define AT(p, x) (2 * (p) + (x))

/* ---- the pool and the map ---- */

byte leaf[2];
bool r_lives = 1, r_empty;
byte writes_left = W, deaths_left = DEATHS, r_deaths = 1;
bool row, bordered;           /* the upper range has a row of its own; a leaf begins at its bound */
byte lower = 1, upper = 1;    /* who owns them; 0: moving */
byte version, adopted[4];

/* ---- processes ---- */

bool has_lower[4], has_upper[4], knows_row[4]; /* the installed table */
byte table[4];
byte busy[4];    /* operations under way */
bool latch[8];   /* of each process, on each leaf */
bool dead[4];
bool wanted[4], made; /* the border: whom it is asked of; done */

#define FREE(p, x) !latch[AT(p, x)]

/* A write of a key of either range: it is decided by what the leaf holds. */
proctype Worker(byte p) {
    byte base, x;
    bool up;
end: do
    :: atomic { !dead[p] && writes_left > 0 && (has_lower[p] || has_upper[p]) ->
           writes_left--;
           busy[p]++;
           if
           :: has_lower[p] -> x = L
           :: has_upper[p] -> up = 1; x = (r_lives -> R : L)
           fi };
       atomic { FREE(p, x) -> latch[AT(p, x)] = 1; base = leaf[x] };
       d_step {
           if
           :: dead[p] || x == R && !r_lives || x == L && up && r_lives /* cut; or the key lies in the other leaf by now: it begins anew */
           :: else ->
              assert(leaf[x] == base);
              leaf[x]++;
              if
              :: x == R -> r_empty = !r_empty
              :: else
              fi
           fi;
           latch[AT(p, x)] = 0; busy[p]--; base = 0; x = 0; up = 0
       }
    od
}

/* R is empty: it dies, and L is widened; under both latches. */
proctype Unlinker(byte p) {
    byte base, base_r;
end: do
    :: atomic { !dead[p] && r_lives && r_empty && r_deaths > 0 && has_upper[p] && (!knows_row[p] || MUTANT == 1) ->
           r_deaths--; busy[p]++ };
       atomic { FREE(p, L) && FREE(p, R) -> latch[AT(p, L)] = 1; latch[AT(p, R)] = 1; base = leaf[L]; base_r = leaf[R] };
       d_step {
           if
           :: dead[p] || !r_lives || !r_empty
           :: else ->
              assert(leaf[L] == base && leaf[R] == base_r);
              leaf[L]++;
              r_lives = 0
           fi;
           latch[AT(p, L)] = 0; latch[AT(p, R)] = 0; busy[p]--; base = 0; base_r = 0
       }
    od
}

/* O1; and the border, when it is asked for. */
proctype Keeper(byte p) {
    byte v, base;
    bool r, l, u;
end: do
    :: d_step { !dead[p] && version > table[p] ->
           v = version; r = row; l = (lower == p); u = (row -> upper == p : lower == p);
           has_lower[p] = has_lower[p] && l; has_upper[p] = has_upper[p] && u; knows_row[p] = r };
       atomic { !busy[p] || MUTANT == 5 ->
           has_lower[p] = l; has_upper[p] = u; table[p] = v; adopted[p] = v;
           v = 0; r = 0; l = 0; u = 0 }
    :: atomic { !dead[p] && wanted[p] ->
           if
           :: FREE(p, L) || MUTANT == 7 -> wanted[p] = 0; latch[AT(p, L)] = 1; base = leaf[L]
           fi };
       d_step {
           if
           :: dead[p]
           :: !dead[p] && r_lives -> made = 1
           :: !dead[p] && !r_lives ->
              assert(leaf[L] == base);
              leaf[L]++;
              r_lives = 1; r_empty = 0; made = 1
           fi;
           latch[AT(p, L)] = 0; base = 0
       }
    od
}

/* It is asked, answers, or is fenced: then the successor gets what it had, and is asked. */
#define take_over() \
    atomic { deaths_left > 0 && lower == 1 -> deaths_left--; dead[1] = 1; wanted[1] = 0; made = 0; \
        if \
        :: upper == 1 && MUTANT == 4 && !bordered -> upper = 3 \
        :: upper == 1 && !(MUTANT == 4 && !bordered) -> upper = 2 \
        :: else \
        fi; \
        lower = 2; version++ }
inline make_border() {
    wanted[lower] = 1;
    if
    :: made
    :: take_over(); wanted[lower] = 1; made
    fi;
    made = 0
}
#define publish() version++; v = version
proctype Initiator() {
    byte v, old;
#if MUTANT == 2
    make_border();
#endif
    atomic { row = 1; publish() };
    if
    :: adopted[lower] >= v
    :: take_over(); adopted[lower] >= version
    fi;
#if MUTANT == 4
    if
    :: upper != lower -> goto end
    :: else
    fi;
#endif
#if MUTANT != 2 && MUTANT != 3
    make_border();
#endif
    atomic { bordered = 1; old = upper; upper = 0; publish() };
    if
    :: adopted[old] >= v
    :: take_over()
    fi;
    atomic { upper = 3; old = 0; publish() };
    /* and back */
#if MUTANT == 6
    atomic { row = 0; bordered = 0; publish() };
#endif
    atomic { upper = 0; publish() };
    adopted[3] >= v;
    atomic { upper = lower; publish() };
    if
    :: adopted[lower] >= v
    :: take_over()
    fi;
    d_step { row = 0; bordered = 0; v = 0; version++ };
end:
    skip
}

init {
    atomic {
        has_lower[1] = 1; has_upper[1] = 1;
        run Worker(1);
        run Worker(2);
        run Worker(3);
        run Unlinker(1);
        run Unlinker(3);
        run Keeper(1);
        run Keeper(2);
        run Keeper(3);
        run Initiator()
    }
}
