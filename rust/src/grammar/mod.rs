//! Grammars that constrain an answer: which tokens may come next, by llguidance.
//!
//! A vocabulary is made once for a model and shared; a grammar is the state of one answer. What a
//! client sends is bounded before ([`bounds`]) and while it is compiled ([`limits`]) by counts of work,
//! never by time: the same grammar is refused everywhere or nowhere. It is compiled on a large stack, as
//! the library recurses; masks and tokens need little, wherever they are computed.

mod bounds;
mod clone;
mod lark;
mod references;
mod schema;

use std::sync::Arc;

use llguidance::api::{GrammarWithLexer, ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{
    ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId,
};
use llguidance::{Matcher, ParserFactory};
use serde_json::Value;
use tokenizers::Tokenizer;

use crate::abi::{guard, Buffer, Bytes, Code, Failure};
use crate::stack::on_large_stack;
use crate::tokenizer::pieces::Table;

/// Tokens of an answer that are tried when a grammar is compiled.
const STEPS_WALKED: usize = 4;

/// Around what a model thinks before it answers: Gemma 4's, where both are special tokens of its
/// tokenizer, else those of most. `src/text/gemma4.h` and `reasoning.h` part the two again.
const GEMMA4: (&str, &str) = ("<|channel>", "<channel|>");
const THINK: (&str, &str) = ("<think>", "</think>");

/// What compiling a grammar and computing one mask may cost.
fn limits() -> ParserLimits {
    ParserLimits {
        initial_lexer_fuel: 1_000_000, // 20 ms
        step_lexer_fuel: 200_000,      // 15 ms
        step_max_items: 50_000,        // 3 ms
        max_lexer_states: 50_000,      // 100 MB
        max_grammar_size: 200_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// The tokens of a model as grammars see them. `Sync`.
pub struct Vocabulary {
    factory: ParserFactory,
    /// Tokens of the model; ids beyond the tokenizer's are never allowed.
    size: usize,
}

impl Vocabulary {
    fn of(tokenizer: &Tokenizer, eos: &[u32], size: usize) -> Result<Vocabulary, Failure> {
        let table = Table::of(tokenizer)?;
        let mut words = table.words();
        words.resize(words.len().max(size), Vec::new());
        for &id in eos {
            let word = words.get_mut(id as usize).ok_or_else(|| {
                Failure::corrupt(format!("end of sequence token {id} is not in the vocabulary"))
            })?;
            if word.first() != Some(&TokTrie::SPECIAL_TOKEN_MARKER) {
                word.insert(0, TokTrie::SPECIAL_TOKEN_MARKER); // An end is never text.
            }
        }
        // The library needs an end; where the model has none, one that nobody can draw.
        let ends = if eos.is_empty() { vec![words.len() as TokenId] } else { eos.to_vec() };
        if eos.is_empty() {
            words.push(Vec::new());
        }
        let info = TokRxInfo::new(words.len() as u32, ends[0]);
        let trie = TokTrie::from(&info, &words).with_eos_tokens(&ends);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory =
            ParserFactory::new_simple(&env).map_err(|error| Failure::corrupt(error.to_string()))?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(Vocabulary { factory, size })
    }

    /// A marker of thoughts: the special token that it is, or its text.
    fn marker(&self, text: &str) -> String {
        match self.factory.tok_env().tok_trie().get_special_token(text) {
            Some(_) => text.to_string(),
            None => format!("\"{text}\""),
        }
    }

    /// The grammar of the whole text: what may be thought, and then the answer.
    fn with_thought(
        &self,
        thought: u32,
        mut answer: GrammarWithLexer,
    ) -> Result<TopLevelGrammar, Failure> {
        let special = |text| self.factory.tok_env().tok_trie().get_special_token(text).is_some();
        let gemma4 = special(GEMMA4.0) && special(GEMMA4.1);
        let (opening, closing) = if gemma4 { GEMMA4 } else { THINK };
        let start = match thought {
            0 => return Ok(TopLevelGrammar::from_grammar(answer)),
            1 => format!("({} thought GAP?)? @answer", self.marker(opening)),
            2 => "thought GAP? @answer".to_string(),
            _ => return Err(Failure::invalid(format!("no thought is number {thought}"))),
        };
        let close = self.marker(closing);
        let thought = if close == closing {
            format!("thought: TEXT? {close}\nTEXT: /(?s:.)+/") // No text is a special token.
        } else {
            format!("thought[suffix={close}]: /(?s:.*)/")
        };
        let lark = format!("start: {start}\n{thought}\nGAP: /\\n{{1,2}}/\n");
        let mut whole = TopLevelGrammar::from_lark(lark);
        answer.name = Some("answer".to_string());
        whole.grammars.push(answer);
        Ok(whole)
    }

    fn compile(&self, grammar: TopLevelGrammar) -> Result<Grammar, Failure> {
        let parser = self
            .factory
            .create_parser_from_init_ext(
                llguidance::api::GrammarInit::Serialized(grammar),
                llguidance::Logger::new(0, 0),
                InferenceCapabilities::default(),
                limits(),
            )
            .map_err(of_library)?;
        let mut matcher = Matcher::new(Ok(parser));
        // A grammar that nothing satisfies shows in its first mask.
        let mask = matcher.compute_mask_or_eos().map_err(of_library)?;
        if mask.is_zero() {
            return Err(Failure::invalid("no text conforms to the grammar"));
        }
        walk(&matcher)?;
        Ok(Grammar { matcher, size: self.size })
    }
}

/// Goes the first steps of an answer, in a copy: many a grammar that costs too much, an object of very
/// many optional properties above all, does so only once an answer has begun.
fn walk(matcher: &Matcher) -> Result<(), Failure> {
    let mut copy = matcher.deep_clone();
    for _ in 0..STEPS_WALKED {
        let mask = copy.compute_mask_or_eos().map_err(of_library)?;
        let Some(token) = mask.first_bit_set() else { break };
        copy.consume_token(token as TokenId).map_err(of_library)?;
        if copy.is_stopped() {
            break;
        }
    }
    Ok(())
}

/// How far one answer has come in its grammar. Owned by one thread at a time.
pub struct Grammar {
    matcher: Matcher,
    size: usize,
}

/// An error of the library. It catches panics of its own and puts where they came from behind them.
fn of_library(error: impl ToString) -> Failure {
    let text = error.to_string();
    match text.split_once("\n<backtrace>") {
        None => Failure::invalid(text),
        Some((panic, _)) => Failure { code: Code::Panicked, message: panic.to_string() },
    }
}

/// Kinds, as thoughts above, are those of `src/spec/sampling.h`.
fn parse(kind: u32, text: &str) -> Result<GrammarWithLexer, Failure> {
    bounds::check_text(text)?;
    Ok(match kind {
        1 => {
            let mut schema: Value = serde_json::from_str(text)
                .map_err(|error| Failure::invalid(format!("not JSON: {error}")))?;
            schema::check(&schema)?;
            schema::adapt(&mut schema);
            schema::check_lower_bounds(&schema)?;
            GrammarWithLexer::from_json_schema(schema::bound_white_space(schema))
        }
        2 => GrammarWithLexer::from_regex(text),
        3 => GrammarWithLexer::from_lark(lark::prepare(text)?),
        _ => return Err(Failure::invalid(format!("no kind of grammar is number {kind}"))),
    })
}

/// Makes the vocabulary of a model of `size` tokens, of which the `eos` ones end an answer.
///
/// # Safety
/// The handle is live, `eos` readable, `out` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn heddle_text_vocabulary_open(
    tokenizer: *const Tokenizer,
    eos: *const u32,
    eos_count: usize,
    size: usize,
    out: *mut *mut Vocabulary,
    error: *mut Buffer<u8>,
) -> Code {
    guard(error, || {
        let eos = if eos_count == 0 { &[] } else { std::slice::from_raw_parts(eos, eos_count) };
        let vocabulary = Vocabulary::of(&*tokenizer, eos, size)?;
        out.write(Box::into_raw(Box::new(vocabulary)));
        Ok(())
    })
}

/// # Safety
/// `vocabulary` came from open and is not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn heddle_text_vocabulary_free(vocabulary: *mut Vocabulary) {
    drop(Box::from_raw(vocabulary));
}

/// Compiles a grammar, at its start.
///
/// # Safety
/// The handle is live, the byte range readable, `out` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn heddle_text_grammar_open(
    vocabulary: *const Vocabulary,
    kind: u32,
    text: Bytes,
    thought: u32,
    out: *mut *mut Grammar,
    error: *mut Buffer<u8>,
) -> Code {
    guard(error, || {
        let (vocabulary, text) = (&*vocabulary, text.text("the grammar")?);
        let grammar = on_large_stack(|| {
            vocabulary.compile(vocabulary.with_thought(thought, parse(kind, text)?)?)
        })?;
        out.write(Box::into_raw(Box::new(grammar)));
        Ok(())
    })
}

