//! `{% generation %}` marks the assistant's part of a rendered chat for training masks. When
//! serving, its body is simply rendered, in a scope of its own: what `{% with %}` does.

use std::borrow::Cow;

/// `source` with generation blocks spelled as with blocks; lines and columns of errors may move
/// within the line of the tag only.
pub fn replace_generation_blocks(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    let mut raw = false;
    while let Some(start) = rest.find(['{']) {
        let (before, tag) = rest.split_at(start);
        out.push_str(before);
        let end = tag_end(tag, raw);
        let (tag, after) = tag.split_at(end);
        let (open, word, close) = block_parts(tag);
        match word {
            "generation" if !raw => push_all(&mut out, [open, " with ", close]),
            "endgeneration" if !raw => push_all(&mut out, [open, " endwith ", close]),
            _ => out.push_str(tag),
        }
        raw = if raw { word != "endraw" } else { word == "raw" };
        rest = after;
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn push_all(out: &mut String, parts: [&str; 3]) {
    parts.iter().for_each(|part| out.push_str(part));
}

/// Length of the comment, expression or block that `text` starts with, or 1 if it is a plain brace.
/// Braces and delimiters inside string literals do not end it; inside raw only blocks count.
fn tag_end(text: &str, raw: bool) -> usize {
    let close = match text.as_bytes().get(1) {
        Some(b'%') => "%}",
        Some(b'{') if !raw => "}}",
        Some(b'#') if !raw => return text.find("#}").map_or(text.len(), |at| at + 2),
        _ => return 1,
    };
    if raw {
        let (_, word, _) = block_parts(&text[..text.find(close).map_or(text.len(), |at| at + 2)]);
        if word != "endraw" {
            return 1;
        }
    }
    let bytes = text.as_bytes();
    let (mut at, mut quote) = (2, None);
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if open == byte => quote = None,
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            (None, _) if bytes[at..].starts_with(close.as_bytes()) => return at + 2,
            _ => {}
        }
        at += 1;
    }
    text.len()
}

/// `{%-`, the only word, and `-%}` of a block tag; the word is empty for anything else.
fn block_parts(tag: &str) -> (&str, &str, &str) {
    let inner = tag.strip_prefix("{%").and_then(|inner| inner.strip_suffix("%}"));
    let Some(inner) = inner else { return ("", "", "") };
    let word = inner.trim_matches(['-', '+']).trim();
    let open = &tag[..2 + usize::from(inner.starts_with(['-', '+']))];
    let close = &tag[tag.len() - 2 - usize::from(inner.ends_with(['-', '+']))..];
    (open, word, close)
}

#[cfg(test)]
mod tests {
    use super::replace_generation_blocks;

    #[test]
    fn only_real_tags_change() {
        let source = "{%- generation -%}x{% endgeneration %}{# {% generation %} #}\
                      {{ '{% generation %}' }}{% raw %}{% generation %}{% endraw %}{ generation";
        let want = "{%- with -%}x{% endwith %}{# {% generation %} #}\
                    {{ '{% generation %}' }}{% raw %}{% generation %}{% endraw %}{ generation";
        assert_eq!(replace_generation_blocks(source), want);
    }
}
