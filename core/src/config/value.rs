//! A value to be set.

use figment::value::Value;

/// A value of a key: a truth value, a number, a text, or a list of them.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigValue(pub(super) Value);

macro_rules! from {
    ($($type:ty)*) => {
        $(impl From<$type> for ConfigValue {
            fn from(value: $type) -> Self {
                Self(value.into())
            }
        })*
    };
}

from! { bool i32 i64 u32 u64 usize f64 &str String }

impl<T: Into<ConfigValue>> From<Vec<T>> for ConfigValue {
    fn from(values: Vec<T>) -> Self {
        Self(values.into_iter().map(|value| value.into().0).collect::<Vec<Value>>().into())
    }
}
