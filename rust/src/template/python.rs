//! What Python's Jinja has and minijinja leaves to its user: filters with Python's idea of
//! whitespace and numbers, methods of str, dict and list, and the functions that transformers adds.

use std::ffi::CString;

use minijinja::formatting::FormatStyle;
use minijinja::value::{from_args, Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value};
use minijinja_contrib::pycompat;

use super::json::tojson;
use super::limits::{self, printed, Bounded};

/// Marks an error made by the template itself, with raise_exception.
pub const RAISED: &str = "=raised: ";

/// Fills `env` with all of it.
pub fn install(env: &mut Environment<'_>) {
    env.set_formatter(print);
    env.set_unknown_method_callback(method);
    env.add_filter(limits::CHARGE, limits::charge);
    env.add_filter(limits::CHARGE_STEP, limits::charge_step);
    env.add_filter(limits::CONCAT, concat);
    env.add_filter(limits::REMAINDER, remainder);
    env.add_filter("tojson", |value: Value, arguments: Rest<Value>, kwargs: Kwargs| {
        tojson(&value, &arguments, &kwargs)
    });
    env.add_filter("string", |value: Value| printed(&value).map(|text| text.into_owned()));
    env.add_filter("trim", |value: Value, chars: Option<String>| {
        Ok::<_, Error>(strip(&printed(&value)?, chars.as_deref(), Ends::Both).to_owned())
    });
    env.add_filter("join", join);
    env.add_filter("replace", |text: Value, old: Value, new: Value, count: Option<i64>| {
        replace(&printed(&text)?, &printed(&old)?, &printed(&new)?, count)
    });
    env.add_filter("format", |format: String, positional: Rest<Value>, kwargs: Kwargs| {
        printf(&format, &with_kwargs(positional, kwargs))
    });
    for name in ["indent", "batch", "slice"] {
        let builtin = Environment::new();
        env.add_filter(name, move |positional: Rest<Value>, kwargs: Kwargs| {
            let arguments = with_kwargs(positional, kwargs);
            limits::check_counts(&arguments)?;
            builtin.empty_state().apply_filter(name, &arguments)
        });
    }
    // Python's answer to what is no number is 0, unless the template gives another.
    for (name, zero) in [("int", Value::from(0)), ("float", Value::from(0.0))] {
        let builtin = Environment::new();
        env.add_filter(name, move |positional: Rest<Value>, kwargs: Kwargs| {
            let given = positional.len() > 1 || kwargs.has("default");
            let arguments = with_kwargs(positional, kwargs);
            match builtin.empty_state().apply_filter(name, &arguments) {
                Err(_) if !given => Ok(zero.clone()),
                converted => converted,
            }
        });
    }
    env.add_filter("e", escape);
    env.add_filter("escape", escape);
    env.add_test("sequence", |value: Value| {
        matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map)
    });
    env.add_function("raise_exception", |message: Value| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{message}")))
    });
    env.add_function("strftime_now", strftime_now);
    env.remove_global("debug");
}

/// Prints the value of an expression, as str() would.
fn print(out: &mut Output, _: &mut State, value: &Value) -> Result<(), Error> {
    let text = printed(value)?;
    limits::spend(text.len())?;
    out.write_str(&text).map_err(Error::from)
}

/// Arguments as minijinja passes them on: named ones last, as one value.
fn with_kwargs(positional: Rest<Value>, kwargs: Kwargs) -> Vec<Value> {
    let mut arguments = positional.0;
    if kwargs.args().next().is_some() {
        arguments.push(kwargs.into());
    }
    arguments
}

/// The ~ operator.
fn concat(left: Value, right: Value) -> Result<String, Error> {
    let mut out = Bounded::default();
    out.print(&left)?;
    out.print(&right)?;
    Ok(out.finish())
}

/// The % operator: formatting of a string, else the remainder with the sign of the divisor.
fn remainder(left: Value, right: Value) -> Result<Value, Error> {
    let wrong = |what: &str| Error::new(ErrorKind::InvalidOperation, what.to_owned());
    if let Some(format) = left.as_str() {
        let arguments: Vec<Value> =
            if right.is_tuple() { right.try_iter()?.collect() } else { vec![right] };
        return printf(format, &arguments).map(Value::from);
    }
    let number = |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool);
    if !number(&left) || !number(&right) {
        let what = format!("% is not defined for {} and {}", left.kind(), right.kind());
        return Err(wrong(&what));
    }
    if let (Ok(a), Ok(b)) = (i64::try_from(left.clone()), i64::try_from(right.clone())) {
        if left.is_integer() && right.is_integer() {
            let remainder = a.checked_rem_euclid(b).ok_or_else(|| wrong("modulo by zero"))?;
            return Ok((if b < 0 && remainder != 0 { remainder + b } else { remainder }).into());
        }
    }
    let (a, b) = (f64::try_from(left)?, f64::try_from(right)?);
    if b == 0.0 {
        return Err(wrong("modulo by zero"));
    }
    let remainder = a % b;
    let opposite = remainder != 0.0 && (remainder < 0.0) != (b < 0.0);
    Ok((if opposite { remainder + b } else { remainder }).into())
}

