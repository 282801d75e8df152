//! Scans of pickles that try to evade detection.

use statelens_checkpoint::{ErrorKind, Finding, Grade, Limits};
use statelens_pickle::{ScanOptions, read, read_joined, read_stream, scan_pickles};

fn scan(bytes: &[u8]) -> Vec<Finding> {
    scan_pickles(bytes, 0, &Limits::default(), &ScanOptions::default()).0
}

fn worst(bytes: &[u8]) -> Grade {
    scan(bytes).iter().map(|finding| finding.grade).max().unwrap_or(Grade::Note)
}

/// Returns a pickle of protocol 2.
fn pickle(notation: &str) -> Vec<u8> {
    [&b"\x80\x02"[..], &statelens_fixtures::opcodes(notation), b"."].concat()
}

#[test]
fn harmless_names_require_their_usual_usage() {
    use Grade::{Damage, Danger, Note, UnknownCode};
    for (parts, grade) in [
        // Bytes as spelled in protocol 2, and another codec.
        ("c_codecs\nencode\n(«x»«latin1»tR", Note),
        ("c_codecs\nencode\n(«x»«zlib»tR", UnknownCode),
        ("c__builtin__\nbytearray\n(«x»«latin-1»tR", Note),
        ("c__builtin__\nstr\n(«x»«rot13»tR", UnknownCode),
        ("(c_codecs\nencode\nt", UnknownCode),
        // The type of None, and a new class.
        ("cbuiltins\ntype\n(NtR", Note),
        ("cbuiltins\ntype\n(«C»)NtR", UnknownCode),
        ("(cbuiltins\ntype\nt", UnknownCode),
        // Spellings of dill.
        ("cdill._dill\n_eval_repr\n(«Ellipsis»tR", Note),
        ("cdill._dill\n_eval_repr\n(«__import__('os').system('id')»tR", Danger),
        ("cdill._dill\n_eval_repr\n(«range(0, -3)»tR", Note),
        ("cdill._dill\n_eval_repr\n(«range(0, id())»tR", Danger),
        ("(cdill._dill\n_eval_repr\nt", Danger),
        ("cdill._dill\n_load_type\n(«int»tR", Note),
        ("cdill._dill\n_load_type\n(«CodeType»tR", UnknownCode),
        ("cdill._dill\n_load_type\n(«property»tR", Danger),
        ("cdill._dill\n_load_type\n(«type»tR(«C»)NtR", UnknownCode),
        ("cdill._dill\n_get_attr\n(cdill._dill\n_import_module\n(«numpy»tR«float32»tR", Note),
        ("cdill._dill\n_get_attr\n(cdill._dill\n_import_module\n(«os»tR«system»tR", Danger),
        ("cdill._dill\n_get_attr\n(cdill._dill\n_import_module\n(«mine»tR«thing»tR", UnknownCode),
        ("cdill._dill\n_get_attr\n(«text»«format»tR", Danger),
        ("cdill._dill\n_import_module\n(«this»tR", Danger),
        // State on a class that was looked up, not named.
        (
            "cdill._dill\n_get_attr\n(cdill._dill\n_import_module\n(«argparse»tR«Namespace»tR}b",
            Danger,
        ),
        ("ctorch.jit._pickle\nbuild_intlist\n(]tR", Note),
        ("ctorch.jit._pickle\nbuild_intlist\n(cargparse\nNamespace\ntR}b", Danger),
        ("(ctorch.jit._pickle\nbuild_intlist\nt", UnknownCode),
        // State on a class that was called before.
        ("cargparse\nNamespace\n)R0cargparse\nNamespace\n}b", Danger),
        ("cargparse\nNamespace\n)\u{81}}b", Note),
        // Settings are created without the constructor that would act on them.
        ("ctransformers.training_args\nTrainingArguments\n)\u{81}}b", Note),
        ("ctransformers.training_args\nTrainingArguments\n)R}b", UnknownCode),
        // dtypes and scalars that numpy would trust.
        ("cnumpy\ndtype\n(«f4»\u{89}\u{88}tR", Note),
        ("cnumpy\ndtype\n(«O,i4»tR", Danger),
        ("cnumpy\ndtype\n(cml_dtypes\nbfloat16\n\u{89}\u{88}tR", Note),
        ("cml_dtypes\nbfloat16\n(«x»tR", UnknownCode),
        ("(cml_dtypes\nbfloat16\nt", UnknownCode),
        (
            "cnumpy._core.multiarray\nscalar\n(cnumpy\ndtype\n(«f8»tRc_codecs\nencode\n(«12345678»«latin1»tRtR",
            Note,
        ),
        ("cnumpy._core.multiarray\nscalar\n(cnumpy\ndtype\n(«f8»tR]tR", Danger),
        // Calls of the result of another call.
        ("cargparse\nNamespace\n)R)R", UnknownCode),
        // Python can't call a list.
        ("])R", Damage),
        // Names of Python 2.
        ("ccommands\ngetoutput\n(«id»tR", Danger),
        ("c__builtin__\nreduce\n)R", Danger),
        ("curllib\nurlopen\n)R", Danger),
        ("c__builtin__\nunicode\n", Note),
        ("cexceptions\nValueError\n)R", Note),
        // An extension.
        ("\u{82}\u{5}", UnknownCode),
        // The worst of several usages counts.
        ("cuuid\nSafeUUID\n(«x»tR0cuuid\nSafeUUID\n(I0\ntR}«x»I1\nsb", Danger),
        // Its code comes with the file.
        ("c__torch__\nHolder\n)R", UnknownCode),
        // Named but not called.
        ("cmymodel\nThing\n", UnknownCode),
        ("cmymodel\nThing\n0N", UnknownCode),
        ("cos\nsystem\n0N", Danger),
    ] {
        let bytes = pickle(parts);
        assert_eq!(worst(&bytes), grade, "{parts}: {:#?}", scan(&bytes));
    }
}

