/*
 * page.h - a page of results that stands alone: no script, no font, no image from elsewhere. Plots are inline
 * SVG with the numbers in them, so that the page can be printed, mailed and read by a screen reader.
 *
 * For the writers of reports (report.h): they write to an open stream and leave closing
 * and checking it to their caller. The style has colours var(--c0) to var(--c7), var(--ink), var(--soft) and
 * var(--line), and the classes `panel` (a box), `grid` (of panels), `wide` (a panel of the grid's width), and
 * `soft` and `axis` in an SVG.
 */
#ifndef BENCH_PAGE_H
#define BENCH_PAGE_H

#include <stdio.h>

/* Up to and with the heading; page_end ends what page_begin has begun. */
void page_begin(FILE *file, const char *title);
void page_end(FILE *file);
/* Text from names, which users give: never markup. */
void page_text(FILE *file, const char *text);
/* With about three digits. */
void page_number(FILE *file, double value);

#endif
