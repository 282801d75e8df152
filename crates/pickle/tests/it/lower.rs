//! Conversion of pickles to values: identity, cycles, attributes, and the cost of hostile files.

use statelens_checkpoint::{
    Builder, Checkpoint, DType, DictClass, DictKey, FileSet, Finding, Form, FormatInfo, Global,
    Grade, Int, Layout, Limits, Tensor, TensorClass, Text, Unwatched, Value, ValueId,
};
use statelens_fixtures::busy;
use statelens_pickle::{Encoder, Lowered, NoStorages, ScanOptions, TupleLen, read};

/// Returns the checkpoint of the object that `write` leaves on the stack; checks that it is the
/// same whether or not the pickle's objects are freed on the way.
fn lowered(write: impl FnOnce(&mut Encoder)) -> Checkpoint {
    let bytes = pickled(write);
    let mut pickle = read(&bytes, 0, &Limits::default()).unwrap();
    let finish = |builder: Builder, lowered: Lowered, findings: Vec<Finding>| {
        let findings = [findings, lowered.findings].concat();
        builder.finish(lowered.root, FormatInfo::default(), FileSet::default(), findings).unwrap()
    };
    let findings = pickle.scan(&ScanOptions::default());
    let mut builder = Builder::new(&Limits::default());
    let lowered = pickle.lower(&mut builder, &mut NoStorages::default()).unwrap();
    let whole = finish(builder, lowered, findings.clone());
    let mut builder = Builder::new(&Limits::default());
    let progress = &mut Unwatched;
    let lowered = pickle.lower_all(&mut builder, &mut NoStorages::default(), progress).unwrap();
    let again = finish(builder, lowered, findings);
    let all = |it: &Checkpoint| {
        let attributes = (0..it.values().len() as u32).map(|id| it.attributes(ValueId(id)));
        let attributes: Vec<_> = attributes.collect();
        format!("{:?}", (it.root(), it.values(), it.tensors(), attributes, &it.findings))
    };
    assert_eq!(all(&again), all(&whole));
    whole
}

fn pickled(write: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.proto(4);
    write(&mut encoder);
    encoder.stop();
    encoder.into_bytes()
}

/// Returns `key kind` of every leaf, and the target of links.
fn flat(checkpoint: &Checkpoint) -> Vec<String> {
    let leaf = |leaf: &statelens_checkpoint::Leaf| {
        let alias = leaf.alias_of.as_ref().map_or(String::new(), |key| format!(" = {key}"));
        format!("{} {}{alias}", leaf.flat, checkpoint.value(leaf.target).kind())
    };
    checkpoint.leaves().iter().map(leaf).collect()
}

fn set_str(e: &mut Encoder, key: &str, value: impl FnOnce(&mut Encoder)) {
    e.str(key).unwrap();
    value(e);
}

#[test]
fn later_occurrences_are_links_and_cycles_end() {
    let checkpoint = lowered(|e| {
        e.empty_dict();
        let root = e.memoize();
        e.mark();
        e.str("list").unwrap();
        e.empty_list();
        let list = e.memoize();
        e.mark();
        e.small_int(1);
        e.memoized(list);
        e.appends();
        set_str(e, "again", |e| e.memoized(list));
        set_str(e, "root", |e| e.memoized(root));
        e.setitems();
    });
    assert_eq!(
        flat(&checkpoint),
        ["list.0 int", "list.1 list = list", "again list = list", "root dict = "]
    );
}

#[test]
fn state_dict_metadata_becomes_attributes() {
    let checkpoint = lowered(|e| {
        e.named("collections", "OrderedDict").unwrap();
        e.empty_tuple();
        e.reduce();
        e.mark();
        e.str("shared").unwrap();
        e.empty_list();
        let shared = e.memoize();
        e.setitems();
        e.empty_dict();
        e.mark();
        set_str(e, "_metadata", |e| e.memoized(shared));
        e.setitems();
        e.build();
    });
    assert_eq!(flat(&checkpoint), ["shared list"]);
    let Value::Dict(root) = checkpoint.value(checkpoint.root()) else { panic!() };
    assert_eq!(root.class, DictClass::Ordered);
    let attributes = checkpoint.attributes(checkpoint.root()).unwrap();
    let Value::Dict(attributes) = checkpoint.value(attributes) else { panic!() };
    assert_eq!(attributes.entries[0].0, DictKey::from("_metadata"));
    // Objects shared by the tree and the attributes belong to the tree.
    assert_eq!(checkpoint.value(attributes.entries[0].1), &Value::Link(root.entries[0].1));
}

