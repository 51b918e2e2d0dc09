// The official client for JavaScript. HEDDLE_SUBJECT says where the servers are and what to ask.
'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');
const OpenAI = require('openai');

const subject = JSON.parse(process.env.HEDDLE_SUBJECT);
const { model, prompt, answer } = subject;
const messages = [{ role: 'user', content: prompt }];

function connect(options = {}, base = subject.url) {
  return new OpenAI({ baseURL: `${base}/v1`, apiKey: subject.key, maxRetries: 0, timeout: 60_000, ...options });
}
const client = connect();

function ask(options = {}, from = client) {
  return from.chat.completions.create({ model, messages, temperature: 0, ...options });
}

async function gather(stream) {
  const parts = [];
  for await (const part of stream) {
    parts.push(part);
  }
  return parts;
}

// --- streaming ---

test('a stream is the whole answer', async () => {
  const whole = await ask();
  assert.equal(whole.choices[0].message.content, answer);
  const chunks = await gather(await ask({ stream: true, stream_options: { include_usage: true } }));
  const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join('');
  assert.equal(text, answer);
  assert.equal(chunks[0].choices[0].delta.role, 'assistant');
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.deepEqual(chunks.at(-1).usage, whole.usage);
});

test('the streaming helper gathers the answer', async () => {
  const stream = client.chat.completions.stream({ model, messages, temperature: 0 });
  let told = '';
  stream.on('content', (delta) => (told += delta));
  assert.equal(await stream.finalContent(), answer);
  assert.equal(told, answer);
});

test('completions stream', async () => {
  const options = { model, prompt: '12', max_tokens: 6, temperature: 0 };
  const whole = await client.completions.create(options);
  const chunks = await gather(await client.completions.create({ ...options, stream: true }));
  assert.equal(chunks.map((chunk) => chunk.choices[0]?.text ?? '').join(''), whole.choices[0].text);
});

// --- tools ---

const parameters = {
  type: 'object',
  properties: { city: { enum: ['Oslo', 'Rome'] }, days: { type: 'integer', minimum: 1, maximum: 9 } },
  required: ['city', 'days'],
  additionalProperties: false,
};
const tools = [{ type: 'function', function: { name: 'weather', parameters } }];
const forced = { type: 'function', function: { name: 'weather' } };

test('a forced call conforms, streamed or not', async () => {
  const options = { tools, tool_choice: forced, temperature: 1, seed: 5 };
  const whole = await ask(options);
  assert.equal(whole.choices[0].finish_reason, 'tool_calls');
  const call = whole.choices[0].message.tool_calls[0];
  assert.ok(['Oslo', 'Rome'].includes(JSON.parse(call.function.arguments).city));
  const stream = client.chat.completions.stream({ model, messages, ...options });
  const final = await stream.finalChatCompletion();
  assert.deepEqual(final.choices[0].message.tool_calls[0].function.arguments, call.function.arguments);
});

test('the tool runner calls the function with the arguments', async () => {
  const called = [];
  const runner = client.chat.completions.runTools({
    model,
    messages,
    temperature: 1,
    seed: 5,
    tool_choice: forced,
    tools: [
      {
        type: 'function',
        function: {
          name: 'weather',
          parameters,
          parse: JSON.parse,
          function: (given) => {
            called.push(given);
            return 'sun';
          },
        },
      },
    ],
  });
  const result = await runner.finalFunctionToolCallResult();
  assert.equal(result, 'sun');
  assert.ok(called[0].days >= 1 && called[0].days <= 9);
});

// --- JSON schemas ---

test('a JSON schema holds', async () => {
  const schema = {
    type: 'object',
    properties: {
      name: { type: 'string', pattern: '^[a-z]{1,8}$' },
      tags: { type: 'array', items: { type: 'boolean' }, maxItems: 3 },
    },
    required: ['name', 'tags'],
    additionalProperties: false,
  };
  const response_format = { type: 'json_schema', json_schema: { name: 'thing', strict: true, schema } };
  for (const seed of [1, 2, 3]) {
    const got = await client.chat.completions.parse({ model, messages, temperature: 1, seed, response_format });
    const { parsed } = got.choices[0].message;
    assert.match(parsed.name, /^[a-z]{1,8}$/);
    assert.ok(parsed.tags.length <= 3 && parsed.tags.every((tag) => typeof tag === 'boolean'));
  }
  await assert.rejects(ask({ response_format: { type: 'json_schema', json_schema: { name: 'x', schema: 7 } } }), {
    status: 400,
  });
});

// --- log probabilities ---

test('log probabilities', async () => {
  const { content } = (await ask({ logprobs: true, top_logprobs: 2 })).choices[0].logprobs;
  assert.equal(Buffer.concat(content.map((token) => Buffer.from(token.bytes))).toString(), answer);
  assert.ok(content.every((token) => token.logprob <= 0 && token.top_logprobs.length === 2));
  const chunks = await gather(await ask({ logprobs: true, top_logprobs: 2, stream: true }));
  const streamed = chunks.flatMap((chunk) => chunk.choices[0]?.logprobs?.content ?? []);
  assert.deepEqual(streamed, content);
});

