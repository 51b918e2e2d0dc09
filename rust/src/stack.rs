//! A large stack for what recurses as deep as its input says.

use crate::abi::{caught, Code, Failure};

/// Bytes; the kernel gives what is touched only.
const STACK_BYTES: usize = 128 << 20;

/// Runs `body` on a thread of its own with a large stack, and waits for it.
pub fn on_large_stack<T: Send>(
    body: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("large stack".to_string())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || caught(body))
            .map_err(|error| Failure {
                code: Code::Unavailable,
                message: format!("start a thread: {error}"),
            })?
            .join()
            .unwrap_or_else(|_| Err(Failure::corrupt("a thread ended with a panic")))
    })
}
