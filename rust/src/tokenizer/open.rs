//! Makes a tokenizer of the files a model ships, as transformers 5 does when there is a
//! tokenizer.json.

use serde_json::Value;
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{AddedToken, Tokenizer};

use super::bounds;
use crate::abi::Failure;

/// The named special tokens of tokenizer_config.json.
const NAMED: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

pub fn open(tokenizer_json: &[u8], config_json: &[u8]) -> Result<Tokenizer, Failure> {
    bounds::check_strings(tokenizer_json)?;
    bounds::check_normalizer(tokenizer_json)?;
    let mut tokenizer = Tokenizer::from_bytes(tokenizer_json)
        .map_err(|error| Failure::corrupt(format!("tokenizer.json: {error}")))?;
    // Limits of the training set-up, not of the model; a server must see every token.
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(Failure::corrupt)?;
    if !config_json.is_empty() {
        let config = serde_json::from_slice(config_json)
            .map_err(|error| Failure::corrupt(format!("tokenizer_config.json: {error}")))?;
        add_listed_tokens(&mut tokenizer, &config)?;
        add_named_tokens(&mut tokenizer, &config)?;
        apply_bos_eos(&mut tokenizer, &config)?;
    }
    bounds::check_growth(&tokenizer)?;
    Ok(tokenizer)
}

/// `added_tokens_decoder`: tokens with flags by id, mostly repeating tokenizer.json.
fn add_listed_tokens(tokenizer: &mut Tokenizer, config: &Value) -> Result<(), Failure> {
    let Some(Value::Object(listed)) = config.get("added_tokens_decoder") else {
        return Ok(());
    };
    let mut tokens = Vec::with_capacity(listed.len());
    for (key, value) in listed {
        let where_ = || format!("tokenizer_config.json: added_tokens_decoder[{key:?}]");
        let id = key
            .parse::<u32>()
            .map_err(|_| Failure::corrupt(format!("{}: the key should be a token id", where_())))?;
        let token = added_token(value)
            .ok_or_else(|| Failure::corrupt(format!("{}: no \"content\" string", where_())))?;
        tokens.push((id, token));
    }
    tokens.sort_by_key(|(id, _)| *id);
    for (id, token) in tokens {
        let content = token.content.clone();
        let known = tokenizer.get_added_tokens_decoder().get(&id).is_some_and(|have| {
            format!("{have:?}") == format!("{token:?}") // AddedToken's == compares content only
        });
        if !known {
            tokenizer.add_tokens([token]).map_err(Failure::corrupt)?;
        }
        let got = tokenizer.token_to_id(&content);
        if got != Some(id) {
            return Err(Failure::corrupt(format!(
                "tokenizer_config.json: added_tokens_decoder puts {content:?} at id {id}, \
                 but tokenizer.json has it at {got:?}"
            )));
        }
    }
    Ok(())
}

/// Tokens named as special (bos_token, ...) become special even if tokenizer.json does not say so.
fn add_named_tokens(tokenizer: &mut Tokenizer, config: &Value) -> Result<(), Failure> {
    let named = NAMED.iter().filter_map(|name| config.get(*name));
    let extra = ["additional_special_tokens", "extra_special_tokens"]
        .into_iter()
        .filter_map(|name| config.get(name)?.as_array())
        .flatten();
    let tokens: Vec<AddedToken> = named
        .chain(extra)
        .filter_map(added_token)
        .map(|token| token.special(true))
        .filter(|token| !tokenizer.get_added_vocabulary().is_special_token(&token.content))
        .collect();
    tokenizer.add_special_tokens(tokens).map_err(Failure::corrupt)?;
    Ok(())
}

/// `add_bos_token` and `add_eos_token` count where tokenizer.json itself says nothing of what goes
/// around a text; where it does, transformers ignores the two, and so do we.
fn apply_bos_eos(tokenizer: &mut Tokenizer, config: &Value) -> Result<(), Failure> {
    if tokenizer.get_post_processor().is_some() {
        return Ok(());
    }
    let wanted = |flag: &str, name: &str| -> Option<String> {
        let wanted = config.get(flag).and_then(Value::as_bool).unwrap_or(false);
        wanted.then(|| Some(added_token(config.get(name)?)?.content)).flatten()
    };
    let bos = wanted("add_bos_token", "bos_token");
    let eos = wanted("add_eos_token", "eos_token");
    let mut special = Vec::new();
    for token in bos.iter().chain(eos.iter()) {
        let id = tokenizer.token_to_id(token).ok_or_else(|| {
            Failure::corrupt(format!("tokenizer_config.json: {token:?} is not in the vocabulary"))
        })?;
        special.push((token.clone(), id));
    }
    let around = |sequence: &str, id: usize| {
        let special = |token: &Option<String>| token.as_ref().map(|token| format!("{token}:{id}"));
        [special(&bos), Some(format!("{sequence}:{id}")), special(&eos)].into_iter().flatten()
    };
    let single: Vec<String> = around("$A", 0).collect();
    let pair: Vec<String> = around("$A", 0).chain(around("$B", 1)).collect();
    let processor = TemplateProcessing::builder()
        .try_single(single)
        .and_then(|builder| builder.try_pair(pair))
        .map_err(Failure::corrupt)?
        .special_tokens(special)
        .build()
        .map_err(Failure::corrupt)?;
    tokenizer.with_post_processor(Some(processor));
    Ok(())
}

/// A token given as a string, or as an object of `content` and flags; none that is too long.
fn added_token(value: &Value) -> Option<AddedToken> {
    let short = |content: &&str| content.len() <= bounds::STRING_MAX;
    if let Some(content) = value.as_str().filter(short) {
        return Some(AddedToken::from(content, true).normalized(false));
    }
    let content = value.get("content")?.as_str().filter(short)?;
    let flag = |name: &str| value.get(name).and_then(Value::as_bool);
    let special = flag("special").unwrap_or(false);
    Some(
        AddedToken::from(content, special)
            .single_word(flag("single_word").unwrap_or(false))
            .lstrip(flag("lstrip").unwrap_or(false))
            .rstrip(flag("rstrip").unwrap_or(false))
            .normalized(flag("normalized").unwrap_or(!special)),
    )
}
