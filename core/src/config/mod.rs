//! One configuration out of the TOML file, the environment and the command line, which knows where each value is from.

mod blame;
mod check;
mod components;
mod error;
mod file;
mod found_file;
mod from_json;
mod interval;
mod known_table;
mod layers;
mod origin;
mod settings;
mod site;
mod toml;
mod value;

pub use components::{ByName, Component, State};
pub use error::{ConfigError, ConfigErrorKind, without_secrets};
pub use file::ConfigFile;
pub use found_file::{NEEDS_NAMED_FILE, TAKES_SECRET};
pub use interval::{Interval, NoInterval};
pub use known_table::KnownTable;
pub use origin::Origin;
pub use settings::Settings;
pub use value::ConfigValue;
