//! What is refused of tokenizer files: what makes the library recurse as deep as a token is long,
//! reserve memory for what is not there, or make a text many times longer on its way to tokens or
//! back.

use serde::Deserialize;
use serde_json::Value;
use tokenizers::{NormalizerWrapper, Tokenizer};

use crate::abi::Failure;

/// Bytes of a string in tokenizer.json, and so of a token. Tries of tokens recurse by their bytes.
pub const STRING_MAX: usize = 4096;
/// How many times longer steps may make a text together. NFKC and Metaspace make it 33 times longer.
const GROWTH_MAX: usize = 100;
/// How often a text may occur in what a post-processor makes of it.
const COPIES_MAX: usize = 4;
/// Pieces of a post-processor's template.
const PIECES_MAX: usize = 256;
/// The one long string: a table of normalisations, which nothing recurses over.
const CHARSMAP: &str = "precompiled_charsmap";

/// Refuses JSON with strings longer than [`STRING_MAX`], without parsing it: what is not JSON is
/// refused later.
pub fn check_strings(json: &[u8]) -> Result<(), Failure> {
    let (mut at, mut before): (usize, &[u8]) = (0, b"");
    while at < json.len() {
        if json[at] != b'"' {
            at += 1;
            continue;
        }
        let begin = at + 1;
        at = begin;
        while at < json.len() && json[at] != b'"' {
            at += if json[at] == b'\\' { 2 } else { 1 };
        }
        let text = &json[begin..at.min(json.len())];
        at += 1;
        if text.len() > STRING_MAX && before != CHARSMAP.as_bytes() {
            let start = String::from_utf8_lossy(&text[..40]);
            return Err(Failure::corrupt(format!(
                "tokenizer.json: a string of {} bytes, \"{start}...\"; the limit is {STRING_MAX}",
                text.len()
            )));
        }
        before = text;
    }
    Ok(())
}

/// What is read of tokenizer.json before the library reads it.
#[derive(Deserialize)]
struct Normalizer {
    normalizer: Option<Value>,
}

/// Refuses a normalizer that makes texts too long, by which the library makes tokens anew as it opens
/// the file, and one whose tables say to be longer than they are: the library reserves 8 bytes for
/// each 4 that they say.
pub fn check_normalizer(json: &[u8]) -> Result<(), Failure> {
    let corrupt = |error| Failure::corrupt(format!("tokenizer.json: {error}"));
    let file: Normalizer = serde_json::from_slice(json).map_err(corrupt)?;
    let Some(value) = file.normalizer else { return Ok(()) };
    check_tables_in(&value)?;
    // As the library reads it: it knows steps that do not say what they are.
    let normalizer = NormalizerWrapper::deserialize(&value).map_err(corrupt)?;
    check_longer("normalizer", growth(&serde_json::to_value(normalizer).map_err(corrupt)?))
}

fn check_tables_in(value: &Value) -> Result<(), Failure> {
    match value {
        Value::Array(parts) => parts.iter().try_for_each(check_tables_in),
        Value::Object(parts) => {
            let table = parts.get(CHARSMAP).and_then(Value::as_str).map(base64);
            if let Some((trie, said)) = table.as_deref().and_then(trie) {
                if trie.len() < said {
                    return Err(Failure::corrupt(format!(
                        "tokenizer.json: a {CHARSMAP} says that its trie has {said} bytes; it has {}",
                        trie.len()
                    )));
                }
            }
            parts.values().try_for_each(check_tables_in)
        }
        _ => Ok(()),
    }
}

fn kind(step: &Value) -> &str {
    step.get("type").and_then(Value::as_str).unwrap_or("")
}

/// What follows the size of a table's trie, and that size; nothing where it is cut short.
fn trie(table: &[u8]) -> Option<(&[u8], usize)> {
    let (size, rest) = table.split_first_chunk::<4>()?;
    Some((rest, u32::from_le_bytes(*size) as usize / 4 * 4))
}

/// Bytes that a text of one letter can become by a table of SentencePiece: its longest entry.
fn charsmap_growth(step: &Value) -> usize {
    let bytes = base64(step.get(CHARSMAP).and_then(Value::as_str).unwrap_or(""));
    let entries = trie(&bytes).and_then(|(rest, size)| rest.get(size..)).unwrap_or(&[]);
    entries.split(|&byte| byte == 0).map(<[u8]>::len).max().unwrap_or(0)
}

/// What base64 stands for, up to the first character that is none of it.
fn base64(text: &str) -> Vec<u8> {
    let (mut bytes, mut bits, mut held) = (Vec::with_capacity(text.len() / 4 * 3), 0u32, 0);
    for letter in text.bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => break,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    bytes
}

/// How many times longer one step makes a text at most.
fn growth(step: &Value) -> usize {
    let bytes = |key: &str| step.get(key).and_then(Value::as_str).map_or(0, str::len);
    match kind(step) {
        "Sequence" => ["normalizers", "decoders", "pretokenizers"]
            .iter()
            .filter_map(|key| step.get(*key)?.as_array())
            .flatten()
            .fold(1, |product: usize, step| product.saturating_mul(growth(step))),
        "Replace" => {
            let found = step.pointer("/pattern/String").and_then(Value::as_str).map_or(0, str::len);
            match found {
                0 => 1 + bytes("content"), // Between any two letters.
                _ => bytes("content").div_ceil(found).max(1),
            }
        }
        "Prepend" => 1 + bytes("prepend"),
        "Metaspace" => 3,
        "ByteLevel" => 2,
        "NFD" | "NFC" => 3,
        "NFKD" | "NFKC" => 11,
        "BertNormalizer" => 3,
        "Precompiled" => charsmap_growth(step).max(1),
        _ => 1,
    }
}

