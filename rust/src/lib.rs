//! What heddle takes from the Rust world for text: Hugging Face tokenizers, Jinja chat templates and
//! llguidance's grammars, as one static library so that one copy of Rust's standard library is linked.
//!
//! The C side is `src/text/rust_abi.h`. Rules of the border:
//! * every call goes through [`abi::guard`]: it returns a code and never unwinds;
//! * text that comes in is checked to be UTF-8, text that goes out always is;
//! * handles are immutable and `Sync`, but for a grammar, which is one answer's state and belongs to
//!   one thread at a time; results are owned by the caller, never kept in a handle.

mod abi;
mod grammar;
mod stack;
mod template;
mod tokenizer;
