//! Which file of a crate needs which other one, and which of them need each other
//! in a circle.
//!
//! The rule: **the files of a crate form a directed graph without circles.** Who
//! reads a file reads what it needs below it, and never comes back. A file needs
//! another one
//!
//! - if it names something that is defined there, in a `use` or in a path. A name that
//!   a module only passes on (`pub use child::Name`) counts as the child's. That a
//!   file declares a module (`mod child;`) is no need;
//! - if the other one holds an inherent `impl` of a type that the first one defines:
//!   the type is spread over both.
//!
//! So parent and child are no exception: a child that needs what its parent defines,
//! below a parent that needs the child, is a circle. What both need goes into a file
//! of its own. Code under `#[cfg(test)]` does not count.
//!
//! Not seen are names that a macro of ours makes; the code has none.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::Visit;
use syn::{Item, UseTree};

/// How many names may pass a name on before it is taken for a mistake.
const MAX_HOPS: usize = 16;

type Segments = Vec<String>;

/// Files, each with those that it needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs(BTreeMap<PathBuf, BTreeSet<PathBuf>>);

impl Needs {
    /// Reads the crate whose root is this file, relative to the top of the checkout.
    ///
    /// # Panics
    /// When a file cannot be read or parsed: the tests cannot go on.
    #[must_use]
    pub fn of_crate(root: &Path) -> Needs {
        let read = |path: &Path| {
            let full = crate::root().join(path);
            full.exists().then(|| crate::read(path))
        };
        Crate::load(root, &read).needs()
    }

    /// The groups of files that need each other, in circles.
    #[must_use]
    pub fn circles(&self) -> Vec<Vec<&Path>> {
        let reached: BTreeMap<&Path, BTreeSet<&Path>> = self
            .0
            .keys()
            .map(|file| (file.as_path(), self.reachable(file)))
            .collect();
        let mut circles = Vec::new();
        let mut done = BTreeSet::new();
        for (file, others) in &reached {
            let need_it = others.iter().filter(|other| reached[*other].contains(file));
            let circle: Vec<&Path> = need_it.copied().collect();
            if !circle.is_empty() && !done.contains(file) {
                done.extend(circle.iter().copied());
                circles.push(circle);
            }
        }
        circles
    }

    /// The needs among the files of a circle, one a line.
    #[must_use]
    pub fn among(&self, circle: &[&Path]) -> Vec<String> {
        let pairs = self.0.iter().flat_map(|(file, needed)| {
            let needed = needed.iter();
            needed.map(move |needed| (file.as_path(), needed.as_path()))
        });
        pairs
            .filter(|(file, needed)| circle.contains(file) && circle.contains(needed))
            .map(|(file, needed)| format!("{} needs {}", file.display(), needed.display()))
            .collect()
    }

    fn reachable(&self, file: &Path) -> BTreeSet<&Path> {
        let mut found = BTreeSet::new();
        let mut unread = vec![file];
        while let Some(file) = unread.pop() {
            for needed in self.0.get(file).into_iter().flatten() {
                if found.insert(needed.as_path()) {
                    unread.push(needed);
                }
            }
        }
        found
    }
}

#[derive(Debug, Default)]
struct Module {
    file: PathBuf,
    children: BTreeSet<String>,
    /// What it defines.
    items: BTreeSet<String>,
    /// What it imports, and maybe passes on: name here, path as it is written.
    imports: BTreeMap<String, Segments>,
    globs: Vec<Segments>,
    /// Paths that its code names.
    named: Vec<Segments>,
    /// Types that it has inherent impls of.
    implemented: Vec<Segments>,
}

/// Modules by their path from the root, which is the empty path.
#[derive(Debug, Default)]
struct Crate(BTreeMap<Segments, Module>);

