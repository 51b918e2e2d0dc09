//! Chat templates: Jinja source compiled once, rendered with the messages of a request, as
//! transformers' apply_chat_template does.

mod generation;
mod json;
mod limits;
mod python;
mod repr;

use std::collections::BTreeMap;
use std::ptr::NonNull;

use minijinja::machinery::{eval, make_string_output, CompiledTemplate, TemplateConfig};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, Value};
use serde_json::{Map, Value as Json};

use crate::abi::{guard, Buffer, Bytes, Code, Failure};
use crate::stack::on_large_stack;

/// Name in the context of the time that strftime_now tells, in seconds since 1970; no template can
/// spell it.
const NOW: &str = "=now";
/// Names under which clients send what a model thought, in order of preference; templates read the
/// first of them, gpt-oss the second.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// A compiled template, with the source that it borrows from.
pub struct Template {
    // Before `source`: dropped first.
    compiled: CompiledTemplate<'static>,
    environment: Environment<'static>,
    /// What the template sees under names that the request does not give: bos_token and such.
    defaults: Map<String, Json>,
    source: NonNull<str>,
}

// SAFETY: `source` is owned, immutable text; all else is Send and Sync already.
unsafe impl Send for Template {}
unsafe impl Sync for Template {}

/// Bytes of a template; those in use have some 20 KiB.
const SOURCE_MAX: usize = 256 << 10;

impl Drop for Template {
    fn drop(&mut self) {
        // The instructions point into the source, so they go first.
        self.compiled.instructions = minijinja::machinery::Instructions::new("", "");
        self.compiled.blocks = BTreeMap::new();
        // SAFETY: made by Box::leak in `compile`, and nothing points to it any more.
        drop(unsafe { Box::from_raw(self.source.as_ptr()) });
    }
}

impl Template {
    fn compile(source: &str, defaults: &[u8]) -> Result<Template, Failure> {
        if source.len() > SOURCE_MAX {
            return Err(Failure::corrupt(format!(
                "a template of {} bytes; the limit is {SOURCE_MAX}",
                source.len()
            )));
        }
        let defaults = object("template defaults", defaults)?;
        let source: &'static mut str =
            Box::leak(generation::replace_generation_blocks(source).into_owned().into_boxed_str());
        let owned = NonNull::from(&mut *source);
        let source: &'static str = source;
        let config = TemplateConfig {
            syntax_config: SyntaxConfig::builder()
                .trim_blocks(true)
                .lstrip_blocks(true)
                .build()
                .map_err(Failure::corrupt)?,
            default_auto_escape: std::sync::Arc::new(|_| AutoEscape::None),
        };
        // A chain of operators is parsed, and compiled, as deep as it is long.
        let compiled = on_large_stack(|| {
            CompiledTemplate::new("chat template", source, &config)
                .map_err(|error| Failure::corrupt(described(&error)))
        });
        let mut compiled = compiled.map_err(|failure| {
            // SAFETY: nothing was made that points to the source.
            drop(unsafe { Box::from_raw(owned.as_ptr()) });
            failure
        })?;
        limits::meter(&mut compiled);
        let mut environment = Environment::new();
        environment.set_fuel(Some(limits::FUEL));
        environment.set_recursion_limit(limits::RECURSION_MAX);
        python::install(&mut environment);
        Ok(Template { compiled, environment, defaults, source: owned })
    }

    fn render(&self, arguments: &Arguments<'_>) -> Result<String, Failure> {
        let root = arguments.context(&self.defaults)?;
        let mut text = String::new();
        limits::start();
        let mut out = make_string_output(&mut text);
        let Template { compiled, environment, .. } = self;
        eval(
            environment,
            &compiled.instructions,
            root,
            &compiled.blocks,
            &mut out,
            AutoEscape::None,
        )
        .map_err(|error| Failure::invalid(described(&error)))?;
        drop(out);
        Ok(text)
    }
}

/// One line: where, and what.
fn described(error: &Error) -> String {
    let mut text = String::from("chat template");
    if let Some(line) = error.line() {
        text += &format!(", line {line}");
    }
    let detail = error.detail().unwrap_or_default();
    match detail.strip_prefix(python::RAISED) {
        Some(message) => text += &format!(": {message}"),
        None if error.kind() == minijinja::ErrorKind::OutOfFuel && !detail.is_empty() => {
            text += &format!(": limit exceeded: {detail}");
        }
        None if error.kind() == minijinja::ErrorKind::OutOfFuel => {
            text +=
                &format!(": limit exceeded: the template takes more than {} steps", limits::FUEL);
        }
        None if detail.is_empty() => text += &format!(": {}", error.kind()),
        None => text += &format!(": {}: {detail}", error.kind()),
    }
    if let Some(cause) = std::error::Error::source(error) {
        text += &format!(": {cause}");
    }
    text
}

