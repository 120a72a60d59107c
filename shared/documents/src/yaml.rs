//! YAML documents: what the parser reports, made into values.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use granit_parser::{ErrorKind, Event, Options, Parser, ScalarStyle, ScanError, StrInput, Tag};
use serde_json::{Map, Value};
use value_errors::shown;

use crate::content::{
    Documents, MAX_DEPTH, MAX_DOCUMENTS, MAX_MANIFEST_BYTES, MAX_REPEATED_KEYS, MAX_VALUES,
    RepeatedKey,
};
use crate::words;

/// Most that anchors and aliases may copy, in values.
const MAX_COPIED_VALUES: usize = 100_000;

/// So many bytes of a text are copied for the price of one value.
const BYTES_PER_VALUE: usize = MAX_MANIFEST_BYTES / MAX_COPIED_VALUES;

const TOO_DEEP: &str = "nested more than 64 levels deep";

/// The key that takes over what another mapping has.
const MERGE: &str = "<<";

pub(crate) fn parse(text: &str) -> Result<Documents, String> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    let composer = Composer {
        text,
        events: Parser::new_from_str_with_options(text, options),
        values_left: MAX_VALUES,
        copies_left: MAX_COPIED_VALUES,
        anchors: HashMap::new(),
        path: String::new(),
        documents: Documents::default(),
    };
    composer.all().map_err(|Problem { line, text }| match line {
        0 => format!("not valid YAML: {text}"),
        line => format!("not valid YAML: line {line}: {text}"),
    })
}

/// Why a text cannot be read, and in which line; 0 is no certain one.
struct Problem {
    line: usize,
    text: String,
}

fn at<T>(line: usize, text: impl Into<String>) -> Result<T, Problem> {
    let text = text.into();
    Err(Problem { line, text })
}

/// A value that aliases may stand for, and what a copy of it costs.
#[derive(Clone)]
struct Anchored {
    value: Value,
    cost: usize,
}

struct Composer<'a> {
    text: &'a str,
    events: Parser<'a, StrInput<'a>>,
    values_left: usize,
    copies_left: usize,
    anchors: HashMap<usize, Anchored>,
    /// Where the value is that is being read.
    path: String,
    documents: Documents,
}

