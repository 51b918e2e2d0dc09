//! What a template may use. Jinja has no endless loop, but nested ranges, doubling strings and
//! padded formats come close, and minijinja's fuel counts instructions, not bytes. So the compiled
//! instructions are metered: every value made by an operator, a filter, a call, a capture or a loop
//! step passes through [`charge`], which bounds single values, their sum, and processor time.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::Write;

use minijinja::machinery::{CompiledTemplate, Instruction, Instructions};
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

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
/// Lists, maps and namespaces written in the template that one rendering may make. They are the
/// way to nest values, and dropping or printing a nested value takes stack for each level.
const CONTAINERS_MAX: usize = 10_000;
/// Processor time of one rendering; a thousand messages take some milliseconds.
const CPU_NANOSECONDS_MAX: u64 = 100_000_000;
/// The processor clock is read after this much charging, as reading it costs more than charging.
const CLOCK_EVERY: usize = 1 << 16;
/// What a charge counts towards CLOCK_EVERY at least.
const CHARGE_MIN: usize = 1 << 10;
/// Largest count a filter may be given (width of an indent, size of a batch).
const COUNT_MAX: i64 = 10_000;

/// Names of the metering filters; no template can spell them.
pub const CHARGE: &str = "=charge";
pub const CHARGE_CONTAINER: &str = "=container";

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

/// Counts `bytes` of work and of memory.
pub fn spend(bytes: usize) -> Result<(), Error> {
    let mut meter = METER.get();
    if bytes > STRING_BYTES_MAX {
        return Err(exceeded(format!("makes a string of more than {STRING_BYTES_MAX} bytes")));
    }
    meter.produced += bytes;
    if meter.produced > PRODUCED_BYTES_MAX {
        return Err(exceeded(format!("makes more than {PRODUCED_BYTES_MAX} bytes of values")));
    }
    let work = bytes.max(CHARGE_MIN);
    if meter.until_clock > work {
        meter.until_clock -= work;
    } else {
        meter.until_clock = CLOCK_EVERY;
        if cpu_nanoseconds() - meter.cpu_start > CPU_NANOSECONDS_MAX {
            let milliseconds = CPU_NANOSECONDS_MAX / 1_000_000;
            return Err(exceeded(format!("runs for more than {milliseconds} ms")));
        }
    }
    METER.set(meter);
    Ok(())
}

/// Passes `value` on if it, and the sum of what was made, is within bounds.
pub fn charge(value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => spend(value.as_str().map_or(0, str::len))?,
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => {
            let elements = value.len().unwrap_or(0);
            if elements > ELEMENTS_MAX {
                return Err(exceeded(format!(
                    "makes a sequence of more than {ELEMENTS_MAX} elements"
                )));
            }
            spend(elements * ELEMENT_BYTES)?;
        }
        _ => spend(0)?,
    }
    Ok(value)
}

/// [`charge`] for a container written in the template.
pub fn charge_container(value: Value) -> Result<Value, Error> {
    let mut meter = METER.get();
    meter.containers += 1;
    METER.set(meter);
    if meter.containers > CONTAINERS_MAX {
        return Err(exceeded(format!("makes more than {CONTAINERS_MAX} lists and mappings")));
    }
    charge(value)
}

/// Refuses counts among a filter's arguments that would make it fill memory before [`charge`]
/// sees the result.
pub fn check_counts(arguments: &[Value]) -> Result<(), Error> {
    for argument in arguments {
        if i64::try_from(argument.clone()).is_ok_and(|count| count > COUNT_MAX) {
            return Err(exceeded(format!(
                "uses {argument} as a size; at most {COUNT_MAX} is allowed"
            )));
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
        self.write_str(text).map_err(|_| self.overflow())
    }

    /// Appends what Jinja prints for `value`.
    pub fn print(&mut self, value: &Value) -> Result<(), Error> {
        let written = match value.as_str() {
            Some(text) => self.write_str(text),
            None => write!(self, "{value}"),
        };
        written.map_err(|_| self.overflow())
    }

    pub fn finish(self) -> Result<String, Error> {
        Ok(self.0)
    }

    fn overflow(&self) -> Error {
        exceeded(format!("makes a string of more than {STRING_BYTES_MAX} bytes"))
    }
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if self.0.len() + text.len() > STRING_BYTES_MAX {
            return Err(std::fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Puts the charges into a compiled template.
pub fn meter(template: &mut CompiledTemplate<'_>) {
    meter_instructions(&mut template.instructions);
    template.blocks.values_mut().for_each(meter_instructions);
}

/// Raw text becomes a constant that is printed, so that the formatter charges it like any other
/// output; after every instruction that leaves a new value on the stack comes a charge.
fn meter_instructions(instructions: &mut Instructions<'_>) {
    let count = (0..).take_while(|at| instructions.get(*at).is_some()).count() as u32;
    let mut metered = Instructions::new(instructions.name(), instructions.source());
    let mut moved_to = Vec::with_capacity(count as usize + 1);
    for at in 0..count {
        let Some(instruction) = instructions.get(at).cloned() else { break };
        let charge = charge_after(&instruction);
        let replacement = match instruction {
            Instruction::EmitRaw(text) => {
                vec![Instruction::LoadConst(text.into()), Instruction::Emit]
            }
            other => vec![other],
        };
        let charge = charge.map(|name| Instruction::ApplyFilter(name, Some(1), !0));
        let mut first = None;
        for instruction in replacement.into_iter().chain(charge) {
            let new_at = match (instructions.get_span(at), instructions.get_line(at)) {
                (Some(span), _) => metered.add_with_span(instruction, span),
                (None, line) => metered.add_with_line(instruction, line.unwrap_or(0) as u16),
            };
            first.get_or_insert(new_at);
        }
        moved_to.push(first.unwrap_or(0));
    }
    let end = moved_to
        .last()
        .map_or(0, |_| (0..).take_while(|at| metered.get(*at).is_some()).count() as u32);
    moved_to.push(end);
    for at in 0..end {
        if let Some(target) = metered.get_mut(at).and_then(jump_target) {
            *target = moved_to[*target as usize];
        }
    }
    *instructions = metered;
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
        Instruction::Add
        | Instruction::Mul
        | Instruction::StringConcat
        | Instruction::Slice
        | Instruction::In
        | Instruction::Eq
        | Instruction::Ne
        | Instruction::ApplyFilter(..)
        | Instruction::PerformTest(..)
        | Instruction::CallFunction(..)
        | Instruction::CallMethod(..)
        | Instruction::CallObject(..)
        | Instruction::EndCapture
        | Instruction::Iterate(..) => Some(CHARGE),
        Instruction::BuildList(..) | Instruction::BuildTuple(..) | Instruction::BuildMap(..) => {
            Some(CHARGE_CONTAINER)
        }
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
    Ok(Cow::Owned(out.finish()?))
}
