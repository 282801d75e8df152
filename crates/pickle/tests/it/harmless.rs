//! Harmless names in usages that no library writes, and in those that libraries do write.

use std::path::Path;

use statelens_checkpoint::{Grade, Limits};
use statelens_pickle::{ScanOptions, scan_pickles};

fn worst(bytes: &[u8]) -> Grade {
    let (findings, _) = scan_pickles(bytes, 0, &Limits::default(), &ScanOptions::default());
    findings.iter().map(|finding| finding.grade).max().unwrap_or(Grade::Note)
}

/// Returns a pickle of protocol 2.
fn pickle(notation: &str) -> Vec<u8> {
    [&b"\x80\x02"[..], &statelens_fixtures::opcodes(notation), b"."].concat()
}

/// Returns the opcodes of `numpy.dtype(text, False, True)`.
fn dtype(text: &str) -> String {
    format!("cnumpy\ndtype\n(«{text}»\u{89}\u{88}tR")
}

/// Returns the opcodes of an array with this state: shape, dtype and data.
fn array(shape: &str, dtype: &str, data: &str) -> String {
    let empty = "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\nt«b»tR";
    format!("{empty}(I1\n({shape}t{dtype}\u{89}{data}tb")
}

/// A tensor of three floats in a storage of the file.
const TENSOR: &str = "ctorch._utils\n_rebuild_tensor_v2\n((«storage»ctorch\nFloatStorage\n«0»«cpu»\
                      I3\ntQI0\n(I3\nt(I1\nt\u{89}ccollections\nOrderedDict\n)RtR";

/// A tensor of this size and type in a storage of 12 bytes.
fn untyped(size: &str, dtype: &str) -> String {
    format!(
        "ctorch._utils\n_rebuild_tensor_v3\n((«storage»ctorch.storage\nUntypedStorage\n«0»«cpu»I12\n\
         tQI0\n({size}t(I1\nt\u{89}ccollections\nOrderedDict\n)Rctorch\n{dtype}\ntR"
    )
}

