//! Harmless names in usages that no library writes, and in those that libraries do write.

use std::path::Path;

use statelens_checkpoint::{Grade, Limits};
use statelens_pickle::{ScanOptions, scan_pickles};

fn worst(bytes: &[u8]) -> Grade {
    let (findings, _) = scan_pickles(bytes, 0, &Limits::default(), &ScanOptions::default());
    findings.iter().map(|finding| finding.grade).max().unwrap_or(Grade::Note)
}

/// Returns a pickle of protocol 2: texts in guillemets are strings, any other character is a byte.
fn pickle(parts: &str) -> Vec<u8> {
    let mut bytes = b"\x80\x02".to_vec();
    for (index, part) in parts.split(['«', '»']).enumerate() {
        match index % 2 {
            0 => bytes.extend(part.chars().map(|c| u8::try_from(u32::from(c)).unwrap())),
            _ => {
                bytes.push(b'X');
                bytes.extend((part.len() as u32).to_le_bytes());
                bytes.extend(part.as_bytes());
            }
        }
    }
    bytes.push(b'.');
    bytes
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

#[test]
fn usages_that_no_library_writes_are_findings() {
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
fn usages_that_libraries_write_are_no_findings() {
    for parts in [
        TENSOR.to_owned(),
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
        "ccollections\ndefaultdict\n(c__builtin__\nlist\ntR«a»]s".into(),
    ] {
        let bytes = pickle(&parts);
        assert_eq!(worst(&bytes), Grade::Note, "{parts}");
    }
}

/// Files that the scan did not report before usages were checked.
#[test]
fn every_file_of_the_third_corpus_is_a_finding() {
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
