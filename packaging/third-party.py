#!/usr/bin/env python3
"""Prints the licences of everything that is linked into the programs: names, versions, texts.

`make golden` writes THIRD-PARTY-NOTICES with it, which every package has. Of a choice of licences
the first of CHOICE is taken.
"""
import itertools
import json
import os
import re
import subprocess
import sys

PROGRAMS = ["slurm-graphite", "slurm-reader", "rest-reader"]
CHOICE = ["MIT", "BSD-3-Clause", "BSD-2-Clause", "0BSD", "ISC", "Zlib", "Unlicense", "BSL-1.0", "Apache-2.0"]
TARGETS = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"]


def cargo(*args):
    return subprocess.run(["cargo", *args, "--locked"], check=True, capture_output=True, text=True).stdout


def linked():
    """Name and version of each part."""
    parts = set()
    for program, target in itertools.product(PROGRAMS, TARGETS):
        tree = cargo("tree", "--package", program, "--edges", "normal", "--target", target,
                     "--prefix", "none", "--no-dedupe")
        for line in filter(None, tree.splitlines()):
            name, version = line.split()[:2]
            # Our own crates have a path.
            if "(/" not in line:
                parts.add((name, version.removeprefix("v")))
    return parts


def needed(expression):
    """The licences to follow: one of each choice."""
    expression = expression.replace("/", " OR ")
    if " AND " in expression and "(" in expression:
        return [one for part in re.split(r" AND (?![^(]*\))", expression) for one in needed(part.strip("()"))]
    if " OR " in expression:
        names = [name.strip("() ") for name in expression.split(" OR ")]
        return [next(name for name in CHOICE if name in names)]
    return [name.strip() for name in expression.split(" AND ")]


def texts(folder, licences):
    """The texts of these licences in a crate's folder, and every notice."""
    names = sorted(name for name in os.listdir(folder)
                   if re.match(r"(?i)(licen[sc]e|copying|copyright|notice|unlicense)", name))
    files = [name for name in names if os.path.isfile(os.path.join(folder, name))]
    words = [licence.split("-")[0].lower() for licence in licences]
    named = [name for name in files
             if any(word in name.lower() for word in words) or re.match(r"(?i)(notice|copyright)", name)]
    # A file without a licence in its name has all of them.
    chosen = named if any(not re.match(r"(?i)(notice|copyright)", name) for name in named) else files
    return [open(os.path.join(folder, name), encoding="utf-8").read().strip() for name in chosen]


def main():
    parts = linked()
    packages = json.loads(cargo("metadata", "--format-version", "1"))["packages"]
    by_text, missing = {}, []
    for package in sorted(packages, key=lambda one: (one["name"], one["version"])):
        key = package["name"], package["version"]
        if key not in parts:
            continue
        licences = needed(package["license"])
        found = texts(os.path.dirname(package["manifest_path"]), licences)
        if not found:
            missing.append(f"{key[0]} {key[1]}: {package['license']}")
        title = f"{key[0]} {key[1]} ({' and '.join(licences)})"
        if key[0] == "libc":
            # Of the same authors, under the same licence.
            title += "\nthe standard library of Rust (MIT)"
        for text in found:
            by_text.setdefault(re.sub(r"[ \t]+$", "", text.replace("\r\n", "\n"), flags=re.M), []).append(title)
    if missing:
        sys.exit("no licence's text: " + ", ".join(missing))
    print("The programs of slurm-graphite contain these parts by others. "
          "Their licences require that these texts go with them.")
    for text, titles in by_text.items():
        print("\n" + "=" * 100 + "\n" + "\n".join(titles) + "\n" + "-" * 100 + f"\n\n{text}")


main()
