//! Pickles as written by Python's libraries, byte for byte, and the values read from them.

use statelens_checkpoint::{Builder, Checkpoint, DictClass, FileSet, FormatInfo, Limits, Value};
use statelens_pickle::{NoStorages, is_stream, read};

fn lowered(bytes: &[u8]) -> Checkpoint {
    let pickle = read(bytes, 0, &Limits::default()).unwrap();
    let mut builder = Builder::new(&Limits::default());
    let lowered = pickle.lower(&mut builder, &mut NoStorages::default()).unwrap();
    builder.finish(lowered.root, FormatInfo::default(), FileSet::default(), Vec::new()).unwrap()
}

fn keys(checkpoint: &Checkpoint) -> Vec<String> {
    checkpoint.leaves().iter().map(|leaf| leaf.flat.to_string()).collect()
}

/// Returns the class of the root object.
fn class(checkpoint: &Checkpoint) -> String {
    let Value::Dict(dict) = checkpoint.value(checkpoint.root()) else { panic!() };
    let DictClass::Object(class) = &dict.class else { panic!("{:?}", dict.class) };
    class.to_string()
}

#[test]
fn numpy_scalar_keys_print_as_in_python() {
    // {np.int64(-3): 1, np.float64(2.5): 2, np.bool_(True): 3, np.uint8(200): 4}
    let checkpoint = lowered(
        b"\x80\x02}q\x00(cnumpy._core.multiarray\nscalar\nq\x01cnumpy\ndtype\nq\x02X\x02\x00\x00\x00i8q\x03\
\x89\x88\x87q\x04Rq\x05(K\x03X\x01\x00\x00\x00<q\x06NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x07bc_codecs\n\
encode\nq\x08X\x10\x00\x00\x00\xc3\xbd\xc3\xbf\xc3\xbf\xc3\xbf\xc3\xbf\xc3\xbf\xc3\xbf\xc3\xbfq\tX\x06\x00\x00\
\x00latin1q\n\x86q\x0bRq\x0c\x86q\rRq\x0eK\x01h\x01h\x02X\x02\x00\x00\x00f8q\x0f\x89\x88\x87q\x10Rq\x11(K\x03h\
\x06NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x12bh\x08X\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04@q\x13h\n\
\x86q\x14Rq\x15\x86q\x16Rq\x17K\x02h\x01h\x02X\x02\x00\x00\x00b1q\x18\x89\x88\x87q\x19Rq\x1a(K\x03X\x01\x00\x00\
\x00|q\x1bNNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x1cbh\x08X\x01\x00\x00\x00\x01q\x1dh\n\x86q\x1eRq\x1f\x86q \
Rq!K\x03h\x01h\x02X\x02\x00\x00\x00u1q\"\x89\x88\x87q#Rq$(K\x03h\x1bNNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq%bh\
\x08X\x02\x00\x00\x00\xc3\x88q&h\n\x86q'Rq(\x86q)Rq*K\x04u.",
    );
    assert_eq!(keys(&checkpoint), ["-3", "2.5", "True", "200"]);
    // {np.str_('xé'): 1}
    let checkpoint = lowered(
        b"\x80\x02}q\x00cnumpy._core.multiarray\nscalar\nq\x01cnumpy\ndtype\nq\x02X\x02\x00\x00\x00U2q\x03\x89\x88\
\x87q\x04Rq\x05(K\x03X\x01\x00\x00\x00<q\x06NNNK\x08K\x04K\x08tq\x07bc_codecs\nencode\nq\x08X\t\x00\x00\x00x\x00\
\x00\x00\xc3\xa9\x00\x00\x00q\tX\x06\x00\x00\x00latin1q\n\x86q\x0bRq\x0c\x86q\rRq\x0eK\x01s.",
    );
    assert_eq!(keys(&checkpoint), ["xé"]);
}

