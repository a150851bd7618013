"""How large one element is, from NumPy's, JAX's or HLO's name of its type.

>>> itemsize("bfloat16"), itemsize("s4")
(2.0, 0.5)
"""

from __future__ import annotations

from typing import Any

import numpy as np

_BITS = {
    "bool": 8,
    "pred": 8,
    "int4": 4,
    "uint4": 4,
    "int2": 2,
    "uint2": 2,
    "s4": 4,
    "u4": 4,
    "int1": 1,
    "uint1": 1,
    "s2": 2,
    "u2": 2,
    "s1": 1,
    "u1": 1,
    "bfloat16": 16,
    "bf16": 16,
    "f16": 16,
    "f32": 32,
    "f64": 64,
    "c64": 64,
    "c128": 128,
    "s8": 8,
    "u8": 8,
    "s16": 16,
    "u16": 16,
    "s32": 32,
    "u32": 32,
    "s64": 64,
    "u64": 64,
    "token": 0,
    "key<fry>": 64,
    "key<rbg>": 128,
    "key<unsafe_rbg>": 128,
}


def itemsize(dtype: Any) -> float:
    """Bytes of one element, from NumPy's, JAX's or HLO's name of a type; half a byte for 4-bit types."""
    name = getattr(dtype, "name", None) or str(dtype)
    if name in _BITS:
        return _BITS[name] / 8
    if name.startswith(("float4", "f4")):
        return 0.5
    if name.startswith(("float8", "f8")):
        return 1.0
    if name.startswith(("float6_", "f6e")):  # float64 is none of them
        return 0.75
    return float(np.dtype(name).itemsize)
