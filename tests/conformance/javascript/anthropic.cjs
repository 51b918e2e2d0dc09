// Anthropic's official client for JavaScript. HEDDLE_SUBJECT says where the servers are and what to ask.
'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');
const Anthropic = require('@anthropic-ai/sdk');

const subject = JSON.parse(process.env.HEDDLE_SUBJECT);
const { model, prompt, answer } = subject;
const messages = [{ role: 'user', content: prompt }];

function connect(options = {}, baseURL = subject.url) {
  return new Anthropic({ baseURL, apiKey: subject.key, maxRetries: 0, timeout: 60_000, ...options });
}
const client = connect();

function ask(options = {}, from = client) {
  return from.messages.create({ model, messages, max_tokens: 32, temperature: 0, ...options });
}

const weather = {
  name: 'weather',
  input_schema: {
    type: 'object',
    properties: { city: { enum: ['Oslo', 'Rome'] } },
    required: ['city'],
    additionalProperties: false,
  },
};

test('a message', async () => {
  const message = await ask();
  assert.deepEqual(message.content.map((block) => [block.type, block.text]), [['text', answer]]);
  assert.equal(message.stop_reason, 'end_turn');
  assert.ok(message._request_id);
});

test('a stream is the whole answer', async () => {
  const stream = client.messages.stream({ model, messages, max_tokens: 32, temperature: 0 });
  let told = '';
  stream.on('text', (text) => (told += text));
  const message = await stream.finalMessage();
  assert.equal(told, answer);
  assert.equal(await stream.finalText(), answer);
  const whole = await ask();
  assert.equal(message.usage.output_tokens, whole.usage.output_tokens);
  const kinds = [];
  for await (const event of await ask({ stream: true })) {
    kinds.push(event.type);
  }
  assert.equal(kinds[0], 'message_start');
  assert.deepEqual(kinds.slice(-2), ['message_delta', 'message_stop']);
});

test('a forced call, streamed, and its result', async () => {
  const options = { model, messages, tools: [weather], max_tokens: 200 };
  const stream = client.messages.stream({ ...options, tool_choice: { type: 'tool', name: 'weather' } });
  let json = '';
  stream.on('inputJson', (part) => (json += part));
  const message = await stream.finalMessage();
  assert.equal(message.stop_reason, 'tool_use');
  const call = message.content.at(-1);
  assert.deepEqual(JSON.parse(json), call.input);
  assert.ok(['Oslo', 'Rome'].includes(call.input.city));
  const results = [{ type: 'tool_result', tool_use_id: call.id, content: 'sunny' }];
  const after = await ask({
    tools: [weather],
    tool_choice: { type: 'none' },
    messages: [...messages, { role: 'assistant', content: message.content }, { role: 'user', content: results }],
  });
  assert.ok(after.content.every((block) => block.type === 'text'));
});

test('tokens are counted and models listed', async () => {
  const { input_tokens: counted } = await client.messages.countTokens({ model, messages });
  const { usage } = await ask();
  assert.equal(counted, usage.input_tokens + usage.cache_read_input_tokens);
  const ids = [];
  for await (const one of client.models.list({ limit: 1 })) {
    ids.push(one.id);
  }
  assert.deepEqual(ids, [model]);
});

test('errors are of their classes', async () => {
  await assert.rejects(ask({ model: 'nobody' }), (error) => {
    assert.ok(error instanceof Anthropic.NotFoundError);
    assert.equal(error.error.error.type, 'not_found_error');
    return true;
  });
  await assert.rejects(ask({ max_tokens: 0 }), Anthropic.BadRequestError);
  await assert.rejects(ask({}, connect({ apiKey: 'wrong' })), Anthropic.AuthenticationError);
  const slow = connect({}, subject.slowUrl);
  const stream = await ask({ stream: true }, slow);
  await assert.rejects(ask({}, slow), Anthropic.RateLimitError);
  stream.controller.abort();
});