#[test]
fn record_array_is_an_array() {
    // np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])
    let checkpoint = lowered(
        b"\x80\x02cnumpy._core.multiarray\n_reconstruct\nq\x00cnumpy.rec\nrecarray\nq\x01K\x00\x85q\x02c_codecs\n\
encode\nq\x03X\x01\x00\x00\x00bq\x04X\x06\x00\x00\x00latin1q\x05\x86q\x06Rq\x07\x87q\x08Rq\t(K\x01K\x01\x85q\n\
cnumpy\ndtype\nq\x0bcnumpy\nrecord\nq\x0c\x89\x88\x87q\rRq\x0e(K\x03X\x01\x00\x00\x00|q\x0fNX\x01\x00\x00\x00aq\x10\
X\x01\x00\x00\x00bq\x11\x86q\x12}q\x13(h\x10h\x0bX\x02\x00\x00\x00i4q\x14\x89\x88\x87q\x15Rq\x16(K\x03X\x01\x00\x00\
\x00<q\x17NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x18bK\x00\x86q\x19h\x11h\x0bX\x02\x00\x00\x00f8q\x1a\x89\x88\
\x87q\x1bRq\x1c(K\x03h\x17NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x1dbK\x04\x86q\x1euK\x0cK\x01K\x10tq\x1fb\x89\
h\x03X\x0c\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00@q h\x05\x86q!Rq\"tq#b.",
    );
    let Value::Array(array) = checkpoint.value(checkpoint.root()) else { panic!() };
    let tensor = checkpoint.tensor(array.tensor).unwrap();
    assert_eq!((tensor.shape.as_slice(), tensor.nbytes()), ([1].as_slice(), Some(12)));
}

#[test]
fn sparse_parameter_is_sparse() {
    // The tensors inside are omitted: the call alone says which parts there are.
    let checkpoint = lowered(
        b"\x80\x02ctorch._utils\n_rebuild_parameter\n(ctorch._utils\n_rebuild_sparse_tensor\nctorch.serialization\n\
_get_layout\nX\x10\x00\x00\x00torch.sparse_coo\x85RNN(K\x02K\x03t\x87\x86R\x88)tR.",
    );
    let Value::Sparse(sparse) = checkpoint.value(checkpoint.root()) else { panic!() };
    assert_eq!(
        (sparse.layout.as_str(), sparse.shape.as_slice()),
        ("sparse_coo", [2, 3].as_slice())
    );
}

#[test]
fn module_with_source_is_named_by_its_class() {
    // torch.save(module) before release 1.6: ('module', class, file, source) as persistent id.
    let checkpoint = lowered(
        b"\x80\x02(X\x06\x00\x00\x00modulectorch.nn.modules.linear\nLinear\nX\x01\x00\x00\x00fX\x01\x00\x00\x00stQ)\x81\
}X\x01\x00\x00\x00aK\x01sb.",
    );
    assert_eq!(class(&checkpoint), "torch.nn.modules.linear.Linear");
}

#[test]
fn detects_torch_streams_of_protocols_0_and_1() {
    assert!(is_stream(b"L119547037146038801333356L\n.I1001\n.(dp0\n"));
    assert!(is_stream(b"L119547037146038801333356L\n.M\xe9\x03.}q\x00("));
    assert!(!is_stream(b"L119547037146038801333357L\n."));
}

