//! Numbers and strings as Python's repr() writes them.

/// repr of a Python float: the shortest digits that read back the same, with an exponent below
/// 1e-4 and from 1e16.
pub fn float_repr(number: f64) -> String {
    let text = format!("{number:?}");
    match text.split_once('e') {
        None => text,
        Some((digits, exponent)) => {
            let digits = digits.strip_suffix(".0").unwrap_or(digits);
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
    }
}

/// repr of a Python string: single quotes unless there are only single ones inside; what cannot be
/// printed is escaped.
pub fn string_repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if c == quote => out.extend(['\\', c]),
            _ if is_printable(c) => out.push(c),
            _ => out.push_str(&match u32::from(c) {
                point @ 0..=0xFF => format!("\\x{point:02x}"),
                point @ 0x100..=0xFFFF => format!("\\u{point:04x}"),
                point => format!("\\U{point:08x}"),
            }),
        }
    }
    out.push(quote);
    out
}

/// str.isprintable of one character. Rust escapes for the same reasons, and combining marks too,
/// unless something is before them.
fn is_printable(c: char) -> bool {
    let escaped = || format!("a{c}").escape_debug().nth(1) == Some('\\');
    c.is_ascii_graphic() || c == ' ' || !(c.is_ascii() || escaped())
}
