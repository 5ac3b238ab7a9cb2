#!/usr/bin/env python3
"""scripts/bench-scale, small: its rows do not depend on --jobs, table and page are there, and what makes no sense is
refused. Arguments: the script, banyan."""
import json
import os
import subprocess
import sys
import tempfile

script, banyan = sys.argv[1:3]


def run(*arguments):
    return subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True,
                          env={**os.environ, "BANYAN": banyan})


def refused(needle, *arguments):
    done = run(*arguments)
    assert done.returncode == 2 and needle in done.stderr, (arguments, done.returncode, done.stderr)


SMALL = ["--keys", "5k,20k", "--clients", "8,16", "--nodes", "1,2", "--operations", "2000"]

with tempfile.TemporaryDirectory() as folder:
    rows = []
    for jobs in ("1", "2"):
        name, page = os.path.join(folder, jobs + ".json"), os.path.join(folder, jobs + ".html")
        done = run(*SMALL, "--jobs", jobs, "--json", name, "--report", page)
        assert done.returncode == 0, done.stderr
        with open(name) as file:
            rows.append(json.load(file)["rows"])
        with open(page) as file:
            text = file.read()
        assert text.count("<svg") == 4 * 6 and text.endswith("</html>\n") and ".panel{" in text
    # 4 series of 2 points, 2 workloads, 2 presets
    assert rows[0] == rows[1] and len(rows[0]) == 32
    for row in rows[0]:
        assert row["mops"] > 0 and row["height"] >= 2 and row["round_trips"] >= 0.5 and 0 < row["link"] <= 1.05, row
        assert set(row["kinds"]) == {"lookup", "upsert"}, row
    keys = [row for row in rows[0] if row["series"] == "keys"]
    assert [row["keys"] for row in keys[::4]] == [5000, 20000]
    assert done.stdout.count("From first to last:") == 16 and "| 20k |" in done.stdout

refused("GiB", "--keys", "900G")
refused("--keys", "--keys", "many")
refused("--only", "--only", "fly")
refused("--clients", "--clients", "17")
refused("--nodes", "--nodes", "0")
refused("--jobs", "--jobs", "0")
refused("unknown workload 'fly'", "--workload", "fly", *SMALL)
banyan += ".missing"
refused("not there", *SMALL)