/// Objects are freed once nothing refers to them, but must exist if they are used again. Each of
/// these cases gave a wrong tree when one of the rules for freeing was missing.
#[test]
fn reused_objects_are_not_freed() {
    // One value under three keys.
    let checkpoint = lowered(|e| {
        e.empty_dict();
        e.mark();
        e.str("one").unwrap();
        e.float(1.5);
        let float = e.memoize();
        for key in ["two", "three"] {
            set_str(e, key, |e| e.memoized(float));
        }
        e.setitems();
    });
    assert_eq!(flat(&checkpoint), ["one float", "two float", "three float"]);
    // A dict from which another is made later.
    let checkpoint = lowered(|e| {
        e.empty_dict();
        e.mark();
        e.str("plain").unwrap();
        e.empty_dict();
        let plain = e.memoize();
        e.mark();
        set_str(e, "a", |e| e.float(1.5));
        e.setitems();
        e.str("copy").unwrap();
        e.named("collections", "OrderedDict").unwrap();
        e.memoized(plain);
        e.tuple(TupleLen::One);
        e.reduce();
        e.setitems();
    });
    assert_eq!(flat(&checkpoint), ["plain.a float", "copy.a float"]);
    // The attributes of a dict that is lowered before them.
    let checkpoint = lowered(|e| {
        e.empty_dict();
        e.mark();
        e.str("model").unwrap();
        e.named("collections", "OrderedDict").unwrap();
        e.empty_tuple();
        e.reduce();
        e.empty_dict();
        e.mark();
        set_str(e, "_metadata", |e| e.float(2.5));
        e.setitems();
        e.build();
        e.setitems();
    });
    let Value::Dict(root) = checkpoint.value(checkpoint.root()) else { panic!() };
    let attributes = checkpoint.attributes(root.entries[0].1).unwrap();
    let Value::Dict(attributes) = checkpoint.value(attributes) else { panic!() };
    assert_eq!(checkpoint.value(attributes.entries[0].1), &Value::Float(2.5));
    // A state that was set on a list, and is also a value of its own.
    let checkpoint = lowered(|e| {
        e.empty_dict();
        e.mark();
        e.str("state").unwrap();
        e.float(1.5);
        let state = e.memoize();
        e.str("list").unwrap();
        e.empty_list();
        e.memoized(state);
        e.build();
        e.setitems();
    });
    let Value::Dict(root) = checkpoint.value(checkpoint.root()) else { panic!() };
    let attributes = checkpoint.attributes(root.entries[1].1).unwrap();
    assert_eq!(checkpoint.value(attributes), &Value::Float(1.5));
}

#[test]
fn equal_keys_merge_as_in_python() {
    let checkpoint = lowered(|e| {
        e.empty_dict();
        e.mark();
        for (key, value) in [(1, 10), (2, 20)] {
            e.small_int(key);
            e.small_int(value);
        }
        e.bool(true);
        e.small_int(11);
        e.float(2.0);
        e.small_int(21);
        e.float(0.5);
        e.small_int(30);
        e.setitems();
    });
    let Value::Dict(root) = checkpoint.value(checkpoint.root()) else { panic!() };
    let entries: Vec<_> =
        root.entries.iter().map(|(key, id)| (key.clone(), checkpoint.value(*id).clone())).collect();
    let int = |value: i64| Value::Int(value.into());
    assert_eq!(
        entries,
        [
            (DictKey::Int(1i64.into()), int(11)),
            (DictKey::Int(2i64.into()), int(21)),
            (DictKey::Float(0.5), int(30)),
        ]
    );
}