impl Crate {
    fn load(root: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Crate {
        let mut found = Crate::default();
        found.load_file(
            root,
            root.parent().unwrap_or(Path::new("")),
            Vec::new(),
            read,
        );
        found
    }

    /// Loads a file whose child modules have theirs below `directory`.
    fn load_file(
        &mut self,
        file: &Path,
        directory: &Path,
        module: Segments,
        read: &dyn Fn(&Path) -> Option<String>,
    ) {
        let text = read(file).unwrap_or_else(|| panic!("{} is missing", file.display()));
        let parsed =
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.load_items(file, directory, module, &parsed.items, read);
    }

    fn load_items(
        &mut self,
        file: &Path,
        directory: &Path,
        path: Segments,
        items: &[Item],
        read: &dyn Fn(&Path) -> Option<String>,
    ) {
        let mut module = Module {
            file: file.to_owned(),
            ..Module::default()
        };
        for item in items {
            let Item::Mod(child) = item else {
                Names(&mut module).visit_item(item);
                module.items.extend(name_of(item));
                continue;
            };
            if is_test(&child.attrs) {
                continue;
            }
            let name = child.ident.to_string();
            let below = directory.join(&name);
            let child_path: Segments = path.iter().cloned().chain([name.clone()]).collect();
            module.children.insert(name);
            match &child.content {
                Some((_, items)) => self.load_items(file, &below, child_path, items, read),
                None => {
                    let flat = below.with_extension("rs");
                    let nested = below.join("mod.rs");
                    let file = if read(&flat).is_some() { flat } else { nested };
                    self.load_file(&file, &below, child_path, read);
                }
            }
        }
        self.0.insert(path, module);
    }

    fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        for (path, module) in &self.0 {
            let from = &module.file;
            needs.0.entry(from.clone()).or_default();
            let imports = module.imports.values().chain(&module.globs);
            for named in imports.chain(&module.named) {
                if let Some(to) = self.resolve(path, named, 0).filter(|to| to != from) {
                    needs.0.entry(from.clone()).or_default().insert(to);
                }
            }
            for of in &module.implemented {
                if let Some(of) = self.resolve(path, of, 0).filter(|of| of != from) {
                    needs.0.entry(of).or_default().insert(from.clone());
                }
            }
        }
        needs
    }

    /// The file that defines what a path names, as seen from a module; `None` for what
    /// is of another crate, or local.
    fn resolve(&self, from: &[String], path: &[String], hops: usize) -> Option<PathBuf> {
        let (first, rest) = path.split_first()?;
        let module = self.0.get(from)?;
        let parent = || from.split_last().map(|(_, parent)| parent.to_vec());
        match first.as_str() {
            "crate" => self.descend(Vec::new(), rest, hops),
            "self" => self.descend(from.to_vec(), rest, hops),
            "super" if rest.first().is_some_and(|next| next == "super") => {
                self.resolve(&parent()?, rest, hops)
            }
            "super" => self.descend(parent()?, rest, hops),
            name if module.children.contains(name)
                || module.items.contains(name)
                || module.imports.contains_key(name) =>
            {
                self.descend(from.to_vec(), path, hops)
            }
            _ => None,
        }
    }

    /// Follows a path down from a module.
    fn descend(&self, mut at: Segments, path: &[String], hops: usize) -> Option<PathBuf> {
        for (index, name) in path.iter().enumerate() {
            let module = self.0.get(&at)?;
            if module.children.contains(name) {
                at.push(name.clone());
                continue;
            }
            if module.items.contains(name) || hops > MAX_HOPS {
                break;
            }
            let rest = &path[index + 1..];
            if let Some(import) = module.imports.get(name) {
                // A name of another crate that is passed on is nobody's here.
                let full: Segments = import.iter().chain(rest).cloned().collect();
                let is_same = full.as_slice() == path;
                return if is_same {
                    None
                } else {
                    self.resolve(&at, &full, hops + 1)
                };
            }
            let from_globs = module.globs.iter().find_map(|glob| {
                let full: Segments = glob.iter().chain(&path[index..]).cloned().collect();
                self.resolve(&at, &full, hops + 1)
            });
            if from_globs.is_some() {
                return from_globs;
            }
            break;
        }
        self.0.get(&at).map(|module| module.file.clone())
    }
}

