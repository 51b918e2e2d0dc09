//! Tokenizer handles: open, encode, decode, and the table of pieces.

mod bounds;
mod open;
pub mod pieces;

use tokenizers::{
    Encoding, Model, OffsetReferential, OffsetType, PostProcessor, PreTokenizer, Tokenizer,
};

use crate::abi::{guard, Buffer, Bytes, Code, Failure};

/// Makes a tokenizer from `tokenizer.json` and, unless empty, what `tokenizer_config.json` adds.
///
/// # Safety
/// Byte ranges are readable, `out` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn heddle_text_tokenizer_open(
    tokenizer_json: Bytes,
    config_json: Bytes,
    out: *mut *mut Tokenizer,
    error: *mut Buffer<u8>,
) -> Code {
    guard(error, || {
        let tokenizer = open::open(tokenizer_json.get(), config_json.get())?;
        out.write(Box::into_raw(Box::new(tokenizer)));
        Ok(())
    })
}

/// # Safety
/// `tokenizer` came from open and is not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn heddle_text_tokenizer_free(tokenizer: *mut Tokenizer) {
    drop(Box::from_raw(tokenizer));
}

/// Ids of `text`; with `add_special`, what the post-processor adds (begin of sequence and such).
///
/// # Safety
/// The handle is live, the byte range readable, `out` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn heddle_text_encode(
    tokenizer: *const Tokenizer,
    text: Bytes,
    add_special: bool,
    out: *mut Buffer<u32>,
    error: *mut Buffer<u8>,
) -> Code {
    guard(error, || {
        let text = text.text("text to encode")?;
        let ids = ids_of(&*tokenizer, text, add_special).map_err(Failure::invalid)?;
        out.write(ids.into());
        Ok(())
    })
}

/// Ids of `text`, and of `second` behind it as of another text where that is lent, with what the
/// post-processor adds. Of more than `most` ids (0: any) the last text's last ones are left out.
/// `second_begin` is where ids begin that the post-processor gives another type than 0; 0: nowhere.
///
/// # Safety
/// The handle is live, byte ranges are readable, the rest is writable.
#[no_mangle]
pub unsafe extern "C" fn heddle_text_encode_pair(
    tokenizer: *const Tokenizer,
    text: Bytes,
    second: *const Bytes,
    most: usize,
    out: *mut Buffer<u32>,
    second_begin: *mut usize,
    error: *mut Buffer<u8>,
) -> Code {
    guard(error, || {
        let text = text.text("text to encode")?;
        let second = match second.as_ref() {
            Some(bytes) => Some(bytes.text("text to encode")?),
            None => None,
        };
        let encoding = pair_of(&*tokenizer, text, second, most)?;
        let typed = encoding.get_type_ids().iter().position(|&kind| kind > 0);
        second_begin.write(typed.unwrap_or(0));
        out.write(encoding.get_ids().to_vec().into());
        Ok(())
    })
}

/// Encodes one text or two, at most `most` tokens.
fn pair_of(
    tokenizer: &Tokenizer,
    text: &str,
    second: Option<&str>,
    most: usize,
) -> Result<Encoding, Failure> {
    let mut first = bare_ids(tokenizer, text).map_err(Failure::invalid)?;
    let mut behind =
        second.map(|text| bare_ids(tokenizer, text)).transpose().map_err(Failure::invalid)?;
    let processor = tokenizer.get_post_processor();
    if most > 0 {
        let added = processor.map_or(0, |processor| processor.added_tokens(second.is_some()));
        let fixed = added + if behind.is_some() { first.len() } else { 0 };
        if fixed >= most {
            return Err(Failure::invalid(format!(
                "{fixed} tokens are there beside the text that is cut to {most} in all"
            )));
        }
        behind.as_mut().unwrap_or(&mut first).truncate(most - fixed);
    }
    let processed = match processor {
        Some(processor) => processor.process(encoding_of(first), behind.map(encoding_of), true),
        None => {
            first.extend(behind.unwrap_or_default());
            return Ok(encoding_of(first));
        }
    };
    processed.map_err(Failure::invalid)
}

/// Ids with nothing else known of them.
fn encoding_of(ids: Vec<u32>) -> Encoding {
    ids.into_iter().map(|id| (id, String::new(), (0, 0), None, 0)).collect()
}

/// What `Tokenizer::encode_fast` gives. That keeps the text and the place of every token until the
/// last one is known; here a word's tokens are but their ids as soon as the word is done.
fn ids_of(
    tokenizer: &Tokenizer,
    text: &str,
    add_special: bool,
) -> Result<Vec<u32>, tokenizers::Error> {
    let ids = bare_ids(tokenizer, text)?;
    let Some(processor) = tokenizer.get_post_processor() else {
        return Ok(ids);
    };
    Ok(processor.process(encoding_of(ids), None, add_special)?.get_ids().to_vec())
}

/// The same before the post-processor.
fn bare_ids(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, tokenizers::Error> {
    let mut words =
        tokenizer.get_added_vocabulary().extract_and_normalize(tokenizer.get_normalizer(), text);
    if let Some(splitter) = tokenizer.get_pre_tokenizer() {
        splitter.pre_tokenize(&mut words)?;
    }
    let mut ids = Vec::new();
    for (word, _, known) in words.get_splits(OffsetReferential::Original, OffsetType::None) {
        match known {
            Some(tokens) => ids.extend(tokens.iter().map(|token| token.id)),
            None => ids.extend(tokenizer.get_model().tokenize(word)?.iter().map(|token| token.id)),
        }
    }
    Ok(ids)
}

/// Text of `count` ids. Ids that no token has are skipped, as in the Python library.
///
/// # Safety
/// The handle is live, `ids` readable, `out` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn heddle_text_decode(
    tokenizer: *const Tokenizer,
    ids: *const u32,
    count: usize,
    skip_special: bool,
    out: *mut Buffer<u8>,
    error: *mut Buffer<u8>,
) -> Code {
    guard(error, || {
        let ids = if count == 0 { &[] } else { std::slice::from_raw_parts(ids, count) };
        let text = (*tokenizer).decode(ids, skip_special).map_err(Failure::invalid)?;
        out.write(text.into());
        Ok(())
    })
}

/// Id of the token spelled `token` in the vocabulary, or -1.
///
/// # Safety
/// The handle is live, the byte range readable, `out` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn heddle_text_token_to_id(
    tokenizer: *const Tokenizer,
    token: Bytes,
    out: *mut i64,
    error: *mut Buffer<u8>,
) -> Code {
    guard(error, || {
        let token = token.text("token")?;
        out.write((*tokenizer).token_to_id(token).map_or(-1, i64::from));
        Ok(())
    })
}

/// What every id contributes to decoded text, for decoding one token at a time; see pieces.rs.
///
/// # Safety
/// The handle is live, `rules`, `out` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn heddle_text_pieces(
    tokenizer: *const Tokenizer,
    rules: *mut pieces::Rules,
    out: *mut Buffer<u8>,
    error: *mut Buffer<u8>,
) -> Code {
    guard(error, || {
        let table = pieces::Table::of(&*tokenizer)?;
        rules.write(table.rules);
        out.write(table.records.into());
        Ok(())
    })
}