/// format % arguments.
fn printf(format: &str, arguments: &[Value]) -> Result<String, Error> {
    limits::check_format(format)?;
    limits::check_counts(arguments)?;
    minijinja::formatting::format(FormatStyle::Printf, format, arguments)
}

/// HTML escapes, spelled as markupsafe does.
fn escape(value: Value) -> Result<String, Error> {
    let mut out = Bounded::default();
    for c in printed(&value)?.chars() {
        match c {
            '&' => out.push("&amp;")?,
            '<' => out.push("&lt;")?,
            '>' => out.push("&gt;")?,
            '\'' => out.push("&#39;")?,
            '"' => out.push("&#34;")?,
            _ => out.push(c.encode_utf8(&mut [0; 4]))?,
        }
    }
    Ok(out.finish())
}

/// join(value, d='', attribute=None)
fn join(
    state: &mut State,
    value: Value,
    positional: Rest<Value>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let separator = match positional.first() {
        Some(separator) => separator.clone(),
        None => kwargs.get::<Option<Value>>("d")?.unwrap_or_else(|| "".into()),
    };
    let attribute = match positional.get(1) {
        Some(attribute) => Some(attribute.clone()),
        None => kwargs.get("attribute")?,
    };
    kwargs.assert_all_used()?;
    let values = match attribute {
        None => value,
        Some(attribute) => {
            let kwargs = Kwargs::from_iter([("attribute", attribute)]);
            state.apply_filter("map", &[value, kwargs.into()])?
        }
    };
    join_with(&printed(&separator)?, &values)
}

fn join_with(separator: &str, values: &Value) -> Result<String, Error> {
    let mut out = Bounded::default();
    for (at, value) in values.try_iter()?.checked().enumerate() {
        if at > 0 {
            out.push(separator)?;
        }
        out.print(&value?)?;
    }
    Ok(out.finish())
}

/// str.replace; a count below 0 or none replaces all.
fn replace(text: &str, old: &str, new: &str, count: Option<i64>) -> Result<String, Error> {
    let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    let mut out = Bounded::default();
    let mut rest = 0;
    for (at, found) in text.match_indices(old).take(count) {
        out.push(&text[rest..at])?;
        out.push(new)?;
        rest = at + found.len();
    }
    out.push(&text[rest..])?;
    Ok(out.finish())
}

/// datetime.now().strftime(format), in the local time zone.
fn strftime_now(state: &State, format: String) -> Result<String, Error> {
    let now: i64 = match state.lookup(super::NOW).filter(|now| !now.is_undefined()) {
        Some(now) => now.try_into()?,
        None => {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            since.map_or(0, |since| since.as_secs() as i64)
        }
    };
    if format.is_empty() {
        return Ok(format);
    }
    limits::check_format(&format)?;
    let invalid =
        |what: &str| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {what}"));
    let c_format = CString::new(format).map_err(|_| invalid("the format contains a NUL"))?;
    let mut out = vec![0u8; 4096];
    // SAFETY: localtime_r fills `parts`; strftime writes at most out.len() bytes and returns how many.
    let written = unsafe {
        let mut parts: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&now, &mut parts).is_null() {
            return Err(invalid("the time is out of range"));
        }
        libc::strftime(out.as_mut_ptr().cast(), out.len(), c_format.as_ptr(), &parts)
    };
    out.truncate(written);
    String::from_utf8(out).map_err(|_| invalid("the result is not UTF-8"))
}

/// Methods of Python's types on values that have none in minijinja.
fn method(
    state: &mut State,
    value: &Value,
    name: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            match string_method(text, name, arguments)? {
                Some(result) => Ok(result),
                None => pycompat::unknown_method_callback(state, value, name, arguments),
            }
        }
        ValueKind::Seq if name == "index" => {
            let (wanted,): (&Value,) = from_args(arguments)?;
            let at = value.try_iter()?.position(|item| item == *wanted);
            let missing =
                || Error::new(ErrorKind::InvalidOperation, format!("{wanted:?} is not in list"));
            at.map(Value::from).ok_or_else(missing)
        }
        _ => pycompat::unknown_method_callback(state, value, name, arguments),
    }
}