/// Collects what the code of a module names.
struct Names<'a>(&'a mut Module);

impl Names<'_> {
    fn import(&mut self, prefix: &[String], tree: &UseTree) {
        let with = |name: &dyn ToString| -> Segments {
            let name = name.to_string();
            prefix.iter().cloned().chain([name]).collect()
        };
        let mut add = |name: String, path: Segments| {
            // `use a::{self}` names a itself.
            let path = match path.split_last() {
                Some((last, rest)) if last == "self" && !rest.is_empty() => rest.to_vec(),
                _ => path,
            };
            let name = if name == "self" {
                path.last().cloned().unwrap_or_default()
            } else {
                name
            };
            self.0.imports.insert(name, path);
        };
        match tree {
            UseTree::Path(path) => self.import(&with(&path.ident), &path.tree),
            UseTree::Name(name) => add(name.ident.to_string(), with(&name.ident)),
            // Each `as _` is an import of its own.
            UseTree::Rename(name) if name.rename == "_" => self.0.named.push(with(&name.ident)),
            UseTree::Rename(name) => add(name.rename.to_string(), with(&name.ident)),
            UseTree::Glob(_) => self.0.globs.push(prefix.to_vec()),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(prefix, tree);
                }
            }
        }
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&[], &item.tree);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let (None, syn::Type::Path(of)) = (&item.trait_, &*item.self_ty) {
            self.0.implemented.push(segments(&of.path));
        }
        syn::visit::visit_item_impl(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes: &[syn::Attribute] = match item {
            syn::ImplItem::Fn(item) => &item.attrs,
            syn::ImplItem::Const(item) => &item.attrs,
            _ => &[],
        };
        if !is_test(attributes) {
            syn::visit::visit_impl_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            self.0.named.push(segments(path));
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.0.named.extend(paths_in(&item.tokens.to_string()));
        syn::visit::visit_macro(self, item);
    }

    // `pub(in crate::here)` and attributes name no item.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

fn segments(path: &syn::Path) -> Segments {
    let segments = path.segments.iter();
    segments.map(|segment| segment.ident.to_string()).collect()
}

/// The paths in what is given to a macro, which nobody has parsed.
fn paths_in(tokens: &str) -> Vec<Segments> {
    let mut paths = Vec::new();
    let mut path: Segments = Vec::new();
    let mut joined = false;
    for token in tokens.split_whitespace() {
        let is_name = token
            .chars()
            .all(|character| character.is_alphanumeric() || character == '_');
        if token == "::" {
            joined = true;
        } else if is_name && joined && !path.is_empty() {
            path.push(token.to_owned());
            joined = false;
        } else {
            paths.push(std::mem::take(&mut path));
            path.extend(is_name.then(|| token.to_owned()));
            joined = false;
        }
    }
    paths.push(path);
    paths.retain(|path| path.len() > 1);
    paths
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        _ => return None,
    };
    Some(name.to_string())
}