impl<'a> Composer<'a> {
    fn all(mut self) -> Result<Documents, Problem> {
        let mut count = 0;
        loop {
            let (event, line) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(self.documents),
                Event::StreamStart | Event::DocumentStart(..) => {}
                Event::DocumentEnd => {
                    self.anchors.clear();
                    count += 1;
                    if count > MAX_DOCUMENTS {
                        return at(line, format!("more than {MAX_DOCUMENTS} documents"));
                    }
                }
                event => {
                    let value = self.value(event, line, 0)?;
                    if !value.is_null() {
                        self.documents.values.push(value);
                    }
                }
            }
        }
    }

    /// The next event and its line.
    fn next(&mut self) -> Result<(Event<'a>, usize), Problem> {
        match self.events.next_event() {
            Some(Ok((event, span))) => Ok((event, span.start.line())),
            Some(Err(error)) => Err(self.explained(&error)),
            None => Ok((Event::StreamEnd, 0)),
        }
    }

    /// What the parser says, or what most likely made it stumble.
    fn explained(&self, error: &ScanError) -> Problem {
        let line = error.marker().line();
        let info = error.info();
        // The parser may report a tab at what is before it.
        let mut following = (1..).zip(self.text.lines()).skip(line.saturating_sub(1));
        if info.contains("tab")
            && let Some((line, _)) = following.find(|(_, text)| has_tab(text))
        {
            let text = "a tab in the indentation: YAML is indented with spaces only".to_owned();
            return Problem { line, text };
        }
        if let Some(text) = self.template_in(line) {
            return Problem { line, text };
        }
        let text = match error.kind() {
            ErrorKind::RecursionLimitExceeded => TOO_DEEP.to_owned(),
            ErrorKind::UnexpectedCharacter { character } if character.is_control() => {
                format!("YAML has no character {}", character.escape_debug())
            }
            ErrorKind::UnexpectedCharacter { character } => {
                format!("a text that begins with {character} needs quotation marks")
            }
            _ => info,
        };
        Problem { line, text }
    }

    /// What is wrong with a line that a template has something left in.
    fn template_in(&self, line: usize) -> Option<String> {
        let text = self.text.lines().nth(line.saturating_sub(1))?;
        let marks = ["{{", "{%"];
        let left = marks.into_iter().find(|marks| text.contains(marks))?;
        Some(format!(
            "{left} is left of a template: fill it in, or put the text in quotation marks"
        ))
    }

    /// The value that begins with this event.
    fn value(&mut self, event: Event<'a>, line: usize, depth: usize) -> Result<Value, Problem> {
        self.count(1, line)?;
        let before = self.values_left;
        let (value, anchor) = match event {
            Event::Alias(id) => return self.alias(id, line),
            Event::Scalar(text, style, anchor, tag) => {
                (scalar(&text, style, tag.as_deref(), line)?, anchor)
            }
            Event::SequenceStart(_, anchor, _) if depth < MAX_DEPTH => {
                (self.list(depth + 1)?, anchor)
            }
            Event::MappingStart(_, anchor, _) if depth < MAX_DEPTH => {
                (self.mapping(depth + 1)?, anchor)
            }
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                return at(line, TOO_DEEP);
            }
            _ => return at(line, "a value is missing"),
        };
        if anchor > 0 {
            let cost = (before - self.values_left) + bytes(&value) / BYTES_PER_VALUE + 1;
            self.copy(cost, line)?;
            let value = value.clone();
            self.anchors.insert(anchor, Anchored { value, cost });
        }
        Ok(value)
    }

    fn count(&mut self, values: usize, line: usize) -> Result<(), Problem> {
        match self.values_left.checked_sub(values) {
            Some(left) => {
                self.values_left = left;
                Ok(())
            }
            None => at(line, format!("more than {MAX_VALUES} values")),
        }
    }

    fn copy(&mut self, cost: usize, line: usize) -> Result<(), Problem> {
        match self.copies_left.checked_sub(cost) {
            Some(left) => {
                self.copies_left = left;
                Ok(())
            }
            None => at(line, "anchors and aliases stand for too much"),
        }
    }

    fn alias(&mut self, id: usize, line: usize) -> Result<Value, Problem> {
        let Some(Anchored { cost, .. }) = self.anchors.get(&id) else {
            return at(line, "an alias stands for a key, or for what it is in");
        };
        let cost = *cost;
        self.copy(cost, line)?;
        self.count(cost, line)?;
        let value = self.anchors.get(&id).map(|it| it.value.clone());
        Ok(value.unwrap_or_default())
    }

    fn list(&mut self, depth: usize) -> Result<Value, Problem> {
        let mut items = Vec::new();
        let length = self.path.len();
        loop {
            let (event, line) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                return Ok(Value::Array(items));
            }
            self.path.push_str(&format!("[{}]", items.len()));
            items.push(self.value(event, line, depth)?);
            self.path.truncate(length);
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, Problem> {
        let mut fields = Map::new();
        let mut lines: BTreeMap<String, usize> = BTreeMap::new();
        let mut merged = Vec::new();
        let length = self.path.len();
        loop {
            let (event, line) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let is_merge = is_merge(&event);
            let key = self.key(event, line)?;
            let (event, value_line) = self.next()?;
            if is_merge {
                merged.push((self.value(event, value_line, depth)?, line));
                continue;
            }
            let dot = if length == 0 { "" } else { "." };
            self.path.push_str(&format!("{dot}{}", shown(&key)));
            let value = self.value(event, value_line, depth)?;
            match lines.get(&key) {
                Some(first) => self.repeated((*first, line), &key),
                None => {
                    lines.insert(key.clone(), line);
                    fields.insert(key, value);
                }
            }
            self.path.truncate(length);
        }
        for (value, line) in merged {
            merge(&mut fields, value, line)?;
        }
        Ok(Value::Object(fields))
    }

    fn repeated(&mut self, lines: (usize, usize), key: &str) {
        let Documents {
            values,
            repeated_keys,
        } = &mut self.documents;
        if repeated_keys.len() < MAX_REPEATED_KEYS {
            repeated_keys.push(RepeatedKey {
                document: values.len() + 1,
                field: self.path.clone(),
                key: key.to_owned(),
                lines: Some(lines),
            });
        }
    }

    fn key(&mut self, event: Event<'a>, line: usize) -> Result<String, Problem> {
        self.count(1, line)?;
        let key = match event {
            Event::Scalar(text, ScalarStyle::Plain, _, None) => words::key(text.into_owned()),
            Event::Scalar(text, ..) => Some(text.into_owned()),
            Event::Alias(id) => match self.alias(id, line)? {
                Value::String(text) => Some(text),
                _ => None,
            },
            _ => None,
        };
        key.ok_or_else(|| Problem {
            line,
            text: self
                .template_in(line)
                .unwrap_or_else(|| "a key is not a text".to_owned()),
        })
    }
}

