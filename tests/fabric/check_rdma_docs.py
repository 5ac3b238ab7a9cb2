#!/usr/bin/env python3
"""The troubleshooting table of docs/rdma.md has every message that the opening of a NIC can end with.

Usage: check_rdma_docs.py DOCUMENT SOURCE.c...

Of each message (of error_set and refuse, and strings that functions return) it takes the key phrase: the first part of at
least three words between what is filled in and the punctuation. That must stand in the document.
"""
import re
import sys

LITERAL = r'"(?:[^"\\]|\\.)*"'
LITERALS = rf'({LITERAL}(?:{LITERAL}|PRI[a-z]+\d+|\s)*)'
CALLS = re.compile(r'(?:error_set\([^;"]*?|refuse\(error,\s*|return\s+)' + LITERALS)
FILLED = re.compile(r'%[-+ #0]*[\d.]*(?:l|ll|z)?[a-zA-Z]')


def messages(source):
    for match in CALLS.finditer(source):
        text = re.sub(r'PRI[a-z]+\d+', '"d"', match.group(1))
        text = ''.join(re.findall(r'"((?:[^"\\]|\\.)*)"', text))
        if text and not FILLED.fullmatch(text):
            yield text.replace('\\"', '"')


def key_phrase(message):
    parts = [part.strip() for part in re.split(r'[;:(),.?]\s|[;(),?]$|\(|' + FILLED.pattern, message)]
    for part in parts:
        if len(part.split()) >= 3:
            return part
    return max(parts, key=len)


def main():
    document, sources = sys.argv[1], sys.argv[2:]
    with open(document, encoding='utf-8') as file:
        written = re.sub(r'\s+', ' ', file.read())
    found = missing = 0
    for source in sources:
        with open(source, encoding='utf-8') as file:
            for message in messages(file.read()):
                found += 1
                phrase = key_phrase(message)
                if phrase not in written:
                    missing += 1
                    print(f'{source}: "{phrase}" is not in {document}; the message: {message}')
    print(f'{found} messages, {missing} not in {document}')
    # Far fewer than there are: then the messages are written in another way, and this file must learn it.
    return 1 if missing or found < 60 else 0


if __name__ == '__main__':
    sys.exit(main())
