"""Quantised weights as tensors of numbers."""

import hashlib
import json
from pathlib import Path

import pystatelens
import pytest

FIXTURES = Path(__file__).parents[3] / "tests" / "fixtures"


# Every fixture of quantised weights.
NAMES = sorted(
    f"{folder}/{path.name.removesuffix('.expected.json')}"
    for folder in ["quantized", "gguf_k"]
    for path in (FIXTURES / folder).glob("*.expected.json")
)


@pytest.mark.parametrize("name", NAMES)
def test_values_match_the_library(name: str) -> None:
    expected = json.loads((FIXTURES / f"{name}.expected.json").read_text())
    dense = pystatelens.open(FIXTURES / name).dequantized()
    manifest = {entry["key"]: entry for entry in pystatelens.manifest(FIXTURES / name, dequantize=True)["entries"]}
    for entry in expected["entries"]:
        values = dense[entry["key"]].numpy()
        assert list(values.shape) == entry["shape"]
        assert hashlib.sha256(values.tobytes()).hexdigest() == entry["sha256"]
        assert manifest[entry["key"]]["sha256"] == entry["sha256"]


def test_unknown_dtypes_are_refused() -> None:
    opened = pystatelens.open(FIXTURES / "quantized" / "awq_gemm")
    assert str(opened.dequantized("bfloat16")["l.weight"].dtype) == "bfloat16"
    with pytest.raises(pystatelens.RefusedError, match="float16"):
        opened.dequantized("int8")
