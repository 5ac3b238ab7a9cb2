#!/usr/bin/env python3
"""scripts/calibrate run small: prints what tests/cli/calibrate.small holds, twice the same, and refuses bad options.

Arguments: scripts/calibrate, the program banyan, the file. A change of the model or of the index may change what is
printed; then the file is written anew by

  scripts/calibrate --small --program PROGRAM >tests/cli/calibrate.small

and the full fit is due too (docs/internals/simulator.md, "Calibration").
"""
import difflib
import subprocess
import sys


def run(script, *arguments):
    return subprocess.run([sys.executable, script, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def refusals(script, program):
    expected = (
        (["--program", "/nonexistent/banyan"], "/nonexistent/banyan"),
        (["--program", program, "--keys", "many"], "--keys"),
        (["--program", program, "--keys", "0"], "--keys must be at least 1"),
        (["--program", program, "--jobs", "0"], "--jobs must be at least 1"),
        (["--program", program, "--keys", "1000", "--skew-of", "10"], "--skew-of must be at least --keys"),
        (["--program", program, "--check", "--table"], "not allowed"),
        (["--program", program, "--sim", "wire-ns=1"], "--sim goes with --table"),
        (["--program", program, "--table", "--sim", "wire-ns"], "--sim is of the form NAME=VALUE"),
    )
    for arguments, says in expected:
        done = run(script, *arguments)
        if done.returncode != 2 or says not in done.stderr:
            sys.exit(f"calibrate {' '.join(arguments)}: status {done.returncode}, not 2 with '{says}':\n{done.stderr}")


def main():
    script, program, path = sys.argv[1:]
    refusals(script, program)
    with open(path, encoding="utf-8") as file:
        committed = file.read()
    done = run(script, "--small", "--program", program, "--jobs", "1")
    if done.returncode:
        sys.exit(f"calibrate --small ended with {done.returncode}:\n{done.stderr}")
    if done.stdout != committed:
        changes = difflib.unified_diff(committed.splitlines(), done.stdout.splitlines(), path, "now", lineterm="")
        sys.exit("\n".join(changes) + f"\n\nIf the model was changed on purpose:\n  scripts/calibrate --small --program "
                 f"{program} >{path}")
    checked = run(script, "--small", "--check", "--program", program, "--jobs", "3")
    if checked.returncode or not checked.stdout.startswith(committed) or "by default" not in checked.stdout:
        sys.exit(f"calibrate --small --check: status {checked.returncode}\n{checked.stdout}\n{checked.stderr}")


main()
