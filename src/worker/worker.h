#pragma once

namespace heddle::worker {

/// `heddle worker --fd N`: acts for one device, as told over the Unix socket `fd` by the process
/// that started it, until that says so or goes away. Ends the process; never returns.
[[noreturn]] void run(int fd);

}  // namespace heddle::worker