#[test]
fn unknown_objects_stay_inert_and_complete() {
    let checkpoint = lowered(|e| {
        e.named("os", "system").unwrap();
        e.str("rm -rf /").unwrap();
        e.tuple(TupleLen::One);
        e.reduce();
    });
    let Value::Opaque(opaque) = checkpoint.value(checkpoint.root()) else { panic!() };
    assert_eq!((&opaque.global, opaque.form), (&Global::new("os", "system"), Form::Call));
    assert_eq!(checkpoint.value(opaque.args[0]), &Value::Str("rm -rf /".into()));
    let call = checkpoint.findings[0].call.as_ref().unwrap();
    assert_eq!(call.arguments, "'rm -rf /'");
    assert_eq!(checkpoint.findings[0].grade, Grade::Danger);
}

#[test]
fn dict_subclasses_are_named_dicts() {
    let checkpoint = lowered(|e| {
        e.named("lightning", "AttributeDict").unwrap();
        e.empty_tuple();
        e.newobj();
        e.mark();
        set_str(e, "lr", |e| e.float(0.1));
        e.setitems();
    });
    let Value::Dict(root) = checkpoint.value(checkpoint.root()) else { panic!() };
    assert_eq!(root.class, DictClass::Other(Global::new("lightning", "AttributeDict").into()));
    assert_eq!(flat(&checkpoint), ["lr float"]);
}

#[test]
fn keys_show_the_arguments_of_objects() {
    let keyed = |value: i64| {
        lowered(|e| {
            e.empty_dict();
            e.mark();
            e.named("lib", "Color").unwrap();
            e.small_int(value);
            e.tuple(TupleLen::One);
            e.reduce();
            e.str("red").unwrap();
            e.setitems();
        })
    };
    assert_eq!(flat(&keyed(1)), ["<lib.Color(1) object 0> str"]);
    assert_eq!(flat(&keyed(2)), ["<lib.Color(2) object 0> str"]);
}

/// The name of a field, and a function that encodes its value.
type Field<'a> = (&'a str, &'a dyn Fn(&mut Encoder));

