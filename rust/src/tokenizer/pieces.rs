//! The table from which the C++ side decodes one token at a time.
//!
//! A Hugging Face decoder maps a list of tokens to a string, in stages. Each stage of the decoders
//! in use falls into one of four kinds, and a list of them into per-token text plus two rules:
//!
//! | stage                               | becomes                                             |
//! |-------------------------------------|-----------------------------------------------------|
//! | Replace, Metaspace, WordPiece, Strip | text of the token, as first token and as later one |
//! | ByteFallback                        | tokens `<0xNN>` are marked; a run is one string     |
//! | ByteLevel (last)                    | bytes of the token; the whole is lossily UTF-8      |
//! | Fuse, then Strip                    | a strip at the start of the whole text              |
//!
//! The texts come from running the library's own stages on one token, so they cannot differ.

use std::collections::HashMap;
use std::sync::OnceLock;

use llguidance::toktrie::TokTrie;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::{Decoder, Tokenizer};

use crate::abi::Failure;

/// A vocabulary larger than this is taken for a corrupt file: tables are indexed by id.
const IDS_MAX: u32 = 1 << 24;

/// Rules for the text as a whole. Shared with `src/text/rust_abi.h`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Rules {
    /// One past the greatest id.
    pub id_limit: u32,
    /// Up to this many `strip` characters are dropped from the start of the text.
    pub strip_count: u32,
    pub strip: u32,
}

/// How an id takes part in the text. Shared with `src/text/rust_abi.h`.
#[derive(Clone, Copy, PartialEq)]
#[repr(u8)]
enum Kind {
    /// No token has this id.
    None = 0,
    /// Whole characters.
    Text = 1,
    /// One byte of a run that is decoded as one string when it ends.
    FallbackByte = 2,
    /// Bytes that may start or end inside a character.
    Fragment = 3,
}

const SPECIAL: u8 = 0x80;

pub struct Table {
    pub rules: Rules,
    /// For each id from 0: kind (u8, plus SPECIAL), then the text as a later token and the text as
    /// the first token of the output, each as a native u32 length and bytes.
    pub records: Vec<u8>,
}

impl Table {
    pub fn of(tokenizer: &Tokenizer) -> Result<Table, Failure> {
        let id_limit =
            tokenizer.get_vocab(true).into_values().max().map_or(0, |id| id.saturating_add(1));
        if id_limit > IDS_MAX {
            return Err(Failure::corrupt(format!(
                "tokenizer.json: token id {} is beyond the limit of {IDS_MAX}",
                id_limit - 1
            )));
        }
        let plan = Plan::of(tokenizer.get_decoder())?;
        let mut records = Vec::with_capacity(id_limit as usize * 20);
        for id in 0..id_limit {
            let added = tokenizer.get_added_vocabulary();
            let Some(token) = added.simple_id_to_token(id).or_else(|| tokenizer.id_to_token(id))
            else {
                push_record(&mut records, Kind::None as u8, &[], &[]);
                continue;
            };
            let special = if added.is_special_token(&token) { SPECIAL } else { 0 };
            let (kind, later, first) = plan.piece(token)?;
            push_record(&mut records, kind as u8 | special, &later, &first);
        }
        Ok(Table { rules: Rules { id_limit, ..plan.rules }, records })
    }
}

impl Table {
    /// The bytes of every id as llguidance wants them: special tokens begin with its marker, ids
    /// without a token are empty.
    pub fn words(&self) -> Vec<Vec<u8>> {
        let mut words = Vec::with_capacity(self.rules.id_limit as usize);
        let mut rest = self.records.as_slice();
        let mut take = |count: usize| {
            let (head, tail) = rest.split_at(count);
            rest = tail;
            head
        };
        for _ in 0..self.rules.id_limit {
            let kind = take(1)[0];
            let mut text = || {
                let length = take(4).try_into().map_or(0, u32::from_ne_bytes);
                take(length as usize)
            };
            let (later, _first) = (text(), text());
            let marker = (kind & SPECIAL != 0).then_some(TokTrie::SPECIAL_TOKEN_MARKER);
            words.push(marker.into_iter().chain(later.iter().copied()).collect());
        }
        words
    }
}

fn push_record(records: &mut Vec<u8>, kind: u8, later: &[u8], first: &[u8]) {
    records.push(kind);
    for text in [later, first] {
        records.extend((text.len() as u32).to_ne_bytes());
        records.extend(text);
    }
}

