"""A disk with a volatile cache, for a virtual machine whose power is cut (scripts/power-guest).

It speaks the NBD protocol at a Unix socket, in a process of its own. A write is answered when it is in the cache; a flush
is answered when all writes before it are safe. What the machine reads is what it wrote. Cutting the power loses what
was not flushed, or keeps a part of it, as disks do: they write sectors back in any order, when they like.

Two files hold it: `seen` is what the machine reads, `safe` is what a cut leaves. They differ where a write is unflushed.
"""

import multiprocessing
import os
import random
import select
import signal
import socket
import struct

SECTOR = 512
READ, WRITE, DISCONNECT, FLUSH = range(4)
FUA = 1
REQUEST = struct.Struct(">IHHQQI")
OPTION = struct.Struct(">QII")
REQUEST_MAGIC, REPLY_MAGIC = 0x25609513, 0x67446698
OPTION_MAGIC, OPTION_REPLY_MAGIC = 0x49484156454F5054, 0x3E889045565A9
OPTION_GO, REPLY_ACK, REPLY_INFO, REPLY_UNSUPPORTED = 7, 1, 3, 0x80000001
FLAGS = 1 | 4 | 8  # flags are there; flush and FUA are understood
KINDS = ("none", "prefix", "writes", "sectors", "most")  # what of the unflushed writes a cut keeps


class Gone(Exception):
    """The machine has closed its end."""


class Cache:
    def __init__(self, path, size):
        self.size = size
        self.files = {name: os.open(f"{path}.{name}", os.O_RDWR) for name in ("seen", "safe")}
        self.unflushed = []  # (offset, bytes), in order

    def read(self, offset, length):
        return os.pread(self.files["seen"], length, offset)

    def write(self, offset, data):
        os.pwrite(self.files["seen"], data, offset)
        self.unflushed.append((offset, data))

    def flush(self):
        for offset, data in self.unflushed:
            os.pwrite(self.files["safe"], data, offset)
        self.unflushed.clear()

    def kept(self, draw):
        """The kind of this cut, and of each unflushed write the sectors that it keeps: (offset, bytes)."""
        kind, kept = draw.choice(KINDS), []
        chance, number = draw.random(), draw.randrange(len(self.unflushed) + 1)
        for index, (offset, data) in enumerate(self.unflushed):
            whole = {"none": False, "prefix": index < number, "writes": draw.random() < chance, "sectors": False,
                     "most": index != number}[kind]
            if whole:
                kept.append((offset, data))
            elif kind == "sectors" or (kind == "prefix" and index == number):
                kept.extend((offset + at, data[at:at + SECTOR]) for at in range(0, len(data), SECTOR)
                            if draw.random() < chance)
        return kind, kept

    def cut(self, seed):
        """Power is gone: the machine will read what is safe. What was lost, for people."""
        kind, kept = self.kept(random.Random(seed))
        for offset, data in kept:
            os.pwrite(self.files["safe"], data, offset)
        lost = 0
        for offset, data in self.unflushed:
            safe = os.pread(self.files["safe"], len(data), offset)
            lost += sum(safe[at:at + SECTOR] != data[at:at + SECTOR] for at in range(0, len(data), SECTOR))
            os.pwrite(self.files["seen"], safe, offset)
        told = {"kind": kind, "unflushed": len(self.unflushed), "sectors_lost": lost}
        self.unflushed.clear()
        return told


