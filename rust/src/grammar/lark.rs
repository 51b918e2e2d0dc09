//! Grammars in Lark: how deep their rules and terminals lead, and the schemas in them.
//!
//! The lexer is llguidance's (`lark/lexer.rs`) for all that names can hide in: strings, regular
//! expressions, comments and JSON. What it does not understand it leaves out, as the library refuses it.

use serde_json::Value;

use super::references::{References, Use};
use super::{bounds, schema};
use crate::abi::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Name(&'a str),
    Number,
    /// `%lark`, which a grammar in braces follows.
    Nested,
    DoubleColon,
    /// Any other sign.
    Sign(u8),
}

/// A schema in the text: where it is, and what it says.
struct Schema {
    begin: usize,
    end: usize,
    value: Value,
}

/// Bytes of the longest beginning that the predicate takes.
fn run(text: &str, taken: impl Fn(u8) -> bool) -> usize {
    text.bytes().position(|byte| !taken(byte)).unwrap_or(text.len())
}

/// Bytes of a string or regular expression that begins with `quote`, with its flags.
fn quoted(text: &str, quote: u8, flags: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    let end = (at + 1).min(bytes.len());
    end + bytes[end..].iter().take_while(|&&byte| flags.as_bytes().contains(&byte)).count()
}

/// Bytes of a name at the beginning, and the name without what only says how it is used.
fn name(text: &str) -> Option<(usize, &str)> {
    let bare = text.strip_prefix('!').unwrap_or(text);
    let marked = bare.strip_prefix(['_', '?']).unwrap_or(bare);
    let length = match marked.bytes().next()? {
        b'a'..=b'z' => run(marked, |b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-')),
        b'A'..=b'Z' if !text.starts_with(['!', '?']) => {
            run(marked, |b| matches!(b, b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-'))
        }
        _ => return None,
    };
    let end = text.len() - marked.len() + length;
    Some((end, text[..end].trim_start_matches('!').trim_start_matches('?')))
}

/// Bytes of a number at the beginning, which may be hexadecimal.
fn number(text: &str) -> usize {
    if text.starts_with("0x") || text.starts_with("0X") {
        return 2 + run(&text[2..], |b| b.is_ascii_hexdigit());
    }
    let mut end = run(text, |b| b.is_ascii_digit());
    if text[end..].starts_with('.') && !text[end..].starts_with("..") {
        end += 1 + run(&text[end + 1..], |b| b.is_ascii_digit());
    }
    let rest = &text[end..];
    let sign =
        rest.strip_prefix(['e', 'E']).map(|rest| rest.strip_prefix(['+', '-']).unwrap_or(rest));
    match sign {
        Some(digits) if digits.starts_with(|c: char| c.is_ascii_digit()) => {
            text.len() - digits.len() + run(digits, |b| b.is_ascii_digit())
        }
        _ => end,
    }
}

/// Bytes of the JSON at the beginning, after blanks, and its value.
fn json(text: &str) -> Option<(usize, Value)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = values.next()?.ok()?;
    Some((values.byte_offset(), value))
}

/// Reads the text from left to right.
fn read(text: &str) -> (Vec<Token<'_>>, Vec<Schema>) {
    let (mut tokens, mut schemas) = (Vec::new(), Vec::new());
    let mut at = 0;
    while let Some(&first) = text.as_bytes().get(at) {
        if !text.is_char_boundary(at) {
            at += 1;
            continue;
        }
        let rest = &text[at..];
        at += match first {
            b'#' => run(rest, |byte| byte != b'\n'),
            b'/' if rest.starts_with("//") => run(rest, |byte| byte != b'\n'),
            b'/' => quoted(rest, b'/', "imslux"),
            b'"' => quoted(rest, b'"', "i"),
            b'0'..=b'9' => {
                tokens.push(Token::Number);
                number(rest)
            }
            b'<' if special(rest).is_some() => special(rest).unwrap_or(1),
            b'@' => 1 + run(&rest[1..], |b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'),
            b'%' => {
                let word = 1 + run(&rest[1..], |b| b.is_ascii_alphabetic());
                let value = match &rest[..word] {
                    "%json" | "%llguidance" | "%regex" => json(&rest[word..]),
                    "%lark" => {
                        tokens.push(Token::Nested);
                        None
                    }
                    _ => None,
                };
                if let Some((length, value)) = value {
                    if &rest[..word] == "%json" {
                        schemas.push(Schema { begin: at + word, end: at + word + length, value });
                    }
                    word + length
                } else {
                    word
                }
            }
            b':' if rest.starts_with("::") => {
                tokens.push(Token::DoubleColon);
                2
            }
            b' ' | b'\t' => 1,
            _ => match name(rest) {
                Some((length, name)) => {
                    tokens.push(Token::Name(name));
                    length
                }
                None => {
                    tokens.push(Token::Sign(first));
                    1
                }
            },
        };
    }
    (tokens, schemas)
}

/// Bytes of `<a special token>`.
fn special(text: &str) -> Option<usize> {
    let inner = run(&text[1..], |byte| !matches!(byte, b'<' | b'>') && !byte.is_ascii_whitespace());
    (inner > 0 && text[1 + inner..].starts_with('>')).then_some(inner + 2)
}

/// From the end of what brackets enclose, back to before it.
fn before_brackets(tokens: &[Token], end: usize, open: u8, close: u8) -> usize {
    if end == 0 || tokens[end - 1] != Token::Sign(close) {
        return end;
    }
    let (mut at, mut depth) = (end, 0);
    while at > 0 {
        at -= 1;
        if tokens[at] == Token::Sign(close) {
            depth += 1;
        } else if tokens[at] == Token::Sign(open) {
            depth -= 1;
            if depth == 0 {
                return at;
            }
        }
    }
    end
}

/// Where the name stands that a colon ends the head of: `name::_{parameters}.7[attributes]:`.
fn head(tokens: &[Token], colon: usize) -> Option<usize> {
    let mut end = before_brackets(tokens, colon, b'[', b']');
    if end >= 2 && tokens[end - 1] == Token::Number && tokens[end - 2] == Token::Sign(b'.') {
        end -= 2;
    }
    end = before_brackets(tokens, end, b'{', b'}');
    if end >= 2 && tokens[end - 2] == Token::DoubleColon {
        end -= 2;
    }
    matches!(tokens.get(end.checked_sub(1)?), Some(Token::Name(_))).then(|| end - 1)
}

/// Refuses rules and terminals that lead too deep, or are too many.
fn check_names(tokens: &[Token]) -> Result<(), Failure> {
    let mut defined = vec![false; tokens.len()];
    for colon in (0..tokens.len()).filter(|&at| tokens[at] == Token::Sign(b':')) {
        if let Some(at) = head(tokens, colon) {
            defined[at] = true;
        }
    }
    let count = defined.iter().filter(|&&is| is).count();
    if count > bounds::DEFINITIONS_MAX {
        return Err(Failure::invalid(format!(
            "{count} rules and terminals; the limit is {}",
            bounds::DEFINITIONS_MAX
        )));
    }
    let mut references = References::default();
    // What stands before the first definition, and in statements, is of none.
    let (mut current, _) = references.definition("", Use::Named);
    let (mut levels, mut outer) = (1, Vec::new());
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Name(name) => {
                let (number, _) = references.definition(name, Use::Named);
                if defined[at] {
                    current = number;
                    levels = 1;
                } else {
                    references.add(current, number, levels, Use::Named);
                }
            }
            Token::Sign(b'(' | b'[') => levels += 1,
            Token::Sign(b')' | b']') => levels = levels.saturating_sub(1).max(1),
            Token::Sign(b'{') => {
                outer.push((current, levels));
                levels += usize::from(at > 0 && tokens[at - 1] == Token::Nested);
            }
            // A grammar within a rule: what follows it belongs to the rule again.
            Token::Sign(b'}') => (current, levels) = outer.pop().unwrap_or((current, levels)),
            _ => {}
        }
    }
    bounds::check_extent(&references.extent())
}

/// Checks a grammar; what comes back has the white space of its schemas bounded.
pub fn prepare(text: &str) -> Result<String, Failure> {
    let (tokens, schemas) = read(text);
    check_names(&tokens)?;
    let (mut bounded, mut copied) = (String::with_capacity(text.len()), 0);
    for part in &schemas {
        schema::check(&part.value)?;
        bounded.push_str(&text[copied..part.begin]);
        let mut value = part.value.clone();
        let adapted = schema::adapt(&mut value);
        schema::check_lower_bounds(&value)?;
        let written =
            if adapted { value.to_string() } else { text[part.begin..part.end].to_string() };
        bounded.push_str(&schema::bound_white_space_of_text(&written, &value));
        copied = part.end;
    }
    bounded.push_str(&text[copied..]);
    Ok(bounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        prepare(text).expect_err("should be refused").message
    }

    fn chain(count: usize, link: impl Fn(usize) -> String) -> String {
        let mut text = "start: a0 A0\n".to_string();
        (0..count).for_each(|i| text += &link(i));
        text + &format!("a{count}: \"x\"\nA{count}: \"x\"\n")
    }

    #[test]
    fn chains_of_rules_and_terminals_are_bounded() {
        let links: [fn(usize) -> String; 6] = [
            |i| format!("a{i}: a{}\n", i + 1),
            |i| format!("A{i}: \"y\" A{} | \"z\"\n", i + 1),
            |i| format!("?a{i}.3: \"a\\\"b:\" /[:\\/]\"/i a{} // c: d\n", i + 1),
            |i| format!("a{i}[capture, stop=\"x\"]: \"x\"\n   | a{}\n", i + 1),
            |i| format!("a{i}::_: <[1]> a{}::incr(_)\n", i + 1),
            |i| format!("a{i}: %lark {{\n start: B\n B: \"y\"{{2,3}} }} a{}\n", i + 1),
        ];
        for link in links {
            assert_eq!(prepare(&chain(400, link)).err().map(|failure| failure.message), None);
            assert!(refused(&chain(1500, link)).contains("levels deep"), "{}", link(0));
        }
    }

    #[test]
    fn groups_count_as_levels() {
        let nested = |i: usize| format!("a{i}: ((((\"x\" a{}))))\n", i + 1);
        assert!(
            refused(&chain(300, nested)).contains("1501 levels"),
            "{}",
            refused(&chain(300, nested))
        );
    }

    #[test]
    fn names_in_other_things_are_none() {
        let text =
            "start: \"b c\" /b c/ <b> @b # b: c\n// b: c\n%json {\"b\": \"c: d\"}\nb: start\n";
        let (tokens, schemas) = read(text);
        let names: Vec<_> = tokens.iter().filter(|t| matches!(t, Token::Name(_))).collect();
        let name = |name| Token::Name(name);
        assert_eq!(names, [&name("start"), &name("b"), &name("start")]);
        assert_eq!(schemas.len(), 1);
        assert_eq!(&text[schemas[0].begin..schemas[0].end], " {\"b\": \"c: d\"}");
    }

    #[test]
    fn names_are_read_as_the_library_reads_them() {
        let names = |text| {
            let (tokens, _) = read(text);
            tokens.into_iter().filter(|t| matches!(t, Token::Name(_))).collect::<Vec<_>>()
        };
        let name = |name| Token::Name(name);
        assert_eq!(names("x?y"), [name("x"), name("y")]);
        assert_eq!(
            names("aB _C-D !?e _f"),
            [name("a"), name("B"), name("_C-D"), name("e"), name("_f")]
        );
        assert_eq!(names("A~0..2b 1e5c 0x1fg"), [name("A"), name("b"), name("c"), name("g")]);
    }

    #[test]
    fn schemas_within_are_checked_and_bounded() {
        let properties: Vec<_> = (0..3000).map(|i| format!("\"p{i}\": true")).collect();
        let large = format!("start: %json {{\"properties\": {{{}}}}}\n", properties.join(","));
        assert!(refused(&large).contains("3000 entries"));
        let bounded = prepare("start: %json {\"type\": \"object\"} \"é\"\n").unwrap();
        assert!(
            bounded.starts_with("start: %json {\"type\": \"object\",\"x-guidance\":{"),
            "{bounded}"
        );
        assert!(bounded.ends_with("} \"é\"\n"), "{bounded}");
        let plain = "start: \"a\" %json 1e\n";
        assert_eq!(prepare(plain).unwrap(), plain);
    }

    #[test]
    fn circles_of_rules_are_legal_and_many_definitions_are_not() {
        assert!(prepare("start: a\na: \"(\" a \")\" | b\nb: start?\n").is_ok());
        let many: String = (0..6000).map(|i| format!("a{i}: \"x\"\n")).collect();
        assert!(refused(&many).contains("6000 rules"));
    }
}