/// Each usage as the oldest and the newest writer spells it, next to one that no library writes.
#[test]
fn old_and_new_spellings_are_harmless() {
    use Grade::{Danger, Note, UnknownCode};
    for (parts, grade) in [
        // The flags of a dtype: numbers up to NumPy 1.18.
        ("cnumpy\ndtype\n(«f4»\u{89}\u{88}tR(I3\n«<»NNNI-1\nI-1\nI0\ntb", Note),
        ("cnumpy\ndtype\n(«f4»I0\nI1\ntR(I3\n«<»NNNI-1\nI-1\nI0\ntb", Note),
        ("cnumpy\ndtype\n(«f4»I0\nI0\ntR(I3\n«<»NNNI-1\nI-1\nI0\ntb", Danger),
        ("cnumpy\ndtype\n(«f4»I0\nI2\ntR(I3\n«<»NNNI-1\nI-1\nI0\ntb", Danger),
        ("cnumpy\ndtype\n(«f4»I0\nI1\ntR(I3\n«<»NNNI-1\nI-1\nI63\ntb", Danger),
        // Random states up to NumPy 1.16.
        ("cnumpy.random\n__RandomState_ctor\n)R(«MT19937»]I624\nI0\nF0.0\ntb", Note),
        ("cnumpy.random\n__RandomState_ctor\n)R(«MT19937»]I625\nI0\nF0.0\ntb", UnknownCode),
        ("cnumpy.random\n__RandomState_ctor\n(«x»tR", UnknownCode),
        // Shapes of torch 1.0.
        ("ctorch\nSize\n((I1\nI2\nttR", Note),
        ("ctorch\nSize\n((I1\nI2\ntt\u{81}", Note),
        ("ctorch\nSize\n((I-1\ntt\u{81}", UnknownCode),
        ("ctorch._tensor\n_rebuild_from_type\n(cos\nsystem\nctorch\nTensor\n(«x»t}tR", Danger),
        // A state dict of torch and Python 2.
        ("ccollections\nOrderedDict\n(]tR}«_metadata»}sb", Note),
        ("ccollections\nOrderedDict\n(]tR}«x»}sb", UnknownCode),
        // Types of constants, as dill and Python 3.10 name them.
        ("cdill._dill\n_load_type\n(«NoneType»tR", Note),
        ("cdill._dill\n_load_type\n(«NoneType»tR)R", UnknownCode),
        ("ctypes\nEllipsisType\n", Note),
        ("ctyping\nAny\n", Note),
        ("ctyping\nAny\n)R", UnknownCode),
        // Files in memory, and on disk.
        ("c_io\nBytesIO\n)\u{81}(c_codecs\nencode\n(«x»«latin1»tRI0\nNtb", Note),
        ("c_io\nBytesIO\n)\u{81}(«x»I0\n}tb", UnknownCode),
        ("c_io\nBytesIO\n(«x»tR", UnknownCode),
        ("c_io\nBytesIO.getbuffer\n", Danger),
        ("c_io\nFileIO\n(«x»«w»tR", Danger),
        ("c_io\nopen\n(«x»«w»tR", Danger),
        // Members of enumerations.
        ("chttp\nHTTPStatus\n(I200\ntR", Note),
        ("chttp\nHTTPStatus\n(I200\ntR}b", Danger),
        ("chttp.client\nHTTPConnection\n(«x»tR", Danger),
        ("csignal\nSignals\n(I2\ntR", Note),
        ("csignal\nSIGINT\n", Note),
        ("csignal\nSIGINT\n}b", Danger),
        ("csignal\nalarm\n(I2\ntR", Danger),
        ("csocket\nAddressFamily\n(I2\ntR", UnknownCode),
        ("csocket\nsocket\n)R", Danger),
        // Iterators over values, and over the calls of a function.
        ("cbuiltins\niter\n(]tRI1\nb", Note),
        ("c__builtin__\niter\n((I1\nttR", Note),
        ("cbuiltins\niter\n(cos\ngetpid\nNtR", Danger),
        ("cbuiltins\niter\n(cargparse\nNamespace\nNtR", Danger),
        ("(cbuiltins\niter\nt", Danger),
        ("cbuiltins\nreversed\n(]tRI-1\nb", Note),
        ("cbuiltins\nenumerate\n(cbuiltins\niter\n(]tRI3\ntR", Note),
        ("cbuiltins\nenumerate\n(cargparse\nNamespace\n)RI3\ntR", Danger),
        ("cbuiltins\nzip\n(cbuiltins\niter\n(]tRtR", Note),
        ("cbuiltins\nmap\n(cbuiltins\nint\n]tR", Danger),
    ] {
        let bytes = pickle(parts);
        assert_eq!(worst(&bytes), grade, "{parts}: {:#?}", scan(&bytes));
    }
}

