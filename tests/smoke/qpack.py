"""QPACK against ls-qpack (Python's pylsqpack), in both directions: qpack.py PROGRAM [SECTIONS]

The other encoder's instructions come in pieces, and sections often before those that they need. What our
decoder reports goes back to that encoder, which uses its dynamic table accordingly.
"""

import random
import subprocess
import sys

import pylsqpack

CAPACITY = 4096
BLOCKED = 16
NAMES = [b":path", b":authority", b"accept", b"cookie", b"user-agent", b"x-request-id", b"content-type",
         b"x-" + b"long" * 12]


class Program:
    """Our decoder and encoder."""

    def __init__(self, path):
        self.child = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def run(self, command):
        self.child.stdin.write(command + "\n")
        self.child.stdin.flush()
        result = self.child.stdout.readline().removesuffix("\n")
        assert result != "error", command
        return result


def random_fields(rng):
    """Some repeat often, so that the dynamic table is of use; some are new."""
    fields = []
    for _ in range(rng.randrange(1, 12)):
        name = rng.choice(NAMES)
        kind = rng.randrange(4)
        if kind == 0:
            value = b"%d" % rng.randrange(10**9)
        elif kind == 1:
            value = bytes(rng.randrange(33, 127) for _ in range(rng.randrange(200)))
        else:
            value = b"value %d" % rng.randrange(12)
        fields.append((name, value))
    return fields


def fields_of(words):
    pairs = (word.split(":") for word in words)
    return [(bytes.fromhex(name), bytes.fromhex(value)) for name, value in pairs]


def decode_theirs(program, rng, sections):
    """Their encoder, our decoder. Returns how many sections were blocked."""
    encoder = pylsqpack.Encoder()
    instructions = encoder.apply_settings(CAPACITY, BLOCKED)
    blocked_count = 0
    waiting = {}
    for number in range(sections):
        stream = number * 4
        fields = random_fields(rng)
        more, section = encoder.encode(stream, fields)
        instructions += more
        if rng.randrange(100) == 0:
            # This section is never decoded.
            encoder.feed_decoder(bytes.fromhex(program.run(f"c {stream}")))
        else:
            waiting[stream] = (section, fields)
        if len(waiting) < BLOCKED and rng.randrange(3):
            continue
        for stream in list(waiting):
            section, fields = waiting[stream]
            result = program.run(f"s {stream} {section.hex()}")
            if result == "blocked":
                blocked_count += 1
                continue
            check(encoder, result, fields)
            del waiting[stream]
        while instructions:
            cut = rng.randrange(1, len(instructions) + 1)
            piece, instructions = instructions[:cut], instructions[cut:]
            report = bytes.fromhex(program.run(f"i {piece.hex()}"))
            if report:
                encoder.feed_decoder(report)
        for stream, (section, fields) in waiting.items():
            check(encoder, program.run(f"s {stream} {section.hex()}"), fields)
        waiting.clear()
    return blocked_count


def check(encoder, result, fields):
    report, *words = result.split(" ")
    assert fields_of(words) == fields, (fields_of(words), fields)
    if report:
        encoder.feed_decoder(bytes.fromhex(report))


def encode_ours(program, rng, sections):
    """Our encoder, their decoder."""
    decoder = pylsqpack.Decoder(CAPACITY, BLOCKED)
    for number in range(sections):
        fields = random_fields(rng)
        words = " ".join(f"{name.hex()}:{value.hex()}" for name, value in fields)
        section = bytes.fromhex(program.run(f"e {words}"))
        _, decoded = decoder.feed_header(number * 4, section)
        assert decoded == fields, (decoded, fields)


def static_table(program):
    """All entries of the static table, by their indices."""
    decoder = pylsqpack.Decoder(CAPACITY, BLOCKED)
    for index in range(99):
        line = bytes([0xC0 | index]) if index < 63 else bytes([0xFF, index - 63])
        section = bytes(2) + line
        _, theirs = decoder.feed_header(index * 4, section)
        _, *words = program.run(f"s {index * 4} {section.hex()}").split(" ")
        assert fields_of(words) == theirs, (index, fields_of(words), theirs)


def main():
    program = Program(sys.argv[1])
    sections = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
    rng = random.Random(9204)
    static_table(program)
    encode_ours(program, rng, sections)
    blocked = decode_theirs(program, rng, sections)
    assert blocked > sections / 20, f"only {blocked} sections had to wait"
    print(f"qpack: {sections} sections in each direction, {blocked} of them had to wait")


if __name__ == "__main__":
    main()
