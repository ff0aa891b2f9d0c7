//! No files of a crate import each other in a circle: one can be read after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use resource_tracker_tests::text;
use serde_json::Value as Json;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemFn, ItemImpl, ItemMod, ItemUse, Meta, UseTree};

/// The names of modules from the root of the crate down, and what else is behind them.
type Names = Vec<String>;

/// What one file says.
#[derive(Default)]
struct File {
    /// What it calls by a name of its own.
    imports: BTreeMap<String, Names>,
    /// All that it mentions.
    paths: Vec<Names>,
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let circles: Vec<(String, Names)> = crates()
        .iter()
        .flat_map(|(name, folder)| circles(&files(Path::new(folder))).into_iter().map(|files| (name.clone(), files)))
        .collect();
    assert!(circles.is_empty(), "what one of them shares belongs into a file of its own: {circles:#?}");
}

#[test]
fn a_circle_is_found_also_by_way_of_a_third_file() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, code: &str| std::fs::write(folder.path().join(name), code).unwrap();
    write("lib.rs", "mod a; mod b; mod c; pub use a::A;");
    write("a.rs", "use crate::b::B; pub struct A(B);");
    write("b.rs", "pub struct B(super::c::C);");
    write("c.rs", "pub struct C;");
    assert_eq!(circles(&files(folder.path())), BTreeSet::new());
    write("c.rs", "pub struct C(Box<crate::A>);");
    assert_eq!(circles(&files(folder.path())), BTreeSet::from([["a", "b", "c"].map(str::to_owned).to_vec()]));
}

/// Name and folder with the code of each crate of the workspace.
fn crates() -> Vec<(String, String)> {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path", manifest];
    let output = Command::new(env!("CARGO")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let metadata: Json = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let crates: Vec<_> = packages
        .map(|package| {
            let folder = Path::new(package["manifest_path"].as_str().unwrap()).with_file_name("src");
            (package["name"].as_str().unwrap().to_owned(), folder.display().to_string())
        })
        .collect();
    assert!(crates.len() > 10, "{crates:?}");
    crates
}

/// The files of a crate but those of tests, by module.
fn files(source: &Path) -> BTreeMap<Names, File> {
    let (mut paths, mut folders) = (Vec::new(), vec![source.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.is_dir() {
                true => folders.push(entry),
                false => paths.push(entry),
            }
        }
    }
    let module = |path: &Path| -> Names {
        let path = path.strip_prefix(source).unwrap().with_extension("");
        let names = path.iter().map(|name| name.to_str().unwrap().to_owned());
        names.filter(|name| !["mod", "lib", "main"].contains(&name.as_str())).collect()
    };
    let code = |path: &Path| syn::parse_file(&std::fs::read_to_string(path).unwrap()).unwrap();
    let is_code = |path: &&std::path::PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    let all: BTreeMap<Names, syn::File> = paths.iter().filter(is_code).map(|path| (module(path), code(path))).collect();
    let modules: BTreeSet<Names> = all.keys().cloned().collect();
    let is_meant = |names: &Names| names.iter().all(|name| name != "tests" && name != "bin");
    let read = |(names, code): (&Names, &syn::File)| {
        let mut reader = Reader { modules: &modules, module: names.clone(), file: File::default() };
        reader.visit_file(code);
        (names.clone(), reader.file)
    };
    all.iter().filter(|(names, _)| is_meant(names)).map(read).collect()
}

/// Reads one file.
struct Reader<'a> {
    modules: &'a BTreeSet<Names>,
    /// Where it is: a module in the file has a name as well.
    module: Names,
    file: File,
}