/// Whether a line with something in it is indented with a tab.
fn has_tab(line: &str) -> bool {
    let rest = line.trim_start();
    let indentation = line.strip_suffix(rest).unwrap_or_default();
    !rest.is_empty() && indentation.contains('\t')
}

/// The tag without what all tags of YAML begin with.
fn suffix(tag: &Tag) -> Option<Cow<'_, str>> {
    tag.suffix_in_namespace("tag:yaml.org,2002:")
}

fn is_merge(event: &Event<'_>) -> bool {
    match event {
        Event::Scalar(text, ScalarStyle::Plain, _, None) => text == MERGE,
        Event::Scalar(_, _, _, Some(tag)) => suffix(tag).is_some_and(|it| it == "merge"),
        _ => false,
    }
}

/// What the fields themselves say counts, then the mapping that comes first.
fn merge(fields: &mut Map<String, Value>, from: Value, line: usize) -> Result<(), Problem> {
    let mappings = match from {
        Value::Array(items) => items,
        one => vec![one],
    };
    for mapping in mappings {
        let Value::Object(mapping) = mapping else {
            return at(line, "<< needs a mapping, or a list of them");
        };
        for (key, value) in mapping {
            fields.entry(key).or_insert(value);
        }
    }
    Ok(())
}

fn scalar(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    line: usize,
) -> Result<Value, Problem> {
    let asked = tag.and_then(suffix);
    let asked = asked.as_deref();
    let is_resolved = match tag {
        None => style == ScalarStyle::Plain,
        Some(_) => matches!(asked, Some("int" | "float" | "bool" | "null")),
    };
    if asked == Some("binary") {
        return at(line, "!!binary is not read: give the text itself");
    }
    if !is_resolved {
        return Ok(Value::String(text.to_owned()));
    }
    let Some(value) = words::resolved(text) else {
        return at(
            line,
            format!("{text} is not finite: JSON has no such number"),
        );
    };
    let is_asked = match (asked, &value) {
        (None, _) | (Some("bool"), Value::Bool(_)) | (Some("null"), Value::Null) => true,
        (Some("int"), Value::Number(number)) => !number.is_f64(),
        (Some("float"), Value::Number(_)) => true,
        _ => false,
    };
    match is_asked {
        true => Ok(value),
        false => at(line, "a value is not what its tag says"),
    }
}

/// Bytes of all texts and keys in a value.
fn bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(bytes).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| key.len() + bytes(value))
            .sum(),
    }
}
