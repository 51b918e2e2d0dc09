//! `tojson` as transformers defines it: Python's json.dumps with its arguments, and without the
//! HTML escapes of Jinja's own filter.

use std::fmt::Write;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::limits::Bounded;
use super::repr::float_repr;

/// Arguments of json.dumps, with the defaults of transformers' filter.
struct Options {
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)
pub fn tojson(value: &Value, positional: &[Value], kwargs: &Kwargs) -> Result<String, Error> {
    let options = Options::from_arguments(positional, kwargs)?;
    let mut writer = Writer { options, out: Bounded::default() };
    writer.value(value, 0)?;
    Ok(writer.out.finish())
}

impl Options {
    fn from_arguments(positional: &[Value], kwargs: &Kwargs) -> Result<Options, Error> {
        let argument = |index: usize, name: &str| -> Result<Option<Value>, Error> {
            let value = match positional.get(index) {
                Some(value) => Some(value.clone()),
                None => kwargs.get::<Option<Value>>(name)?,
            };
            Ok(value.filter(|value| !value.is_none()))
        };
        let ensure_ascii = argument(0, "ensure_ascii")?.is_some_and(|value| value.is_true());
        let indent = match argument(1, "indent")? {
            None => None,
            Some(value) => Some(match value.as_str() {
                Some(text) => text.to_owned(),
                None => " ".repeat(i64::try_from(value)?.clamp(0, 64) as usize),
            }),
        };
        let default_item = if indent.is_some() { "," } else { ", " };
        let (item_separator, key_separator) = match argument(2, "separators")? {
            None => (default_item.to_owned(), ": ".to_owned()),
            Some(pair) => {
                (pair.get_item_by_index(0)?.to_string(), pair.get_item_by_index(1)?.to_string())
            }
        };
        let sort_keys = argument(3, "sort_keys")?.is_some_and(|value| value.is_true());
        kwargs.assert_all_used()?;
        Ok(Options { ensure_ascii, indent, item_separator, key_separator, sort_keys })
    }
}

struct Writer {
    options: Options,
    out: Bounded,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > 128 {
            return Err(Error::new(ErrorKind::InvalidOperation, "tojson: nested deeper than 128"));
        }
        match value.kind() {
            ValueKind::None => self.out.push("null"),
            ValueKind::Bool => self.out.push(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Map => self.map(value, depth),
            ValueKind::Seq | ValueKind::Iterable => self.sequence(value, depth),
            kind => {
                let message = format!("tojson: a value of type {kind} is not JSON serializable");
                Err(Error::new(ErrorKind::InvalidOperation, message))
            }
        }
    }

    fn number(&mut self, value: &Value) -> Result<(), Error> {
        if value.is_integer() {
            return self.out.push(&value.to_string());
        }
        let number = f64::try_from(value.clone())?;
        match number {
            _ if number.is_nan() => self.out.push("NaN"),
            _ if number.is_infinite() => {
                self.out.push(if number > 0.0 { "Infinity" } else { "-Infinity" })
            }
            _ => self.out.push(&float_repr(number)),
        }
    }

    fn sequence(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut empty = true;
        for item in value.try_iter()? {
            self.out.push(if empty { "[" } else { "" })?;
            self.separate(empty, depth + 1)?;
            self.value(&item, depth + 1)?;
            empty = false;
        }
        self.close(empty, "[", "]", depth)
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.options.sort_keys {
            keys.sort();
        }
        let mut empty = true;
        for key in keys {
            self.out.push(if empty { "{" } else { "" })?;
            self.separate(empty, depth + 1)?;
            match key.kind() {
                ValueKind::String => self.string(key.as_str().unwrap_or_default())?,
                _ => {
                    self.out.push("\"")?;
                    self.value(&key, depth + 1)?;
                    self.out.push("\"")?;
                }
            }
            let separator = self.options.key_separator.clone();
            self.out.push(&separator)?;
            self.value(&value.get_item(&key)?, depth + 1)?;
            empty = false;
        }
        self.close(empty, "{", "}", depth)
    }

    fn separate(&mut self, first: bool, depth: usize) -> Result<(), Error> {
        if !first {
            self.out.push(&self.options.item_separator)?;
        }
        self.new_line(depth)
    }

    fn close(&mut self, empty: bool, open: &str, close: &str, depth: usize) -> Result<(), Error> {
        if empty {
            self.out.push(open)?;
        } else {
            self.new_line(depth)?;
        }
        self.out.push(close)
    }

    fn new_line(&mut self, depth: usize) -> Result<(), Error> {
        let Some(indent) = &self.options.indent else { return Ok(()) };
        self.out.push("\n")?;
        for _ in 0..depth {
            self.out.push(indent)?;
        }
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<(), Error> {
        self.out.push("\"")?;
        let mut plain = 0;
        for (at, c) in text.char_indices() {
            if !needs_escape(c, self.options.ensure_ascii) {
                continue;
            }
            self.out.push(&text[plain..at])?;
            plain = at + c.len_utf8();
            self.escape(c)?;
        }
        self.out.push(&text[plain..])?;
        self.out.push("\"")
    }

    fn escape(&mut self, c: char) -> Result<(), Error> {
        match c {
            '"' => self.out.push("\\\""),
            '\\' => self.out.push("\\\\"),
            '\n' => self.out.push("\\n"),
            '\r' => self.out.push("\\r"),
            '\t' => self.out.push("\\t"),
            '\u{8}' => self.out.push("\\b"),
            '\u{c}' => self.out.push("\\f"),
            _ => {
                let mut escaped = String::new();
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(escaped, "\\u{unit:04x}");
                }
                self.out.push(&escaped)
            }
        }
    }
}

fn needs_escape(c: char, ensure_ascii: bool) -> bool {
    c < ' ' || c == '"' || c == '\\' || (ensure_ascii && c > '~')
}
