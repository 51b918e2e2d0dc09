//! What a template may use. Jinja has no endless loop, but nested ranges, doubling strings and
//! padded formats come close, and minijinja's fuel counts instructions, not bytes. So the compiled
//! instructions are metered: every value made by an operator, a filter, a call, a capture or a loop
//! step passes through [`charge`], which bounds single values, their sum, and processor time.

use std::borrow::Cow;
use std::cell::Cell;

use minijinja::machinery::{CompiledTemplate, Instruction, Instructions};
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::repr::{float_repr, string_repr};

/// Instructions of one rendering; a long agent's chat takes some 100,000.
pub const FUEL: u64 = 4_000_000;
/// Macro calls and nested loops.
pub const RECURSION_MAX: usize = 200;
/// Bytes of one string, the rendered prompt included.
const STRING_BYTES_MAX: usize = 32 << 20;
/// Elements of one sequence or mapping.
const ELEMENTS_MAX: usize = 200_000;
/// Bytes of all values made in one rendering; what bounds the memory it can hold.
const PRODUCED_BYTES_MAX: usize = 256 << 20;
/// What one element of a sequence is counted as.
const ELEMENT_BYTES: usize = 32;
/// Sequences and mappings that one rendering may make. Each can nest the one before, and dropping
/// or comparing nested values takes stack for every level.
const CONTAINERS_MAX: usize = 20_000;
/// Levels of nesting that are printed.
const PRINT_DEPTH_MAX: usize = 128;
/// Processor time of one rendering; a thousand messages take some milliseconds.
const CPU_NANOSECONDS_MAX: u64 = 100_000_000;
/// The processor clock is read after this much charging, as reading it costs more than charging.
const CLOCK_EVERY: usize = 1 << 16;
/// What a charge counts towards CLOCK_EVERY at least.
const CHARGE_MIN: usize = 1 << 10;
/// Largest count a filter may be given (width of an indent, size of a batch).
const COUNT_MAX: i64 = 10_000;

/// Names of filters that only [`meter`] applies; no template can spell them.
pub const CHARGE: &str = "=charge";
pub const CHARGE_STEP: &str = "=step";
pub const CONCAT: &str = "=concat";
pub const REMAINDER: &str = "=remainder";

#[derive(Clone, Copy, Default)]
struct Meter {
    produced: usize,
    containers: usize,
    until_clock: usize,
    cpu_start: u64,
}

thread_local! {
    /// Of the rendering that this thread is in.
    static METER: Cell<Meter> = const { Cell::new(Meter { produced: 0, containers: 0, until_clock: 0, cpu_start: 0 }) };
}

/// Starts the count for a rendering on this thread.
pub fn start() {
    let cpu_start = cpu_nanoseconds();
    METER.set(Meter { until_clock: CLOCK_EVERY, cpu_start, ..Meter::default() });
}

/// Counts `bytes` made, and the work of making them.
pub fn spend(bytes: usize) -> Result<(), Error> {
    if bytes > STRING_BYTES_MAX {
        return Err(exceeded(format!("makes a string of more than {STRING_BYTES_MAX} bytes")));
    }
    let mut meter = METER.get();
    meter.produced += bytes;
    METER.set(meter);
    if meter.produced > PRODUCED_BYTES_MAX {
        return Err(exceeded(format!("makes more than {PRODUCED_BYTES_MAX} bytes of values")));
    }
    work(bytes)
}

/// Counts work on `bytes`, and looks at the clock when enough of it came together.
fn work(bytes: usize) -> Result<(), Error> {
    let mut meter = METER.get();
    let left = meter.until_clock.saturating_sub(bytes.max(CHARGE_MIN));
    meter.until_clock = if left == 0 { CLOCK_EVERY } else { left };
    METER.set(meter);
    if left == 0 && cpu_nanoseconds() - meter.cpu_start > CPU_NANOSECONDS_MAX {
        let milliseconds = CPU_NANOSECONDS_MAX / 1_000_000;
        return Err(exceeded(format!("runs for more than {milliseconds} ms")));
    }
    Ok(())
}

