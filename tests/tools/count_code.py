#!/usr/bin/env python3
"""Counts the program's code by crate: without blank lines, comments and inline tests; lines and bytes.

count_code.py [COMMIT...] counts the work tree, or each commit."""
import collections
import re
import subprocess
import sys

TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|\'(?:\\.[^\']*|[^\\\'\n])\'', re.DOTALL)
TEST_FILE = re.compile(r'/tests(?:\.rs$|/)')
TEST = re.compile(r'#\[cfg\((?:all\()?test\b[^\]]*\]')
PROGRAM = re.compile(r'crates/([^/]+)/(?:src|build)/.*\.rs$|crates/([^/]+)/build\.rs$')


def without_comments(text):
    return TOKEN.sub(lambda found: '' if found[0].startswith(('//', '/*')) else found[0], text)


def end_of_item(text, at):
    """Where the item that begins at `at` ends: after its block or its semicolon."""
    depth = 0
    while at < len(text):
        literal = TOKEN.match(text, at)
        if literal:
            at = literal.end()
            continue
        character = text[at]
        depth += (character in '([{') - (character in ')]}')
        at += 1
        if depth == 0 and (character == ';' or character == '}'):
            return at
        if depth < 0 or (depth == 0 and character == ','):
            return at
    return at


def without_tests(text):
    while found := TEST.search(text):
        text = text[:found.start()] + text[end_of_item(text, found.end()):]
    return text


def git(*arguments):
    return subprocess.run(['git', *arguments], check=True, capture_output=True, text=True).stdout


def count(commit):
    listed = git('ls-tree', '-r', '--name-only', commit) if commit else git('ls-files')
    sums = collections.Counter()
    for path in listed.splitlines():
        found = PROGRAM.match(path)
        if not found or TEST_FILE.search(path):
            continue
        text = git('show', f'{commit}:{path}') if commit else open(path, encoding='utf-8').read()
        code = [line.strip() for line in without_tests(without_comments(text)).splitlines() if line.strip()]
        crate = found[1] or found[2]
        for name in (crate, 'all'):
            sums[name, 'lines'] += len(code)
            sums[name, 'bytes'] += sum(len(line.encode()) for line in code)
            sums[name, 'unsafe'] += sum(len(re.findall(r'\bunsafe\s*\{', line)) for line in code)
            sums[name, 'files'] += 1
    return sums


for commit in sys.argv[1:] or [None]:
    sums = count(commit)
    print(f'{commit or "work tree"}\n{"crate":16}{"files":>7}{"lines":>8}{"%":>5}{"bytes":>10}{"unsafe":>8}')
    for crate in sorted({name for name, _ in sums}, key=lambda name: (name == 'all', name)):
        lines = sums[crate, 'lines']
        share = round(100 * lines / sums['all', 'lines'])
        print(f'{crate:16}{sums[crate, "files"]:7}{lines:8}{share:5}{sums[crate, "bytes"]:10}{sums[crate, "unsafe"]:8}')
