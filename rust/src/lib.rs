//! What heddle takes from the Rust world for text: Hugging Face tokenizers and Jinja chat
//! templates, as one static library so that one copy of Rust's standard library is linked.
//!
//! The C side is `src/text/rust_abi.h`. Rules of the border:
//! * every call goes through [`abi::guard`]: it returns a code, never unwinds and never aborts on
//!   bad input;
//! * text that comes in is checked to be UTF-8, text that goes out always is;
//! * handles are immutable and `Sync`; results are owned by the caller, never kept in a handle.

mod abi;
mod template;
mod tokenizer;