#[test]
fn protocol_selects_python_2_or_3_names() {
    // Below protocol 3, names are Python 2's; from 3 on, this module does not exist.
    assert_eq!(worst(b"\x80\x02c__builtin__\nset\n(]tR."), Grade::Note);
    assert_eq!(worst(b"\x80\x03c__builtin__\nset\n(]tR."), Grade::UnknownCode);
    // The last PROTO counts.
    assert_eq!(worst(b"\x80\x04\x80\x02c__builtin__\nset\n(]tR."), Grade::Note);
    assert_eq!(worst(b"\x80\x02\x80\x04c__builtin__\nset\n(]tR."), Grade::UnknownCode);
}

#[test]
fn computed_names_are_dangerous() {
    let name = |text: &str| {
        let len = text.len() as u8;
        [b"cbuiltins\nstr\n(C", &[len][..], text.as_bytes(), b"X\x05\x00\x00\x00asciitR"].concat()
    };
    for (module, function) in [("os", "system"), ("collections", "OrderedDict")] {
        let bytes = [&b"\x80\x04"[..], &name(module), &name(function), b"\x93."].concat();
        let findings = scan(&bytes);
        assert_eq!(findings[0].grade, Grade::Danger);
        let call = findings[0].call.as_ref().unwrap();
        assert_eq!((call.module.as_str(), call.name.as_str()), (module, function));
    }
    // Python accepts only texts.
    assert_eq!(worst(b"\x80\x04K\x01K\x02\x93."), Grade::Damage);
}