// --- errors ---

test('errors have their classes', async () => {
  await assert.rejects(ask({ temperature: -1 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, 'temperature');
    assert.ok(error.requestID);
    return true;
  });
  await assert.rejects(ask({ model: 'nobody' }), (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.equal(error.code, 'model_not_found');
    return true;
  });
  await assert.rejects(ask({}, connect({ apiKey: 'wrong' })), OpenAI.AuthenticationError);
});

// --- cancellation ---

const endless = { ignore_eos: true, max_tokens: 400 };

async function admin(path) {
  const response = await fetch(subject.slowUrl + path, { headers: { 'x-api-key': subject.key } });
  return response.json();
}

async function idle() {
  for (const deadline = Date.now() + 10_000; Date.now() < deadline; ) {
    const { running } = await admin('/running');
    if (running.every((row) => row.requests_running + row.requests_waiting === 0)) {
      return true;
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return false;
}

/** An endless answer that has begun. */
async function begin() {
  const stream = await ask({ stream: true, ...endless }, connect({}, subject.slowUrl));
  const iterator = stream[Symbol.asyncIterator]();
  while (!(await iterator.next()).value.choices[0].delta.content);
  return stream;
}

test('a stream that is aborted stops the model', async () => {
  const stream = await begin();
  stream.controller.abort();
  assert.ok(await idle());
  const { requests } = await admin('/api/requests');
  assert.equal(requests[0].status, 499);
});

test('a time-out stops the model', async () => {
  const hasty = connect({ timeout: 500 }, subject.slowUrl);
  await assert.rejects(ask(endless, hasty), OpenAI.APIConnectionTimeoutError);
  assert.ok(await idle());
});

// --- retries ---

test('a client that is turned away tries again', async () => {
  const stream = await begin();
  await assert.rejects(ask({ max_tokens: 1 }, connect({}, subject.slowUrl)), OpenAI.RateLimitError);
  const statuses = [];
  const counted = async (...request) => {
    const response = await fetch(...request);
    statuses.push(response.status);
    return response;
  };
  setTimeout(() => stream.controller.abort(), 500);
  const patient = connect({ maxRetries: 5, fetch: counted }, subject.slowUrl);
  const got = await ask({ max_tokens: 1 }, patient);
  assert.equal(got.choices[0].finish_reason, 'length');
  assert.equal(statuses[0], 429);
  assert.equal(statuses.at(-1), 200);
});

// --- the other endpoints ---

test('models', async () => {
  const listed = await gather(client.models.list());
  assert.ok(listed.some((one) => one.id === model));
  assert.equal((await client.models.retrieve(model)).object, 'model');
});

test('embeddings', async () => {
  const got = await client.embeddings.create({ model, input: ['1+1=', '2'] });
  const plain = await client.embeddings.create({ model, input: ['1+1=', '2'], encoding_format: 'float' });
  got.data.forEach((one, index) => {
    const length = Math.hypot(...one.embedding);
    assert.ok(Math.abs(length - 1) < 1e-5);
    one.embedding.forEach((x, i) => assert.ok(Math.abs(x - plain.data[index].embedding[i]) < 1e-6));
  });
});

test('responses', async () => {
  const got = await client.responses.create({ model, input: prompt, temperature: 0 });
  assert.equal(got.output_text, answer);
  const stream = client.responses.stream({ model, input: prompt, temperature: 0 });
  const events = await gather(stream);
  assert.equal(events.at(-1).type, 'response.completed');
  assert.equal((await stream.finalResponse()).output[0].content[0].text, answer);
});

// --- batches ---

test('a batch from its file to its answers', async () => {
  const body = { model, messages, temperature: 0 };
  const request = { method: 'POST', url: '/v1/chat/completions', body };
  const lines = ['a', 'b'].map((name) => JSON.stringify({ custom_id: name, ...request })).join('\n');
  const file = await client.files.create({ file: await OpenAI.toFile(Buffer.from(lines), 'asked.jsonl'), purpose: 'batch' });
  let batch = await client.batches.create({
    input_file_id: file.id,
    endpoint: '/v1/chat/completions',
    completion_window: '24h',
  });
  while (!['completed', 'failed'].includes(batch.status)) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    batch = await client.batches.retrieve(batch.id);
  }
  assert.equal(batch.status, 'completed');
  assert.deepEqual(batch.request_counts, { total: 2, completed: 2, failed: 0 });
  const text = await (await client.files.content(batch.output_file_id)).text();
  const rows = text.trim().split('\n').map((line) => JSON.parse(line));
  assert.deepEqual(rows.map((row) => row.custom_id).sort(), ['a', 'b']);
  rows.forEach((row) => assert.equal(row.response.body.choices[0].message.content, answer));
  assert.ok((await gather(client.batches.list({ limit: 1 }))).some((one) => one.id === batch.id));
  assert.ok((await gather(client.files.list())).some((one) => one.id === file.id));
  assert.equal((await client.files.delete(file.id)).deleted, true);
});
