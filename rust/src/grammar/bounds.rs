//! The static bounds of grammars: what is refused before anything recurses or multiplies. Fuel
//! ([`super::limits`]) bounds what is computed afterwards.

use super::references::Extent;
use crate::abi::Failure;

/// Bytes of a grammar as the client wrote it.
pub const TEXT_MAX: usize = 256 << 10;
/// Brackets open at once.
pub const BRACKETS_MAX: usize = 100;
/// Levels of nesting through references, rules and terminals. A level takes up to 10 KiB of stack.
pub const DEPTH_MAX: usize = 1000;
/// Properties of one object and entries of a list: what they cost grows with the square.
pub const PROPERTIES_MAX: usize = 2000;
/// Rules and terminals together.
pub const DEFINITIONS_MAX: usize = 5000;
/// Parts of a schema, with those that the library copies to where they are referred to.
const SIZE_MAX: usize = 200_000;

/// The deepest nesting of brackets, wherever they stand.
fn brackets(text: &str) -> usize {
    let (mut now, mut most) = (0usize, 0usize);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => {
                now += 1;
                most = most.max(now);
            }
            b')' | b']' | b'}' => now = now.saturating_sub(1),
            _ => {}
        }
    }
    most
}

/// Refuses a text that is too long or too nested to be parsed.
pub fn check_text(text: &str) -> Result<(), Failure> {
    if text.len() > TEXT_MAX {
        return Err(Failure::invalid(format!(
            "a grammar of {} bytes; the limit is {TEXT_MAX}",
            text.len()
        )));
    }
    if brackets(text) > BRACKETS_MAX {
        return Err(Failure::invalid(format!(
            "brackets nested deeper than {BRACKETS_MAX}, which is the limit"
        )));
    }
    Ok(())
}

pub fn check_size(parts: usize) -> Result<(), Failure> {
    if parts > SIZE_MAX {
        return Err(Failure::invalid(format!(
            "its references come to more than {SIZE_MAX} parts, which is the limit"
        )));
    }
    Ok(())
}

pub fn check_extent(extent: &Extent) -> Result<(), Failure> {
    if extent.depth > DEPTH_MAX {
        return Err(Failure::invalid(format!(
            "references lead {} levels deep; the limit is {DEPTH_MAX}",
            extent.depth
        )));
    }
    check_size(extent.size)
}