#[test]
fn forged_dtype_state_is_dangerous() {
    // Only a copy of a dtype, which the last argument requests, may be described.
    let dtype = |first: &str, state: &str| {
        worst(&pickle(&format!("cnumpy\ndtype\n(«{first}»\u{89}\u{88}tR({state}tb")))
    };
    let plain = |flags: &str| format!("I3\n«|»NNNI-1\nI-1\nI{flags}\n");
    assert_eq!(dtype("f8", &plain("0")), Grade::Note);
    assert_eq!(dtype("O8", &plain("63")), Grade::Note);
    assert_eq!(worst(&pickle("cnumpy\ndtype\n(«O,i4»\u{89}\u{88}tR")), Grade::Danger);
    // Objects declared as bytes, and the other way round.
    assert_eq!(dtype("O8", &plain("0")), Grade::Danger);
    assert_eq!(dtype("V8", "I3\n«|»NNNI8\nI1\nI63\n"), Grade::Danger);
    let record = |field: &str, size: u32| {
        let fields = format!("(«a»(cnumpy\ndtype\n(«f8»tRI{field}\ntd");
        format!("I3\n«|»N(«a»t{fields}I{size}\nI1\nI0\n")
    };
    assert_eq!(dtype("V8", &record("0", 8)), Grade::Note);
    // A field outside of its record.
    assert_eq!(dtype("V8", &record("8", 8)), Grade::Danger);
    assert_eq!(dtype("V8", &record("-1", 8)), Grade::Danger);
    // A field of objects in a record that claims to have none, and one that NumPy writes.
    let objects = record("0", 8).replace("«f8»", "«O8»");
    assert_eq!(dtype("V8", &objects), Grade::Danger);
    assert_eq!(dtype("V8", &objects.replace("I1\nI0\n", "I1\nI27\n")), Grade::Note);
}

#[test]
fn scans_torch_streams_as_a_whole() {
    let magic = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";
    let evil = b"cos\nsystem\n(X\x02\x00\x00\x00idtR.";
    let parts: [&[u8]; 5] = [magic, b"M\xe9\x03.", b"}.", b"}.", b"]."];
    let plain = parts.concat();
    let stream = read_stream(&plain, 0, &Limits::default()).unwrap();
    assert!(stream.scan(&ScanOptions::default()).is_empty());
    for place in 0..parts.len() {
        let mut parts = parts;
        parts[place] = evil;
        let findings = match read_stream(&parts.concat(), 0, &Limits::default()) {
            Ok(stream) => stream.scan(&ScanOptions::default()),
            Err(broken) => broken.scan(&ScanOptions::default()),
        };
        assert_eq!(findings[0].grade, Grade::Danger, "{place}: {findings:?}");
    }
    // The same inside a plain pickle.
    let inside = |stream: &[u8]| {
        let len = (stream.len() as u32).to_le_bytes();
        [&b"\x80\x03ctorch.storage\n_load_from_bytes\nB"[..], &len, stream, b"\x85R."].concat()
    };
    assert_eq!(worst(&inside(&plain)), Grade::Note);
    let hidden: [&[u8]; 5] = [magic, b"M\xe9\x03.", evil, b"}.", b"]."];
    assert_eq!(worst(&inside(&hidden.concat())), Grade::Danger);
    assert_eq!(worst(&inside(b"PK\x03\x04")), Grade::Danger);
    // A stream in a stream in a stream is not read.
    let around = |bytes: &[u8]| inside(&[magic, &b"M\xe9\x03.}."[..], bytes, b"]."].concat());
    let (two, three) = (around(&inside(&plain)), around(&around(&inside(&plain))));
    assert_eq!((worst(&two), worst(&three)), (Grade::Note, Grade::Danger));
    // The second of two streams, and indices, which only opening the file checks.
    let streams = [&inside(&plain)[..inside(&plain).len() - 1], b"0", &inside(&hidden.concat())];
    assert_eq!(worst(&streams.concat()), Grade::Danger);
    assert_eq!(worst(&around(b"ctorch._utils\n_rebuild_sparse_tensor\n)R.")), Grade::Danger);
    // The function used as a value, next to a valid call.
    let both =
        [&inside(&plain)[..inside(&plain).len() - 1], b"0ctorch.storage\n_load_from_bytes\n\x85."];
    assert_eq!(worst(&both.concat()), Grade::Danger);
}

