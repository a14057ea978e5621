//! A configuration file with the line of every key.
//!
//! serde loses lines when it buffers, and a rule about two keys has no line at all. So the file is walked once, and every key
//! keeps its location.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::env::Overrides;
use super::error::{Finding, Place};
use super::explain::{explain, missing_key, unknown_key};

/// The span of what is not in the file.
const NOWHERE: Range<usize> = 0..0;

/// A parsed file under its overrides.
pub(crate) struct Document<'i> {
    text: &'i str,
    root: DeTable<'i>,
    /// The spans of each key's name and value, by path: `dispatch.lease`, `destination.0.name`.
    keys: BTreeMap<String, (Range<usize>, Range<usize>)>,
    /// The origins of overrides. Their spans lie past the end of the text.
    origins: Vec<String>,
}

/// One table of the document, by its path.
pub(crate) struct Section<'i> {
    pub(crate) path: String,
    pub(crate) table: DeTable<'i>,
    span: Range<usize>,
}

impl<'i> Document<'i> {
    /// Parses the text and applies the overrides.
    pub(crate) fn parse(text: &'i str, overrides: &'i Overrides) -> Result<Self, Finding> {
        let root = DeTable::parse(text).map_err(|error| {
            let line = error
                .span()
                .map_or(Place::File, |span| Place::Line(line(text, span.start)));
            let message: Vec<&str> = error.message().lines().collect();
            Finding::new(line, format!("invalid TOML: {}", message.join("; ")))
        })?;
        let mut document = Self {
            text,
            root: root.into_inner(),
            keys: BTreeMap::new(),
            origins: Vec::new(),
        };
        for change in &overrides.known {
            document.put(change.section, change.key, &change.origin, change.value.as_toml());
        }
        let mut keys = BTreeMap::new();
        walk("", &document.root, &mut keys);
        document.keys = keys;
        Ok(document)
    }

    fn put(&mut self, section: &'static str, key: &'static str, origin: &str, value: DeValue<'i>) {
        let at = self.text.len() + 1 + self.origins.len();
        let span = at..at;
        self.origins.push(origin.to_owned());
        let table = self
            .root
            .entry(Spanned::new(span.clone(), section.into()))
            // A table that is not in the file has no location, so that errors name its keys.
            .or_insert_with(|| Spanned::new(NOWHERE, DeValue::Table(DeTable::new())));
        // If the section is not a table, its reader reports that.
        if let DeValue::Table(table) = table.get_mut() {
            table.remove(key);
            table.insert(Spanned::new(span.clone(), key.into()), Spanned::new(span, value));
        }
    }

    /// Reports top-level keys that are not `known`.
    pub(crate) fn only(&self, known: &[&str]) -> Vec<Finding> {
        self.root
            .keys()
            .filter(|key| !known.contains(&key.get_ref().as_ref()))
            .map(|key| {
                let message = explain(&format!("unknown field `{}`", key.get_ref()), known);
                Finding::new(self.place(&key.span()), message)
            })
            .collect()
    }

    /// Is it written as `[[name]]`?
    pub(crate) fn is_list(&self, name: &str) -> bool {
        let value = self.root.get(name);
        value.is_some_and(|value| matches!(value.get_ref(), DeValue::Array(_)))
    }