fn json(what: &str, text: &[u8]) -> Result<Json, Failure> {
    serde_json::from_slice(text).map_err(|error| Failure::invalid(format!("{what}: {error}")))
}

/// The object that `text` is; none is written as nothing at all.
fn object(what: &str, text: &[u8]) -> Result<Map<String, Json>, Failure> {
    match text {
        [] => Ok(Map::new()),
        _ => match json(what, text)? {
            Json::Object(map) => Ok(map),
            _ => Err(Failure::invalid(format!("{what}: expected an object"))),
        },
    }
}

/// What a rendering is made from.
struct Arguments<'a> {
    messages: &'a [u8],
    tools: &'a [u8],
    variables: &'a [u8],
    add_generation_prompt: bool,
    now: i64,
}

impl Arguments<'_> {
    /// What the template sees: the named arguments of apply_chat_template, then the variables.
    fn context(&self, defaults: &Map<String, Json>) -> Result<Value, Failure> {
        let Json::Array(mut messages) = json("messages", self.messages)? else {
            return Err(Failure::invalid("messages: expected an array of objects"));
        };
        for (at, message) in messages.iter_mut().enumerate() {
            let Json::Object(message) = message else {
                return Err(Failure::invalid(format!("messages[{at}]: expected an object")));
            };
            name_reasoning(message);
        }
        let tools = if self.tools.is_empty() { Json::Null } else { json("tools", self.tools)? };
        let mut root = defaults.clone();
        root.insert("documents".into(), Json::Null);
        for (name, value) in object("template variables", self.variables)? {
            if matches!(name.as_str(), "messages" | "tools" | "add_generation_prompt") {
                let message = format!("template variables: {name:?} is already an argument");
                return Err(Failure::invalid(message));
            }
            root.insert(name, value);
        }
        root.insert("messages".into(), Json::Array(messages));
        root.insert("tools".into(), tools);
        root.insert("add_generation_prompt".into(), Json::Bool(self.add_generation_prompt));
        if self.now >= 0 {
            root.insert(NOW.into(), self.now.into());
        }
        Ok(Value::from(Serde(Json::Object(root))))
    }
}

/// Gives reasoning sent under any of its names the names that templates read.
fn name_reasoning(message: &mut Map<String, Json>) {
    let found =
        REASONING.iter().find_map(|name| message.get(*name).filter(|value| !value.is_null()));
    let Some(reasoning) = found.cloned() else { return };
    if !message.contains_key("thinking") {
        message.shift_insert(0, "thinking".into(), reasoning.clone());
    }
    message.insert("reasoning_content".into(), reasoning);
}

/// # Safety
/// The byte range is readable, `out` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn heddle_text_template_compile(
    source: Bytes,
    defaults: Bytes,
    out: *mut *mut Template,
    error: *mut Buffer<u8>,
) -> Code {
    guard(error, || {
        let source = source.text("chat template")?;
        out.write(Box::into_raw(Box::new(Template::compile(source, defaults.get())?)));
        Ok(())
    })
}

/// # Safety
/// `template` came from compile and is not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn heddle_text_template_free(template: *mut Template) {
    drop(Box::from_raw(template));
}

/// [`Arguments`] as C lends them. Shared with `src/text/rust_abi.h`.
#[repr(C)]
pub struct RenderArguments {
    /// JSON array of objects.
    messages: Bytes,
    /// JSON, or empty for none.
    tools: Bytes,
    /// JSON object of further names, or empty.
    variables: Bytes,
    /// Seconds since 1970 that strftime_now tells; below 0 for the clock's.
    now: i64,
    add_generation_prompt: bool,
}

/// # Safety
/// The handle is live, `arguments` readable, `out` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn heddle_text_template_render(
    template: *const Template,
    arguments: *const RenderArguments,
    out: *mut Buffer<u8>,
    error: *mut Buffer<u8>,
) -> Code {
    guard(error, || {
        let given = &*arguments;
        let arguments = Arguments {
            messages: given.messages.get(),
            tools: given.tools.get(),
            variables: given.variables.get(),
            add_generation_prompt: given.add_generation_prompt,
            now: given.now,
        };
        out.write((*template).render(&arguments)?.into());
        Ok(())
    })
}
