// Node's http2 as a client: `node_http2.mjs built-in|pages BASE [CA]`. The first role uses the built-in
// endpoints, the second the pages of node_upstream.mjs and go/serve.go through the gateway.

import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import fs from 'node:fs';
import http2 from 'node:http2';

const [role, base, ca] = process.argv.slice(2);
setTimeout(() => { throw new Error('not done after 40 s'); }, 40_000).unref();
const session = http2.connect(base, ca ? { ca: fs.readFileSync(ca) } : {});
session.on('error', (error) => { throw error; });
await new Promise((resolve) => session.once('connect', resolve));
assert.equal(session.alpnProtocol, ca ? 'h2' : 'h2c');

// Resolves with the whole response; `trailers` are sent after `body`.
function request(headers, { body, trailers } = {}) {
  return new Promise((resolve, reject) => {
    const stream = session.request(headers, {
      endStream: body === undefined && !trailers,
      waitForTrailers: Boolean(trailers),
    });
    const got = { early: [], pieces: [] };
    stream.on('wantTrailers', () => stream.sendTrailers(trailers));
    stream.on('headers', (early) => got.early.push(early));
    stream.on('response', (head) => { got.head = head; });
    stream.on('trailers', (fields) => { got.trailers = fields; });
    stream.on('data', (piece) => got.pieces.push(piece));
    stream.on('error', reject);
    stream.on('close', () => resolve({
      ...got, code: stream.rstCode, status: got.head?.[':status'], body: Buffer.concat(got.pieces),
    }));
    if (body !== undefined || trailers) stream.end(body);
  });
}
const get = (path) => request({ ':path': path });
function post(path, body, trailers) {
  // Go's server accepts only announced trailers.
  const announced = trailers && { trailer: Object.keys(trailers) };
  return request({ ':path': path, ':method': 'POST', ...announced }, { body, trailers });
}
const sha256 = (bytes) => crypto.createHash('sha256').update(bytes).digest('hex');

async function builtIn() {
  // Far more than the 100 concurrent streams of the server; the rest waits in Node.
  const responses = await Promise.all(Array.from({ length: 500 }, () => get('/hello')));
  for (const response of responses) {
    assert.equal(response.status, 200);
    assert.equal(response.body.toString(), 'Hello, World!');
  }
  const body = crypto.randomBytes(8 << 20);
  assert.ok((await post('/echo/', body)).body.equals(body));
  assert.equal((await get('/data?size=8388608')).body.length, 8 << 20);
  assert.equal((await get('/nothing/here')).status, 404);

  // A hundred cancelled streams are below the limit for resets.
  await Promise.all(Array.from({ length: 100 }, () => new Promise((resolve) => {
    const stream = session.request({ ':path': '/delay?ms=5000' });
    stream.on('close', resolve);
    setTimeout(() => stream.close(http2.constants.NGHTTP2_CANCEL), 20);
  })));
  assert.equal((await get('/ping')).body.toString(), 'pong');

}

async function pages() {
  assert.match((await get('/version')).body.toString(), /^HTTP\/2/);
  const body = crypto.randomBytes(8 << 20);
  const response = await post('/digest', body, { 'x-sent': 'all' });
  assert.equal(response.body.toString(), `${body.length} ${sha256(body)} all`);

  const down = await Promise.all([get('/bytes?size=8388608'), get('/bytes?size=100000')]);
  for (const [at, size] of [8388608, 100000].entries()) {
    assert.equal(down[at].body.length, size);
    assert.equal(down[at].trailers['x-sum'], sha256(down[at].body));
  }
  const empty = await get('/empty');
  assert.deepEqual([empty.head['content-length'], empty.trailers?.['x-sum']], ['0', '0']);
  const hinted = await get('/hints');
  assert.equal(hinted.body.toString(), 'hinted');
  const early = hinted.early.map((head) => [head[':status'], head.link]);
  assert.deepEqual(early, [[103, '</style.css>; rel=preload']]);

  // Many streams wait at the upstream concurrently: in sequence they would take 10 s.
  const start = Date.now();
  const slow = await Promise.all(Array.from({ length: 200 }, () => get('/slow')));
  assert.ok(slow.every((one) => one.status === 200 && one.body.toString() === 'slow'));
  assert.ok(Date.now() - start < 5000, `${Date.now() - start} ms instead of 50 ms for concurrent requests`);

  // A response that the upstream resets is reset here, and no other.
  const [cut, whole] = await Promise.allSettled([get('/cut'), get('/slow')]);
  assert.equal(cut.status, 'rejected', 'an incomplete response looked complete');
  assert.equal(whole.value.body.toString(), 'slow');
}

await (role === 'pages' ? pages() : builtIn());
session.close();
