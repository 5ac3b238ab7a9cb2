/* page.c - see page.h. */
#include "bench/page.h"

static const char style[] =
    ":root{--ink:#1c2430;--soft:#5d6b7c;--line:#d9e0e8;--paper:#fff;--ground:#f4f6f9;"
    "--c0:#8a97a8;--c1:#4c78c9;--c2:#2a9d8f;--c3:#c98a1b;--c4:#7d5bbe;--c5:#d1495b;--c6:#3d405b;--c7:#6a994e}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6ebf2;--soft:#9aa8b8;--line:#334053;--paper:#1b2330;"
    "--ground:#131924}}"
    "*{box-sizing:border-box}body{margin:0;background:var(--ground);color:var(--ink);"
    "font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}"
    "main{max-width:1180px;margin:0 auto;padding:32px 20px 60px}h1{font-size:26px;margin:0 0 6px}"
    "h2{font-size:19px;margin:40px 0 12px}h3{font-size:14px;margin:0 0 "
    "10px;color:var(--soft);font-weight:600}"
    "p{margin:0 0 12px;color:var(--soft);max-width:100ch}.grid{display:grid;gap:16px;"
    "grid-template-columns:repeat(auto-fit,minmax(min(100%,500px),1fr))}"
    ".panel{background:var(--paper);border:1px solid var(--line);border-radius:10px;padding:16px 18px}"
    ".wide{grid-column:1/-1;overflow-x:auto}svg{width:100%;height:auto;display:block}"
    "svg text{fill:var(--ink);font:12px system-ui,sans-serif}svg .soft{fill:var(--soft)}"
    "svg .axis{stroke:var(--line);stroke-width:1}table{border-collapse:collapse;width:100%;font-size:12.5px;"
    "font-variant-numeric:tabular-nums}th,td{padding:5px 6px;text-align:right;border-bottom:1px solid "
    "var(--line);"
    "white-space:nowrap}th:first-child,td:first-child{text-align:left}th{color:var(--soft);font-weight:600}"
    "tr:last-child td{border-bottom:0}";

void page_begin(FILE *file, const char *title)
{
    fputs("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
          "content=\"width=device-width,initial-scale=1\"><title>",
          file);
    page_text(file, title);
    fprintf(file, "</title><style>%s</style></head><body><main><h1>", style);
    page_text(file, title);
    fputs("</h1>", file);
}

void page_end(FILE *file)
{
    fputs("</main></body></html>\n", file);
}

void page_text(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", file);
        else if (*text == '>')
            fputs("&gt;", file);
        else if (*text == '&')
            fputs("&amp;", file);
        else if (*text == '"')
            fputs("&quot;", file);
        else
            fputc(*text, file);
    }
}

void page_number(FILE *file, double value)
{
    int digits = value >= 1000 ? 0 : value >= 100 ? 1 : value >= 0.01 || value <= 0 ? 2 : 4;
    fprintf(file, "%.*f", digits, value);
}
