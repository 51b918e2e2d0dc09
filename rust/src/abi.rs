//! The border with C: codes, buffers, and the guard every exported function runs in.

use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

/// Status of a call. Values are shared with `src/text/rust_abi.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    Ok = 0,
    /// The arguments of this call are wrong: not UTF-8, not JSON, refused by the template.
    InvalidArgument = 1,
    /// What the handle was to be made from is broken.
    Corrupt = 2,
    /// A panic in a library below, reported instead of unwinding into C.
    Panicked = 3,
    /// The machine has no room for it: no further thread, ...
    Unavailable = 4,
}

/// Why a call failed.
#[derive(Debug)]
pub struct Failure {
    pub code: Code,
    pub message: String,
}

impl Failure {
    pub fn invalid(message: impl ToString) -> Failure {
        Failure { code: Code::InvalidArgument, message: message.to_string() }
    }

    pub fn corrupt(message: impl ToString) -> Failure {
        Failure { code: Code::Corrupt, message: message.to_string() }
    }
}

/// Memory handed to C, given back through the `heddle_text_free_*` of its element type.
#[repr(C)]
pub struct Buffer<T> {
    data: *mut T,
    len: usize,
    capacity: usize,
}

impl<T> Buffer<T> {
    /// # Safety
    /// `self` came from [`Buffer::from`] and is not used afterwards.
    unsafe fn free(&self) {
        if !self.data.is_null() {
            drop(Vec::from_raw_parts(self.data, self.len, self.capacity));
        }
    }
}

impl<T> From<Vec<T>> for Buffer<T> {
    fn from(values: Vec<T>) -> Buffer<T> {
        let mut values = std::mem::ManuallyDrop::new(values);
        Buffer { data: values.as_mut_ptr(), len: values.len(), capacity: values.capacity() }
    }
}

impl From<String> for Buffer<u8> {
    fn from(text: String) -> Buffer<u8> {
        text.into_bytes().into()
    }
}

/// Bytes lent by C for the length of one call.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Bytes {
    data: *const u8,
    len: usize,
}

impl Bytes {
    /// # Safety
    /// `data` points to `len` readable bytes that outlive `'a`, or `len` is 0.
    pub unsafe fn get<'a>(self) -> &'a [u8] {
        if self.len == 0 {
            &[]
        } else {
            std::slice::from_raw_parts(self.data, self.len)
        }
    }

    /// The bytes as text; `what` names them in the error.
    ///
    /// # Safety
    /// As for [`Bytes::get`].
    pub unsafe fn text<'a>(self, what: &str) -> Result<&'a str, Failure> {
        std::str::from_utf8(self.get()).map_err(|error| {
            Failure::invalid(format!(
                "{what} is not UTF-8: bad byte at offset {}",
                error.valid_up_to()
            ))
        })
    }
}

thread_local! {
    /// Message of the panic being caught on this thread; Some while a guard is active.
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps panics under a guard off stderr: they become the error of the call.
fn install_panic_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let outer = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let guarded = CAUGHT.with(|caught| match caught.borrow_mut().as_mut() {
                Some(message) => {
                    *message = info.to_string();
                    true
                }
                None => false,
            });
            if !guarded {
                outer(info);
            }
        }));
    });
}

/// Runs `body`; a panic in it becomes a failure.
pub fn caught<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    install_panic_hook();
    CAUGHT.with(|caught| *caught.borrow_mut() = Some(String::new()));
    let outcome = catch_unwind(AssertUnwindSafe(body));
    let panic = CAUGHT.with(|caught| caught.borrow_mut().take()).unwrap_or_default();
    outcome.unwrap_or_else(|payload| {
        // A destructor that panics must not unwind into C either.
        std::mem::forget(catch_unwind(AssertUnwindSafe(|| drop(payload))));
        Err(Failure { code: Code::Panicked, message: panic })
    })
}

/// Runs `body`, turning failures and panics into a code and a message in `error`.
///
/// # Safety
/// `error` points to a writable buffer that holds nothing.
pub unsafe fn guard(error: *mut Buffer<u8>, body: impl FnOnce() -> Result<(), Failure>) -> Code {
    match caught(body) {
        Ok(()) => Code::Ok,
        Err(failure) => {
            error.write(failure.message.into());
            failure.code
        }
    }
}

/// # Safety
/// `buffer` came from this library and is not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn heddle_text_free_bytes(buffer: Buffer<u8>) {
    buffer.free();
}

/// # Safety
/// `buffer` came from this library and is not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn heddle_text_free_ids(buffer: Buffer<u32>) {
    buffer.free();
}
