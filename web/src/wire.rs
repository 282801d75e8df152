//! Messages as bytes: what serde's derives say of them, in the order of the fields.
//!
//! Page and worker are one program and say nothing to each other but what it wrote itself. So
//! bytes that are no message are a defect, which ends the program, and no field can fail: the
//! derived code for some forty types is half of what it is where each field can be an error. Bytes
//! from elsewhere must not be read with this.
//!
//! Numbers are LEB128, texts and lists are their length and what is in them, enums their variant's
//! number. Maps, and what looks at a type before it reads it (`untagged`, `flatten`), are in no
//! message and not served.

use std::fmt;

use serde::de::{
    DeserializeSeed, EnumAccess, Expected, SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::ser::Impossible;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

/// A message as bytes.
#[must_use]
pub fn to_bytes(message: &impl Serialize) -> Vec<u8> {
    let mut out = Out(Vec::new());
    let Ok(()) = message.serialize(&mut out);
    out.0
}

/// The message that [`to_bytes`] made these bytes of.
#[must_use]
pub fn from_bytes<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> T {
    let Ok(message) = T::deserialize(&mut In(bytes));
    message
}

/// Appends a number as LEB128.
pub fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends bytes behind their length.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Takes what [`put`] wrote off the start.
pub fn take(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Takes what [`put_bytes`] wrote off the start.
pub fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take(rest)?).ok()?;
    let (bytes, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(bytes)
}

/// The error that there is none of.
#[derive(Debug)]
enum Never {}

type Always<T> = Result<T, Never>;

/// There is no message in these bytes, or a type that is not served is in a message.
fn defect() -> ! {
    std::process::abort()
}

impl fmt::Display for Never {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl std::error::Error for Never {}

impl ser::Error for Never {
    fn custom<T: fmt::Display>(_: T) -> Self {
        defect()
    }
}

// Those that derived code calls would otherwise format what they are told, before `custom`.
impl de::Error for Never {
    fn custom<T: fmt::Display>(_: T) -> Self {
        defect()
    }

    fn invalid_type(_: Unexpected<'_>, _: &dyn Expected) -> Self {
        defect()
    }

    fn invalid_value(_: Unexpected<'_>, _: &dyn Expected) -> Self {
        defect()
    }

    fn invalid_length(_: usize, _: &dyn Expected) -> Self {
        defect()
    }
}

/// What is written.
struct Out(Vec<u8>);

impl Out {
    #[inline(never)]
    fn number(&mut self, number: u64) -> Always<()> {
        put(&mut self.0, number);
        Ok(())
    }

    /// A number and what belongs to it.
    fn numbered<T: Serialize + ?Sized>(&mut self, number: u32, value: &T) -> Always<()> {
        self.number(number.into())?;
        value.serialize(self)
    }
}

macro_rules! write_numbers {
    ($($method:ident $number:ty,)*) => {$(
        fn $method(self, number: $number) -> Always<()> {
            self.number(number as u64)
        }
    )*};
}

impl Serializer for &mut Out {
    type Ok = ();
    type Error = Never;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Impossible<(), Never>;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    write_numbers! {
        serialize_bool bool,
        serialize_i8 i8, serialize_i16 i16, serialize_i32 i32, serialize_i64 i64,
        serialize_u8 u8, serialize_u16 u16, serialize_u32 u32, serialize_u64 u64,
        serialize_char char,
    }

    fn serialize_f32(self, number: f32) -> Always<()> {
        self.number(number.to_bits().into())
    }

    fn serialize_f64(self, number: f64) -> Always<()> {
        self.number(number.to_bits())
    }

    fn serialize_str(self, text: &str) -> Always<()> {
        self.serialize_bytes(text.as_bytes())
    }

    #[inline(never)]
    fn serialize_bytes(self, bytes: &[u8]) -> Always<()> {
        put_bytes(&mut self.0, bytes);
        Ok(())
    }

    fn serialize_none(self) -> Always<()> {
        self.number(0)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Always<()> {
        self.numbered(1, value)
    }

    fn serialize_unit(self) -> Always<()> {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Always<()> {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &str, variant: u32, _: &str) -> Always<()> {
        self.number(variant.into())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &str, value: &T) -> Always<()> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &str,
        variant: u32,
        _: &str,
        value: &T,
    ) -> Always<()> {
        self.numbered(variant, value)
    }

    fn serialize_seq(self, length: Option<usize>) -> Always<Self> {
        let Some(length) = length else { defect() };
        self.number(length as u64)?;
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Always<Self> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &str, _: usize) -> Always<Self> {
        Ok(self)
    }

    fn serialize_tuple_variant(self, _: &str, variant: u32, _: &str, _: usize) -> Always<Self> {
        self.number(variant.into())?;
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Always<Self::SerializeMap> {
        defect()
    }

    fn serialize_struct(self, _: &str, _: usize) -> Always<Self> {
        Ok(self)
    }

    fn serialize_struct_variant(self, _: &str, variant: u32, _: &str, _: usize) -> Always<Self> {
        self.number(variant.into())?;
        Ok(self)
    }
}

macro_rules! write_parts {
    ($($part:ident $method:ident $($name:ty)?,)*) => {$(
        impl ser::$part for &mut Out {
            type Ok = ();
            type Error = Never;

            fn $method<T: Serialize + ?Sized>(&mut self, $(_: $name,)? value: &T) -> Always<()> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Always<()> {
                Ok(())
            }
        }
    )*};
}

write_parts! {
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field,
    SerializeStruct serialize_field &'static str,
    SerializeStructVariant serialize_field &'static str,
}

/// What is still to be read.
struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    #[inline(never)]
    fn number(&mut self) -> u64 {
        take(&mut self.0).unwrap_or_else(|| defect())
    }

    #[inline(never)]
    fn bytes(&mut self) -> &'a [u8] {
        take_bytes(&mut self.0).unwrap_or_else(|| defect())
    }
}

macro_rules! read_numbers {
    ($($method:ident $visit:ident $number:ty,)*) => {$(
        fn $method<V: Visitor<'a>>(self, visitor: V) -> Always<V::Value> {
            visitor.$visit(self.number() as $number)
        }
    )*};
}

impl<'a> Deserializer<'a> for &mut In<'a> {
    type Error = Never;

    read_numbers! {
        deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16,
        deserialize_i32 visit_i32 i32, deserialize_i64 visit_i64 i64,
        deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32, deserialize_u64 visit_u64 u64,
        deserialize_identifier visit_u64 u64,
    }

    fn deserialize_any<V: Visitor<'a>>(self, _: V) -> Always<V::Value> {
        defect()
    }

    fn deserialize_bool<V: Visitor<'a>>(self, visitor: V) -> Always<V::Value> {
        visitor.visit_bool(self.number() != 0)
    }

    fn deserialize_char<V: Visitor<'a>>(self, visitor: V) -> Always<V::Value> {
        visitor.visit_char(char::from_u32(self.number() as u32).unwrap_or_else(|| defect()))
    }

    fn deserialize_f32<V: Visitor<'a>>(self, visitor: V) -> Always<V::Value> {
        visitor.visit_f32(f32::from_bits(self.number() as u32))
    }

    fn deserialize_f64<V: Visitor<'a>>(self, visitor: V) -> Always<V::Value> {
        visitor.visit_f64(f64::from_bits(self.number()))
    }

    fn deserialize_str<V: Visitor<'a>>(self, visitor: V) -> Always<V::Value> {
        let text = str::from_utf8(self.bytes()).unwrap_or_else(|_| defect());
        visitor.visit_borrowed_str(text)
    }

    fn deserialize_string<V: Visitor<'a>>(self, visitor: V) -> Always<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'a>>(self, visitor: V) -> Always<V::Value> {
        visitor.visit_borrowed_bytes(self.bytes())
    }

    fn deserialize_byte_buf<V: Visitor<'a>>(self, visitor: V) -> Always<V::Value> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Always<V::Value> {
        match self.number() {
            0 => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'a>>(self, visitor: V) -> Always<V::Value> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(self, _: &str, visitor: V) -> Always<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'a>>(self, visitor: V) -> Always<V::Value> {
        let left = self.number();
        visitor.visit_seq(Items { from: self, left })
    }

    fn deserialize_tuple<V: Visitor<'a>>(self, _: usize, visitor: V) -> Always<V::Value> {
        visitor.visit_seq(Fields(self))
    }

    fn deserialize_tuple_struct<V: Visitor<'a>>(
        self,
        _: &str,
        _: usize,
        visitor: V,
    ) -> Always<V::Value> {
        visitor.visit_seq(Fields(self))
    }

    fn deserialize_struct<V: Visitor<'a>>(
        self,
        _: &str,
        _: &[&str],
        visitor: V,
    ) -> Always<V::Value> {
        visitor.visit_seq(Fields(self))
    }

    fn deserialize_enum<V: Visitor<'a>>(self, _: &str, _: &[&str], visitor: V) -> Always<V::Value> {
        visitor.visit_enum(self)
    }

    serde::forward_to_deserialize_any! { <W: Visitor<'a>> unit_struct map ignored_any }
}

