// socket.io as a client and a server: `socket_io.cjs serve PORT`, or `socket_io.cjs talk UPSTREAM_PORT URL [CA]`,
// which starts the server, talks to it through the proxy at URL, and restarts it.

const assert = require('node:assert');
const { fork } = require('node:child_process');
const crypto = require('node:crypto');
const fs = require('node:fs');
const { createServer } = require('node:http');

const [role, port, url, ca] = process.argv.slice(2);

function serve() {
  const { Server } = require('socket.io');
  const http = createServer();
  const server = new Server(http, { pingInterval: 1000, pingTimeout: 3000, perMessageDeflate: { threshold: 1024 } });
  server.on('connection', (socket) => {
    socket.on('echo', (value, acknowledge) => acknowledge(value));
    socket.on('push', async (size) => {
      const bytes = crypto.randomBytes(size);
      socket.emit('pushed', bytes, crypto.createHash('sha256').update(bytes).digest());
    });
    // A long poll has to wait for this event.
    socket.on('later', () => setTimeout(() => socket.emit('happened', 'later'), 700));
    socket.on('facts', (acknowledge) => acknowledge({
      transport: socket.conn.transport.name,
      client: socket.handshake.headers['x-forwarded-for'],
      proto: socket.handshake.headers['x-forwarded-proto'],
    }));
  });
  // Ends with the process that has started it.
  process.on('disconnect', () => process.exit());
  http.listen(Number(port), '127.0.0.1', () => process.send?.('ready'));
}

async function talk() {
  // A stalled event fails the test.
  const limit = setTimeout(() => { throw new Error('not done after 40 s'); }, 40_000);
  let server = await started();
  try {
    for (const transports of [['polling'], ['websocket'], ['polling', 'websocket']]) {
      const socket = await connected(transports);
      const transport = transports.at(-1);
      if (transports.length === 2 && socket.io.engine.transport.name !== 'websocket') {
        await happens(socket.io.engine, 'upgrade');
      }
      const facts = { transport, client: '127.0.0.1', proto: new URL(url).protocol.slice(0, -1) };
      assert.deepStrictEqual(await socket.timeout(5000).emitWithAck('facts'), facts);
      await exchange(socket);
      if (transports.length === 2) {
        const lost = happens(socket, 'disconnect');
        server = await restarted(server);
        const [reason] = await lost;
        assert.ok(['transport close', 'transport error'].includes(reason), reason);
        if (!socket.connected) await happens(socket, 'connect');
        await exchange(socket);
      }
      const closed = happens(socket, 'disconnect');
      socket.disconnect();
      assert.deepStrictEqual((await closed)[0], 'io client disconnect');
    }
  } finally {
    server.kill();
    clearTimeout(limit);
  }
}

async function started() {
  const server = fork(__filename, ['serve', port]);
  await happens(server, 'message');
  return server;
}

async function restarted(server) {
  const ended = happens(server, 'exit');
  server.kill('SIGKILL');
  await ended;
  // The client's first attempts meet a proxy without an upstream.
  await new Promise((done) => setTimeout(done, 500));
  return started();
}

async function connected(transports) {
  const { io } = require('socket.io-client');
  const socket = io(url, {
    transports, forceNew: true, reconnectionDelay: 100, reconnectionDelayMax: 200, ca: ca && fs.readFileSync(ca),
  });
  await happens(socket, 'connect');
  return socket;
}

// Text and bytes in both directions, and an event after silence.
async function exchange(socket) {
  const values = [
    'hello', 'ünïcode', '', crypto.randomBytes(1), crypto.randomBytes(500_000),
    { nested: [crypto.randomBytes(70_000), { text: 'x'.repeat(100_000) }, Buffer.alloc(0)] },
  ];
  const echoed = await Promise.all(values.map((value) => socket.timeout(5000).emitWithAck('echo', value)));
  assert.deepStrictEqual(echoed, values);
  const pushed = happens(socket, 'pushed');
  socket.emit('push', 700_000);
  const [bytes, digest] = await pushed;
  assert.deepStrictEqual(crypto.createHash('sha256').update(bytes).digest(), digest);
  const later = happens(socket, 'happened');
  socket.emit('later');
  assert.deepStrictEqual(await later, ['later']);
}

// The arguments of the next such event, within 10 s.
function happens(emitter, name) {
  return new Promise((done, failed) => {
    const limit = setTimeout(() => failed(new Error(`no '${name}' within 10 s`)), 10_000);
    emitter.once(name, (...values) => {
      clearTimeout(limit);
      done(values);
    });
  });
}

if (role === 'serve') serve();
else talk().catch((error) => {
  console.error(error);
  process.exit(1);
});
