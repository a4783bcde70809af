//! JSON of tokens and key sets: an object without duplicate members, of bounded depth (RFC 8725, section 2.4).

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

pub(super) type Object = Map<String, Value>;

/// The most levels of objects and lists.
const DEPTH_MAX: u8 = 16;

/// The object that these bytes are; `None` for anything else.
pub(super) fn object(bytes: &[u8]) -> Option<Object> {
    let text = str::from_utf8(bytes).ok()?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Strict { depth: 0 }.deserialize(&mut deserializer).ok()?;
    deserializer.end().ok()?;
    match value {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

/// A value at this depth.
#[derive(Clone, Copy)]
struct Strict {
    depth: u8,
}

impl Strict {
    fn inner<E: Error>(self) -> Result<Strict, E> {
        match self.depth {
            DEPTH_MAX => Err(E::custom("too deep")),
            depth => Ok(Strict { depth: depth + 1 }),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("not finite"))?;
        Ok(Value::Number(number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let value = members.next_value_seed(inner)?;
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("a member is there twice"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_objects_without_duplicates_are_read() {
        let nested = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        for (text, is_read) in [
            ("{}", true),
            (
                " {\"a\": [1, -2, 1.5, true, null, \"x\", {\"a\": 1}]}\n",
                true,
            ),
            ("{\"a\":1,\"a\":1}", false),
            ("{\"a\":1,\"\\u0061\":1}", false),
            ("{\"a\":{\"b\":1,\"b\":2}}", false),
            ("{\"a\":1e999}", false),
            ("{\"a\":NaN}", false),
            ("{\"a\":\"\\ud800\"}", false),
            ("{\"a\":1,}", false),
            ("{} {}", false),
            ("[]", false),
            ("\"a\"", false),
            ("", false),
            (&nested(16), true),
            (&nested(17), false),
        ] {
            assert_eq!(object(text.as_bytes()).is_some(), is_read, "{text}");
        }
        assert_eq!(object(b"{\"a\":\"\xff\"}"), None);
    }
}
