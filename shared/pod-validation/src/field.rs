//! Paths of fields and what can be wrong with one, in the API server's form
//! `spec.containers[0].image: Required value`.

use std::fmt;

/// Longest value that an error repeats, in characters: enough to recognise it.
const MAX_SHOWN_VALUE: usize = 128;

/// Most errors that are kept of one pod: nobody reads more, and a hostile
/// manifest could have millions.
pub const MAX_ERRORS: usize = 64;

/// Where a field is. Paths are chained on the stack and only become text when
/// there is something to say about the field.
#[derive(Debug, Clone, Copy)]
pub enum Path<'a> {
    /// The first part, which may hold several.
    Root(&'a str),
    /// A field of an object.
    Child(&'a Path<'a>, &'a str),
    /// An item of a list.
    Index(&'a Path<'a>, usize),
    /// A value of a mapping.
    Key(&'a Path<'a>, &'a str),
}

impl<'a> Path<'a> {
    /// A field of the object here.
    pub fn child(&'a self, name: &'a str) -> Path<'a> {
        Path::Child(self, name)
    }

    /// An item of the list here.
    pub fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index(self, index)
    }

    /// A value of the mapping here.
    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root(name) => formatter.write_str(name),
            Path::Child(parent, name) => write!(formatter, "{parent}.{name}"),
            Path::Index(parent, index) => write!(formatter, "{parent}[{index}]"),
            Path::Key(parent, key) => write!(formatter, "{parent}[{key}]"),
        }
    }
}

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// It must have a value.
    Required,
    /// Its value breaks a rule.
    Invalid {
        /// The value, shortened.
        value: String,
    },
    /// Its value is none of those that exist.
    NotSupported {
        /// The value, shortened.
        value: String,
        /// The values that exist.
        supported: Vec<&'static str>,
    },
    /// Its value must be unique and is not.
    Duplicate {
        /// The value, shortened.
        value: String,
    },
    /// It refers to something that is not there.
    NotFound {
        /// The value, shortened.
        value: String,
    },
    /// It may not be set here.
    Forbidden,
    /// There is no such field.
    Unknown,
    /// Its value is not of the field's type, or the document cannot be read.
    Malformed,
    /// The field is right, and Bulkhead does not implement it.
    Unsupported,
}

/// One thing that is wrong with a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The field's path; empty for a document as a whole.
    pub field: String,
    /// What is wrong.
    pub reason: Reason,
    /// More about it; may be empty.
    pub detail: String,
}

impl FieldError {
    /// What is wrong, without the path.
    pub fn message(&self) -> String {
        let head = match &self.reason {
            Reason::Required => "Required value".to_owned(),
            Reason::Invalid { value } => format!("Invalid value: {value:?}"),
            Reason::NotSupported { value, supported } => {
                format!(
                    "Unsupported value: {value:?}: supported values: {}",
                    supported.join(", ")
                )
            }
            Reason::Duplicate { value } => format!("Duplicate value: {value:?}"),
            Reason::NotFound { value } => format!("Not found: {value:?}"),
            Reason::Forbidden => "Forbidden".to_owned(),
            Reason::Unknown => "unknown field".to_owned(),
            Reason::Malformed => return self.detail.clone(),
            Reason::Unsupported => "not supported by this version of Bulkhead".to_owned(),
        };
        if self.detail.is_empty() {
            head
        } else {
            format!("{head}: {}", self.detail)
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            formatter.write_str(&self.message())
        } else {
            write!(formatter, "{}: {}", self.field, self.message())
        }
    }
}

impl std::error::Error for FieldError {}

/// Collects errors, up to `MAX_ERRORS`.
#[derive(Debug, Default)]
pub struct Errors(Vec<FieldError>);

impl Errors {
    /// What was collected.
    pub fn into_vec(self) -> Vec<FieldError> {
        self.0
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Adds one, unless there are too many.
    pub fn add(&mut self, field: impl fmt::Display, reason: Reason, detail: impl Into<String>) {
        if self.0.len() < MAX_ERRORS {
            self.0.push(FieldError {
                field: field.to_string(),
                reason,
                detail: detail.into(),
            });
        }
    }

    /// A value is missing.
    pub fn required(&mut self, field: Path<'_>, detail: &str) {
        self.add(field, Reason::Required, detail);
    }

    /// A value breaks a rule.
    pub fn invalid(
        &mut self,
        field: Path<'_>,
        value: impl fmt::Display,
        detail: impl Into<String>,
    ) {
        self.add(
            field,
            Reason::Invalid {
                value: shortened(&value),
            },
            detail,
        );
    }

    /// Adds an error if `problem` is one.
    pub fn invalid_if(&mut self, field: Path<'_>, value: &str, problem: Option<String>) {
        if let Some(problem) = problem {
            self.invalid(field, value, problem);
        }
    }

    /// A value is none of those that exist.
    pub fn not_supported(&mut self, field: Path<'_>, value: &str, supported: &[&'static str]) {
        let reason = Reason::NotSupported {
            value: shortened(&value),
            supported: supported.to_vec(),
        };
        self.add(field, reason, "");
    }

    /// A value occurs twice.
    pub fn duplicate(&mut self, field: Path<'_>, value: impl fmt::Display) {
        self.add(
            field,
            Reason::Duplicate {
                value: shortened(&value),
            },
            "",
        );
    }

    /// A value names what is not there.
    pub fn not_found(&mut self, field: Path<'_>, value: &str) {
        self.add(
            field,
            Reason::NotFound {
                value: shortened(&value),
            },
            "",
        );
    }

    /// A field may not be set here.
    pub fn forbidden(&mut self, field: Path<'_>, detail: &str) {
        self.add(field, Reason::Forbidden, detail);
    }

    /// A field is not implemented.
    pub fn unsupported(&mut self, field: Path<'_>, detail: &str) {
        self.add(field, Reason::Unsupported, detail);
    }

    /// One of `supported`, or an error; empty counts as missing.
    pub fn one_of(&mut self, field: Path<'_>, value: &str, supported: &[&'static str]) {
        if value.is_empty() {
            self.required(field, "");
        } else if !supported.contains(&value) {
            self.not_supported(field, value, supported);
        }
    }
}

fn shortened(value: &impl fmt::Display) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_SHOWN_VALUE) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_like_the_api_servers() {
        let mut errors = Errors::default();
        let spec = Path::Root("spec");
        let containers = spec.child("containers");
        let first = containers.index(0);
        errors.required(first.child("image"), "");
        errors.invalid(first.child("name"), "A", "must be lower case");
        errors.not_supported(spec.child("restartPolicy"), "x", &["Always", "Never"]);
        errors.forbidden(containers.key("a/b"), "no");
        let texts: Vec<_> = errors.into_vec().iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "spec.containers[0].image: Required value",
                "spec.containers[0].name: Invalid value: \"A\": must be lower case",
                "spec.restartPolicy: Unsupported value: \"x\": supported values: Always, Never",
                "spec.containers[a/b]: Forbidden: no",
            ]
        );
    }

    #[test]
    fn errors_and_values_are_bounded() {
        let mut errors = Errors::default();
        for _ in 0..1000 {
            errors.invalid(Path::Root("x"), "ä".repeat(10_000), "");
        }
        let errors = errors.into_vec();
        assert_eq!(errors.len(), MAX_ERRORS);
        assert!(errors[0].to_string().len() < 400);
    }
}
