// An echo server and a client with the `ws` library: `websocket.cjs serve|talk PORT`.

const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const { WebSocket, WebSocketServer } = require('ws');

const [role, port] = process.argv.slice(2);
if (role === 'serve') serve();
else talk();

function serve() {
  const server = new WebSocketServer({ host: '127.0.0.1', port: Number(port) });
  server.on('connection', (socket) => {
    socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }));
  });
}

function talk() {
  // Until the end is reached; Node would otherwise end with 0 when nothing is pending.
  process.exitCode = 1;
  const messages = ['hello', 'ünïcode', '', 'x'.repeat(500_000), crypto.randomBytes(70_000)];
  const socket = new WebSocket(`ws://127.0.0.1:${port}/chat`, { handshakeTimeout: 5000 });
  setTimeout(() => { throw new Error('not done after 10 s'); }, 10_000).unref();

  let next = 0;
  const send = () => socket.send(messages[next]);
  socket.on('open', send);
  socket.on('message', (data) => {
    assert.ok(data.equals(Buffer.from(messages[next])), `message ${next} changed on the way`);
    next += 1;
    if (next < messages.length) send();
    else socket.close(1000, 'done');
  });
  socket.on('close', (code) => {
    assert.equal(code, 1000);
    assert.equal(next, messages.length);
    process.exitCode = 0;
  });
}
