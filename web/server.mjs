/** The server behind the page. Its key, where it wants one, is kept as long as the tab. */

const KEY = "heddle-api-key";

/** It wants a key, or another one. */
export class KeyWanted extends Error {}

export function setKey(key) {
  sessionStorage.setItem(KEY, key);
}

/** `fetch`, with the key; an answer that is an error is thrown, in the server's words. Paths are relative to the page's
 * folder, so that the page works under any prefix. */
export async function call(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  const response = await fetch(new URL(`../${path}`, document.baseURI), { ...options, headers, cache: "no-store" });
  if (response.status === 401) {
    throw new KeyWanted("an API key is wanted");
  }
  if (!response.ok) {
    const said = await response.json().catch(() => ({}));
    throw new Error(said.error?.message ?? `${path}: status ${response.status}`);
  }
  return response;
}

export async function get(path) {
  return (await call(path)).json();
}

export function post(path, body) {
  return call(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

/** The text of an answer, piece by piece as it comes. */
export async function* pieces(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) {
      return;
    }
    yield value;
  }
}

/** The lines of an answer as they come. */
export async function* lines(response) {
  let rest = "";
  for await (const piece of pieces(response)) {
    const parts = (rest + piece).split("\n");
    rest = parts.pop();
    yield* parts;
  }
  if (rest !== "") {
    yield rest;
  }
}
