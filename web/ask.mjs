/** A question to a model, and its answer as it comes. */

import { duration, element, list } from "./dom.mjs";
import { lines, post } from "./server.mjs";

/** What the events of a chat's stream say: {text} or {error}. */
export async function* events(response) {
  for await (const line of lines(response)) {
    if (!line.startsWith("data: ") || line === "data: [DONE]") {
      continue;
    }
    const event = JSON.parse(line.slice("data: ".length));
    if (event.error) {
      throw new Error(event.error.message);
    }
    const delta = event.choices?.[0]?.delta ?? {};
    yield { text: (delta.reasoning_content ?? "") + (delta.content ?? ""), usage: event.usage };
  }
}

/** Keeps the choice of models that of `models`. */
export function offer(form, models) {
  const ids = models.map(({ id }) => id);
  list(form.elements.model, ids, (id) => id, (id) => element("option", { value: id }, id), () => {});
}

async function ask(form) {
  const { model, prompt, answer } = form.elements;
  const figures = form.querySelector("#figures");
  const began = performance.now();
  let first = null;
  let count = 0;
  answer.value = "";
  figures.textContent = "waiting for the first token";
  const response = await post("v1/chat/completions", {
    model: model.value,
    messages: [{ role: "user", content: prompt.value }],
    stream: true,
    stream_options: { include_usage: true },
  });
  for await (const { text, usage } of events(response)) {
    if (text !== "") {
      first ??= performance.now();
      answer.value += text;
    }
    count = usage?.completion_tokens ?? count;
  }
  const ended = performance.now();
  const rate = first !== null && count > 1 ? `, ${((1000 * (count - 1)) / Math.max(ended - first, 1e-3)).toPrecision(3)} tokens/s after it` : "";
  figures.textContent = `first token after ${duration((first ?? ended) - began)}, ${count} tokens${rate}`;
}

/** Makes the form ask. */
export function serve(form, complain) {
  form.addEventListener("submit", async (submitted) => {
    submitted.preventDefault();
    form.elements.send.disabled = true;
    try {
      await ask(form);
    } catch (error) {
      form.querySelector("#figures").textContent = error.message;
      complain(error);
    } finally {
      form.elements.send.disabled = false;
    }
  });
  form.elements.prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
}