    /// Removes and returns the table `[name]`. A missing one is empty.
    pub(crate) fn section(&mut self, name: &str) -> Result<Section<'i>, Finding> {
        let Some(value) = self.root.remove(name) else {
            return Ok(Section {
                path: name.to_owned(),
                table: DeTable::new(),
                span: NOWHERE,
            });
        };
        self.table(name.to_owned(), value, &format!("[{name}]"))
    }

    /// Removes and returns the tables `[[name]]`.
    pub(crate) fn sections(&mut self, name: &str) -> Result<Vec<Section<'i>>, Finding> {
        let Some(value) = self.root.remove(name) else {
            return Ok(Vec::new());
        };
        let place = self.place(&value.span());
        match value.into_inner() {
            DeValue::Array(items) => (items.into_iter().enumerate())
                .map(|(index, item)| self.table(format!("{name}.{index}"), item, &format!("[[{name}]]")))
                .collect(),
            _ => Err(Finding::new(
                place,
                format!("expected tables [[{name}]] (write each one as a table of its own)"),
            )),
        }
    }

    fn table(&self, path: String, value: Spanned<DeValue<'i>>, form: &str) -> Result<Section<'i>, Finding> {
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(table) => Ok(Section { path, table, span }),
            other => Err(Finding::new(
                self.place(&span),
                format!(
                    "expected a table {form}, found a value of type {}",
                    other.type_str()
                ),
            )),
        }
    }

    /// Reads a section as `T`. `also` are keys that the section knows and `T` does not.
    ///
    /// # Errors
    /// Every invalid, unknown and missing key. serde stops at the first one, so the section is read again without it, or
    /// with a placeholder for a missing one.
    pub(crate) fn read<T: DeserializeOwned>(
        &self,
        mut section: Section<'i>,
        also: &[&str],
    ) -> Result<T, Vec<Finding>> {
        let mut findings = Vec::new();
        let (mut removed, mut placeholders) = (BTreeSet::new(), BTreeSet::new());
        loop {
            let whole = Spanned::new(section.span.clone(), section.table.clone());
            let error = match T::deserialize(Deserializer::from(whole)) {
                Ok(value) if findings.is_empty() => return Ok(value),
                Ok(_) => return Err(findings),
                Err(error) => error,
            };
            if error.span() == Some(NOWHERE) && !placeholders.is_empty() {
                return Err(findings); // about a placeholder
            }
            let (culprit, finding) = self.explained::<T>(&error, &section, also);
            if let Some(key) = missing_key(error.message()) {
                // A key that was removed is missing now; it is reported already.
                if !removed.contains(key) && !placeholders.contains(key) {
                    findings.push(finding);
                }
                if !placeholders.insert(key.to_owned()) {
                    return Err(findings);
                }
                section.put_if_absent(key, "");
                continue;
            }
            match culprit {
                Some(key) if placeholders.contains(&key) => return Err(findings),
                Some(key) if remove(&mut section.table, &key) => {
                    findings.push(finding);
                    removed.insert(key);
                }
                Some(_) | None => {
                    findings.push(finding);
                    return Err(findings);
                }
            }
        }
    }

    /// The error with its location, and the key in the section that it is about: `retry.base`.
    fn explained<T: DeserializeOwned>(
        &self,
        error: &toml::de::Error,
        section: &Section<'_>,
        also: &[&str],
    ) -> (Option<String>, Finding) {
        let message = explain(error.message(), also);
        let unknown = unknown_key(error.message());
        match error.span() {
            Some(at) if at != section.span => {
                let full = self.path_at(&at);
                let key = full.and_then(|full| full.strip_prefix(&section.path)?.strip_prefix('.'));
                let finding = match full {
                    Some(full) if unknown.is_none() => {
                        Finding::new(self.place(&at), format!("`{}`: {message}", names(full)))
                    }
                    Some(_) | None => Finding::new(self.place(&at), message),
                };
                (key.map(without_index), finding)
            }
            // serde buffers a tagged enum and loses the location, so the key is looked up instead.
            Some(_) | None => {
                let key = unknown.map(str::to_owned);
                let key = key.or_else(|| culprit::<T>(&section.table, error.message()));
                let finding = match &key {
                    Some(key) => {
                        let place = self.place_of(&format!("{}.{key}", section.path));
                        let about = if unknown.is_some() {
                            String::new()
                        } else {
                            format!("`{key}`: ")
                        };
                        Finding::new(place, about + &message)
                    }
                    None => Finding::new(self.place_of(&section.path), message),
                };
                (key, finding)
            }
        }
    }

    /// The location of a path, or of the nearest table around it that is in the file.
    pub(crate) fn place_of(&self, path: &str) -> Place {
        let mut path = path;
        loop {
            if let Some((name, _)) = self.keys.get(path) {
                return self.place(name);
            }
            match path.rsplit_once('.') {
                Some((around, _)) => path = around,
                None => return Place::File,
            }
        }
    }

    /// The locations of the keys directly in the table at this path.
    pub(crate) fn places_in(&self, path: &str) -> BTreeMap<String, Place> {
        let prefix = format!("{path}.");
        self.keys
            .iter()
            .filter_map(|(key, (name, _))| Some((key.strip_prefix(&prefix)?, name)))
            .filter(|(key, _)| !key.contains('.'))
            .map(|(key, name)| (key.to_owned(), self.place(name)))
            .collect()
    }

    /// Where the first text in the file stands for which this is true, by its path and its text without quotes.
    pub(crate) fn find_text(&self, is_sought: impl Fn(&str, &str) -> bool) -> Option<Place> {
        let found = self.keys.iter().filter_map(|(path, (_, value))| {
            let is_found = is_sought(path, self.text_at(path)?);
            is_found.then_some(value)
        });
        let first = found.min_by_key(|span| span.start)?;
        Some(self.place(first))
    }

    /// The text at a path, without quotes.
    pub(crate) fn text_at(&self, path: &str) -> Option<&str> {
        let (_, value) = self.keys.get(path)?;
        let text = self.text.get(value.clone())?;
        let is_text = text.starts_with(['"', '\'']);
        is_text.then(|| text.trim_matches(['"', '\'']))
    }

    /// The last part of a path that is no index.
    pub(crate) fn key_of(path: &str) -> &str {
        path.rsplit('.').find(|part| !is_index(part)).unwrap_or(path)
    }

    /// The files of secrets, `{ file = "…" }`, and of private keys, `key_file = "…"`.
    pub(crate) fn secret_files(&self) -> Vec<(PathBuf, Place)> {
        let mut found = Vec::new();
        secret_files(&self.root, &mut found);
        let placed = found.into_iter().map(|(path, span)| (path, self.place(&span)));
        placed.collect()
    }

    /// The path of the key whose name or value contains this span.
    fn path_at(&self, span: &Range<usize>) -> Option<&str> {
        let around = |outer: &&Range<usize>| outer.start <= span.start && span.end <= outer.end;
        let found = self.keys.iter().filter_map(|(path, (name, value))| {
            let length = [name, value].into_iter().filter(around).map(Range::len).min()?;
            Some((length, Reverse(path.len()), path))
        });
        found.min().map(|(_, _, path)| path.as_str())
    }

    fn place(&self, span: &Range<usize>) -> Place {
        match span.start.checked_sub(self.text.len() + 1) {
            Some(index) => self
                .origins
                .get(index)
                .map_or(Place::File, |origin| Place::Outside(origin.clone())),
            None => Place::Line(line(self.text, span.start)),
        }
    }
}

