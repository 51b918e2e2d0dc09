//! Tokenizer handles: open, encode, decode, and the table of pieces.

mod open;
pub mod pieces;

use tokenizers::Tokenizer;

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
        let encoding = (*tokenizer).encode_fast(text, add_special).map_err(Failure::invalid)?;
        out.write(encoding.get_ids().to_vec().into());
        Ok(())
    })
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
