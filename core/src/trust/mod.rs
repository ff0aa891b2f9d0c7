//! Whom to trust with a file. There is one question, whatever it is for: is it of the kind that is meant, whose is it, and
//! what may others do with it? It is asked of what is open, so that nobody can exchange it between the question and its use.

mod demand;
mod error;
mod folder;
mod found;
mod group;
mod output;

pub use demand::{Demand, Owner};
pub(crate) use folder::TrustedFile;
pub use folder::{check_folder, make_folder};
pub(crate) use found::open_found;
pub use output::{OutputOwner, OutputPath, check_output};