/// # Safety
/// `grammar` came from open and is not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn heddle_text_grammar_free(grammar: *mut Grammar) {
    drop(Box::from_raw(grammar));
}

/// Sets bit i % 32 of word i / 32 for each token i that may come next, and clears the others.
///
/// # Safety
/// The handle is live and nobody else uses it, `words` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn heddle_text_grammar_mask(
    grammar: *mut Grammar,
    words: *mut u32,
    count: usize,
    error: *mut Buffer<u8>,
) -> Code {
    guard(error, || {
        let grammar = &mut *grammar;
        let out = std::slice::from_raw_parts_mut(words, count);
        let mask = grammar.matcher.compute_mask_or_eos().map_err(of_library)?;
        out.fill(0);
        let shared = mask.as_slice().len().min(count);
        out[..shared].copy_from_slice(&mask.as_slice()[..shared]);
        let spare = grammar.size % 32;
        if let (Some(last), true) = (out.get_mut(grammar.size / 32), spare != 0) {
            *last &= (1u32 << spare) - 1;
        }
        Ok(())
    })
}

/// Takes in tokens that were drawn. One that the grammar does not allow is an error.
///
/// # Safety
/// The handle is live and nobody else uses it, `ids` readable, `error` writable.
#[no_mangle]
pub unsafe extern "C" fn heddle_text_grammar_accept(
    grammar: *mut Grammar,
    ids: *const u32,
    count: usize,
    error: *mut Buffer<u8>,
) -> Code {
    guard(error, || {
        let ids = if count == 0 { &[] } else { std::slice::from_raw_parts(ids, count) };
        (*grammar).matcher.consume_tokens(ids).map_err(of_library)
    })
}

/// Whether nothing may follow.
///
/// # Safety
/// The handle is live and nobody else uses it, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn heddle_text_grammar_ended(
    grammar: *mut Grammar,
    out: *mut bool,
    error: *mut Buffer<u8>,
) -> Code {
    guard(error, || {
        out.write((*grammar).matcher.is_stopped());
        Ok(())
    })
}