#[test]
fn unlisted_names_keep_their_grade() {
    let names: Vec<u8> =
        (0..150).flat_map(|index| format!("cmine\nname{index}\n").into_bytes()).collect();
    let findings = scan(&[&b"\x80\x02("[..], &names, b"t."].concat());
    assert_eq!(findings.len(), 101);
    assert_eq!(findings[100].grade, Grade::UnknownCode);
    assert!(findings[100].title.starts_with("50 more"), "{}", findings[100].title);
}

#[test]
fn allowed_names_are_not_findings() {
    let options = ScanOptions { allow: ["mine.Thing".to_owned(), "os.system".to_owned()].into() };
    let scan = |bytes: &[u8]| scan_pickles(bytes, 0, &Limits::default(), &options).0;
    assert_eq!(scan(b"cmine\nThing\n)R."), []);
    assert_eq!(scan(b"cmine\nThings\n)R.")[0].grade, Grade::UnknownCode);
    assert_eq!(scan(b"cos\nsystem\n)R.")[0].grade, Grade::Danger);
    // Setting state on the class itself is different.
    assert_eq!(scan(b"cmine\nThing\n}b.")[0].grade, Grade::Danger);
}

/// Constructs that CPython accepts and no pickler writes, with and without a name for what they are.
#[test]
fn reports_constructs_that_no_pickler_writes() {
    let frame = |len: u64| [&b"\x95"[..], &len.to_le_bytes()].concat();
    let bytearray = [&b"\x96\x01"[..], &[0; 7], b"a"].concat();
    for (what, bytes) in [
        ("replaces items of a list", b"]K\x01aK\0K\x02s.".to_vec()),
        ("replaces items of a list", b"]K\x01a(K\0K\x02u.".to_vec()),
        ("changes a bytearray", [&bytearray[..], b"K\x01a."].concat()),
        ("changes a bytearray", [&bytearray[..], b"(K\x01e."].concat()),
        ("changes a bytearray", [&bytearray[..], b"K\0K\x01s."].concat()),
        ("changes an object of the program", b"P1\nK\x01a.".to_vec()),
        ("changes an object of the program", b"P1\nK\0K\x01s.".to_vec()),
        ("changes an object of the program", b"\x82\x01K\x01a.".to_vec()),
        ("changes an object of the program", b"\x97K\0K\x01s.".to_vec()),
        ("sets state on a value", b"]N}b.".to_vec()),
        ("ends within an opcode", [&frame(1)[..], b"K\x01."].concat()),
        ("ends within an opcode", [&frame(10)[..], &frame(2), b"NN."].concat()),
        ("ends past the pickle", [&frame(3)[..], b"N.N."].concat()),
        ("would build the name", b"P1\nP2\n\x93.".to_vec()),
        ("neither a storage nor a module", pickle("(«other»cmine\nThing\n«a»«b»tQ")),
        ("uses extension 1", b"\x82\x01.".to_vec()),
    ] {
        let findings = scan(&bytes);
        let reported_finding = findings.iter().find(|finding| finding.title.contains(what));
        assert!(
            reported_finding
                .is_some_and(|reported_finding| reported_finding.grade >= Grade::UnknownCode),
            "{what}: {findings:?}"
        );
    }
    let lies = scan(&[&frame(99)[..], b"N."].concat());
    assert!(lies[0].title.contains("claims more bytes") && lies[0].grade == Grade::Warning);
}

