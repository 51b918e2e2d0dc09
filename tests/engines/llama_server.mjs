// llama.cpp behind the OpenAI API, for tests: node llama_server.mjs --model FILE --port PORT [--threads N] [--context N].
//
// The engine is node-llama-cpp's build of llama.cpp; this file is a thin server around it: GET /health, GET /v1/models,
// POST /v1/completions and /v1/chat/completions, streamed or not. Requests are answered one after the other.
import http from "node:http";
import {createRequire} from "node:module";
import path from "node:path";
import {pathToFileURL} from "node:url";
import {parseArgs} from "node:util";

const {values: options} = parseArgs({
  options: {
    model: {type: "string"},
    port: {type: "string"},
    threads: {type: "string", default: "1"},
    context: {type: "string", default: "512"},
    modules: {type: "string", default: process.env.HEDDLE_NODE_MODULES ?? "node_modules"}
  }
});
const from = createRequire(path.resolve(options.modules, "from-here.js"));
const load = (name) => import(pathToFileURL(from.resolve(name)).href);

const state = {};  // model, sequence and template, once they are loaded.
let last = Promise.resolve();  // The request before, for they take turns.

function fail(response, status, message) {
  response.writeHead(status, {"Content-Type": "application/json"});
  response.end(JSON.stringify({error: {message, type: status < 500 ? "invalid_request_error" : "server_error"}}));
}

function tokensOf(body) {
  if (body.messages === undefined) {
    return state.model.tokenize(String(body.prompt ?? ""), true);
  }
  const eos = state.model.detokenize([state.model.tokens.eos], true);
  const bos = state.model.detokenize([state.model.tokens.bos], true);
  return state.model.tokenize(
    state.template.render({messages: body.messages, add_generation_prompt: true, bos_token: bos, eos_token: eos}),
    true
  );
}

/// Calls `piece` with each bit of text; returns why it ended and how many tokens there were.
async function generate(body, prompt, signal, piece) {
  const most = body.max_tokens ?? body.max_completion_tokens ?? 256;
  await state.sequence.clearHistory();
  const given = [];
  let shown = "";
  for await (const token of state.sequence.evaluate(prompt, {temperature: body.temperature ?? 1, seed: body.seed})) {
    given.push(token);
    const text = state.model.detokenize(given);
    if (!text.endsWith("\ufffd")) {
      piece(text.slice(shown.length));
      shown = text;
    }
    if (given.length >= most || signal.aborted) {
      return {reason: "length", tokens: given.length};
    }
  }
  return {reason: "stop", tokens: given.length};
}

async function answer(body, chat, response) {
  const prompt = tokensOf(body);
  const gone = new AbortController();
  response.on("close", () => gone.abort());
  const head = {id: `cmpl-${Date.now()}`, created: Math.floor(Date.now() / 1000), model: body.model};
  const kind = chat ? "chat.completion" : "text_completion";
  const usage = (tokens) => ({
    prompt_tokens: prompt.length, completion_tokens: tokens, total_tokens: prompt.length + tokens
  });
  if (body.stream !== true) {
    let text = "";
    const end = await generate(body, prompt, gone.signal, (more) => (text += more));
    const choice = chat ? {message: {role: "assistant", content: text}} : {text};
    response.writeHead(200, {"Content-Type": "application/json"});
    response.end(JSON.stringify({
      ...head, object: kind, usage: usage(end.tokens), choices: [{index: 0, ...choice, finish_reason: end.reason}]
    }));
    return;
  }
  response.writeHead(200, {"Content-Type": "text/event-stream"});
  const send = (choices, more = {}) =>
    response.write(`data: ${JSON.stringify({...head, object: chat ? `${kind}.chunk` : kind, choices, ...more})}\n\n`);
  const part = (text) => (chat ? {delta: {content: text}} : {text});
  const end = await generate(body, prompt, gone.signal, (more) =>
    send([{index: 0, ...part(more), finish_reason: null}]));
  send([{index: 0, ...(chat ? {delta: {}} : {text: ""}), finish_reason: end.reason}]);
  if (body.stream_options?.include_usage) {
    send([], {usage: usage(end.tokens)});
  }
  response.end("data: [DONE]\n\n");
}

async function read(request) {
  const parts = [];
  for await (const part of request) {
    parts.push(part);
  }
  return JSON.parse(Buffer.concat(parts).toString());
}

const server = http.createServer(async (request, response) => {
  const ready = state.model !== undefined;
  if (request.url === "/health") {
    return ready ? response.end('{"status":"ok"}') : fail(response, 503, "loading the model");
  }
  if (request.url === "/v1/models") {
    response.setHeader("Content-Type", "application/json");
    return response.end(JSON.stringify({object: "list", data: [{id: path.basename(options.model), object: "model"}]}));
  }
  const chat = request.url === "/v1/chat/completions";
  if (request.method !== "POST" || !(chat || request.url === "/v1/completions")) {
    return fail(response, 404, `no such path: ${request.url}`);
  }
  if (!ready) {
    return fail(response, 503, "loading the model");
  }
  try {
    const body = await read(request);
    last = last.catch(() => {}).then(() => answer(body, chat, response));
    await last;
  } catch (error) {
    if (response.headersSent) {
      response.destroy(error);
    } else {
      fail(response, error instanceof SyntaxError ? 400 : 500, error.message);
    }
  }
});
process.on("SIGTERM", () => process.exit(0));
server.listen(Number(options.port), "127.0.0.1");

const {getLlama, LlamaLogLevel} = await load("node-llama-cpp");
const {Template} = await load("@huggingface/jinja");
const threads = Number(options.threads);
const llama = await getLlama({gpu: false, build: "never", maxThreads: threads, logLevel: LlamaLogLevel.error});
const model = await llama.loadModel({modelPath: options.model, useMmap: true});
const context = await model.createContext({contextSize: Number(options.context), threads});
state.sequence = context.getSequence();
const plain = "{% for message in messages %}{{ message.content }}\n{% endfor %}";
state.template = new Template(model.fileInfo.metadata.tokenizer.chat_template ?? plain);
state.model = model;
console.log(`serves ${options.model} on port ${server.address().port}`);
