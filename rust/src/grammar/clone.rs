//! A grammar at its start once more, without compiling it again.

use super::Grammar;
use crate::abi::{guard, Buffer, Code};

/// Makes another grammar that stands where `grammar` does and shares nothing with it.
///
/// # Safety
/// The handle is live and nobody else uses it, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn heddle_text_grammar_clone(
    grammar: *const Grammar,
    out: *mut *mut Grammar,
    error: *mut Buffer<u8>,
) -> Code {
    guard(error, || {
        let Grammar { matcher, size } = &*grammar;
        let copy = Grammar { matcher: matcher.deep_clone(), size: *size };
        out.write(Box::into_raw(Box::new(copy)));
        Ok(())
    })
}