class Server:
    """One machine at a time. `control` is the end of a pipe: ("arm", (COMMAND, N)) freezes the disk at the N-th write or
    flush from then on, which is told by "frozen"; ("cut", SEED) is answered with what was lost, and the next machine may
    come."""

    def __init__(self, path, size, listener, control):
        self.cache = Cache(path, size)
        self.listener, self.control = listener, control
        self.machine, self.armed, self.countdown, self.frozen = None, None, 0, False
        self.counts = dict.fromkeys(("reads", "writes", "flushes", "forced"), 0)  # requests of this machine

    def receive(self, length):
        data = bytearray()
        while len(data) < length:
            part = self.machine.recv(length - len(data))
            if not part:
                raise Gone
            data += part
        return bytes(data)

    def greet(self):
        self.machine.sendall(b"NBDMAGIC" + struct.pack(">QH", OPTION_MAGIC, 3))
        self.receive(4)
        while True:
            _, option, length = OPTION.unpack(self.receive(OPTION.size))
            self.receive(length)
            if option != OPTION_GO:
                self.option_reply(option, REPLY_UNSUPPORTED)
                continue
            self.option_reply(option, REPLY_INFO, struct.pack(">HQH", 0, self.cache.size, FLAGS))
            self.option_reply(option, REPLY_ACK)
            return

    def option_reply(self, option, kind, data=b""):
        self.machine.sendall(struct.pack(">QIII", OPTION_REPLY_MAGIC, option, kind, len(data)) + data)

    def freezes(self, command):
        """Is this the request at which the power goes? A flush without anything to do is none."""
        if command != self.armed or (command == FLUSH and not self.cache.unflushed):
            return False
        self.countdown -= 1
        return self.countdown <= 0

    def serve_one(self):
        _, flags, command, handle, offset, length = REQUEST.unpack(self.receive(REQUEST.size))
        data = self.receive(length) if command == WRITE else b""
        if command == DISCONNECT:
            raise Gone
        self.counts[("reads", "writes", "", "flushes")[command]] += 1
        self.counts["forced"] += flags & FUA
        if self.freezes(command):
            if command == WRITE:  # it was under way: any part of it may be there
                self.cache.write(offset, data)
            self.frozen = True
            self.control.send("frozen")
            return
        answer = b""
        if command == READ:
            answer = self.cache.read(offset, length)
        elif command == WRITE:
            self.cache.write(offset, data)
        if command == FLUSH or flags & FUA:
            self.cache.flush()
        self.machine.sendall(struct.pack(">IIQ", REPLY_MAGIC, 0, handle) + answer)

    def obey(self):
        order, value = self.control.recv()
        if order == "arm":
            self.armed, self.countdown = value
            return
        if self.machine:
            self.machine.close()
        self.machine, self.armed, self.countdown, self.frozen = None, None, 0, False
        self.control.send(self.cache.cut(value) | self.counts)
        self.counts = dict.fromkeys(self.counts, 0)

    def run(self):
        while True:
            reads = [self.control]
            if not self.machine:
                reads.append(self.listener)
            elif not self.frozen:
                reads.append(self.machine)
            ready, _, _ = select.select(reads, [], [])
            if self.control in ready:
                self.obey()
            elif self.listener in ready:
                self.machine, _ = self.listener.accept()
                self.machine_does(self.greet)
            else:
                self.machine_does(self.serve_one)

    def machine_does(self, step):
        try:
            step()
        except (Gone, OSError):
            self.frozen = True  # nothing more comes from it; the cut settles what is left


class Disk:
    """The disk as scripts/power-guest has it. `path`.safe is an image that is there; its own process ends with ours."""

    def __init__(self, path):
        size = os.path.getsize(f"{path}.safe")
        self.socket = f"{path}.sock"
        if os.path.exists(self.socket):
            os.unlink(self.socket)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.socket)
        listener.listen(1)
        self.control, other = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=self.serve, args=(path, size, listener, other), daemon=True)
        self.process.start()
        listener.close()
        other.close()

    @staticmethod
    def serve(*arguments):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            Server(*arguments).run()
        except EOFError:  # whom it serves is gone
            pass

    def node(self):
        """For QEMU's -blockdev."""
        return f"nbd,node-name=disk,server.type=unix,server.path={self.socket},cache.direct=on"

    def arm(self, command, number):
        self.control.send(("arm", (command, number)))

    def wait_frozen(self, seconds):
        if self.control.poll(seconds):
            self.control.recv()

    def cut(self, seed):
        self.control.send(("cut", seed))
        while True:
            told = self.control.recv()
            if told != "frozen":
                return told

    def close(self):
        self.process.terminate()
        self.process.join()