/// Passes a new value on if it, and the sum of what was made, is within bounds.
pub fn charge(value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => spend(value.as_str().map_or(0, str::len))?,
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => {
            let elements = value.len().unwrap_or(0);
            if elements > ELEMENTS_MAX {
                let what = format!("makes a sequence of more than {ELEMENTS_MAX} elements");
                return Err(exceeded(what));
            }
            let mut meter = METER.get();
            meter.containers += 1;
            METER.set(meter);
            if meter.containers > CONTAINERS_MAX {
                let what = format!("makes more than {CONTAINERS_MAX} lists and mappings");
                return Err(exceeded(what));
            }
            spend(elements * ELEMENT_BYTES)?;
        }
        _ => spend(0)?,
    }
    Ok(value)
}

/// Passes on a value that was there before, counting only the step.
pub fn charge_step(value: Value) -> Result<Value, Error> {
    work(0)?;
    Ok(value)
}

/// Refuses counts among a filter's arguments that would make it fill memory before [`charge`]
/// sees the result.
pub fn check_counts(arguments: &[Value]) -> Result<(), Error> {
    for argument in arguments {
        if let Ok(kwargs) = Kwargs::try_from(argument.clone()) {
            let named: Vec<Value> =
                kwargs.args().filter_map(|name| kwargs.peek(name).ok()).collect();
            check_counts(&named)?;
        }
        if i64::try_from(argument.clone()).is_ok_and(|count| count > COUNT_MAX) {
            let what = format!("uses {argument} as a size; at most {COUNT_MAX} is allowed");
            return Err(exceeded(what));
        }
    }
    Ok(())
}

/// [`check_counts`] for the widths and precisions spelled in a format string.
pub fn check_format(format: &str) -> Result<(), Error> {
    let widths = format.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let over = |digits: &str| digits.parse::<i64>().map_or(true, |count| count > COUNT_MAX);
    match widths.into_iter().find(|digits| over(digits)) {
        Some(digits) => {
            Err(exceeded(format!("formats with width {digits}; at most {COUNT_MAX} is allowed")))
        }
        None => Ok(()),
    }
}

pub fn exceeded(what: String) -> Error {
    Error::new(ErrorKind::OutOfFuel, format!("the template {what}"))
}

/// A string that grows no further than a string may.
#[derive(Default)]
pub struct Bounded(String);

impl Bounded {
    pub fn push(&mut self, text: &str) -> Result<(), Error> {
        work(text.len())?;
        if self.0.len() + text.len() > STRING_BYTES_MAX {
            let what = format!("makes a string of more than {STRING_BYTES_MAX} bytes");
            return Err(exceeded(what));
        }
        self.0.push_str(text);
        Ok(())
    }

    /// Appends what Python's str() gives for `value`.
    pub fn print(&mut self, value: &Value) -> Result<(), Error> {
        match value.as_str() {
            Some(text) => self.push(text),
            None => self.repr(value, 0),
        }
    }

    /// Appends what Python's repr() gives for `value`.
    fn repr(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > PRINT_DEPTH_MAX {
            return Err(exceeded(format!("prints a value nested deeper than {PRINT_DEPTH_MAX}")));
        }
        match value.kind() {
            ValueKind::String => self.push(&string_repr(value.as_str().unwrap_or_default())),
            ValueKind::Number if !value.is_integer() => {
                self.push(&float_repr(f64::try_from(value.clone())?))
            }
            ValueKind::Seq | ValueKind::Iterable if value.is_tuple() => {
                let end = if value.len() == Some(1) { ",)" } else { ")" };
                self.repr_items(value, depth, ["(", end])
            }
            ValueKind::Seq | ValueKind::Iterable => self.repr_items(value, depth, ["[", "]"]),
            ValueKind::Map => self.repr_map(value, depth),
            _ => self.push(&value.to_string()),
        }
    }

    fn repr_items(&mut self, value: &Value, depth: usize, ends: [&str; 2]) -> Result<(), Error> {
        self.push(ends[0])?;
        for (at, item) in value.try_iter()?.checked().enumerate() {
            self.push(if at > 0 { ", " } else { "" })?;
            self.repr(&item?, depth + 1)?;
        }
        self.push(ends[1])
    }

