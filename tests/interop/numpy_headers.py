"""Writes tests/fixtures/numpy/headers.json: headers of arrays, and what numpy reads from them.

The values of `descr` and `shape` are literals for that entry of a header, the others whole headers.
Each has the dtype and the shape, or null if numpy refuses the array.
"""

import io
import json
import struct
import sys
import warnings

import numpy as np

CODES = """f d e g F D G ? b B h H i I l L q Q p P n N c S U V a M m O T f4 f8 f2 f16 f3 f0 i1 b1 b2 B1 u u1 u8 c8
c16 c4 S0 S3 a3 U2 V3 V0 M8 M8[s] m8[ns] M8[25s] M8[2147483647s] M8[2147483648s] M4 M8[] M8[foo] M8[s/2] m8[D O8 O2
f04 < | =f4 |f4 >d >? <b >S2 |i8 <<f4 !f4 float float32 float16 int int8 int64 uint8 uint16 bool bool_ str bytes object
complex64 double half long datetime64[ns] float128 <float32 Float32 f4,f4 f4, f4,,f4 ,f4 , <f4,>i2 f4,f4, 2f4 (2,3)f4
2f4,i1 1f4 f,d float32,int8 U3,S2 M8[s],f4 O,f4 f4;f4 3 ?,b f4,x
(2,3)f4,i1 f4,(2,3)f4 (2)f4,i1 (2,)f4,i1 2,3f4,i1 2<f4,i1 <2f4,i1 <2<f4,i1 <2>f4,i1 <(2,3)f4,i1 2<2f4,i1 02f4,i1 0f4,i1 -1f4,i1
()f4 ()f4,i1 1,1f4 (1,)f4 2(3)f4,i1 (0x2)f4,i1 (2,3f4,i1 2(,i1 3, f4,2 2U3,>i2 2M8[s],f4 2float32,i1 2f4, 1f4, !2f4,i1 2l,g 2S
2S,i1 (2,)S,i1 2str,i1 2c,f4 2O,i1 2O >l |l <g >G l4 g16 p8 q8 <int int_ intc uintc intp uintp uint ulong longlong ulonglong
short ushort byte ubyte single longdouble csingle complex cdouble clongdouble complex256 float_ str_ bytes_ unicode void
void8 object_ datetime64 timedelta64[2D] datetime64[foo] datetime64[s],f4 float96 <T T16""".split()
CODES += ["(2, 3)f4,i1", "( 2,3 )f4,i1", "2 f4,i1", "< f4,i1", "2< f4,i1", " 2f4,i1", "2f4\n,i1", "f4, i1 ", "\tf4,i1"]
CODES += ["f4 ", " f4", "< f4", "", "f4, i2", "f4 ,i2", "f4 f4", "f4, ", "f4 , "]
DESCR = """None 4 [] () ('<f4') ('<f4',) ['<f4'] ('<f4',2) b'<f4' u'<f4' '''<f4''' '\\x3cf4' '<f4\\q' [('a','<f4')]
[('a','<f4'),] [('a','<f4'),('a','<f4')] [('','<f4')] [('','<f4'),('','<f4')] [('a','<f4'),('','V4')]
[('','|V4'),('b','i1')] [('a','<f4',2)] [('a','<f4',(2,0x3))] [('a','<f4',(2,),3)] [('a',)] [['a','<f4']]
[('a',('<f4',(2,)),3)] [('a','<f4',0)] [('a','<f4',-1)] [('a','<f4',())] [('a','f4,>f4')] [(1,'<f4')]
[('','V4',(2,)),('b','i1')] [('','f4',(2,)),('b','i1')] [('',[('c','f4')]),('b','i1')] [(('t','a'),'<f4')]
(('a','<f4'),) [('a',[('b','<f4'),('b','<f4')])] r'<f4' U'<f4' rb'<f4' f'<f4' '\\74f4' '\\074f4' '<'u'f4' '<'b'f4'
[('a','2f4')] [('a','2f4',2)] [('a',[('b','2f4')],(2,))] [('a','<f4',[2])] [('a',('<f4',1))] [('a','S',2)] [('a','2S',3)]
[('a','S',(2,))] [('a','S0',0)] [('a\\q','f4')] [('\\a\\0','f4')] [(r'\\x','f4')] ('<f4',1) ('<f4',(1,1)) ('S',2)""".split()
DESCR += ["'<' 'f4'", "[('a\nb','<f4')]", "'<'  # c\n\"f4\"", "\"\"\"<f4\"\"\"", "'<\\\nf4'", "'''<\\\nf4'''", "'''<f4\n'''"]
DESCR += ["[('''a\r\n'b\"\"''','f4')]", "'''<f4''"]
SHAPES = """(2,) (2) 2 [2] (2,3) (2,3,) (2,,3) (,) () (0x10,) (0X10,) (0o17,) (0b101,) (1_000,) (1__0,) (_1,) (1_,)
(0x_f,) (0_0,) (00,) (01,) (007,) (+2,) (-2,) (--2,) (-0,) (2L,) (2l,) (0xFFL,) (1_0L,) (1e1,) (2.0,) (True,) (None,)
(1+1,) (2*3,) ('2',) (2j,) (~1,) (9223372036854775807,) (9223372036854775808,) (0,4611686018427387904)
(4611686018427387904,0) (0,4294967296,4294967296) (0,2305843009213693951) (0,2305843009213693952)
(0,9223372036854775808) (0,99999999999999999999) (-1,0) (0,-1) (2,3 2, (2,)+(3,) *(2,) {2} (((2,))) ((2,),)
((2),)""".split() + ["( 2 , )", "(2 ,\n3)", "(2,\t3)", "(2,#c\n3)", "(2,\\\n3)", "(2\f,)", "(2\xa0,)", "(2\0,)", "(+ 2,)"]
SHAPES += ["(2,# c }\n3)", "(2,#\r3)", "(2,#c", "(2,\\\r\n3)", "(\\\n2,)", "(2,\\ \n3)", "(2\x0b,)"]


