//! Which files and folders to trust. The check is always the same: is it of the expected kind, whose is it, and what
//! may others do with it? It is made on the open file, so that nobody can exchange it between the check and its use.

mod error;
mod file_requirement;
mod folder;
mod found;
mod group;
mod output;

pub use file_requirement::{FileRequirement, Owner};
pub(crate) use folder::TrustedFile;
pub use folder::{check_folder, make_folder};
pub(crate) use found::open_found;
pub use output::{OutputOwner, OutputPath, check_output};