    fn repr_map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.push("{")?;
        for (at, key) in value.try_iter()?.checked().enumerate() {
            let key = key?;
            self.push(if at > 0 { ", " } else { "" })?;
            self.repr(&key, depth + 1)?;
            self.push(": ")?;
            self.repr(&value.get_item(&key)?, depth + 1)?;
        }
        self.push("}")
    }

    pub fn finish(self) -> String {
        self.0
    }
}

/// Puts the charges into a compiled template.
pub fn meter(template: &mut CompiledTemplate<'_>) {
    meter_instructions(&mut template.instructions);
    template.blocks.values_mut().for_each(meter_instructions);
}

/// Raw text becomes a constant that is printed, so that the formatter charges it like any other
/// output; operators on strings become the filters of python.rs; after every instruction that
/// leaves a new value on the stack comes a charge.
fn meter_instructions(instructions: &mut Instructions<'_>) {
    let mut metered = Instructions::new(instructions.name(), instructions.source());
    let mut moved_to = Vec::new();
    let mut end = 0;
    for at in 0.. {
        moved_to.push(end);
        let Some(instruction) = instructions.get(at) else { break };
        let line = instructions.get_line(at).unwrap_or(0) as u16;
        for instruction in replacement(instruction.clone()) {
            end = 1 + match instructions.get_span(at) {
                Some(span) => metered.add_with_span(instruction, span),
                None => metered.add_with_line(instruction, line),
            };
        }
    }
    for at in 0..end {
        if let Some(target) = metered.get_mut(at).and_then(jump_target) {
            *target = moved_to[*target as usize];
        }
    }
    *instructions = metered;
}

fn replacement(instruction: Instruction<'_>) -> Vec<Instruction<'_>> {
    let apply = |name, arguments| Instruction::ApplyFilter(name, Some(arguments), !0);
    let charge = charge_after(&instruction).map(|name| apply(name, 1));
    let mut replacement = match instruction {
        Instruction::EmitRaw(text) => vec![Instruction::LoadConst(text.into()), Instruction::Emit],
        Instruction::StringConcat => vec![apply(CONCAT, 2)],
        Instruction::Rem => vec![apply(REMAINDER, 2)],
        other => vec![other],
    };
    replacement.extend(charge);
    replacement
}

/// The instruction index inside of `instruction`, if it has one.
fn jump_target<'i>(instruction: &'i mut Instruction<'_>) -> Option<&'i mut u32> {
    match instruction {
        Instruction::Iterate(target)
        | Instruction::Jump(target)
        | Instruction::JumpIfFalse(target)
        | Instruction::JumpIfFalseOrPop(target)
        | Instruction::JumpIfTrueOrPop(target)
        | Instruction::BuildMacro(_, target, _) => Some(target),
        _ => None,
    }
}

/// The charge that a value newly on the stack needs.
fn charge_after(instruction: &Instruction<'_>) -> Option<&'static str> {
    match instruction {
        Instruction::LoadConst(value)
            if value.as_str().is_some_and(|text| text.len() > CLOCK_EVERY) =>
        {
            Some(CHARGE)
        }
        Instruction::Add
        | Instruction::Mul
        | Instruction::Rem
        | Instruction::StringConcat
        | Instruction::Slice
        | Instruction::BuildList(..)
        | Instruction::BuildTuple(..)
        | Instruction::BuildMap(..)
        | Instruction::ApplyFilter(..)
        | Instruction::CallFunction(..)
        | Instruction::CallMethod(..)
        | Instruction::CallObject(..)
        | Instruction::EndCapture => Some(CHARGE),
        Instruction::In
        | Instruction::Eq
        | Instruction::Ne
        | Instruction::PerformTest(..)
        | Instruction::Iterate(..) => Some(CHARGE_STEP),
        _ => None,
    }
}

/// Processor time of this thread, in nanoseconds.
fn cpu_nanoseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Text of a value as Jinja prints it.
pub fn printed(value: &Value) -> Result<Cow<'_, str>, Error> {
    if let Some(text) = value.as_str() {
        return Ok(Cow::Borrowed(text));
    }
    let mut out = Bounded::default();
    out.print(value)?;
    Ok(Cow::Owned(out.finish()))
}
