// Ollama's official client for JavaScript. HEDDLE_SUBJECT says where the server is and what to ask.
'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');
const { Ollama } = require('ollama');

const { url, key, model, prompt, answer } = JSON.parse(process.env.HEDDLE_SUBJECT);
const messages = [{ role: 'user', content: prompt }];
const options = { temperature: 0 };

function connect(shown = key) {
  return new Ollama({ host: url, headers: { Authorization: `Bearer ${shown}` } });
}
const client = connect();

test('a chat whole and streamed', async () => {
  const whole = await client.chat({ model, messages, options });
  assert.equal(whole.message.content, answer);
  assert.equal(whole.done_reason, 'stop');
  let told = '';
  let last;
  for await (const part of await client.chat({ model, messages, options, stream: true })) {
    told += part.message.content;
    last = part;
  }
  assert.equal(told, answer);
  assert.equal(last.eval_count, whole.eval_count);
});

test('a prompt whole and streamed', async () => {
  assert.equal((await client.generate({ model, prompt, options })).response, answer);
  let told = '';
  for await (const part of await client.generate({ model: `${model}:latest`, prompt, options, stream: true })) {
    told += part.response;
  }
  assert.equal(told, answer);
});

test('an answer of a form', async () => {
  const format = {
    type: 'object',
    properties: { sunny: { type: 'boolean' } },
    required: ['sunny'],
    additionalProperties: false,
  };
  const { message } = await client.chat({ model, messages, format });
  assert.deepEqual(Object.keys(JSON.parse(message.content)), ['sunny']);
});

test('vectors', async () => {
  const { embeddings } = await client.embed({ model, input: ['12', '34'] });
  assert.equal(embeddings.length, 2);
  assert.equal((await client.embeddings({ model, prompt: '12' })).embedding.length, embeddings[0].length);
});

test('models are listed and shown', async () => {
  const { models } = await client.list();
  assert.deepEqual(models.map((one) => one.name), [`${model}:latest`]);
  assert.ok((await client.show({ model })).capabilities.includes('completion'));
  assert.ok((await client.ps()).models.some((one) => one.model === `${model}:latest`));
  assert.ok((await client.version()).version);
});

test('errors are the client\'s', async () => {
  const missing = { name: 'ResponseError', status_code: 404 };
  await assert.rejects(client.chat({ model: 'nobody', messages }), missing);
  await assert.rejects(client.chat({ model: 'nobody', messages, stream: true }), missing);
  await assert.rejects(client.generate({ model, prompt, suffix: prompt }), { status_code: 400 });
  await assert.rejects(connect('wrong').list(), { status_code: 401 });
});
