//! Runs planned files in memory and reads them back with `hdf5-reader`.

use std::sync::Arc;

use hdf5_reader::Hdf5File;
use statelens_checkpoint::{
    Encode, Encoding, Outcomes, Segment, StoredChunk, TensorId, WrittenSegment,
};

use super::*;

/// Runs a plan in memory; `tensors` are the logical bytes, each with its shape.
fn run(planned: &PlannedSegments, tensors: &[(Vec<u64>, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut outcomes: Vec<Vec<WrittenSegment>> = vec![Vec::new()];
    for segment in &planned.segments {
        let offset = out.len() as u64;
        let mut chunks = Vec::new();
        match segment {
            Segment::Bytes(bytes) => out.extend_from_slice(bytes),
            Segment::Zeros(len) => out.resize(out.len() + *len as usize, 0),
            Segment::Data(Data { tensor, encoding: None, .. }) => {
                out.extend_from_slice(&tensors[tensor.0 as usize].1);
            }
            Segment::Data(Data { tensor, encoding: Some(encoding), .. }) => {
                let (shape, bytes) = &tensors[tensor.0 as usize];
                chunks = encode(encoding, shape, bytes, &mut out);
            }
            Segment::Late { len: Some(len), .. } if planned.head_last && outcomes[0].is_empty() => {
                out.resize(*len as usize, 0);
            }
            Segment::Late { len, make } => {
                let made = make(&Outcomes::new(&outcomes)).unwrap();
                assert!(len.is_none_or(|len| len == made.len() as u64));
                out.extend(made);
            }
        }
        let len = out.len() as u64 - offset;
        outcomes[0].push(WrittenSegment { offset, len, checksum: None, chunks });
    }
    if planned.head_last {
        let Segment::Late { make, .. } = &planned.segments[0] else { panic!("no late head") };
        let head = make(&Outcomes::new(&outcomes)).unwrap();
        out[..head.len()].copy_from_slice(&head);
    }
    out
}

/// A simple reference for splitting into chunks: element by element.
fn encode(encoding: &Encoding, shape: &[u64], bytes: &[u8], out: &mut Vec<u8>) -> Vec<StoredChunk> {
    let grid = encoding.grid(shape);
    let item = bytes.len() / shape.iter().product::<u64>() as usize;
    let unravel = |mut index: u64, shape: &[u64]| {
        let mut at = vec![0; shape.len()];
        for (at, dim) in at.iter_mut().zip(shape).rev() {
            (*at, index) = (index % dim, index / dim);
        }
        at
    };
    (0..grid.iter().product())
        .map(|number| {
            let chunk = unravel(number, &grid);
            let mut plain = Vec::new();
            for index in 0..encoding.chunk.iter().product() {
                let inside = unravel(index, &encoding.chunk);
                let mut flat = Some(0);
                for axis in 0..shape.len() {
                    let at = chunk[axis] * encoding.chunk[axis] + inside[axis];
                    flat = flat
                        .filter(|_| at < shape[axis])
                        .map(|flat| flat * shape[axis] as usize + at as usize);
                }
                match flat {
                    Some(flat) => plain.extend_from_slice(&bytes[flat * item..][..item]),
                    None => plain.resize(plain.len() + item, 0),
                }
            }
            let offset = out.len() as u64;
            let mask = encoding.encoder.encode(&plain, out).unwrap();
            StoredChunk { offset, len: out.len() as u64 - offset, mask }
        })
        .collect()
}

fn tensor(datatype: Datatype, shape: &[u64], id: u32) -> Dataset {
    let space = if shape.is_empty() { Space::Scalar } else { Space::Simple(shape.to_vec()) };
    let content = Content::Tensor(TensorId(id));
    Dataset { datatype, space, content, attributes: [].into() }
}

fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

#[test]
fn round_trips_groups_arrays_and_attributes() {
    let mut file = FilePlan::new();
    for (name, value) in [
        ("f", AttributeValue::F64(0.5)),
        ("long", AttributeValue::Text("x".repeat(100_000))),
        ("ünï", AttributeValue::Text("välue".into())),
        ("empty", AttributeValue::Text(String::new())),
    ] {
        file.attributes.push(Attribute::new(name, value));
    }
    let mut a = tensor(Datatype::F32, &[2, 3], 0);
    a.attributes = [
        Attribute::new("shapes", AttributeValue::I64s(vec![1, 2], vec![2, 3])),
        Attribute::new("dtypes", AttributeValue::Texts(vec!["torch.float32".into()])),
    ]
    .into();
    let a = file.add("/g//./h/a", a).unwrap();
    file.link("b", a).unwrap();
    file.add("s", tensor(Datatype::F32, &[], 1)).unwrap();
    file.add("z", tensor(Datatype::F32, &[0, 3], 2)).unwrap();
    let (datatype, content) = (Datatype::F64, Content::Bytes(7f64.to_le_bytes().into()));
    let known = Dataset { datatype, space: Space::Scalar, content, attributes: [].into() };
    file.add("known", known).unwrap();
    let tensors = [
        (vec![2, 3], floats([1., 2., 3., 4., 5., 6.])),
        (vec![], floats([9.])),
        (vec![0, 3], vec![]),
    ];
    let planned = file.plan(None).unwrap();
    assert!(!planned.head_last);
    let bytes = run(&planned, &tensors);

    let file = Hdf5File::from_bytes(&bytes).unwrap();
    let root = file.root_group().unwrap();
    assert_eq!(root.attribute("long").unwrap().read_string().unwrap(), "x".repeat(100_000));
    assert_eq!(root.attribute("ünï").unwrap().read_string().unwrap(), "välue");
    assert_eq!(root.attribute("f").unwrap().read_1d::<f64>().unwrap(), [0.5]);
    for path in ["/g/h/a", "/b"] {
        let a = file.dataset(path).unwrap();
        assert_eq!(a.shape(), [2, 3]);
        assert_eq!(
            a.read_array::<f32>().unwrap().into_raw_vec_and_offset().0,
            [1., 2., 3., 4., 5., 6.]
        );
        let shapes = a.attribute("shapes").unwrap();
        assert_eq!(shapes.read_1d::<i64>().unwrap(), [2, 3]);
    }
    assert_eq!(file.dataset("/s").unwrap().read_array::<f32>().unwrap().sum(), 9.);
    assert_eq!(file.dataset("/known").unwrap().read_array::<f64>().unwrap().sum(), 7.);
    assert_eq!(file.dataset("/z").unwrap().shape(), [0, 3]);
}

#[test]
fn large_attributes_are_stored_densely() {
    let mut file = FilePlan::new();
    let bytes: Vec<u8> = (0..70_000u32).map(|i| (i % 251) as u8).collect();
    let attributes = vec![
        Attribute::new("__TYPE__", AttributeValue::Text("ObjectSerializer".into())),
        Attribute::new("compressed", AttributeValue::Bool(false)),
        Attribute::new("__BYTES__", AttributeValue::Bytes(bytes.clone().into())),
    ];
    let (datatype, space, content) = (Datatype::F32, Space::Null, Content::None);
    file.add("b", Dataset { datatype, space, content, attributes: attributes.into() }).unwrap();
    let written = run(&file.plan(None).unwrap(), &[]);
    let file = Hdf5File::from_bytes(&written).unwrap();
    let dataset = file.dataset("/b").unwrap();
    let read = dataset.raw_attributes().unwrap();
    let found = read.iter().find(|one| one.name() == "__BYTES__").unwrap();
    assert_eq!(found.message().raw_data, bytes);
    assert_eq!(dataset.attribute("__TYPE__").unwrap().read_string().unwrap(), "ObjectSerializer");
}

#[test]
fn round_trips_encoded_arrays_of_any_shape() {
    let shapes: [&[u64]; 7] =
        [&[], &[7], &[1024], &[600_001], &[3, 300_001], &[0, 4], &[2, 5, 3, 300]];
    for filter in [Filter::Lz4, Filter::Deflate(4)] {
        let mut file = FilePlan::new();
        let mut tensors = Vec::new();
        for (id, shape) in (0..).zip(shapes) {
            file.add(&format!("t{id}"), tensor(Datatype::F32, shape, id)).unwrap();
            let count = shape.iter().product::<u64>();
            tensors.push((shape.to_vec(), floats((0..count).map(|i| (i % 1000) as f32))));
        }
        let planned = file.plan(Some(filter)).unwrap();
        assert!(planned.head_last);
        let bytes = run(&planned, &tensors);
        assert!(bytes.len() < 4_000_000, "{filter:?}: {} bytes", bytes.len());
        let file = Hdf5File::from_bytes(&bytes).unwrap();
        for (id, (shape, bytes)) in tensors.iter().enumerate() {
            let read = file.dataset(&format!("/t{id}")).unwrap();
            assert_eq!(read.shape(), shape);
            assert_eq!(&read.read_raw_bytes().unwrap(), bytes, "{filter:?} {shape:?}");
        }
    }
}

#[test]
fn multi_level_trees_find_every_name() {
    let mut file = FilePlan::new();
    for index in 0..20_000 {
        let name = format!("layer.{index}");
        let value = AttributeValue::Text(format!("about {name}"));
        file.attributes.push(Attribute::new(format!("{name}.__metadata__"), value));
        file.add(&name, tensor(Datatype::Int { size: 1, signed: false }, &[1], index)).unwrap();
    }
    let tensors: Vec<_> = (0..20_000).map(|index| (vec![1], vec![(index % 256) as u8])).collect();
    let bytes = run(&file.plan(None).unwrap(), &tensors);
    let file = Hdf5File::from_bytes(&bytes).unwrap();
    let root = file.root_group().unwrap();
    assert_eq!(root.attributes().unwrap().len(), 20_000);
    let last = root.attribute("layer.19999.__metadata__").unwrap();
    assert_eq!(last.read_string().unwrap(), "about layer.19999");
    let datasets = root.datasets().unwrap();
    assert_eq!(datasets.len(), 20_000);
    assert_eq!(file.dataset("/layer.777").unwrap().read_raw_bytes().unwrap(), [(777 % 256) as u8]);
}

/// A tree of chunks with more chunks than fit in one node.
#[test]
fn chunk_trees_grow_levels_as_needed() {
    struct Plain;
    impl Encode for Plain {
        fn encode(&self, plain: &[u8], out: &mut Vec<u8>) -> Result<u32> {
            out.extend_from_slice(plain);
            Ok(0)
        }
        fn bound(&self, plain: u64) -> u64 {
            plain
        }
    }
    let encoding = Encoding { chunk: vec![1, 2], encoder: Arc::new(Plain) };
    let count = 65 * 65 * 3;
    let stored: Vec<_> =
        (0..count).map(|index| StoredChunk { offset: 1000 + index, len: 8, mask: 0 }).collect();
    let mut heap = Heap::new(96, 0);
    let shape = [65 * 65, 5];
    let root = chunks::write(&shape, &encoding, &stored, &mut heap).unwrap();
    // Walks the tree: every chunk must occur once, in order, under the key of its position.
    let bytes = heap.finish();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let mut found = Vec::new();
    let mut stack = vec![root];
    while let Some(node) = stack.pop() {
        let at = (node - 96) as usize;
        assert_eq!(&bytes[at..at + 5], b"TREE\x01");
        let entries = u16::from_le_bytes(bytes[at + 6..at + 8].try_into().unwrap()) as usize;
        assert!((1..=64).contains(&entries));
        for entry in (0..entries).rev() {
            let key = at + 24 + entry * 40;
            if bytes[at + 5] > 0 {
                stack.push(word(key + 32));
            }
        }
        for entry in 0..entries {
            let key = at + 24 + entry * 40;
            if bytes[at + 5] == 0 {
                found.push((word(key + 8), word(key + 16), word(key + 32)));
            }
        }
    }
    let expected: Vec<_> =
        (0..count).map(|index| (index / 3, index % 3 * 2, 1000 + index)).collect();
    assert_eq!(found, expected);
    assert!(chunks::write(&shape, &encoding, &stored[1..], &mut Heap::new(0, 0)).is_err());
}

#[test]
fn refuses_invalid_hdf5_paths() {
    let mut file = FilePlan::new();
    let mut add = |path: &str| file.add(path, tensor(Datatype::F32, &[1], 0)).map(|_| ());
    for path in ["", "a/", "x/.", ".", "a\0b"] {
        assert!(add(path).is_err(), "{path:?}");
    }
    add("a").unwrap();
    add("q/r").unwrap();
    for path in ["a", "/a", "./a", "a/b", "q", "q//r"] {
        assert!(add(path).is_err(), "{path:?}");
    }
    add("..").unwrap();
    add("a.b").unwrap();
}

#[test]
fn a_large_structure_is_cut_into_pieces_without_gaps() {
    let bytes: Vec<u8> = (0..2 * PIECE + 5).map(|at| (at % 251) as u8).collect();
    let cut = pieces(bytes.clone()).unwrap();
    assert_eq!(cut.len(), 3);
    assert_eq!(run(&PlannedSegments { segments: cut, head_last: false }, &[]), bytes);
    assert!(pieces(Vec::new()).unwrap().is_empty());
}
