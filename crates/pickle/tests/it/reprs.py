"""Writes reprs.tsv: pickles of CPython and the `repr` of their values. Run it with any version of Python."""
import argparse
import collections
import datetime
import decimal
import fractions
import functools
import pathlib
import pickle
import types
import uuid

utc = datetime.timezone.utc
VALUES = [
    None, True, False, 0, 1, -1, 255, 256, 65535, 65536, -(2**31), 2**31, 2**63, -(2**63) - 1,
    2**200, 10**300, 0.0, -0.0, 0.1, 1e16, 5e-324, float("inf"), float("nan"), 1e22,
    "", "a", "it's", 'a"b', "it's \"both\"", "é\n\t\\", "\ud800", "😀", "\x00\x7f\x80\xa0\xad\u200b",
    b"", b"ab\xff\x00'", bytes(range(256)), bytearray(b""), bytearray(b"x\xff"),
    [], [1], [[]], (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), {}, {"a": 1, 2: "b", None: (1,)},
    set(), {1}, frozenset(), frozenset({1}), [1] * 2500, {i: i for i in range(600)},
    1 + 2j, -0.5j, complex(0.0, -0.0), complex(-0.0, 1.5), complex(float("nan"), float("inf")),
    range(3), range(1, 10, 2), slice(1, None, 2), Ellipsis, NotImplemented, int, dict, ValueError,
    type(None), datetime.date(2024, 5, 6), datetime.datetime(2024, 5, 6, 7, 8, 9, 123456),
    datetime.datetime(2024, 5, 6, 0, 0), datetime.datetime(2024, 5, 6, 0, 0, 7, tzinfo=utc),
    datetime.datetime(1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=-3), "X")),
    datetime.time(1, 2, 3), datetime.time(0, 0), datetime.time(1, 2, 0, 5),
    datetime.timedelta(days=-1, seconds=5), datetime.timedelta(0), datetime.timedelta(0, 0, 7),
    decimal.Decimal("1.25"), decimal.Decimal("NaN"), fractions.Fraction(-1, 3),
    uuid.UUID(int=5), uuid.UUID(int=2**128 - 1), pathlib.PurePosixPath("/tmp/x y"),
    pathlib.PurePosixPath("."), pathlib.PureWindowsPath("C:\\a\\b"),
    functools.partial(int, base=2), functools.partial(dict, a=[1]), ValueError("bad", 1),
    argparse.Namespace(lr=0.1, sub=argparse.Namespace(k=None)), types.SimpleNamespace(a=1),
]

with open("reprs.tsv", "w") as out:
    for value in VALUES:
        for protocol in range(6):
            hexed = pickle.dumps(value, protocol).hex()
            text = repr(value).encode("utf-8", "surrogatepass").hex()
            out.write(f"{protocol}\t{hexed}\t{text}\n")