/// A decoder, taken apart.
struct Plan<'a> {
    /// Stages that map each token by itself, knowing only whether it is the first.
    each: Vec<&'a DecoderWrapper>,
    /// Joins tokens with a space: what the library does when there is no decoder.
    spaced: bool,
    byte_fallback: bool,
    byte_level: bool,
    rules: Rules,
}

impl<'a> Plan<'a> {
    fn of(decoder: Option<&'a DecoderWrapper>) -> Result<Plan<'a>, Failure> {
        let mut plan = Plan {
            each: Vec::new(),
            spaced: decoder.is_none(),
            byte_fallback: false,
            byte_level: false,
            rules: Rules::default(),
        };
        let mut fused = false;
        for stage in stages(decoder) {
            let per_token = !plan.byte_fallback && !fused && !plan.byte_level;
            match stage {
                DecoderWrapper::Replace(_)
                | DecoderWrapper::Metaspace(_)
                | DecoderWrapper::WordPiece(_)
                | DecoderWrapper::Strip(_)
                    if per_token =>
                {
                    plan.each.push(stage)
                }
                DecoderWrapper::ByteFallback(_) if per_token => plan.byte_fallback = true,
                DecoderWrapper::ByteLevel(_) if per_token => plan.byte_level = true,
                DecoderWrapper::Fuse(_) if !plan.byte_level => fused = true,
                DecoderWrapper::Strip(strip)
                    if fused && strip.stop == 0 && plan.rules.strip_count == 0 =>
                {
                    plan.rules.strip = strip.content as u32;
                    plan.rules.strip_count = strip.start.min(u32::MAX as usize) as u32;
                }
                _ => return Err(Failure::corrupt(
                    "tokenizer.json: this decoder cannot be run one token at a time; supported \
                         are ByteLevel, and Replace, Metaspace, WordPiece, Strip followed by \
                         ByteFallback, Fuse and a leading Strip",
                )),
            }
        }
        Ok(plan)
    }

    /// Kind of `token`, its bytes as a later token and its bytes as the first one.
    fn piece(&self, token: String) -> Result<(Kind, Vec<u8>, Vec<u8>), Failure> {
        let mut first = vec![token.clone()];
        let mut later = vec![String::from("x"), token];
        for stage in &self.each {
            first = stage.decode_chain(first).map_err(Failure::corrupt)?;
            later = stage.decode_chain(later).map_err(Failure::corrupt)?;
        }
        let (first, later) = (first.swap_remove(0), later.swap_remove(1));
        if self.spaced {
            return Ok((Kind::Text, format!(" {later}").into_bytes(), first.into_bytes()));
        }
        if self.byte_level {
            return Ok((Kind::Fragment, byte_level_bytes(later), byte_level_bytes(first)));
        }
        if let Some(byte) = self.byte_fallback.then(|| fallback_byte(&later)).flatten() {
            return Ok((Kind::FallbackByte, vec![byte], vec![byte]));
        }
        Ok((Kind::Text, later.into_bytes(), first.into_bytes()))
    }
}

fn stages(decoder: Option<&DecoderWrapper>) -> Vec<&DecoderWrapper> {
    match decoder {
        None => Vec::new(),
        Some(DecoderWrapper::Sequence(sequence)) => {
            sequence.get_decoders().iter().flat_map(|stage| stages(Some(stage))).collect()
        }
        Some(stage) => vec![stage],
    }
}

/// The byte that `<0xNN>` stands for, with the library's own idea of what that looks like.
fn fallback_byte(token: &str) -> Option<u8> {
    let digits =
        (token.len() == 6).then(|| token.strip_prefix("<0x")?.strip_suffix('>')).flatten()?;
    u8::from_str_radix(digits, 16).ok()
}

/// The bytes of a token in GPT-2's alphabet, or its own where a character is outside of that.
fn byte_level_bytes(token: String) -> Vec<u8> {
    static BYTES: OnceLock<HashMap<char, u8>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| {
        let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
        let plain = (0..=255).filter(printable).map(|byte| (char::from(byte), byte));
        let moved = (0..=255).filter(|byte| !printable(byte));
        let moved = ('\u{100}'..).zip(moved);
        plain.chain(moved).collect()
    });
    let mapped: Option<Vec<u8>> = token.chars().map(|c| bytes.get(&c).copied()).collect();
    mapped.unwrap_or_else(|| token.into_bytes())
}