/// Encodes an instance of a class with these fields, as dataclasses are pickled.
fn dataclass(e: &mut Encoder, name: &str, fields: &[Field<'_>]) {
    e.named("lib", name).unwrap();
    e.empty_tuple();
    e.newobj();
    e.empty_dict();
    e.mark();
    fields.iter().for_each(|(key, value)| set_str(e, key, value));
    e.setitems();
    e.build();
}

#[test]
fn keys_show_the_fields_of_objects() {
    let checkpoint = lowered(|e| {
        e.empty_dict();
        e.mark();
        for (at, x) in [1, 2].into_iter().enumerate() {
            let point = |e: &mut Encoder| dataclass(e, "Point", &[("x", &|e| e.small_int(x))]);
            point(e);
            e.small_int(0);
            dataclass(e, "Line", &[("from", &point), ("name", &|e| e.str("a").unwrap())]);
            e.small_int(0);
            point(e);
            e.small_int(at as i64);
            e.tuple(TupleLen::Two);
            e.small_int(0);
        }
        e.setitems();
    });
    assert_eq!(
        flat(&checkpoint),
        [
            "<lib.Point {'x': 1} object 0> int",
            "<lib.Line {'from': <lib.Point {'x': 1}>, 'name': 'a'} object 1> int",
            "(<lib.Point {'x': 1}>, 0) int",
            "<lib.Point {'x': 2} object 3> int",
            "<lib.Line {'from': <lib.Point {'x': 2}>, 'name': 'a'} object 4> int",
            "(<lib.Point {'x': 2}>, 1) int",
        ]
    );
}

#[test]
fn keys_that_print_alike_are_numbered() {
    let checkpoint = lowered(|e| {
        e.empty_dict();
        e.mark();
        for _ in 0..2 {
            dataclass(e, "Point", &[]);
            e.small_int(7);
            e.tuple(TupleLen::Two);
            e.small_int(0);
        }
        e.setitems();
    });
    assert_eq!(flat(&checkpoint), ["(<lib.Point {}>, 7) int", "(<lib.Point {}>, 7) 1 int"]);
}

/// Returns a pickle of a dict whose keys are the same object, which contains 1,024 objects.
fn keys_of_one_object(times: usize) -> Vec<u8> {
    let mut bytes = b"\x80\x02clib\nA\n)\x81q\x000".to_vec();
    for level in 0..5 {
        bytes.extend(b"](");
        bytes.extend([b'h', level].repeat(4));
        bytes.extend([b'e', b'q', level + 1, b'0']);
    }
    bytes.extend(b"clib\nB\n)\x81}X\x01\0\0\0xh\x05sbq\x060}(");
    bytes.extend(b"h\x06K\x01".repeat(times));
    bytes.extend(b"u.");
    bytes
}

#[test]
fn factory_of_a_defaultdict_is_kept() {
    let filled = |factory: fn(&mut Encoder)| {
        lowered(|e| {
            e.named("collections", "defaultdict").unwrap();
            factory(e);
            e.tuple(TupleLen::One);
            e.reduce();
            e.mark();
            set_str(e, "a", |e| e.small_int(1));
            e.setitems();
        })
    };
    let plain = filled(|e| e.named("builtins", "list").unwrap());
    assert_eq!(flat(&plain), ["a int"]);
    let made = filled(|e| {
        e.named("functools", "partial").unwrap();
        e.named("builtins", "int").unwrap();
        e.small_int(7);
        e.tuple(TupleLen::Two);
        e.reduce();
    });
    let keys = flat(&made);
    assert!(keys.iter().any(|key| key.starts_with("args[0]")), "{keys:?}");
    assert!(keys.contains(&"a int".to_owned()), "{keys:?}");
}

#[test]
fn compiled_modules_have_the_names_of_their_state_dict() {
    let module = |e: &mut Encoder, name: &str, value: fn(&mut Encoder)| {
        e.named("torch.nn.modules.linear", "Linear").unwrap();
        e.empty_tuple();
        e.newobj();
        e.empty_dict();
        e.mark();
        for attribute in ["_parameters", "_buffers", "_modules"] {
            set_str(e, attribute, |e| {
                e.empty_dict();
                if attribute == name {
                    e.mark();
                    set_str(e, "w", value);
                    e.setitems();
                }
            });
        }
        e.setitems();
        e.build();
    };
    let compiled = |e: &mut Encoder| {
        e.named("torch._dynamo.eval_frame", "OptimizedModule").unwrap();
        e.named("torch.nn.modules.linear", "Linear").unwrap();
        e.empty_tuple();
        e.newobj();
        e.empty_dict();
        e.mark();
        for attribute in ["_buffers", "_modules"] {
            set_str(e, attribute, Encoder::empty_dict);
        }
        set_str(e, "_parameters", |e| {
            e.empty_dict();
            e.mark();
            set_str(e, "bias", |e| e.small_int(1));
            e.setitems();
        });
        e.setitems();
        e.build();
        e.str("context").unwrap();
        e.tuple(TupleLen::Two);
        e.reduce();
    };
    let keys = flat(&lowered(compiled));
    assert_eq!(keys[0], "_orig_mod.bias int");
    assert!(keys.contains(&"args[1] str".to_owned()), "{keys:?}");
    let keys = flat(&lowered(|e| module(e, "_modules", compiled)));
    assert_eq!(keys[0], "w._orig_mod.bias int", "{keys:?}");
}

#[test]
fn dill_lookups_are_matched_by_pattern_only() {
    let dill = |name: &str, argument: &str| {
        lowered(|e| {
            e.named("dill._dill", name).unwrap();
            e.str(argument).unwrap();
            e.tuple(TupleLen::One);
            e.reduce();
        })
    };
    let repr = |checkpoint: &Checkpoint| match checkpoint.value(checkpoint.root()) {
        Value::Opaque(opaque) => (opaque.global.to_string(), opaque.repr.clone()),
        value => panic!("{value:?}"),
    };
    let text = |text: &str| Some(Text::from(text));
    assert_eq!(
        repr(&dill("_eval_repr", "range(0, 3)")),
        ("builtins.range".into(), text("range(0, 3)"))
    );
    assert_eq!(
        repr(&dill("_eval_repr", "Ellipsis")),
        ("builtins.Ellipsis".into(), text("Ellipsis"))
    );
    assert_eq!(repr(&dill("_load_type", "dict")), ("builtins.dict".into(), text("<class 'dict'>")));
    let evil = "range(0, __import__('os').system('x'))";
    assert_eq!(repr(&dill("_eval_repr", evil)), ("dill._dill._eval_repr".into(), None));
    let complex = lowered(|e| {
        e.named("dill._dill", "_load_type").unwrap();
        e.str("complex").unwrap();
        e.tuple(TupleLen::One);
        e.reduce();
        e.float(1.0);
        e.float(-2.0);
        e.tuple(TupleLen::Two);
        e.reduce();
    });
    assert_eq!(complex.value(complex.root()), &Value::Complex(1.0, -2.0));
    assert!(complex.findings.is_empty());
}

/// Writes `torch.storage._load_from_bytes` of a stream with one storage, as `pickle.dumps` of a
/// tensor does.
fn inner_stream(e: &mut Encoder, class: &str) {
    let mut bytes = Vec::new();
    let mut push = |write: &dyn Fn(&mut Encoder)| {
        let mut inner = Encoder::new();
        inner.proto(2);
        write(&mut inner);
        inner.stop();
        bytes.extend(inner.into_bytes());
    };
    push(&|e| e.int(&Int::parse("119547037146038801333356").unwrap()).unwrap());
    push(&|e| e.small_int(1001));
    push(&|e| e.empty_dict());
    push(&|e| {
        e.mark();
        e.str("storage").unwrap();
        e.named("torch", class).unwrap();
        e.str("94").unwrap();
        e.str("cpu").unwrap();
        e.small_int(4);
        e.none();
        e.marked_tuple();
        e.binpersid();
    });
    push(&|e| {
        e.empty_list();
        e.mark();
        e.str("94").unwrap();
        e.appends();
    });
    bytes.extend(4u64.to_le_bytes());
    bytes.extend([0, 0, 1, 0, 2, 0, 3, 0]);
    e.named("torch.storage", "_load_from_bytes").unwrap();
    e.binbytes(&bytes);
    e.tuple(TupleLen::One);
    e.reduce();
}

#[test]
fn tensor_pickled_alone_has_inline_bytes() {
    let checkpoint = lowered(|e| {
        e.named("torch._utils", "_rebuild_parameter").unwrap();
        e.named("torch._utils", "_rebuild_tensor_v2").unwrap();
        e.mark();
        inner_stream(e, "BFloat16Storage");
        e.small_int(1);
        e.small_int(2);
        e.tuple(TupleLen::One);
        e.small_int(2);
        e.tuple(TupleLen::One);
        e.bool(false);
        e.none();
        e.marked_tuple();
        e.reduce();
        e.bool(true);
        e.none();
        e.tuple(TupleLen::Three);
        e.reduce();
    });
    let (_, tensor) = checkpoint.tensor_of(checkpoint.root()).unwrap();
    let Tensor { dtype, shape, layout, requires_grad, class, .. } = tensor;
    assert_eq!((dtype, &**shape, *requires_grad), (&DType::BF16, &[2][..], true));
    assert_eq!(class, &TensorClass::Parameter);
    let Layout::Strided(view) = layout else { panic!("{layout:?}") };
    assert_eq!((view.offset, &*view.strides, view.storage_len), (1, &[2i64][..], 8));
    assert_eq!(*view.storage, Layout::Inline([0, 0, 1, 0, 2, 0, 3, 0].into()));
    assert!(checkpoint.findings.is_empty(), "{:?}", checkpoint.findings);
}

#[test]
fn unreadable_inner_stream_is_dangerous() {
    let checkpoint = lowered(|e| {
        e.named("torch.storage", "_load_from_bytes").unwrap();
        e.binbytes(b"\x80\x02cos\nsystem\n.");
        e.tuple(TupleLen::One);
        e.reduce();
    });
    assert_eq!(checkpoint.findings[0].grade, Grade::Danger);
}

#[test]
fn storages_of_a_bare_pickle_are_missing() {
    let checkpoint = lowered(|e| {
        e.mark();
        e.str("storage").unwrap();
        e.named("torch", "FloatStorage").unwrap();
        e.str("0").unwrap();
        e.str("cpu").unwrap();
        e.small_int(4);
        e.marked_tuple();
        e.binpersid();
    });
    let (_, tensor) = checkpoint.tensor_of(checkpoint.root()).unwrap();
    assert!(matches!(tensor.layout, Layout::Missing(_)));
    assert_eq!((&tensor.dtype, &*tensor.shape), (&DType::F32, &[4][..]));
}

/// Small files that request the same large work again and again must finish, or reach a limit,
/// soon.
#[test]
fn repeated_large_work_is_bounded() {
    const TIMES: usize = 20_000;
    let repeated = |large: &dyn Fn(&mut Encoder),
                    each: &dyn Fn(&mut Encoder, [statelens_pickle::MemoId; 2])| {
        pickled(|e| {
            e.empty_list();
            e.mark();
            large(e);
            let large = e.memoize();
            e.named("collections", "OrderedDict").unwrap();
            let class = e.memoize();
            for _ in 0..TIMES {
                each(e, [large, class]);
            }
            e.appends();
        })
    };
    let call = |name: &'static str, module: &'static str| {
        move |e: &mut Encoder, [large, _]: [statelens_pickle::MemoId; 2]| {
            e.named(module, name).unwrap();
            e.memoized(large);
            e.tuple(TupleLen::One);
            e.reduce();
        }
    };
    let text = |e: &mut Encoder| e.str(&"1".repeat(1 << 20)).unwrap();
    let pairs = |e: &mut Encoder| {
        e.empty_list();
        e.mark();
        for _ in 0..TIMES {
            e.small_int(7);
            e.small_int(7);
            e.tuple(TupleLen::Two);
        }
        e.appends();
    };
    let wide = |e: &mut Encoder| {
        e.mark();
        (0..250).for_each(|_| e.small_int(1));
        e.marked_tuple();
    };
    let attacks = [
        ("a long text as a number", repeated(&text, &call("Decimal", "decimal"))),
        ("a long text as a fraction", repeated(&text, &call("Fraction", "fractions"))),
        ("a long text as a path", repeated(&text, &call("PurePosixPath", "pathlib"))),
        ("a long text as a type", repeated(&text, &call("_load_type", "dill._dill"))),
        (
            "a long text as bytes",
            repeated(&text, &|e, [large, _]| {
                e.named("_codecs", "encode").unwrap();
                e.memoized(large);
                e.str("latin1").unwrap();
                e.tuple(TupleLen::Two);
                e.reduce();
            }),
        ),
        (
            "pairs that are one entry",
            repeated(&pairs, &|e, [large, class]| {
                e.memoized(class);
                e.memoized(large);
                e.tuple(TupleLen::One);
                e.reduce();
            }),
        ),
        (
            "wide keys",
            repeated(&wide, &|e, [large, _]| {
                e.empty_dict();
                e.mark();
                e.memoized(large);
                e.none();
                e.setitems();
            }),
        ),
        ("keys that are one object whose text is too long", keys_of_one_object(200_000)),
        (
            "a long text as a name",
            repeated(&text, &|e, [large, _]| {
                e.memoized(large);
                e.memoized(large);
                e.stack_global();
            }),
        ),
    ];
    for (what, bytes) in attacks {
        let start = busy();
        if let Ok(pickle) = read(&bytes, 0, &Limits::default()) {
            let mut builder = Builder::new(&Limits::default());
            let _ = pickle.lower(&mut builder, &mut NoStorages::default());
            pickle.scan(&ScanOptions::default());
        }
        let took = busy() - start;
        assert!(took.as_secs() < 20, "{what}: {took:?} of processor time");
    }
}
