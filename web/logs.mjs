/** The server's log, while somebody looks at it. */

import { call, pieces } from "./server.mjs";

const KEPT = 200_000;

/** Follows the log while `details` is open. */
export function serve(details, complain) {
  const text = details.querySelector("pre");
  let stop = null;
  details.addEventListener("toggle", async () => {
    stop?.abort();
    if (!details.open) {
      return;
    }
    stop = new AbortController();
    const { signal } = stop;
    text.textContent = "";
    try {
      for await (const piece of pieces(await call("logs/stream", { signal }))) {
        const at_end = text.scrollTop + text.clientHeight >= text.scrollHeight - 8;
        text.textContent = (text.textContent + piece).slice(-KEPT);
        if (at_end) {
          text.scrollTop = text.scrollHeight;
        }
      }
    } catch (error) {
      if (!signal.aborted) {
        text.textContent = error.message;
        complain(error);
      }
    }
  });
}