/// Methods of str that pycompat lacks, or has with Rust's idea of whitespace or without bounds.
fn string_method(text: &str, name: &str, arguments: &[Value]) -> Result<Option<Value>, Error> {
    let pieces = |pieces: Vec<&str>| Value::from_iter(pieces);
    Ok(Some(match name {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(arguments)?;
            let ends = match name {
                "strip" => Ends::Both,
                "lstrip" => Ends::Start,
                _ => Ends::End,
            };
            strip(text, chars, ends).into()
        }
        "replace" => {
            let (old, new, count): (&str, &str, Option<i64>) = from_args(arguments)?;
            replace(text, old, new, count)?.into()
        }
        "join" => {
            let (values,): (&Value,) = from_args(arguments)?;
            join_with(text, values)?.into()
        }
        "format" => {
            limits::check_format(text)?;
            limits::check_counts(arguments)?;
            return Ok(None);
        }
        "split" | "rsplit" => {
            let (separator, limit, kwargs): (Option<Value>, Option<i64>, Kwargs) =
                from_args(arguments)?;
            let separator =
                separator.or(kwargs.get("sep")?).filter(|separator| !separator.is_none());
            let limit = limit.or(kwargs.get("maxsplit")?);
            kwargs.assert_all_used()?;
            let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
            match separator {
                None => pieces(split_whitespace(text, limit, name == "rsplit")),
                Some(separator) => {
                    pieces(split(text, as_str(&separator)?, limit, name == "rsplit")?)
                }
            }
        }
        "splitlines" => {
            let (keep_ends,): (Option<bool>,) = from_args(arguments)?;
            pieces(split_lines(text, keep_ends.unwrap_or(false)))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(arguments)?;
            let first = name == "partition";
            let at = if first { text.find(separator) } else { text.rfind(separator) };
            let parts = match at {
                Some(at) => [&text[..at], separator, &text[at + separator.len()..]],
                None if first => [text, "", ""],
                None => ["", "", text],
            };
            Value::from(minijinja::value::Tuple::from(parts.map(Value::from)))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(arguments)?;
            text.strip_prefix(prefix).unwrap_or(text).into()
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(arguments)?;
            text.strip_suffix(suffix).unwrap_or(text).into()
        }
        "index" | "rindex" => {
            let (wanted,): (&str,) = from_args(arguments)?;
            let at = if name == "index" { text.find(wanted) } else { text.rfind(wanted) };
            let at =
                at.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "substring not found"))?;
            text[..at].chars().count().into()
        }
        "title" => title(text).into(),
        "isspace" => (!text.is_empty() && text.chars().all(is_space)).into(),
        _ => return Ok(None),
    }))
}

fn as_str(value: &Value) -> Result<&str, Error> {
    let wrong = || {
        Error::new(ErrorKind::InvalidOperation, format!("expected a string, got {}", value.kind()))
    };
    value.as_str().ok_or_else(wrong)
}

#[derive(Clone, Copy, PartialEq)]
enum Ends {
    Both,
    Start,
    End,
}

/// str.strip and its halves: of `chars`, or of whitespace.
fn strip<'t>(text: &'t str, chars: Option<&str>, ends: Ends) -> &'t str {
    let stripped = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if ends == Ends::End { text } else { text.trim_start_matches(stripped) };
    if ends == Ends::Start {
        text
    } else {
        text.trim_end_matches(stripped)
    }
}

/// str.isspace of one character: Unicode's White_Space and the four separators of ASCII.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// str.split() and str.rsplit() without a separator.
fn split_whitespace(text: &str, limit: usize, from_end: bool) -> Vec<&str> {
    let mut pieces = Vec::new();
    let ends = if from_end { Ends::End } else { Ends::Start };
    let mut rest = strip(text, None, ends);
    while !rest.is_empty() && pieces.len() < limit {
        let (piece, left) = if from_end {
            let start = rest.char_indices().rev().find(|(_, c)| is_space(*c));
            let start = start.map_or(0, |(at, c)| at + c.len_utf8());
            (&rest[start..], &rest[..start])
        } else {
            rest.split_at(rest.find(is_space).unwrap_or(rest.len()))
        };
        pieces.push(piece);
        rest = strip(left, None, ends);
    }
    if !rest.is_empty() {
        pieces.push(rest);
    }
    if from_end {
        pieces.reverse();
    }
    pieces
}

/// str.split(separator, limit) and str.rsplit.
fn split<'t>(
    text: &'t str,
    separator: &str,
    limit: usize,
    from_end: bool,
) -> Result<Vec<&'t str>, Error> {
    if separator.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "split: empty separator"));
    }
    let parts = limit.saturating_add(1);
    if !from_end {
        return Ok(text.splitn(parts, separator).collect());
    }
    let mut pieces: Vec<&str> = text.rsplitn(parts, separator).collect();
    pieces.reverse();
    Ok(pieces)
}

/// str.splitlines: all of Unicode's line ends.
fn split_lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let is_end = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'
                ..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(is_end) {
        let end = match rest[at..].chars().next() {
            Some('\r') if rest[at..].starts_with("\r\n") => 2,
            Some(c) => c.len_utf8(),
            None => 0,
        };
        lines.push(if keep_ends { &rest[..at + end] } else { &rest[..at] });
        rest = &rest[at + end..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

/// str.title: a capital after everything that is not a letter.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_word = false;
    for c in text.chars() {
        if in_word {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        in_word = c.is_alphabetic();
    }
    out
}
