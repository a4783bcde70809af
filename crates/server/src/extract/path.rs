//! `Path<T>`: the parameters of the route, decoded and typed.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::{FromRequest, Setup};
use crate::problem::Problem;
use crate::request::Request;
use crate::response::{IntoResponse, Response};

/// The parameters of the route: a single value, a tuple in their order, or a struct by name.
///
/// Percent escapes are decoded. If a value does not parse, the response is a 400 that names the parameter.
/// To leave such paths to another route, restrict the parameter in the pattern, for example `{id:u64}`.
///
/// ```
/// use blitz::{App, extract::Path};
///
/// let app = App::new()
///     .get("/users/{id:u64}", |Path(id): Path<u64>| format!("user {id}"))
///     .get("/{year}/{month}", |Path((year, month)): Path<(u16, u8)>| format!("{month} {year}"));
/// # app.build().unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + 'static> FromRequest for Path<T> {
    fn from_request(request: &mut Request) -> Result<Self, Response> {
        let value = T::deserialize(Params { request });
        value.map(Path).map_err(|error| {
            Problem::bad_request(format!("the path does not match: {error}")).into_response()
        })
    }

    fn check(setup: &Setup<'_>) -> Result<(), String> {
        match setup.param_names() {
            [] => Err("its handler takes `Path`, but the route has no `{parameter}`".into()),
            _ => Ok(()),
        }
    }
}

/// All parameters, as a serde deserializer.
struct Params<'r> {
    request: &'r Request,
}

impl<'r> Params<'r> {
    fn values(&self) -> impl Iterator<Item = (&'r str, PathParameter<'r>)> + use<'r> {
        self.request
            .params()
            .map(|(name, raw)| (name, PathParameter { name, raw }))
    }

    fn single(&self) -> Result<PathParameter<'r>, Unfit> {
        let mut values = self.values();
        match (values.next(), values.next()) {
            (Some((_, only)), None) => Ok(only),
            _ => Err(de::Error::custom(
                "the type takes one value, but the route has several or none",
            )),
        }
    }
}

/// Forwards each of these methods to the only parameter.
macro_rules! forward_to_single {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Unfit> {
            self.single()?.$method(visitor)
        })*
    };
}

impl<'r> Deserializer<'r> for Params<'r> {
    type Error = Unfit;

    forward_to_single! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_u128 deserialize_f32 deserialize_f64 deserialize_char deserialize_str
        deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option
        deserialize_identifier
    }

    forward_to_deserialize_any! {
        <W: Visitor<'r>>
        map struct
    }

    fn deserialize_any<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Unfit> {
        MapDeserializer::new(self.values()).deserialize_map(visitor)
    }

    fn deserialize_seq<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Unfit> {
        SeqDeserializer::new(self.values().map(|(_, value)| value)).deserialize_seq(visitor)
    }

    fn deserialize_tuple<V: Visitor<'r>>(self, _len: usize, visitor: V) -> Result<V::Value, Unfit> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'r>>(
        self,
        _name: &'static str,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'r>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'r>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        self.single()?.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_unit<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Unfit> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'r>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        visitor.visit_unit()
    }

    fn deserialize_ignored_any<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Unfit> {
        visitor.visit_unit()
    }
}

/// One parameter.
struct PathParameter<'r> {
    name: &'r str,
    raw: &'r str,
}

impl<'r> PathParameter<'r> {
    fn decode(&self) -> Result<Cow<'r, str>, Unfit> {
        decode(self.raw).ok_or_else(|| self.unfit("it is not UTF-8"))
    }

    fn unfit(&self, reason: impl fmt::Display) -> Unfit {
        Unfit(format!("`{}`: {reason}", self.name))
    }
}

/// Parses numbers, booleans and characters with `FromStr`.
macro_rules! parse {
    ($($method:ident $visit:ident)*) => {
        $(fn $method<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Unfit> {
            let value = self.decode()?.parse().map_err(|error| self.unfit(error))?;
            visitor.$visit(value)
        })*
    };
}

impl<'r> Deserializer<'r> for PathParameter<'r> {
    type Error = Unfit;

    parse! {
        deserialize_bool visit_bool deserialize_char visit_char
        deserialize_i8 visit_i8 deserialize_i16 visit_i16 deserialize_i32 visit_i32
        deserialize_i64 visit_i64 deserialize_i128 visit_i128
        deserialize_u8 visit_u8 deserialize_u16 visit_u16 deserialize_u32 visit_u32
        deserialize_u64 visit_u64 deserialize_u128 visit_u128
        deserialize_f32 visit_f32 deserialize_f64 visit_f64
    }

    fn deserialize_any<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Unfit> {
        match self.decode()? {
            Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
            Cow::Owned(text) => visitor.visit_string(text),
        }
    }

    fn deserialize_option<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Unfit> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'r>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'r>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        visitor.visit_enum(self.decode()?.into_deserializer())
    }

    forward_to_deserialize_any! {
        <W: Visitor<'r>>
        str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier
        ignored_any
    }
}

impl<'r> IntoDeserializer<'r, Unfit> for PathParameter<'r> {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

/// Why the parameters do not match the type, as a message for the client.
#[derive(Debug)]
struct Unfit(String);

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unfit {}

impl de::Error for Unfit {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Unfit(message.to_string())
    }
}

/// Decodes percent escapes, which the parser has found to be well-formed; `None` if the result
/// is not UTF-8.
pub(crate) fn decode(raw: &str) -> Option<Cow<'_, str>> {
    if !raw.contains('%') {
        return Some(Cow::Borrowed(raw));
    }
    let mut decoded = Vec::with_capacity(raw.len());
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || {
            bytes
                .next()
                .and_then(|digit| char::from(digit).to_digit(16))
        };
        let (high, low) = digit().zip(digit())?;
        decoded.push((high << 4 | low) as u8);
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}