/// The key that causes the same error when it is alone with the tag. Values are read before missing keys are reported.
fn culprit<T: DeserializeOwned>(table: &DeTable<'_>, complaint: &str) -> Option<String> {
    let is_tag = |key: &str| key == "type";
    let blamed = |key: &str| {
        let alone = table
            .iter()
            .filter(|(name, _)| is_tag(name.get_ref()) || name.get_ref() == key)
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let read = T::deserialize(Deserializer::from(Spanned::new(0..0, alone)));
        read.is_err_and(|error| error.message() == complaint)
    };
    if complaint.starts_with("missing field") {
        return None; // no existing key causes a missing one
    }
    let mut keys = table.keys().map(|key| key.get_ref().to_string());
    keys.find(|key| !is_tag(key) && blamed(key))
}

/// The path without array indexes.
fn names(path: &str) -> String {
    let names: Vec<&str> = path.split('.').filter(|part| !is_index(part)).collect();
    names.join(".")
}

/// The path up to the first array index.
fn without_index(path: &str) -> String {
    let names: Vec<&str> = path.split('.').take_while(|part| !is_index(part)).collect();
    names.join(".")
}

fn is_index(part: &str) -> bool {
    part.parse::<usize>().is_ok()
}

/// Removes the key at this path. Returns whether it was there.
fn remove(table: &mut DeTable<'_>, path: &str) -> bool {
    match path.split_once('.') {
        None => table.remove(path).is_some(),
        Some((outer, rest)) => match table.get_mut(outer).map(Spanned::get_mut) {
            Some(DeValue::Table(inner)) => remove(inner, rest),
            Some(_) | None => false,
        },
    }
}

/// Counted from 1.
fn line(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    before.filter(|byte| **byte == b'\n').count() + 1
}

fn walk(path: &str, table: &DeTable<'_>, keys: &mut BTreeMap<String, (Range<usize>, Range<usize>)>) {
    for (name, value) in table {
        let path = if path.is_empty() {
            name.get_ref().to_string()
        } else {
            format!("{path}.{}", name.get_ref())
        };
        keys.insert(path.clone(), (name.span(), value.span()));
        match value.get_ref() {
            DeValue::Table(inner) => walk(&path, inner, keys),
            DeValue::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let path = format!("{path}.{index}");
                    keys.insert(path.clone(), (item.span(), item.span()));
                    if let DeValue::Table(inner) = item.get_ref() {
                        walk(&path, inner, keys);
                    }
                }
            }
            _ => {}
        }
    }
}

fn secret_files(table: &DeTable<'_>, found: &mut Vec<(PathBuf, Range<usize>)>) {
    for (name, value) in table {
        let is_file = match name.get_ref().as_ref() {
            "file" => table.len() == 1,
            name => name == "key_file",
        };
        match value.get_ref() {
            DeValue::String(path) if is_file => found.push((PathBuf::from(&**path), name.span())),
            DeValue::Table(inner) => secret_files(inner, found),
            DeValue::Array(items) => {
                for item in items.iter() {
                    if let DeValue::Table(inner) = item.get_ref() {
                        secret_files(inner, found);
                    }
                }
            }
            _ => {}
        }
    }
}

impl<'i> Section<'i> {
    /// Moves these keys into a section of their own.
    pub(crate) fn split(&mut self, keys: &[&str]) -> Self {
        let mut table = DeTable::new();
        for key in keys {
            if let Some((name, value)) = self.table.remove_entry(*key) {
                table.insert(name, value);
            }
        }
        Self {
            path: self.path.clone(),
            table,
            span: self.span.clone(),
        }
    }

    /// Its value of this key, if it is a text.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        match self.table.get(key)?.get_ref() {
            DeValue::String(text) => Some(text),
            _ => None,
        }
    }

    /// The names of its keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.table.keys().map(|key| key.get_ref().as_ref())
    }

    /// Inserts a text if the key is missing. It has no location, because no line caused it.
    pub(crate) fn put_if_absent(&mut self, key: &str, text: &str) {
        if !self.table.contains_key(key) {
            let (key, text) = (key.to_owned().into(), text.to_owned().into());
            let value = Spanned::new(NOWHERE, DeValue::String(text));
            self.table.insert(Spanned::new(NOWHERE, key), value);
        }
    }
}
