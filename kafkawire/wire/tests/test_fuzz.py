"""Mutated frames through the decoder: only the protocol error, in bounded memory. The seed is printed on failure."""

from __future__ import annotations

import os
import tracemalloc

import pytest

from kafkawire.requests.headers import decode_request_header, request_class
from kafkawire.wire.primitives import DecodeError
from kafkawire.wire.tests.mutation import mutated_frames

SEED = int(os.environ.get("KAFKAWIRE_FUZZ_SEED", "1"))
FRAMES = int(os.environ.get("KAFKAWIRE_FUZZ_FRAMES", "20000"))
BYTES_PER_BYTE = 400  # objects made of a byte received, at most: an element of one byte is a slotted object


@pytest.mark.fuzz
def test_mutated_frames_raise_the_protocol_error_and_nothing_else() -> None:
    decoded = 0
    for number, frame in enumerate(mutated_frames(SEED, FRAMES)):
        try:
            header, start = decode_request_header(frame)
            request_class(header.api_key).decode(frame, header.api_version, start)
            decoded += 1
        except DecodeError:
            continue
        except Exception as error:
            pytest.fail(f"seed {SEED}, frame {number}: {error!r} from {frame.hex()}")
    assert 0 < decoded < FRAMES


@pytest.mark.fuzz
def test_memory_of_a_decode_is_proportional_to_the_bytes() -> None:
    for number, frame in enumerate(mutated_frames(SEED + 1, FRAMES // 20)):
        try:
            header, start = decode_request_header(frame)
            message = request_class(header.api_key)
            message.decode(frame, header.api_version, start)  # compiles the plan
        except DecodeError:
            continue
        tracemalloc.start()
        message.decode(frame, header.api_version, start)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 16_384 + BYTES_PER_BYTE * len(frame), f"seed {SEED + 1}, frame {number}"
