"""`innerloop reproduce` of three claims of our own, as a program; its workers import it, too.

`ahn2023/waits` leaves its process's number in the file `waiting` and then waits: always if there is
a file `always`, otherwise the first time it is measured.
"""

import os
import sys
import time
from pathlib import Path

import innerloop.reproduction
from innerloop.papers import Check, Verdict, registry

measuring = sys.modules[f"{innerloop.reproduction.__name__}.reproduce"]  # not the function
measuring.code_behind = lambda function: "these claims"  # they are no code of innerloop's
registry.check_papers = lambda: None  # the papers themselves are not needed


def holds(scale):
    return Verdict([Check("error", 0.0, 1.0, 2.0, "by definition", "another")])


def waits(scale):
    with Path("waiting").open("a") as file:
        file.write(f"{os.getpid()}\n")
    if Path("always").exists() or len(Path("waiting").read_text().splitlines()) == 1:
        time.sleep(600)
    return holds(scale)


for name, check in {"first": holds, "waits": waits, "last": holds}.items():
    registry.claim(f"ahn2023/{name}", f"The claim {name}", source="here")(check)

if __name__ == "__main__":
    from innerloop.cli import commands, main

    commands._refuse_unknown_ids = lambda words: None  # it reads the papers' sources
    sys.exit(main())
