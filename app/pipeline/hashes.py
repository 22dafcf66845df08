"""Spark's ``xxhash64`` of columns, for tasks that have them as numpy and Arrow arrays.

Ids of series and buckets are such hashes, whoever computes them. Source: ``XXH64`` of Spark, which
is that of https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md; of several columns each
is hashed with the hash of those before it as its seed.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from app.pipeline.usage.measures import Numbers

SEED: Final = 42
"""Of the first column in Spark."""

_P1, _P2, _P3, _P4, _P5 = map(
    np.uint64,
    (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    ),
)
_STRIPE: Final = 32
_LANES: Final = 4


def hash_numbers(numbers: Numbers, seed: Numbers | int = SEED) -> Numbers:
    """Return the hashes of 64-bit numbers, each with its own seed or all with the same one."""
    with np.errstate(over="ignore"):
        hashes = _unsigned(seed) + _P5 + np.uint64(8)
        return _mixed(_with_word(hashes, _unsigned(numbers)))


def hash_texts(texts: pa.Array, seed: Numbers | int = SEED) -> Numbers:
    """Return the hashes of texts without nulls, by their bytes in UTF-8."""
    if not len(texts):
        return np.empty(0, np.int64)
    encoded, number = texts.cast(pa.large_binary()), len(texts)
    _, offsets, data = encoded.buffers()
    bounds = np.frombuffer(offsets, np.int64, number + 1, encoded.offset * 8)
    begins, lengths = bounds[:-1], np.diff(bounds)
    # So that the word at the last byte is there.
    content = np.append(np.frombuffer(data or b"", np.uint8), np.zeros(8, np.uint8))
    seeds = np.broadcast_to(_unsigned(seed), number)

    def words(at: Numbers, width: int = 8) -> Numbers:
        # At each byte a word begins.
        found = np.ndarray(len(content) - width + 1, f"<u{width}", content, strides=(1,))
        return found[at].astype(np.uint64)

    with np.errstate(over="ignore"):
        hashes = seeds + _P5
        is_long = lengths >= _STRIPE
        if is_long.any():
            hashes[is_long] = _stripes(begins[is_long], lengths[is_long], seeds[is_long], words)
        hashes += lengths.astype(np.uint64)
        at, end = begins + lengths // _STRIPE * _STRIPE, begins + lengths
        for _ in range(_LANES - 1):
            more = at + 8 <= end
            hashes[more] = _with_word(hashes[more], words(at[more]))
            at = np.where(more, at + 8, at)
        more = at + 4 <= end
        half = hashes[more] ^ words(at[more], 4) * _P1
        hashes[more] = _rotated(half, 23) * _P2 + _P3
        at = np.where(more, at + 4, at)
        for _ in range(3):
            more = at < end
            hashes[more] = _rotated(hashes[more] ^ words(at[more], 1) * _P5, 11) * _P1
            at = np.where(more, at + 1, at)
        return _mixed(hashes)


def _stripes(
    begins: Numbers, lengths: Numbers, seeds: Numbers, words: Callable[[Numbers], Numbers]
) -> Numbers:
    """Return what the stripes of 32 bytes of long texts make of their seeds."""
    lanes = [seeds + _P1 + _P2, seeds + _P2, seeds + np.uint64(0), seeds - _P1]
    for stripe in range(int(lengths.max()) // _STRIPE):
        more = lengths >= (stripe + 1) * _STRIPE
        at = begins[more] + stripe * _STRIPE
        for number, lane in enumerate(lanes):
            lane[more] = _rotated(lane[more] + words(at + 8 * number) * _P2, 31) * _P1
    turns = (1, 7, 12, 18)
    hashes = np.zeros(len(begins), np.uint64)
    for lane, turn in zip(lanes, turns, strict=True):
        hashes += _rotated(lane, turn)
    for lane in lanes:
        hashes = (hashes ^ _rotated(lane * _P2, 31) * _P1) * _P1 + _P4
    return hashes


def _unsigned(numbers: Numbers | int) -> Numbers:
    return np.asarray(numbers, np.int64).view(np.uint64)


def _rotated(numbers: Numbers, bits: int) -> Numbers:
    return (numbers << np.uint64(bits)) | (numbers >> np.uint64(64 - bits))


def _with_word(hashes: Numbers, words: Numbers) -> Numbers:
    return _rotated(hashes ^ _rotated(words * _P2, 31) * _P1, 27) * _P1 + _P4


def _mixed(hashes: Numbers) -> Numbers:
    hashes = (hashes ^ hashes >> np.uint64(33)) * _P2
    hashes = (hashes ^ hashes >> np.uint64(29)) * _P3
    mixed: Numbers = (hashes ^ hashes >> np.uint64(32)).view(np.int64)
    return mixed