#[test]
fn unusual_usages_are_findings() {
    let plain = "(I3\n«|»NNNI-1\nI-1\nI0\ntb";
    let cases: Vec<(&str, String)> = vec![
        // An array of pointers from the file, by each opcode that calls the constructor.
        ("REDUCE", "cnumpy\nndarray\n((I1\nt«O»«AAAAAAAA»tR".into()),
        ("OBJ", "(cnumpy\nndarray\n(I1\nt«O»«AAAAAAAA»o".into()),
        ("INST", "((I1\nt«O»«AAAAAAAA»inumpy\nndarray\n".into()),
        ("NEWOBJ", "cnumpy\nndarray\n((I1\nt«O»«AAAAAAAA»t\u{81}".into()),
        ("NEWOBJ_EX", "cnumpy\nndarray\n((I1\nt«O»«AAAAAAAA»t}\u{92}".into()),
        ("__newobj__", "ccopy_reg\n__newobj__\n(cnumpy\nndarray\n(I1\nt«O»«AAAAAAAA»tR".into()),
        (
            "__newobj_ex__",
            "ccopy_reg\n__newobj_ex__\n(cnumpy\nndarray\n((I1\nt«O»«AAAAAAAA»t}tR".into(),
        ),
        ("_reconstructor", "ccopy_reg\n_reconstructor\n(cnumpy\nndarray\nc__builtin__\nobject\nNtR".into()),
        (
            "_reconstructor with a base",
            "ccopy_reg\n_reconstructor\n(cnumpy\nfloat64\nc__builtin__\nfloat\nF1\ntR".into(),
        ),
        (
            "_rebuild_from_type_v2",
            "ctorch._tensor\n_rebuild_from_type_v2\n(cnumpy\nndarray\nctorch\nTensor\n((I1\nt«O»\
             «AAAAAAAA»tNtR"
                .into(),
        ),
        (
            "_create_array",
            "cdill._dill\n_create_array\n(cnumpy\nndarray\n((I1\nt«O»«AAAAAAAA»tNtR".into(),
        ),
        (
            "_create_array of a dtype",
            "cdill._dill\n_create_array\n(cnumpy\ndtype\n(«V8»\u{89}\u{88}t(I3\n«|»NNNI8\nI1\nI63\nttR".into(),
        ),
        (
            "_create_array with other arguments",
            "cdill._dill\n_create_array\n(cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I8\n\
             t«b»tNtR".into(),
        ),
        (
            "__newobj__ of a function that calls",
            "ccopy_reg\n__newobj__\n(ccopy_reg\n__newobj__\ncargparse\nNamespace\ntR".into(),
        ),
        (
            "_create_array with a list",
            "cdill._dill\n_create_array\n(ccollections\nOrderedDict\n](«x»eNtR".into(),
        ),
        (
            "spelled by dill",
            "cdill._dill\n_get_attr\n(cdill._dill\n_import_module\n(«numpy»tR«ndarray»tR((I1\nt«O»\
             «AAAAAAAA»tR"
                .into(),
        ),
        ("a factory", "ccollections\ndefaultdict\n(cnumpy\nndarray\ntR".into()),
        ("an array subclass", "cnumpy\nrecarray\n((I1\nt«O»«AAAAAAAA»tR".into()),
        // Addresses in an attribute, or passed directly.
        ("__array_interface__", "cargparse\nNamespace\n)\u{81}}(«__array_interface__»}ub".into()),
        ("__array_struct__", "ctypes\nSimpleNamespace\n)R}(«__array_struct__»I7\nub".into()),
        ("__setstate__", "cargparse\nNamespace\n)\u{81}}«__setstate__»cnumpy\nndarray\nsb".into()),
        ("dunder in slots", "cargparse\nNamespace\n)\u{81}(N}«__class__»Nstb".into()),
        ("plain state in slots", "cargparse\nNamespace\n)\u{81}(N}«a»Nstb".into()),
        ("a dunder in a tensor's state", {
            let args = TENSOR.strip_prefix("ctorch._utils\n_rebuild_tensor_v2\n").unwrap();
            let args = args.strip_suffix('R').unwrap();
            format!(
                "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\n\
                 ctorch\nTensor\n{args}}}«__class__»NstR"
            )
        }),
        ("float64 of an object", "cnumpy\nfloat64\n(cargparse\nNamespace\n)\u{81}tR".into()),
        ("float64 of a number", "cnumpy\nfloat64\n(F1\ntR".into()),
        ("cdata", "ctorch\nTensor\n)}«cdata»I7\ns\u{92}".into()),
        ("cdata later", "ctorch\nTensor\n)}q\x00\u{92}h\x00«cdata»I7\ns0".into()),
        ("FloatTensor", "ctorch\nFloatTensor\n(I7\ntR".into()),
        ("sparse FloatTensor", "ctorch.sparse\nFloatTensor\n)R".into()),
        ("allocator", "ctorch.storage\nUntypedStorage\n(I8\nt}«allocator»I7\ns\u{92}".into()),
        ("UntypedStorage", "ctorch.storage\nUntypedStorage\n(I8\ntR".into()),
        ("TypedStorage", "ctorch.storage\nTypedStorage\n)R".into()),
        ("FloatStorage", "ctorch\nFloatStorage\n(I8\ntR".into()),
        // Keyword arguments, for any class.
        ("kwargs", "ccollections\nOrderedDict\n)}«a»I1\ns\u{92}".into()),
        ("kwargs by a function", "ccopy_reg\n__newobj_ex__\n(c__builtin__\nobject\n)}«a»I1\nstR".into()),
        // Items that are written into memory.
        ("SETITEM on an array", format!("{}I0\nI7\ns", array("I1\n", &dtype("u1"), "«A»"))),
        ("APPEND on an array", format!("{}I0\na", array("I1\n", &dtype("u1"), "«A»"))),
        ("a masked array", "cnumpy.ma.core\nMaskedArray\n(]tR".into()),
        (
            "a masked array of another class",
            "cnumpy.ma.core\n_mareconstruct\n(cnumpy\nrecarray\ncnumpy\nndarray\n(I0\nt«b»tR".into(),
        ),
        // Shapes.
        ("a negative shape", array("I-1\nI-4\n", &dtype("u1"), "«AAAA»")),
        (
            "memory that a later state frees",
            "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I1000\nt«b»tR".into(),
        ),
        ("two states", format!("{}(I1\n(I0\nt{}\u{89}«»tb", array("I1\n", &dtype("u1"), "«A»"), dtype("u1"))),
        // dtypes.
        ("a class", "cnumpy\ndtype\n(cnumpy\nndarray\ntR".into()),
        ("a class of numbers", "cnumpy\ndtype\n(cnumpy\nfloat64\ntR".into()),
        ("a builtin class", "cnumpy\ndtype\n(c__builtin__\nobject\ntR".into()),
        ("a list", "cnumpy\ndtype\n(](«a»«O»tatR".into()),
        ("a shared dtype that is described", format!("cnumpy\ndtype\n(«f8»tR{plain}")),
        ("a shared class that is described", "cnumpy\ndtype\n(cml_dtypes\nbfloat16\ntR(I3\n«>»NNNI2\nI2\nI64\ntb".into()),
        ("a size that is not the element's", format!("{}(I3\n«|»NNNI1000\nI1\nI0\ntb", dtype("V8"))),
        (
            "a custom element of another size",
            "cnumpy\ndtype\n(cml_dtypes\nbfloat16\n\u{89}\u{88}tR(I3\n«<»NNNI1000\nI2\nI64\ntb".into(),
        ),
        ("a negative size", format!("{}(I3\n«|»NNNI-8\nI1\nI0\ntb", dtype("V"))),
        ("an alignment of 0", format!("{}(I3\n«|»NNNI8\nI0\nI0\ntb", dtype("V8"))),
        ("a name without a field", format!("{}(I3\n«|»N(«x»t}}«y»({}I0\ntsI8\nI1\nI16\ntb", dtype("V8"), dtype("f8"))),
        (
            "bytes that overlap an object",
            format!(
                "{}(I3\n«|»N(«x»«y»t}}(«x»({}I0\nt«y»({}I4\ntuI12\nI1\nI27\ntb",
                dtype("V12"),
                dtype("O8"),
                dtype("f8")
            ),
        ),
        (
            "described after a tuple holds it",
            format!("{}q\x05(h\x05t0h\x05{}", dtype("f8"), plain),
        ),
        (
            "described by an old tuple after its use",
            format!(
                "(I3\n«|»NNNI8\nI1\nI0\ntq\x07{}q\x05(h\x05t00h\x05h\x07b",
                dtype("V8")
            ),
        ),
        ("a scalar from an array", format!("cnumpy.core.multiarray\nscalar\n({}{}tR", dtype("f8"), array("I1\n", &dtype("u1"), "«A»"))),
        // Random numbers.
        (
            "a position behind the numbers",
            "cnumpy.random._pickle\n__bit_generator_ctor\n(«MT19937»tR}(«bit_generator»«MT19937»«state»}\
             («key»]«pos»I625\nuub"
                .into(),
        ),
        (
            "a position in front of the numbers",
            "cnumpy.random._pickle\n__randomstate_ctor\n(«MT19937»tR}«state»}«pos»I-1\nssb".into(),
        ),
        (
            "a position in the second entry of a key",
            "cnumpy.random._pickle\n__bit_generator_ctor\n(«MT19937»tR}«state»}(«pos»I9999\n«pos»I1\nusb".into(),
        ),
        (
            "a position of Philox",
            "cnumpy.random._pickle\n__bit_generator_ctor\n(«Philox»tR}«buffer_pos»I5\nsb".into(),
        ),
        ("a generator of another class", "cnumpy.random._pickle\n__generator_ctor\n(cargparse\nNamespace\n)\u{81}tR".into()),
        ("a generator called outright", "cnumpy.random._mt19937\nMT19937\n)R".into()),
        // Objects that are shared with other code.
        ("state of a member", "cuuid\nSafeUUID\n(I0\ntR}«x»I1\nsb".into()),
        ("a member by NEWOBJ", "cuuid\nSafeUUID\n(I0\nt\u{81}".into()),
        ("a member by a function", "ccopy_reg\n__newobj__\n(cuuid\nSafeUUID\nI0\ntR}«x»I1\nsb".into()),
        (
            "a member by torch",
            "ctorch._tensor\n_rebuild_from_type_v2\n(cuuid\nSafeUUID\nctorch\nTensor\n(I0\nt}«x»I1\nstR".into(),
        ),
        ("state of what is returned", "ctorch.jit._pickle\nrestore_type_tag\n(cargparse\nNamespace\n«x»tR}b".into()),
        ("state of a number", "I5\n}b".into()),
        ("state of a text", "«a»}b".into()),
        ("state of a device", "ctorch\ndevice\n(«cpu»tR}«a»Nsb".into()),
        // Texts that are computed.
        ("str in a codec", "c__builtin__\nstr\n(«x»«rot13»tR".into()),
        ("str by a function", "ccopy_reg\n__newobj__\n(c__builtin__\nstr\n«x»«rot13»tR".into()),
        ("bytes in a codec", "c__builtin__\nbytes\n(«x»«rot13»tR".into()),
        ("bytearray of an object", "c__builtin__\nbytearray\n(cargparse\nNamespace\n)\u{81}tR".into()),
        // Persistent ids that return an object of the pickle.
        ("a class", "(«module»cargparse\nNamespace\n«f»«s»tQ".into()),
        ("state of a class", "(«module»cargparse\nNamespace\n«f»«s»tQ}«x»I1\nsb".into()),
        ("a class without the word", "(cargparse\nNamespace\n«f»«s»tQ".into()),
        ("an object", format!("(«module»{}«f»«s»tQ", dtype("f8"))),
        ("a call of it", "(«module»cnumpy\nndarray\n«f»«s»tQ((I1\nt«O»«AAAAAAAA»tR".into()),
        ("state of a storage", "(«storage»ctorch\nFloatStorage\n«0»«cpu»I3\ntQ}«x»I1\nsb".into()),
        ("state of an unknown class", "(«module»cmine\nNet\n«f»«s»tQ}«dump_patches»\u{88}sb".into()),
        ("a storage of another class", "(«storage»cargparse\nNamespace\n«0»«cpu»I3\ntQ".into()),
        ("a list", "](«module»cargparse\nNamespace\n«f»«s»eQ".into()),
        // Tensors.
        (
            "numbers in place of tensors",
            "ctorch._utils\n_rebuild_sparse_tensor\n(ctorch.serialization\n_get_layout\n\
             («torch.sparse_coo»tR(I1\nI2\n(I3\ntttR"
                .into(),
        ),
        ("a storage of numbers", "ctorch._utils\n_rebuild_tensor\n(I5\nI0\n(I3\nt(I1\nttR".into()),
        ("hooks", TENSOR.replace("OrderedDict\n)R", "OrderedDict\n)RI0\nc__builtin__\nint\ns")),
        ("a parameter of a number", "ctorch.nn.parameter\nParameter\n(I5\ntR".into()),
        ("a parameter with kwargs", format!("ctorch.nn.parameter\nParameter\n({TENSOR}t}}«a»Ns\u{92}")),
        ("items of a tensor", format!("{TENSOR}I0\nI7\ns")),
        ("a view behind its storage", TENSOR.replace("I0\n(I3", "I1\n(I3")),
        (
            "more elements than can be counted",
            TENSOR
                .replace("(I3\nt(I1\nt", "(I4611686018427387904\nI4611686018427387904\nt(I0\nI0\nt"),
        ),
        ("state of a tensor", format!("{TENSOR}}}«data»I7\nsb")),
        ("a nested tensor of numbers", "ctorch._utils\n_rebuild_nested_tensor\n(I1\nI1\nI1\nI1\ntR".into()),
        ("a size of objects", "ctorch\nSize\n((]ttR".into()),
        ("a device by an object", "ctorch\ndevice\n(]tR".into()),
        // Each kind of argument.
        ("a number in place of a flag", "cnumpy\ndtype\n(«f4»I5\n\u{88}tR".into()),
        ("a text in place of a number", "c__builtin__\nrange\n(«a»I1\nI1\ntR".into()),
        ("a text in place of a float", "c__builtin__\ncomplex\n(«a»F1\ntR".into()),
        ("a text in place of a list", "c__builtin__\nlist\n(«a»tR".into()),
        ("a list in place of a dict", "ccollections\nCounter\n(]tR".into()),
        ("a number in place of a name", "cdill._dill\n_load_type\n(I5\ntR".into()),
        ("hooks from a list", TENSOR.replace("OrderedDict\n)R", "OrderedDict\n(]tR")),
        (
            "a list of numbers in place of texts",
            "ctorch.distributed.checkpoint.filesystem\n_StorageInfo\n)\u{81}}«transform_descriptors»]I5\nasb"
                .into(),
        ),
        (
            "a key that is not listed",
            "ctorch.distributed.checkpoint.filesystem\n_StorageInfo\n)\u{81}}«other»I5\nsb".into(),
        ),
        (
            "a function that torch calls, with other arguments",
            "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\nctorch\nTensor\n\
             (I5\nI0\n(I3\nt(I1\nt\u{89}NtNtR"
                .into(),
        ),
        ("a function without a name", "ccopy_reg\n__newobj__\n(ctypes\nSimpleNamespace\n)RtR".into()),
        ("a call of what another gives", "ctypes\nSimpleNamespace\n)R)R".into()),
        (
            "two functions that call their arguments",
            "cdill._dill\n_create_array\n(ccopy_reg\n__newobj__\n(cargparse\nNamespace\nt}NtR".into(),
        ),
        (
            "a function of torch by its name",
            "cdill._dill\n_get_attr\n(cdill._dill\n_import_module\n(«torch._utils»tR«_rebuild_tensor_v2»tR"
                .into(),
        ),
        // Each part of the id of a storage.
        ("another word", "(«stored»ctorch\nFloatStorage\n«0»«cpu»I3\ntQ".into()),
        ("a key that is a list", "(«storage»ctorch\nFloatStorage\n]«cpu»I3\ntQ".into()),
        ("a location that is a number", "(«storage»ctorch\nFloatStorage\n«0»I0\nI3\ntQ".into()),
        ("a negative length", "(«storage»ctorch\nFloatStorage\n«0»«cpu»I-1\ntQ".into()),
        ("a view that is a number", "(«storage»ctorch\nFloatStorage\n«0»«cpu»I3\nI1\ntQ".into()),
        ("a view of two", "(«storage»ctorch\nFloatStorage\n«0»«cpu»I3\n(«1»I1\nttQ".into()),
        // Each part of the description of a dtype.
        ("not a copy", format!("cnumpy\ndtype\n(«f8»\u{88}\u{88}tR{plain}")),
        ("not a copy either", format!("cnumpy\ndtype\n(«f8»\u{89}\u{89}tR{plain}")),
        ("another order", format!("{}(I3\n«x»NNNI-1\nI-1\nI0\ntb", dtype("f8"))),
        ("version 4 without its metadata", format!("{}(I4\n«|»NNNI-1\nI-1\nI0\ntb", dtype("f8"))),
        ("other metadata", format!("{}(I4\n«<»NNNI-1\nI-1\nI0\n«x»tb", dtype("M8[ns]"))),
        ("a size of numbers", format!("{}(I3\n«<»NNNI1000\nI-1\nI0\ntb", dtype("f8"))),
        ("a long text", dtype(&format!("M8[{}]", "n".repeat(120)))),
        (
            "fields of a number",
            format!("{}(I3\n«|»N(«a»t}}«a»({}I0\ntsI8\nI1\nI0\ntb", dtype("f8"), dtype("f8")),
        ),
        (
            "a record of another size",
            format!("{}(I3\n«|»N(«a»t}}«a»({}I0\ntsI1000\nI1\nI0\ntb", dtype("V8"), dtype("f8")),
        ),
        ("a record of a negative size", format!("{}(I3\n«|»N)}}I-8\nI1\nI0\ntb", dtype("V"))),
        (
            "a field that is no dtype",
            format!("{}(I3\n«|»N(«a»t}}«a»(cpathlib\nPath\n(«f8»tRI0\ntsI8\nI1\nI0\ntb", dtype("V8")),
        ),
        (
            "an array of another size",
            format!("{}(I3\n«|»({}(I2\nttNNI8\nI1\nI0\ntb", dtype("V8"), dtype("f8")),
        ),
        (
            "an array of negative dimensions",
            format!("{}(I3\n«|»({}(I-1\nI-1\nttNNI8\nI1\nI0\ntb", dtype("V8"), dtype("f8")),
        ),
        (
            "an array of objects that are not declared",
            format!("{}(I3\n«|»({}(I1\nttNNI8\nI1\nI0\ntb", dtype("V8"), dtype("O8")),
        ),
        ("a field of arrays of objects that are not declared", {
            let array = format!("{}(I3\n«|»({}(I1\nttNNI8\nI1\nI63\ntb", dtype("V8"), dtype("O8"));
            format!("{}(I3\n«|»N(«a»t}}«a»({array}I0\ntsI8\nI1\nI0\ntb", dtype("V8"))
        }),
        // Each part of a view.
        ("more sizes than strides", TENSOR.replace("(I3\nt(I1\nt", "(I3\nI1\nt(I1\nt")),
        ("2^63 bytes", TENSOR.replace("(I3\nt(I1\nt", "(I2305843009213693952\nt(I0\nt")),
        ("a view of untyped bytes", untyped("I13\n", "uint8")),
        ("a view of bytes as larger numbers", untyped("I3\n", "float64")),
        // Functions as values.
        ("a function in a list", "]ctorch._utils\n_rebuild_tensor_v2\na".into()),
        ("a function in an attribute", "cargparse\nNamespace\n)\u{81}}«f»ccopy_reg\n__newobj__\nsb".into()),
        ("arguments in a list", "ccollections\nOrderedDict\n]R".into()),
    ];
    let mut wrong = Vec::new();
    for (what, parts) in &cases {
        let bytes = pickle(parts);
        let read = statelens_pickle::read(&bytes, 0, &Limits::default());
        if let Err(broken) = read {
            wrong.push(format!("{what} is no pickle: {}", broken.error));
        } else if worst(&bytes) < Grade::UnknownCode {
            wrong.push(format!("{what}: {parts:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn usages_of_libraries_are_not_findings() {
    for parts in [
        TENSOR.to_owned(),
        // It has no elements; torch writes it as well.
        TENSOR.replace("(I3\nt(I1\nt", "(I4611686018427387904\nI2\nI0\nt(I2\nI1\nI1\nt"),
        array("I1\n", &dtype("u1"), "«A»"),
        array("I1\n", &dtype("O8").replace("tR", "tR(I3\n«|»NNNI-1\nI-1\nI63\ntb"), "]I1\na"),
        // Protocols 0 and 1 make objects with a function.
        "ccopy_reg\n_reconstructor\n(cargparse\nNamespace\nc__builtin__\nobject\nNtR}«a»I1\nsb"
            .into(),
        "ccopy_reg\n__newobj__\n(cargparse\nNamespace\ntR}«a»I1\nsb".into(),
        // One dtype for many arrays, described before the first of them.
        format!(
            "{}(I3\n«<»NNNI-1\nI-1\nI0\ntbq\x050({}{}t",
            dtype("f8"),
            array("I1\n", "h\x05", "«AAAAAAAA»"),
            array("I1\n", "h\x05", "«AAAAAAAA»")
        ),
        format!("ctorch.nn.parameter\nParameter\n({TENSOR}\u{88}tR"),
        untyped("I12\n", "uint8"),
        untyped("I3\n", "float32"),
        "ccollections\ndefaultdict\n(c__builtin__\nlist\ntR«a»]s".into(),
        // A record in a record, as `numpy.dtype((numpy.record, …))` writes it.
        format!(
            "cnumpy\ndtype\n(cnumpy\nrecord\n\u{89}\u{88}tR(I3\n«|»N(«r»t}}«r»(cnumpy\ndtype\n\
             (cnumpy\nrecord\n\u{89}\u{88}tR(I3\n«|»N(«x»t}}«x»({}(I3\n«<»NNNI-1\nI-1\nI0\ntbI0\n\
             tsI4\nI1\nI16\ntbI0\ntsI4\nI1\nI16\ntb",
            dtype("f4")
        ),
    ] {
        let bytes = pickle(&parts);
        assert_eq!(worst(&bytes), Grade::Note, "{parts}");
    }
}

/// Values that are used many times are compared each time, within a budget.
#[test]
fn usage_beyond_the_check_budget_is_a_finding() {
    let numbers = |count| format!("ctorch\nSize\n(({}ttR", "K\x01".repeat(count));
    assert_eq!(worst(&pickle(&numbers(10))), Grade::Note);
    assert_eq!(worst(&pickle(&numbers(10_000))), Grade::UnknownCode);
    let attributes =
        |count| format!("«a»q\x000cargparse\nNamespace\n)\u{81}}}({}ub", "h\0K\x01".repeat(count));
    assert_eq!(worst(&pickle(&attributes(10))), Grade::Note);
    assert_eq!(worst(&pickle(&attributes(10_000))), Grade::UnknownCode);
    // One description of 2,000 fields, for many dtypes.
    let (mut names, mut fields) = (String::new(), String::new());
    for field in 0..2_000 {
        names += &format!("«{field}»");
        fields += &format!("«{field}»h\x01");
    }
    let state =
        format!("({}I0\ntq\x010(I3\n«|»N({names}t}}({fields}uI8\nI1\nI0\ntq\x020", dtype("f8"));
    let described = |count| format!("{state}{}N", format!("{}h\x02b0", dtype("V8")).repeat(count));
    assert_eq!(worst(&pickle(&described(1))), Grade::Note);
    assert_eq!(worst(&pickle(&described(200))), Grade::Danger);
}

/// Files that the scan did not report before usages were checked.
#[test]
fn finds_every_file_of_the_third_corpus() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/attacks3");
    let mut count = 0;
    for folder in ["harmless_names", "persistent_ids", "shared_objects"] {
        for entry in std::fs::read_dir(corpus.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            assert!(worst(&bytes) >= Grade::UnknownCode, "{}", path.display());
            count += 1;
        }
    }
    assert_eq!(count, 14);
}