#[test]
fn reads_c_objects_that_dill_looks_up() {
    // dill.dumps([np.int64(3), 1j, int, (1, (2,))], protocol=2) of numpy 1.24
    let bytes = b"\x80\x02]q\x00(cdill._dill\n_get_attr\nq\x01cdill._dill\n_import_module\nq\x02X\x1c\x00\x00\x00numpy.core\
._multiarray_umathq\x03\x85q\x04Rq\x05X\x06\x00\x00\x00scalarq\x06\x86q\x07Rq\x08cnumpy\ndtype\nq\tX\x02\x00\x00\x00i8q\n\
\x89\x88\x87q\x0bRq\x0c(K\x03X\x01\x00\x00\x00<q\rNNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x0ebh\x01h\x02X\x07\x00\
\x00\x00_codecsq\x0f\x85q\x10Rq\x11X\x06\x00\x00\x00encodeq\x12\x86q\x13Rq\x14X\x08\x00\x00\x00\x03\x00\x00\x00\x00\x00\
\x00\x00q\x15X\x06\x00\x00\x00latin1q\x16\x86q\x17Rq\x18\x86q\x19Rq\x1acdill._dill\n_load_type\nq\x1bX\x07\x00\x00\x00\
complexq\x1c\x85q\x1dRq\x1eG\x00\x00\x00\x00\x00\x00\x00\x00G?\xf0\x00\x00\x00\x00\x00\x00\x86q\x1fRq h\x1bX\x03\x00\x00\
\x00intq!\x85q\"Rq#K\x01K\x02\x85q$\x86q%e.";
    let pickle = read(bytes, 0, &Limits::default()).unwrap();
    let keys = pickle.sequence(pickle.root()).unwrap().iter().map(|id| pickle.dict_key(*id));
    let keys: Vec<_> = keys.map(|key| key.map(|key| key.to_string())).collect();
    assert_eq!(keys, [Some("3".into()), None, None, Some("(1, (2,))".into())]);
    // dill.dumps(np.matrix([[1, 2]], dtype='i1'), protocol=2)
    let checkpoint = lowered(
        b"\x80\x02cdill._dill\n_create_array\nq\x00(cdill._dill\n_get_attr\nq\x01cdill._dill\n_import_module\nq\x02X\x1c\x00\
\x00\x00numpy.core._multiarray_umathq\x03\x85q\x04Rq\x05X\x0c\x00\x00\x00_reconstructq\x06\x86q\x07Rq\x08cnumpy\nmatrix\nq\t\
K\x00\x85q\nh\x01h\x02X\x07\x00\x00\x00_codecsq\x0b\x85q\x0cRq\rX\x06\x00\x00\x00encodeq\x0e\x86q\x0fRq\x10X\x01\x00\x00\
\x00bq\x11X\x06\x00\x00\x00latin1q\x12\x86q\x13Rq\x14\x87q\x15(K\x01K\x01K\x02\x86q\x16cnumpy\ndtype\nq\x17X\x02\x00\x00\
\x00i1q\x18\x89\x88\x87q\x19Rq\x1a(K\x03X\x01\x00\x00\x00|q\x1bNNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x1cb\x89h\x10X\
\x02\x00\x00\x00\x01\x02q\x1dh\x12\x86q\x1eRq\x1ftq }q!X\x08\x00\x00\x00_getitemq\"\x89stq#Rq$.",
    );
    let Value::Array(array) = checkpoint.value(checkpoint.root()) else { panic!() };
    assert_eq!(checkpoint.tensor(array.tensor).unwrap().shape, [1, 2]);
}

#[test]
fn reads_instances_of_classes_recreated_by_dill() {
    // As `dill` pickles an instance of a class in a script, but without the class's methods.
    let checkpoint = lowered(
        b"\x80\x02cdill._dill\n_create_type\n(cdill._dill\n_load_type\nX\x04\x00\x00\x00type\x85RX\x06\x00\x00\x00Config)\
}X\x0a\x00\x00\x00__module__X\x08\x00\x00\x00__main__stR)\x81}X\x02\x00\x00\x00lrK\x01sb.",
    );
    assert_eq!(class(&checkpoint), "__main__.Config");
    assert_eq!(keys(&checkpoint), ["__class__", "lr"]);
}

#[test]
fn objects_as_keys_are_distinct() {
    // The keys in the state of an optimizer that was pickled whole are its parameters.
    let checkpoint = lowered(
        b"\x80\x02}(ctorch._utils\n_rebuild_parameter\n(N\x89NtRK\x01ctorch._utils\n_rebuild_parameter\n(N\x89NtRK\x02u.",
    );
    let name = |place| format!("<torch.nn.parameter.Parameter object {place}>");
    assert_eq!(keys(&checkpoint), [name(0), name(1)]);
}

#[test]
fn distributed_tensor_is_its_local_part() {
    // torch.save of a DTensor of shape [2, 3], of which this rank has `rows`; without its mesh.
    let saved = |rows: u8| {
        let mut bytes = b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_wrapper_subclass\n\
ctorch.distributed.tensor\nDTensor\nq\x00(h\x00ctorch\nfloat32\nK\x02K\x03\x86K\x03K\x01\x86K\x00ctorch\nstrided\n\
ctorch\ndevice\nX\x03\x00\x00\x00cpu\x85R\x88t}X\x0d\x00\x00\x00_local_tensorctorch._utils\n_rebuild_tensor_v2\n\
((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x06tQK\x00K".to_vec();
        bytes.push(rows);
        bytes.extend(b"K\x03\x86K\x03K\x01\x86\x89NtRstR.");
        lowered(&bytes)
    };
    let whole = saved(2);
    let (_, tensor) = whole.tensor_of(whole.root()).unwrap();
    assert_eq!((tensor.shape.as_slice(), tensor.requires_grad), ([2, 3].as_slice(), true));
    let part = saved(1);
    assert_eq!(keys(&part), ["__class__", "_local_tensor"]);
    assert_eq!(class(&part), "torch.distributed.tensor.DTensor");
}
