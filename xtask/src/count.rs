//! `cargo xtask count`: lines with code (no comments, no blank lines) of the product and
//! of the tests, and words of the documents.
//!
//! Product is what `bins` and `shared` have without tests. Tests are items and files under
//! `#[cfg(test)]`, the `tests` directories of packages, and the packages below `tests`.
//! `xtask` counts as neither, but for its tests.

use std::collections::BTreeSet;
use std::fs;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow};
use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};

use crate::report;

/// Lines with code.
#[derive(Clone, Copy, Default)]
struct Lines {
    product: usize,
    tests: usize,
}

impl AddAssign for Lines {
    fn add_assign(&mut self, other: Lines) {
        self.product += other.product;
        self.tests += other.tests;
    }
}

/// Prints the lines of each package, largest first, their sum, and the documents' words.
pub(crate) fn run() -> Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut packages = Vec::new();
    for top in ["bins", "shared", "tests"] {
        for package in fs::read_dir(root.join(top))? {
            let name = format!("{top}/{}", package?.file_name().display());
            if root.join(&name).join("Cargo.toml").exists() {
                packages.push((count_package(&root.join(&name), top == "tests")?, name));
            }
        }
    }
    let developers = count_package(&root.join("xtask"), false)?.tests;
    let tests_of_xtask = Lines {
        product: 0,
        tests: developers,
    };
    packages.push((tests_of_xtask, "xtask".to_owned()));
    packages.sort_by_key(|(lines, _)| std::cmp::Reverse(lines.product + lines.tests));
    report::line(&format!("{:>8} {:>8}", "product", "tests"));
    let mut all = Lines::default();
    for (lines, name) in &packages {
        let (product, tests) = (lines.product, lines.tests);
        report::line(&format!("{product:>8} {tests:>8} {name}"));
        all += *lines;
    }
    report::line(&format!("{:>8} {:>8} in all", all.product, all.tests));
    report::line(&format!("{:>8} words of documents", words(&root)?));
    Ok(ExitCode::SUCCESS)
}

fn words(root: &Path) -> Result<usize> {
    let mut words = fs::read_to_string(root.join("README.md"))?
        .split_whitespace()
        .count();
    for document in fs::read_dir(root.join("docs"))? {
        let text = fs::read_to_string(document?.path())?;
        words += text.split_whitespace().count();
    }
    Ok(words)
}

fn count_package(package: &Path, is_test: bool) -> Result<Lines> {
    let mut files = Vec::new();
    collect(package, &mut files)?;
    let mut parsed = Vec::new();
    let mut test_modules = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let tokens: TokenStream = text
            .parse()
            .map_err(|error| anyhow!("{}: {error}", file.display()))?;
        let mut found = Found::default();
        found.read(tokens, false);
        let stem = file.with_extension("");
        let directory = match stem
            .file_name()
            .is_some_and(|name| ["lib", "main", "mod"].iter().any(|root| name == *root))
        {
            true => stem.parent().unwrap_or(package).to_owned(),
            false => stem.clone(),
        };
        let modules = found.test_modules.iter();
        test_modules.extend(modules.map(|module| directory.join(module)));
        parsed.push((stem, found));
    }
    let tests = package.join("tests");
    let mut all = Lines::default();
    for (stem, found) in parsed {
        let mut places = stem.ancestors();
        let is_test =
            is_test || stem.starts_with(&tests) || places.any(|place| test_modules.contains(place));
        let of_tests = found.tests.difference(&found.product).count();
        all += match is_test {
            true => Lines {
                product: 0,
                tests: found.product.len() + of_tests,
            },
            false => Lines {
                product: found.product.len(),
                tests: of_tests,
            },
        };
    }
    Ok(all)
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Lines of one file that have code, and the names of its test modules in files of their own.
#[derive(Default)]
struct Found {
    product: BTreeSet<usize>,
    tests: BTreeSet<usize>,
    test_modules: BTreeSet<String>,
}

impl Found {
    /// Comments are no tokens, and documentation is an attribute, which is left out.
    fn read(&mut self, tokens: TokenStream, is_test: bool) {
        let mut tokens = tokens.into_iter().peekable();
        let mut in_test = false;
        let mut last_word = String::new();
        while let Some(token) = tokens.next() {
            if is_punctuation(&token, '#') {
                let inner = tokens.next_if(|next| is_punctuation(next, '!'));
                let attribute = tokens.next_if(|next| matches!(next, TokenTree::Group(_)));
                let text = attribute.as_ref().map(ToString::to_string);
                let text = text.unwrap_or_default().replace(' ', "");
                if text.starts_with("[doc=") {
                    continue;
                }
                in_test |= inner.is_none() && text == "[cfg(test)]";
                self.note(token.span(), is_test || in_test);
                if let Some(attribute) = attribute {
                    self.note(attribute.span(), is_test || in_test);
                }
                continue;
            }
            let ends = match &token {
                TokenTree::Group(group) => {
                    self.note(group.span_open(), is_test || in_test);
                    self.note(group.span_close(), is_test || in_test);
                    self.read(group.stream(), is_test || in_test);
                    group.delimiter() == Delimiter::Brace
                }
                _ => {
                    self.note(token.span(), is_test || in_test);
                    is_punctuation(&token, ';') || is_punctuation(&token, ',')
                }
            };
            if ends && in_test {
                if is_punctuation(&token, ';') {
                    self.test_modules.insert(last_word.clone());
                }
                in_test = false;
            }
            last_word = token.to_string();
        }
    }

    fn note(&mut self, span: Span, is_test: bool) {
        let lines = match is_test {
            true => &mut self.tests,
            false => &mut self.product,
        };
        lines.extend(span.start().line..=span.end().line);
    }
}

fn is_punctuation(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punctuation) if punctuation.as_char() == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_code_are_counted_apart_from_comments_and_tests() {
        let text = "//! Header.\n\nuse a::b; // why\n/// Doc.\n#[derive(Debug)]\nstruct C {\n    \
                    /* no */\n    d: \"two\nlines\",\n}\n#[cfg(test)]\nmod e;\n#[cfg(test)]\nmod f {\n    \
                    fn g() {}\n\n}\nfn h() {}\n";
        let mut found = Found::default();
        found.read(text.parse().unwrap(), false);
        assert_eq!(
            found.product.into_iter().collect::<Vec<_>>(),
            [3, 5, 6, 8, 9, 10, 18]
        );
        assert_eq!(
            found.tests.into_iter().collect::<Vec<_>>(),
            [11, 12, 13, 14, 15, 17]
        );
        assert!(found.test_modules.contains("e"));
    }
}
