// A page for a browser: `browser.mjs PORT`. An HTTP/1.1 upstream whose page makes fifty concurrent fetches, an
// upload, uploads that are refused, and a WebSocket connection, shows a report, and posts it, so that it is
// printed. Loading of the page ends behind the report, because its picture comes then.

import crypto from 'node:crypto';
import http from 'node:http';
import { createRequire } from 'node:module';

const { WebSocketServer } = createRequire(import.meta.url)('ws');

// Runs in the browser.
async function visit() {
  const result = { problems: [] };
  const check = (what, good) => { if (!good) result.problems.push(what); };
  try {
    await Promise.all(Array.from({ length: 50 }, async (_, number) => {
      const response = await fetch(`/thing?number=${number}`);
      const text = await response.text();
      const whole = text.length > 20_000 && text.endsWith(` ${number}`);
      check(`thing ${number}: ${response.status}`, response.status === 200 && whole);
    }));
    const all = performance.getEntriesByType('resource');
    const things = all.filter((entry) => entry.name.includes('/thing'));
    result.protocols = [...new Set(things.map((entry) => entry.nextHopProtocol))];
    result.things = things.length;

    const sent = new Uint8Array(3_000_000).map((_, at) => at * 7);
    const back = new Uint8Array(await (await fetch('/echo', { method: 'POST', body: sent })).arrayBuffer());
    const unchanged = back.length === sent.length && back.every((byte, at) => byte === sent[at]);
    check('the upload changed on the way', unchanged);
    // Answered before they are read, for which a browser waits until they have ended or are stopped.
    for (const size of [600_000, 1_100_000, 3_000_000]) {
      const begun = performance.now();
      const refused = await fetch('/refused', { method: 'POST', body: new Uint8Array(size) });
      const seconds = (performance.now() - begun) / 1000;
      const isGood = refused.status === 404 && seconds < 1.5;
      check(`a refused upload of ${size} bytes: ${refused.status} after ${seconds} s`, isGood);
    }

    const messages = ['hello', 'ünïcode', '', 'x'.repeat(1 << 20), new Uint8Array(70_000).fill(5)];
    const socket = new WebSocket(`wss://${location.host}/chat`, ['chat.v2', 'chat.v1']);
    socket.binaryType = 'arraybuffer';
    await new Promise((resolve, reject) => {
      socket.onopen = resolve;
      socket.onerror = () => reject(new Error('no WebSocket'));
    });
    result.subprotocol = socket.protocol;
    for (const [at, message] of messages.entries()) {
      socket.send(message);
      const { data } = await new Promise((resolve, reject) => {
        socket.onmessage = resolve;
        socket.onclose = reject;
      });
      const same = typeof message === 'string' ? data === message
        : data.byteLength === message.length && new Uint8Array(data).every((byte) => byte === 5);
      check(`message ${at} changed on the way`, same);
    }
    const closed = new Promise((resolve) => { socket.onclose = resolve; });
    socket.close(4001, 'done');
    result.close = (await closed).code;
  } catch (error) {
    result.problems.push(String(error));
  }
  document.querySelector('pre').textContent = JSON.stringify(result, null, 2);
  await fetch('/report', { method: 'POST', body: JSON.stringify(result) });
}

let reported;
const hasReported = new Promise((resolve) => { reported = resolve; });
const server = http.createServer(async (request, response) => {
  const url = new URL(request.url, 'http://upstream');
  if (url.pathname === '/') {
    response.writeHead(200, { 'content-type': 'text/html' });
    response.end(`<!doctype html><title>page</title><h1>Report</h1><pre>running</pre>
<img src="/picture" alt=""><script>(${visit})()</script>`);
  } else if (url.pathname === '/picture') {
    await hasReported;
    response.writeHead(200, { 'content-type': 'image/svg+xml' });
    response.end('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><circle r="9"/></svg>');
  } else if (url.pathname === '/thing') {
    response.end(`${crypto.randomBytes(10_000).toString('hex')} ${url.searchParams.get('number')}`);
  } else if (url.pathname === '/echo') {
    request.pipe(response);
  } else if (url.pathname === '/report') {
    let result = '';
    for await (const piece of request) result += piece;
    response.end();
    console.log(result);
    reported();
  } else {
    response.writeHead(404).end();
  }
});
const sockets = new WebSocketServer({ server, handleProtocols: (offered) => [...offered].at(-1) });
sockets.on('connection', (socket) => {
  socket.on('message', (data, binary) => socket.send(data, { binary }));
});
server.listen(Number(process.argv[2]), '127.0.0.1');
