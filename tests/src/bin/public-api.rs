//! Prints what a program can use of the crate that a rustdoc JSON file describes, one item a line.

use anyhow::Context;

fn main() -> anyhow::Result<()> {
    let file = std::env::args_os().nth(1).context("which file?")?;
    let api = public_api::Builder::from_rustdoc_json(file)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    print!("{api}");
    Ok(())
}