impl Reader<'_> {
    /// From the root of the crate; `None` for a path into another crate.
    fn absolute(&self, path: &[String]) -> Option<Names> {
        let mut from = self.module.clone();
        let (first, mut rest) = path.split_first()?;
        match first.as_str() {
            "crate" => from.clear(),
            "self" => (),
            "super" => {
                from.pop();
                while let Some((_, further)) = rest.split_first().filter(|(name, _)| *name == "super") {
                    from.pop();
                    rest = further;
                }
            }
            name => {
                from.push(name.to_owned());
                if !self.modules.contains(&from) {
                    from = self.file.imports.get(name)?.clone();
                }
            }
        }
        Some([&from, rest].concat())
    }

    fn import(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        let (path, name) = match tree {
            UseTree::Path(path) => return self.import(&with(&path.ident), &path.tree),
            UseTree::Group(group) => return group.items.iter().for_each(|tree| self.import(before, tree)),
            UseTree::Glob(_) => (before.to_vec(), None),
            UseTree::Name(name) if name.ident == "self" => (before.to_vec(), before.last().cloned()),
            UseTree::Name(name) => (with(&name.ident), Some(name.ident.to_string())),
            UseTree::Rename(rename) => (with(&rename.ident), Some(rename.rename.to_string())),
        };
        let Some(path) = self.absolute(&path) else { return };
        if let Some(name) = name {
            self.file.imports.insert(name, path.clone());
        }
        self.file.paths.push(path);
    }
}

impl<'a> Visit<'a> for Reader<'_> {
    fn visit_file(&mut self, file: &'a syn::File) {
        // Names are known before they are used, wherever they are imported.
        let (imports, others): (Vec<&Item>, Vec<&Item>) =
            file.items.iter().partition(|item| matches!(item, Item::Use(_)));
        imports.into_iter().chain(others).for_each(|item| self.visit_item(item));
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        if !is_of_tests(&item.attrs) {
            self.import(&[], &item.tree);
        }
    }

    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        if !is_of_tests(&item.attrs) {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }

    fn visit_item_fn(&mut self, item: &'a ItemFn) {
        if !is_of_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'a ItemImpl) {
        if !is_of_tests(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let names: Names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1 {
            self.file.paths.extend(self.absolute(&names));
        }
        visit::visit_path(self, path);
    }
}

fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let tokens = list.tokens.to_string();
            tokens.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
        }
        _ => false,
    })
}

/// The file that has what a path names, also where another one shows it under a name of its own.
fn owner<'a>(files: &'a BTreeMap<Names, File>, path: &[String], seen: usize) -> Option<&'a Names> {
    let (module, file) = (0..=path.len()).rev().find_map(|end| files.get_key_value(&path[..end]))?;
    let shown = path.get(module.len()).and_then(|name| file.imports.get(name));
    // Two that show each other's names would be a circle of another kind.
    let owner_elsewhere = |shown: &Names| owner(files, &[shown, &path[module.len() + 1..]].concat(), seen + 1);
    shown.filter(|_| seen < 8).map_or(Some(module), owner_elsewhere)
}

/// The circles, each with its files in order. The root, which has all the others and shows them, is in none.
fn circles(files: &BTreeMap<Names, File>) -> BTreeSet<Names> {
    let owners = |file: &'_ File| file.paths.iter().filter_map(|path| owner(files, path, 0)).collect();
    let mut uses: BTreeMap<&Names, BTreeSet<&Names>> = files.iter().map(|(name, file)| (name, owners(file))).collect();
    uses.remove(&Names::new());
    let reached: BTreeMap<&Names, BTreeSet<&Names>> = uses.keys().map(|name| (*name, reached(&uses, name))).collect();
    let circle = |(name, others): (&&Names, &BTreeSet<&Names>)| -> Names {
        let members = others.iter().filter(|other| reached[**other].contains(*name));
        members.map(|member| member.join("::")).collect()
    };
    reached.iter().map(circle).filter(|circle| !circle.is_empty()).collect()
}

/// What a file uses, what that uses, and so on; the file itself only by way of another one.
fn reached<'a>(uses: &BTreeMap<&'a Names, BTreeSet<&'a Names>>, name: &'a Names) -> BTreeSet<&'a Names> {
    let (mut reached, mut further) = (BTreeSet::new(), vec![name]);
    while let Some(name) = further.pop() {
        let used = uses[name].iter().filter(|other| **other != name && uses.contains_key(**other));
        further.extend(used.filter(|other| reached.insert(**other)));
    }
    reached
}
