/** The server behind the page. Its key, where it wants one, is kept as long as the tab. */

const KEY = "heddle-api-key";

/** It wants a key, or another one. */
export class KeyWanted extends Error {}

/** The key is good, but not for this. */
export class Forbidden extends Error {}

/** What the present key does not open, by path: what the server said. */
const closed = new Map();

export function setKey(key) {
  sessionStorage.setItem(KEY, key);
  closed.clear();
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
    const what = response.status === 403 ? Forbidden : Error;
    throw new what(said.error?.message ?? `${path}: status ${response.status}`);
  }
  return response;
}

export async function get(path) {
  return (await call(path)).json();
}

/** As get(), but nothing for what the key does not open, which is not asked for again with it. */
export async function peek(path) {
  if (closed.has(path)) {
    return undefined;
  }
  try {
    return await get(path);
  } catch (error) {
    if (!(error instanceof Forbidden)) {
      throw error;
    }
    closed.set(path, error.message);
    return undefined;
  }
}

/** Why peek() gives nothing for the path; undefined where it gives something. */
export function refusal(path) {
  return closed.get(path);
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