/// A list.
struct Items<'b, 'a> {
    from: &'b mut In<'a>,
    left: u64,
}

impl<'a> SeqAccess<'a> for Items<'_, 'a> {
    type Error = Never;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Always<Option<T::Value>> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(&mut *self.from).map(Some)
    }
}

/// What has a known number of fields.
struct Fields<'b, 'a>(&'b mut In<'a>);

impl<'a> SeqAccess<'a> for Fields<'_, 'a> {
    type Error = Never;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Always<Option<T::Value>> {
        seed.deserialize(&mut *self.0).map(Some)
    }
}

impl<'a> EnumAccess<'a> for &mut In<'a> {
    type Error = Never;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'a>>(self, seed: T) -> Always<(T::Value, Self)> {
        Ok((seed.deserialize(&mut *self)?, self))
    }
}

impl<'a> VariantAccess<'a> for &mut In<'a> {
    type Error = Never;

    fn unit_variant(self) -> Always<()> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'a>>(self, seed: T) -> Always<T::Value> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'a>>(self, _: usize, visitor: V) -> Always<V::Value> {
        visitor.visit_seq(Fields(self))
    }

    fn struct_variant<V: Visitor<'a>>(self, _: &[&str], visitor: V) -> Always<V::Value> {
        visitor.visit_seq(Fields(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crosses<T: Serialize + for<'a> Deserialize<'a> + PartialEq + fmt::Debug>(value: T) {
        let bytes = to_bytes(&value);
        let mut rest = In(&bytes);
        let Ok(back) = T::deserialize(&mut rest);
        assert_eq!(back, value);
        assert_eq!(rest.0, b"", "{value:?}");
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Newtype(String);

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Both(u8, i8);

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Each {
        Unit,
        Newtype(Option<Box<Each>>),
        Tuple(u16, char),
        Struct { list: Vec<Each>, text: String },
    }

    #[test]
    fn numbers_cross_exactly() {
        for number in [0, 1, 0x7f, 0x80, 1 << 53, (1 << 53) + 1, u64::MAX] {
            crosses(number);
        }
        for number in [i64::MIN, -1, 0, i64::MAX] {
            crosses(number);
        }
        crosses((i8::MIN, i16::MIN, i32::MIN, u8::MAX, u16::MAX, u32::MAX));
        crosses((true, false, '\0', char::MAX));
    }

    #[test]
    fn floats_cross_bit_by_bit() {
        let nan = f64::from_bits(0xfff8_0000_dead_beef);
        for number in [0.0, -0.0, 0.1, f64::MIN_POSITIVE, f64::INFINITY, f64::NAN, nan] {
            let back: f64 = from_bytes(&to_bytes(&number));
            assert_eq!(back.to_bits(), number.to_bits());
            let single: f32 = from_bytes(&to_bytes(&(number as f32)));
            assert_eq!(single.to_bits(), (number as f32).to_bits());
        }
    }

    #[test]
    fn every_shape_crosses() {
        crosses((String::new(), "a\0é𝄞".to_owned(), [1u64, 2, 3]));
        crosses((None::<u32>, Some(None::<u32>), Some(Some(0u32)), ()));
        crosses((Ok::<u32, String>(1), Err::<u32, String>("no".into())));
        crosses((vec![(1u64, "a".to_owned()); 300], Vec::<u8>::new()));
        crosses((Newtype("x".into()), Both(255, -128)));
        crosses(Each::Unit);
        crosses(Each::Newtype(Some(Box::new(Each::Tuple(9, 'ß')))));
        let list = vec![Each::Newtype(None), Each::Struct { list: Vec::new(), text: "y".into() }];
        crosses(Each::Struct { list, text: "z".into() });
    }

    #[test]
    fn cut_numbers_and_bytes_are_told() {
        let mut bytes = Vec::new();
        put(&mut bytes, u64::MAX);
        for end in 0..bytes.len() {
            assert_eq!(take(&mut &bytes[..end]), None);
        }
        assert_eq!(take_bytes(&mut bytes.as_slice()), None);
        assert_eq!(take(&mut [0xff; 11].as_slice()), None);
        let mut text = Vec::new();
        put_bytes(&mut text, b"abc");
        assert_eq!(take_bytes(&mut &text[..3]), None);
        assert_eq!(take_bytes(&mut text.as_slice()), Some(b"abc".as_slice()));
    }
}