fn attributes(item: &Item) -> &[syn::Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => {
            list.path.is_ident("cfg")
                && list
                    .tokens
                    .to_string()
                    .split_whitespace()
                    .any(|token| token == "test")
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The needs of a crate whose files are given: name and content.
    fn needs(files: &[(&str, &str)]) -> Vec<String> {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path);
            file.map(|(_, text)| (*text).to_owned())
        };
        let needs = Crate::load(Path::new("lib.rs"), &read).needs();
        let all: Vec<&Path> = needs.0.keys().map(PathBuf::as_path).collect();
        let mut lines = needs.among(&all);
        for line in &mut lines {
            *line = line.replace(".rs", "");
        }
        lines.sort();
        lines
    }

    fn two(root: &str, a: &str, b: &str) -> Vec<String> {
        let root = format!("mod a; mod b; {root}");
        needs(&[("lib.rs", &root), ("a.rs", a), ("b.rs", b)])
    }

    #[test]
    fn a_file_needs_what_it_names() {
        for a in [
            "use crate::b::X;",
            "use super::b::{X, Y as Z};",
            "use crate::b;",
            "use crate::b::{self};",
            "use crate::b::*;",
            "use crate::b::X as _;",
            "fn f() { crate::b::g(); }",
            "fn f() -> super::b::X { todo() }",
            "fn f() { use crate::b::X; }",
            "fn f() { println!(\"{}\", crate::b::g(1)); }",
            "use super::b as c; fn f() { c::g(); }",
            "mod inner { use super::super::b::X; }",
        ] {
            assert_eq!(
                two("", a, "pub struct X; pub struct Y; pub fn g() {}"),
                ["a needs b"],
                "{a}"
            );
        }
        for a in [
            "use other::b::X;",
            "use std::fmt;",
            "pub(in crate::b) fn f() {}",
            "#[cfg(test)] use crate::b::X;",
            "#[cfg(test)] mod tests { use crate::b::X; }",
            "#[cfg(test)] fn f() { crate::b::g(); }",
            "/// See [`crate::b::X`].\nfn f() {}",
        ] {
            assert_eq!(two("", a, "pub struct X; pub fn g() {}"), [""; 0], "{a}");
        }
    }

    #[test]
    fn to_declare_a_module_is_no_need_and_to_use_it_is() {
        assert_eq!(two("", "", ""), [""; 0]);
        assert_eq!(two("pub use a::X;", "pub struct X;", ""), ["lib needs a"]);
        assert_eq!(
            two("fn f() { a::g() }", "pub fn g() {}", ""),
            ["lib needs a"]
        );
    }

    #[test]
    fn a_name_that_is_passed_on_is_of_where_it_is_defined() {
        let b = "pub struct X;";
        assert_eq!(
            two("use b::X;", "use super::X;", b),
            ["a needs b", "lib needs b"]
        );
        assert_eq!(
            two("pub use b::*;", "use crate::X;", b),
            ["a needs b", "lib needs b"]
        );
        assert_eq!(two("pub use other::X;", "use crate::X;", b), [""; 0]);
        // What the parent defines itself is the parent's.
        assert_eq!(two("struct Y;", "use super::Y;", b), ["a needs lib"]);
    }

    #[test]
    fn a_type_that_is_spread_over_files_needs_them() {
        let lines = two(
            "struct Loop;",
            "use super::Loop; impl Loop { fn f(&self) {} }",
            "",
        );
        assert_eq!(lines, ["a needs lib", "lib needs a"]);
        // A trait is implemented wherever it is at home.
        let lines = two(
            "struct Loop;",
            "use super::Loop; impl Clone for Loop {}",
            "",
        );
        assert_eq!(lines, ["a needs lib"]);
    }

    #[test]
    fn files_below_a_file_are_found() {
        let files = [
            ("lib.rs", "mod a;"),
            ("a.rs", "mod c; pub struct X;"),
            ("a/c.rs", "use super::X; mod d;"),
            ("a/c/d.rs", "use super::super::X; use crate::a::c;"),
        ];
        assert_eq!(
            needs(&files),
            ["a/c needs a", "a/c/d needs a", "a/c/d needs a/c"]
        );
    }

    #[test]
    fn circles_are_found_and_nothing_else() {
        let of = |pairs: &[(&str, &str)]| {
            let mut needs = Needs::default();
            for (from, to) in pairs {
                needs.0.entry(from.into()).or_default().insert(to.into());
                needs.0.entry(to.into()).or_default();
            }
            let circles = needs.circles();
            let text = |circle: &Vec<&Path>| {
                let names: Vec<_> = circle
                    .iter()
                    .map(|file| file.display().to_string())
                    .collect();
                names.join(" ")
            };
            circles.iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(of(&[("a", "b"), ("b", "c"), ("a", "c")]), [""; 0]);
        assert_eq!(
            of(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]),
            ["a b c"]
        );
        assert_eq!(
            of(&[("a", "b"), ("b", "a"), ("c", "d"), ("d", "c"), ("b", "c")]),
            ["a b", "c d"]
        );
    }
}
