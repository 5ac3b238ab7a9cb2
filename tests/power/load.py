"""Clients of a server whose power is cut (scripts/power-guest), and what each key may hold afterwards.

Every key is written by one client, with numbers that go up; its value tells its number and can be made again from it. So
each key has a list of what was written, in order, and a floor: the oldest of these that may be found after a cut.

  at disk-always  the floor rises with each answer;
  at disk-second  with each answer of WAITAOF 1 0 0, to what had been answered when it was asked.

What a start has found is the only thing that a key may hold from then on, until it is written again: what was on the
disk once stays there, and what was lost does not come back.
"""

import hashlib
import random
import socket
import threading
import time

CLIENTS = 4
KEYS = 120  # of each client
BATCH = 16
PASSWORD = "power-guest"  # a server that others can reach wants one
EXPIRY = 4_000_000_000_000  # ms since 1970, decades ahead


class Wrong(Exception):
    """The server broke its promise."""


class Lost(Exception):
    """The connection is gone, as it is when the power is."""


class Connection:
    def __init__(self, port, seconds):
        self.buffer = b""
        try:
            self.socket = socket.create_connection(("127.0.0.1", port), seconds)
        except OSError as error:
            raise Lost from error
        self.socket.settimeout(seconds)
        self.ask(b"AUTH", PASSWORD.encode())

    def send(self, *commands):
        parts = []
        for command in commands:
            parts.append(b"*%d\r\n" % len(command))
            for word in command:
                parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
        try:
            self.socket.sendall(b"".join(parts))
        except OSError as error:
            raise Lost from error

    def more(self):
        try:
            data = self.socket.recv(1 << 18)
        except OSError as error:
            raise Lost from error
        if not data:
            raise Lost
        self.buffer += data

    def line(self):
        while b"\r\n" not in self.buffer:
            self.more()
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def reply(self):
        line = self.line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        if kind != b"$":
            raise Wrong(f"the server says {line.decode(errors='replace')}")
        length = int(rest)
        if length < 0:
            return None
        while len(self.buffer) < length + 2:
            self.more()
        value, self.buffer = self.buffer[:length], self.buffer[length + 2:]
        return value

    def ask(self, *command):
        self.send(command)
        return self.reply()

    def close(self):
        self.socket.close()


class Key:
    """written: number -> None for a deletion, or (length, expiry). Number 0 is what a new disk has: nothing."""

    def __init__(self, name):
        self.name = name
        self.written, self.number = {0: None}, 0
        self.counted = 0  # answers come in order: the next one is of the write behind this one
        self.floor, self.answered = 0, 0
        self.answers = []  # (number, when), since the last start

    def value(self, number):
        head = b"%s %d " % (self.name, number)
        length, _ = self.written[number]
        return head + hashlib.shake_128(head).digest(length)

    def command(self, draw):
        self.number += 1
        if draw.random() < 0.1:
            self.written[self.number] = None
            return b"DEL", self.name
        size = draw.random()  # short; some blocks; longer than a record of the journal takes at once (K3)
        length = draw.randrange(200) if size < 0.85 else draw.randrange(8000) if size < 0.98 else draw.randrange(150_000)
        expiry = EXPIRY + self.number if draw.random() < 0.2 else -1
        self.written[self.number] = length, expiry
        words = b"SET", self.name, self.value(self.number)
        return words if expiry < 0 else words + (b"PXAT", b"%d" % expiry)

    def answer(self):
        """The write after the last one that was answered was."""
        self.counted += 1
        self.answered = self.counted
        self.answers.append((self.answered, time.monotonic()))

    def found(self, value, expires):
        """The server has this: the number of the write that it is. Raises Wrong if it may not be there."""
        allowed = [number for number in self.written if number >= self.floor]
        if value is None:
            holds = [number for number in allowed if self.written[number] is None]
            if not holds:
                raise Wrong(f"{self.name.decode()} is gone; it was write {self.floor} at least, of {self.number}")
            return holds[-1] if self.answered not in holds else self.answered
        number = value.split(b" ", 2)[1] if value.startswith(self.name + b" ") else b""
        number = int(number) if number.isdigit() else -1
        if number not in allowed:
            raise Wrong(f"{self.name.decode()} is write {number}; it may be {self.floor} at least, of {self.number}")
        if self.written[number] is None or value != self.value(number):
            raise Wrong(f"{self.name.decode()}: write {number} is damaged: {len(value)} bytes, {value[:40]!r}")
        if expires != self.written[number][1]:
            raise Wrong(f"{self.name.decode()}: write {number} expires at {expires}, not {self.written[number][1]}")
        return number

    def settle(self, number):
        """It holds this write, and nothing else may be found any more."""
        lost = [when for answered, when in self.answers if answered > number]
        self.written = {self.number + 1: self.written[number]} if self.written[number] is None \
            else {number: self.written[number]}
        self.floor = next(iter(self.written))
        self.number = max(self.number, self.floor)
        self.answered, self.counted = self.floor, self.number
        self.answers.clear()
        return lost


