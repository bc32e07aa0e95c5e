# SPDX-License-Identifier: Apache-2.0
"""Parts that most frameworks share: names of types, and views of loaded memory that are the tensors themselves."""

from __future__ import annotations

from typing import Any

NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}
"""Names that NumPy and torch give to safetensors dtypes."""

# Types whose layout in memory is the file's. ml_dtypes also has 4 and 6 bit
# floats, one to a byte, which a packed file cannot be viewed as.
SHORT_FLOATS = {
    "BF16": "bfloat16",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}
"""Names that torch and ml_dtypes, NumPy's extension, give to bfloat16 and the 8-bit floats."""


class PlainFramework:
    """Base of the frameworks whose views are their tensors. `Framework` documents the methods."""

    def lacks(self, dtype: str) -> str:
        return "has no type for it"

    def final(self, view: Any) -> Any:
        return view

    def finals(self, views: dict[str, Any]) -> dict[str, Any]:
        return views