def header(descr="'<f4'", shape="(2,)"):
    return "{'descr': %s, 'fortran_order': False, 'shape': %s}" % (descr, shape)


BARE = header()
ENDS = ["", "\n", "   \n", "#c", ";", "\\\n", "\0", "\f\n", "}", ",", "\n\n", "  # c\n", "\n# c", "\\"]
HEADERS = [BARE + end for end in ENDS]
HEADERS += [start + BARE for start in ["  ", "\n", "\t", "\0", "# c\n", "\\\n", "\xa0"]]
HEADERS += [BARE[:-1], "(" + BARE + ")", "(" + BARE + ",)"]
HEADERS += [BARE[:-1] + end for end in [",}", ",,}", ", 'x': 1}", ", 1: 1}", ", 'shape': (3,)}", ", **{}}"]]
HEADERS += [
    BARE.replace(old, new)
    for old, new in [
        ("'", '"'), ("'descr'", "u'descr'"), ("'descr'", "b'descr'"), ("'shape'", "'shap'"), ("'descr': '<f4', ", ""),
        (", ", ","), (": ", ":"), (", ", "\n,\n"), (": ", " : "), ("False", "(False)"), ("False", "True"), ("False", "1"),
        ("False", "None"), ("False", "true"), ("False", "not True"), ("{", "dict({"),
        ("'descr'", "'''descr'''"), ("False", "False#}\n"), ("'shape'", "'sha' 'pe'"),
    ]
]


def element(dtype):
    if dtype.subdtype:
        base, dims = dtype.subdtype
        return element(base)[:-1] + [list(dims) + element(base)[-1]]
    if dtype.names:
        fields = [[name, dtype.fields[name][1]] + element(dtype.fields[name][0]) for name in dtype.names]
        return [fields, dtype.itemsize, []]
    return [dtype.str[1:], []]


def read(text):
    text = text.encode("latin1")
    data = b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text
    try:
        file = io.BytesIO(data)
        np.lib.format.read_magic(file)
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        if dtype.hasobject:
            return "objects"
        array = np.load(io.BytesIO(data + bytes(4096)))
        assert array.shape == shape
        dtype = array.dtype
        order = "|" if dtype.itemsize == 0 or dtype.names is not None else dtype.str[0]
        return [order, element(dtype)[:-1], list(shape), fortran]
    except Exception:
        return None


warnings.simplefilter("ignore")
found = {
    "descr": {descr: read(header(descr=descr)) for descr in [repr(code) for code in CODES] + DESCR},
    "shape": {shape: read(header(shape=shape)) for shape in SHAPES},
    "header": {text: read(text) for text in HEADERS},
}
with open(sys.argv[1], "w") as file:
    for start, (kind, values) in zip("{,,", found.items()):
        print(start + json.dumps(kind) + ": {", file=file)
        lines = [f"{json.dumps(text)}: {json.dumps(value, separators=(',', ':'))}" for text, value in values.items()]
        print(",\n".join(lines) + "}", file=file)
    print("}", file=file)