class Load:
    """`always`: the level is disk-always. One at a time runs: start, stop; or check."""

    def __init__(self, port, always, seed):
        self.port, self.always = port, always
        self.draw = random.Random(seed)
        self.keys = [[Key(b"k%d.%d" % (client, key)) for key in range(KEYS)] for client in range(CLIENTS)]
        self.failures, self.threads, self.cut = [], [], None
        self.writes = self.waits = 0  # that were answered
        self.stopping = threading.Event()

    def client(self, keys, seed):
        draw = random.Random(seed)
        connection = Connection(self.port, 60)
        while not self.stopping.is_set():
            batch = draw.sample(keys, draw.randint(1, BATCH))
            connection.send(*[key.command(draw) for key in batch])
            for key in batch:
                connection.reply()
                key.answer()
                if self.always:
                    key.floor = key.answered
                self.writes += 1

    def waiter(self, keys, seed):
        draw = random.Random(seed)
        connection = Connection(self.port, 60)
        while not self.stopping.wait(draw.random()):
            answered = [key.answered for key in keys]
            told = connection.ask(b"WAITAOF", b"1", b"0", b"0")
            if told[0] != 1 and self.cut is None:
                raise Wrong(f"WAITAOF says {told}")
            if told[0] != 1:  # the server ends
                return
            self.waits += 1
            for key, number in zip(keys, answered):
                key.floor = max(key.floor, number)

    def thread(self, function, keys):
        def run(seed):
            try:
                function(keys, seed)
            except Wrong as error:
                self.failures.append(str(error))
            except Lost:
                if self.cut is None:
                    self.failures.append("a connection was lost while the machine ran")
        thread = threading.Thread(target=run, args=(self.draw.getrandbits(32),), daemon=True)
        thread.start()
        self.threads.append(thread)

    def start(self):
        self.cut = None
        self.stopping.clear()
        for keys in self.keys:
            self.thread(self.client, keys)
        if not self.always:
            self.thread(self.waiter, [key for keys in self.keys for key in keys])

    def power_goes(self):
        """Before it does: connections end from now on. A machine that starts meanwhile has no load: it adds nothing."""
        self.cut = self.cut or time.monotonic()

    def stop(self):
        """When it has gone."""
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        self.threads.clear()

    def stop_server(self):
        """In order: all that was answered is safe then, at each level. The guest tells when it has ended."""
        self.power_goes()
        try:
            Connection(self.port, 60).send((b"SHUTDOWN",))
        except Lost:
            pass

    def server_stopped(self):
        for keys in self.keys:
            for key in keys:
                key.floor = key.answered

    def kind(self):
        """By what the server says that it writes its journal."""
        connection = Connection(self.port, 120)
        lines = connection.ask(b"INFO", b"persistence").decode().split("\r\n")
        connection.close()
        return dict(line.split(":", 1) for line in lines if ":" in line)["disk_kind"]

    def check(self):
        """What the server has after a cut: the keys that it has, answered writes that were lost, the age of the oldest."""
        connection, present, lost = Connection(self.port, 120), 0, []
        for keys in self.keys:
            connection.send(*[command for key in keys
                              for command in ((b"GET", key.name), (b"PEXPIRETIME", key.name))])
            for key in keys:
                value, expires = connection.reply(), connection.reply()
                present += value is not None
                lost += key.settle(key.found(value, expires))
        size = connection.ask(b"DBSIZE")
        if size != present:
            raise Wrong(f"there are {size} keys, and {present} of ours")
        connection.close()
        return present, len(lost), (self.cut - min(lost)) if lost and self.cut else 0.0