/// The unpickler in Python makes the call of `INST` although its last line has no end.
#[test]
fn reports_the_call_of_a_cut_name() {
    let broken = read(b"(imine\nrunX", 0, &Limits::default()).unwrap_err();
    let findings = broken.pickle.scan(&ScanOptions::default());
    assert_eq!(findings[0].title, "The pickle names `mine.run`");
}

/// Opcodes that do nothing, or fail in one unpickler only.
#[test]
fn reads_no_op_opcodes_as_cpython_does() {
    for bytes in [&b"N(e."[..], b"N(u.", b"N(\x90.", b"N(0.", b"N(NN1.", b"\x97\x98."] {
        assert!(read(bytes, 0, &Limits::default()).is_ok(), "{bytes:?}");
    }
    for bytes in [&b"}(K\x01u."[..], b"(K\x01d.", b"}(K\x01K\x02K\x03u."] {
        assert!(read(bytes, 0, &Limits::default()).is_err(), "{bytes:?}");
    }
    // The unpickler in Python sets the pairs before the key without a value.
    let pairs = scan(b"cmine\nThing\n)R(K\x01K\x02K\x03u.");
    assert_eq!(pairs[0].grade, Grade::UnknownCode);
}

/// Each limit ends a pickle with its own error, which says that CPython goes on.
#[test]
fn each_limit_has_its_own_error() {
    let mut limits = Limits::default();
    (limits.values, limits.string) = (1_000, 1_000);
    let row = [&b"("[..], &b"N".repeat(900), b"e"].concat();
    let call = |count| {
        [&b"ccollections\nOrderedDict\nq\x000"[..], &b"h\0)R0".repeat(count), b"N."].concat()
    };
    for (what, bytes) in [
        ("objects in a pickle", b"]0".repeat(2_000)),
        ("objects in a pickle", call(300)),
        ("values on a pickle's stack", b"N".repeat(2_000)),
        ("values on a pickle's stack", b"(".repeat(2_000)),
        ("memo entries of a pickle", [&b"N"[..], &b"\x94".repeat(2_000)].concat()),
        ("items in all containers", [&b"]"[..], &row.repeat(6)].concat()),
        ("bytes of one string", [&b"B\xd0\x07\0\0"[..], &[0; 2_000], b"."].concat()),
        ("digits of one integer", [&b"L"[..], &b"1".repeat(5_000), b"L\n."].concat()),
    ] {
        let error = read(&bytes, 0, &limits).unwrap_err().error;
        assert_eq!(error.kind(), ErrorKind::Limit, "{what}: {error}");
        assert!(error.to_string().contains(what), "{what}: {error}");
    }
    assert!(read(&call(200), 0, &limits).is_ok());
    // The names of Python 2 are those below protocol 3, of each pickle.
    let (joined, _) = read_joined(b"\x80\x04N.c__builtin__\nset\n(]tR.", 0, &limits);
    assert_eq!(joined.scan(&ScanOptions::default()), []);
}

#[test]
fn reports_more_pickles_than_are_scanned() {
    assert_eq!(worst(&b"N.".repeat(100_000)), Grade::Note);
    assert_eq!(worst(&b"N.".repeat(100_001)), Grade::UnknownCode);
    // What follows is reported if it names something.
    assert_eq!(worst(b"N.cos\nsystem\n("), Grade::Danger);
    assert_eq!(worst(b"N.(("), Grade::Note);
}
