// Node's http client: an agent with keep-alive, streams in both directions, and fetch.

import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import http from 'node:http';

const base = process.argv[2];
const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });

// Resolves with status, headers and body of a response; rejects after ten seconds.
function request(path, { method = 'GET', parts = [], headers = {} } = {}) {
  return new Promise((resolve, reject) => {
    const outgoing = http.request(base + path, { method, agent, headers, timeout: 10_000 });
    outgoing.on('error', reject);
    outgoing.on('timeout', () => outgoing.destroy(new Error(`no response: ${path}`)));
    outgoing.on('response', async (incoming) => {
      const { localPort } = incoming.socket;
      try {
        const chunks = [];
        for await (const chunk of incoming) chunks.push(chunk);
        resolve({
          status: incoming.statusCode,
          headers: incoming.headers,
          body: Buffer.concat(chunks),
          localPort,
        });
      } catch (error) {
        reject(error);
      }
    });
    for (const part of parts) outgoing.write(part);
    outgoing.end();
  });
}

// Forty concurrent requests over four connections.
const responses = await Promise.all(Array.from({ length: 40 }, () => request('/hello')));
for (const response of responses) {
  assert.equal(response.status, 200);
  assert.equal(response.body.toString(), 'Hello, World!');
}
const ports = new Set(responses.map((response) => response.localPort));
assert.ok(ports.size <= 4, `${ports.size} connections instead of four`);

// Writes without a length are sent in chunks.
const parts = [1, 4096, 100_000].map((size) => crypto.randomBytes(size));
const echo = await request('/echo/', { method: 'POST', parts });
assert.ok(echo.body.equals(Buffer.concat(parts)));

const data = await request('/data?size=1000000');
assert.equal(data.body.length, 1_000_000);
assert.equal((await request('/nothing/here')).status, 404);
agent.destroy();

const viaFetch = await fetch(`${base}/ping`, { signal: AbortSignal.timeout(10_000) });
assert.equal(await viaFetch.text(), 'pong');
