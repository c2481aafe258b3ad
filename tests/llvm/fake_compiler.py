"""An executable that speaks the channel's format, and misbehaves as its first argument says.

python fake_compiler.py BEHAVIOUR ... -channel=BASE
"""

import json
import os
import signal
import sys
import time

FEATURES = [
    {"name": "a", "type": "int64_t", "port": 0, "shape": [1]},
    {"name": "b", "type": "float", "port": 0, "shape": [2]},
]
ADVICE = {"name": "choice", "type": "int64_t", "port": 0, "shape": [1]}
PAYLOAD = bytes(range(16))


def main() -> None:
    behaviour, base = sys.argv[1], sys.argv[-1].split("=", 1)[1]
    if behaviour == "die_before_opening":
        sys.exit("fatal error: before")
    if behaviour == "no_decision":
        return
    if behaviour == "hang_before_opening":
        time.sleep(60)
    replies = open(f"{base}.in", "rb", buffering=0)  # noqa: SIM115, PTH123
    if behaviour == "die_while_opening":
        os.kill(os.getpid(), signal.SIGSEGV)
    observations = open(f"{base}.out", "wb", buffering=0)  # noqa: SIM115, PTH123
    header = json.dumps({"features": FEATURES, "advice": ADVICE}).encode()
    if behaviour == "malformed_header":
        header = b'{"features": [], "advice": 3}'
    if behaviour == "not_json":
        header = b"\xff\xfe not json"
    observations.write(header + b"\n")
    if behaviour == "header_only":
        return
    while behaviour == "complain":
        os.write(2, bytes(1 << 18))
        time.sleep(0.001)
    if behaviour == "observation_first":
        header = b""
    observations.write(b'{"context":"f"}\n')
    for index in range(3):
        if behaviour == "unknown_line":
            observations.write(b'{"surprise":1}\n')
        line = b'{"observation":%d}\n' % index
        if behaviour == "truncated" and index == 2:
            observations.write(line + PAYLOAD[:5])
            return
        if behaviour == "no_newline":
            observations.write(line + PAYLOAD + b"x" * 8)
        if behaviour == "in_pieces":
            for byte in line + PAYLOAD + b"\n":
                observations.write(bytes([byte]))
        else:
            observations.write(line + PAYLOAD + b"\n")
        if behaviour == "die_after_asking":
            os.kill(os.getpid(), signal.SIGKILL)
        if behaviour == "hang_after_asking":
            time.sleep(60)
        reply = replies.read(8)
        print(int.from_bytes(reply, "little"), file=sys.stderr)
    if behaviour == "endless_line":
        observations.write(b"{" * (3 << 20))
    if behaviour == "hang_after_closing":
        observations.close()
        time.sleep(60)
    if behaviour == "fail_at_the_end":
        sys.exit("error: something went wrong in codegen")


main()