/// How often a text occurs in what a post-processor makes of it.
fn copies(step: &Value) -> Result<usize, Failure> {
    match kind(step) {
        "Sequence" => step
            .get("processors")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .try_fold(1usize, |product, step| Ok(product.saturating_mul(copies(step)?))),
        "TemplateProcessing" => {
            let pieces = |key: &str| step.get(key).and_then(Value::as_array).map_or(0, Vec::len);
            let pieces = pieces("single").max(pieces("pair"));
            if pieces > PIECES_MAX {
                return Err(Failure::corrupt(format!(
                    "tokenizer.json: a post-processor's template has {pieces} pieces; the limit is \
                     {PIECES_MAX}"
                )));
            }
            let single = step.get("single").and_then(Value::as_array);
            let texts =
                single.into_iter().flatten().filter(|piece| piece.get("Sequence").is_some());
            Ok(texts.count().max(1))
        }
        _ => Ok(1),
    }
}

fn check_longer(name: &str, growth: usize) -> Result<(), Failure> {
    if growth > GROWTH_MAX {
        return Err(Failure::corrupt(format!(
            "tokenizer.json: its {name} can make a text {growth} times longer; the limit is \
             {GROWTH_MAX}"
        )));
    }
    Ok(())
}

/// Refuses steps that make texts too long.
pub fn check_growth(tokenizer: &Tokenizer) -> Result<(), Failure> {
    let value = |step: Result<Value, serde_json::Error>| step.map_err(Failure::corrupt);
    let normalizer = value(serde_json::to_value(tokenizer.get_normalizer()))?;
    let splitter = value(serde_json::to_value(tokenizer.get_pre_tokenizer()))?;
    let decoder = value(serde_json::to_value(tokenizer.get_decoder()))?;
    check_longer("normalizer", growth(&normalizer).saturating_mul(growth(&splitter)))?;
    check_longer("decoder", growth(&decoder))?;
    let copies = copies(&value(serde_json::to_value(tokenizer.get_post_processor()))?)?;
    if copies > COPIES_MAX {
        return Err(Failure::corrupt(format!(
            "tokenizer.json: its post_processor repeats a text {copies} times; the limit is \
             {COPIES_MAX}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn strings_are_only_so_long_except_the_one_table() {
        let file = |key: &str, length| json!({ key: "x".repeat(length) }).to_string();
        assert!(check_strings(file("content", STRING_MAX).as_bytes()).is_ok());
        let refused = check_strings(file("content", STRING_MAX + 1).as_bytes()).unwrap_err();
        assert!(refused.message.contains("4097 bytes"), "{}", refused.message);
        assert!(check_strings(file(CHARSMAP, 100_000).as_bytes()).is_ok());
        assert!(check_strings(b"{\"a\\\"b\": \"\\\\\", \"unterminated \\").is_ok());
    }

    #[test]
    fn growth_multiplies_along_a_sequence() {
        let double = json!({"type": "Replace", "pattern": {"String": "ab"}, "content": "abab"});
        let inserted = json!({"type": "Replace", "pattern": {"Regex": "x*"}, "content": "abc"});
        let both = json!({"type": "Sequence", "normalizers": [double, inserted]});
        assert_eq!(growth(&double), 2);
        assert_eq!(growth(&inserted), 4);
        assert_eq!(growth(&both), 8);
        let llama = json!({"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]});
        assert!(growth(&llama) <= 12);
    }

    #[test]
    fn a_table_grows_as_its_longest_entry() {
        // A trie of 4 bytes, then "a", "bcd".
        let step = json!({"type": "Precompiled", CHARSMAP: "BAAAAAEAAABhAGJjZAA="});
        assert_eq!(growth(&step), 3);
    }

    #[test]
    fn a_table_is_as_long_as_it_says() {
        let file = |table: &str| {
            let step = json!({"type": "Precompiled", CHARSMAP: table});
            let steps = json!({"type": "Sequence", "normalizers": [step]});
            json!({"model": {}, "normalizer": steps}).to_string()
        };
        assert!(check_normalizer(file("BAAAAAEAAABhAGJjZAA=").as_bytes()).is_ok());
        let refused = check_normalizer(file("////////").as_bytes()).unwrap_err();
        assert!(refused.message.contains("4294967292 bytes; it has 2"), "{}", refused.message);
        let escaped = file("////////").replace("_charsmap", "\\u005fcharsmap");
        assert!(check_normalizer(escaped.as_bytes()).is_err());
        assert!(check_normalizer(b"{}").is_ok());
        assert!(check_normalizer(b"{").is_err());
    }

    #[test]
    fn steps_that_do_not_say_what_they_are_count_too() {
        let step = json!({"pattern": {"String": "a"}, "content": "a".repeat(60)});
        let file = |steps: usize| {
            json!({"normalizer": {"normalizers": vec![step.clone(); steps]}}).to_string()
        };
        assert!(check_normalizer(file(1).as_bytes()).is_ok());
        let refused = check_normalizer(file(2).as_bytes()).unwrap_err();
        assert!(refused.message.contains("3600 times longer"), "{}", refused.message);
    }

    #[test]
    fn copies_multiply() {
        let twice = json!({"type": "TemplateProcessing", "single": [
            {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]});
        assert_eq!(copies(&twice).unwrap(), 2);
        let both = json!({"type": "Sequence", "processors": [twice, twice]});
        assert_eq!(copies(&both).unwrap(), 4);
        let pieces = vec![json!({"SpecialToken": {"id": "x", "type_id": 0}}); PIECES_MAX + 1];
        assert!(copies(&json!({"type": "TemplateProcessing", "single": pieces})).is_err());
    }
}
