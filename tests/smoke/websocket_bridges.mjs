// Both ends of the WebSocket tests: `serve h1|h2 PORT [CERT KEY]` is an upstream with the `ws` library,
// `talk h1|h2 BASE [CA]` a client that writes its frames itself, so that it can send invalid ones. Over h2
// WebSockets use extended CONNECT (RFC 8441).

import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import http2 from 'node:http2';
import https from 'node:https';
import net from 'node:net';
import { createRequire } from 'node:module';

const { WebSocket, WebSocketServer } = createRequire(import.meta.url)('ws');
const [role, version, ...rest] = process.argv.slice(2);

function serve(port, cert, key) {
  const files = cert && { cert: fs.readFileSync(cert), key: fs.readFileSync(key) };
  const options = { ...files, allowHalfOpen: true, settings: { enableConnectProtocol: true } };
  const make = version === 'h2'
    ? (cert ? http2.createSecureServer : http2.createServer)
    : (cert ? https.createServer : http.createServer);
  const server = make(options);
  const sockets = new WebSocketServer({ noServer: true, handleProtocols: () => 'chat' });
  server.on('upgrade', (request, socket, head) => {
    if (request.url === '/refused') {
      return socket.end('HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno');
    }
    sockets.handleUpgrade(request, socket, head, (peer) => behave(peer, request.url, socket));
  });
  server.on('stream', (stream, headers) => {
    if (headers[':path'] === '/refused') {
      stream.respond({ ':status': 403 });
      return stream.end('no');
    }
    stream.respond({ ':status': 200, 'sec-websocket-protocol': 'chat' });
    const peer = new WebSocket(null, undefined, { autoPong: true, closeTimeout: 5000 });
    peer.setSocket(stream, Buffer.alloc(0), {
      allowSynchronousEvents: true, maxPayload: 0, skipUTF8Validation: false,
    });
    behave(peer, headers[':path'], stream);
  });
  server.listen(Number(port), '127.0.0.1');
}

// The upstream's behaviour, by path.
function behave(peer, path, socket) {
  peer.on('error', () => {});
  switch (path) {
    case '/echo':
      peer.on('message', (data, binary) => peer.send(data, { binary }));
      break;
    case '/ping':
      peer.on('pong', (data) => peer.send(`pong ${data}`));
      peer.ping('are you there');
      break;
    case '/close':
      peer.on('message', (data) => peer.close(Number(data), 'as requested'));
      peer.on('close', () => {});
      break;
    case '/half':
      // Sends its message only after the other side has ended.
      socket.removeAllListeners('end');
      socket.removeAllListeners('data');
      socket.on('data', () => {});
      socket.on('end', () => socket.end(frame(TEXT, 'after your end', { mask: false })));
      socket.resume();
      break;
    case '/gone':
      peer.on('message', () => closeAbruptly(socket));
      break;
    default:
      peer.close(1011, 'no such page');
  }
}

// Closes abruptly: a reset where possible; a TLS socket ends without close_notify.
function closeAbruptly(socket) {
  if (!(socket instanceof net.Socket)) socket.destroy(new Error('gone'));
  else if (socket.encrypted) socket.destroy();
  else socket.resetAndDestroy();
}

// Frames (RFC 6455, section 5.2).
const [MORE, TEXT, BINARY, CLOSE, PING, PONG] = [0, 1, 2, 8, 9, 10];

function frame(kind, payload, { fin = true, mask = true } = {}) {
  const data = Buffer.from(payload);
  const head = [kind | (fin ? 0x80 : 0)];
  const flag = mask ? 0x80 : 0;
  if (data.length < 126) head.push(flag | data.length);
  else if (data.length < 65_536) head.push(flag | 126, data.length >> 8, data.length & 255);
  else head.push(flag | 127, 0, 0, 0, 0, ...[24, 16, 8, 0].map((shift) => (data.length >>> shift) & 255));
  if (!mask) return Buffer.concat([Buffer.from(head), data]);
  const key = crypto.randomBytes(4);
  for (let at = 0; at < data.length; at += 1) data[at] ^= key[at & 3];
  return Buffer.concat([Buffer.from(head), key, data]);
}

const closing = (code, reason) =>
  frame(CLOSE, Buffer.concat([Buffer.from([code >> 8, code & 255]), Buffer.from(reason)]));

// A WebSocket over a byte stream.
class Raw {
  constructor(stream, head) {
    this.stream = stream;
    this.bytes = head;
    this.waiting = null;
    this.ended = false;
    this.error = null;
    stream.on('data', (data) => { this.bytes = Buffer.concat([this.bytes, data]); this.wake(); });
    stream.on('end', () => { this.ended = true; this.wake(); });
    stream.on('error', (error) => { this.error = error; this.wake(); });
    stream.on('close', () => {
      this.error ??= this.ended ? null : new Error('closed');
      this.wake();
    });
  }

  wake() {
    this.waiting?.();
    this.waiting = null;
  }

  write(bytes) {
    this.stream.write(bytes);
  }

  // The next frame, or `null` at an orderly end.
  async next() {
    for (;;) {
      const found = this.take();
      if (found) return found;
      if (this.error) throw this.error;
      if (this.ended) return null;
      await new Promise((resolve) => { this.waiting = resolve; });
    }
  }

  take() {
    const { bytes } = this;
    if (bytes.length < 2) return null;
    let [length, start] = [bytes[1] & 127, 2];
    if (length >= 126) start = length === 126 ? 4 : 10;
    if (bytes.length < start) return null;
    if (start === 4) length = bytes.readUInt16BE(2);
    if (start === 10) length = Number(bytes.readBigUInt64BE(2));
    if (bytes.length < start + length) return null;
    this.bytes = bytes.subarray(start + length);
    return { kind: bytes[0] & 15, fin: bytes[0] > 127, data: bytes.subarray(start, start + length) };
  }

  // A whole message, from one or more frames.
  async message() {
    const pieces = [];
    for (;;) {
      const got = await this.next();
      assert.ok(got, 'the end instead of a message');
      assert.ok(got.kind <= BINARY, `a control frame instead of a message: ${got.kind} ${got.data}`);
      pieces.push(got.data);
      if (got.fin) return Buffer.concat(pieces);
    }
  }
}

// Opens WebSockets in both versions: `open(path)` returns `{ status, raw }`.
function opener(base, ca) {
  const trust = ca ? { ca: fs.readFileSync(ca) } : {};
  if (version === 'h1') {
    return {
      open: (path) => new Promise((resolve, reject) => {
        const key = crypto.randomBytes(16).toString('base64');
        const headers = {
          connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': 13,
          'sec-websocket-key': key, 'sec-websocket-protocol': 'chat',
        };
        const agent = new (ca ? https : http).Agent({ ...trust, allowHalfOpen: true });
        const request = (ca ? https : http).request(base + path, { headers, agent });
        request.on('error', reject);
        request.on('response', (response) => { response.resume(); resolve({ status: response.statusCode }); });
        request.on('upgrade', (response, socket, head) => {
          const sum = crypto.createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`);
          assert.equal(response.headers['sec-websocket-accept'], sum.digest('base64'));
          assert.equal(response.headers['sec-websocket-protocol'], 'chat');
          // Node's socket would end itself when the other side ends.
          socket.allowHalfOpen = true;
          resolve({ status: 200, raw: new Raw(socket, head) });
        });
        request.end();
      }),
      done: () => {},
    };
  }
  const session = http2.connect(base, trust);
  const settings = new Promise((resolve) => session.once('remoteSettings', resolve));
  return {
    open: async (path) => {
      assert.ok((await settings).enableConnectProtocol, 'extended CONNECT is not offered');
      const stream = session.request({
        ':method': 'CONNECT', ':protocol': 'websocket', ':path': path,
        'sec-websocket-version': '13', 'sec-websocket-protocol': 'chat',
      }, { endStream: false });
      const head = await new Promise((resolve, reject) => {
        stream.once('response', resolve);
        stream.once('error', reject);
      });
      for (const name of ['sec-websocket-accept', 'upgrade', 'connection']) assert.equal(head[name], undefined);
      if (head[':status'] !== 200) {
        stream.resume().end();
        return { status: head[':status'] };
      }
      assert.equal(head['sec-websocket-protocol'], 'chat');
      return { status: 200, raw: new Raw(stream, Buffer.alloc(0)) };
    },
    done: () => session.close(),
  };
}

const cases = {
  async echo(open) {
    const { raw } = await open('/echo');
    const messages = [['hello', TEXT], ['ünïcode', TEXT], ['', TEXT], ['', BINARY],
      ...[1, 125, 126, 65_535, 65_536, 1 << 20].map((size) => [crypto.randomBytes(size), BINARY])];
    for (const [message, kind] of messages) {
      raw.write(frame(kind, message));
      const back = await raw.message();
      assert.ok(back.equals(Buffer.from(message)), `${message.length} bytes changed on the way`);
    }
    // Many messages in flight, and one sent byte by byte.
    for (let number = 0; number < 1000; number += 1) raw.write(frame(TEXT, `message ${number}`));
    for (let number = 0; number < 1000; number += 1) {
      assert.equal(String(await raw.message()), `message ${number}`);
    }
    for (const byte of frame(TEXT, 'byte by byte')) raw.write(Buffer.from([byte]));
    assert.equal(String(await raw.message()), 'byte by byte');
    raw.write(closing(1000, ''));
    assert.equal((await raw.next()).kind, CLOSE);
  },

  async fragments(open) {
    const { raw } = await open('/echo');
    raw.write(frame(TEXT, 'one ', { fin: false }));
    raw.write(frame(MORE, '', { fin: false }));
    raw.write(frame(PING, 'between'));
    raw.write(frame(MORE, 'two ', { fin: false }));
    raw.write(frame(MORE, 'three'));
    // A pong may overtake messages.
    const came = [await raw.next(), await raw.next()].sort((one, other) => one.kind - other.kind);
    const result = came.map((got) => [got.kind, String(got.data)]);
    assert.deepEqual(result, [[TEXT, 'one two three'], [PONG, 'between']]);
    raw.stream.destroy();
  },

  async 'ping from the upstream'(open) {
    const { raw } = await open('/ping');
    const ping = await raw.next();
    assert.deepEqual([ping.kind, String(ping.data)], [PING, 'are you there']);
    raw.write(frame(PONG, ping.data));
    assert.equal(String(await raw.message()), 'pong are you there');
    raw.stream.destroy();
  },

  async 'close codes'(open) {
    for (const code of [1000, 1001, 3000, 4999]) {
      const { raw } = await open('/echo');
      raw.write(closing(code, 'from the client'));
      const response = await raw.next();
      assert.deepEqual([response.kind, response.data.readUInt16BE(0)], [CLOSE, code]);
      // The server closes first (RFC 6455, section 7.1.1), and its FIN arrives as FIN.
      assert.equal(await raw.next(), null);
      raw.stream.end();
    }
    for (const code of [1000, 1011, 4002]) {
      const { raw } = await open('/close');
      raw.write(frame(TEXT, String(code)));
      const result = await raw.next();
      assert.deepEqual([result.kind, result.data.readUInt16BE(0)], [CLOSE, code]);
      assert.equal(String(result.data.subarray(2)), 'as requested');
      raw.write(closing(code, ''));
      assert.equal(await raw.next(), null);
      raw.stream.end();
    }
  },

  async 'an invalid frame'(open) {
    const { raw } = await open('/echo');
    // Without a mask: the upstream's 1002 arrives at the client.
    raw.write(frame(TEXT, 'bare', { mask: false }));
    const result = await raw.next();
    assert.deepEqual([result.kind, result.data.readUInt16BE(0)], [CLOSE, 1002]);
    raw.stream.end();
  },

  async 'half-close'(open) {
    const { raw } = await open('/half');
    raw.stream.end(frame(TEXT, 'last message'));
    assert.equal(String(await raw.message()), 'after your end');
    assert.equal(await raw.next(), null);
  },

  async 'an upstream that closes abruptly'(open) {
    const { raw } = await open('/gone');
    raw.write(frame(TEXT, 'go'));
    // Over HTTP/2 the client must see a reset; HTTP/1.1 and TLS without an alert can only end.
    const end = await raw.next().then((got) => got, (error) => error);
    assert.ok(end === null ? version === 'h1' : end instanceof Error, `${end}`);
  },

  async refusal(open) {
    assert.equal((await open('/refused')).status, 403);
  },

  async 'twenty concurrent'(open) {
    await Promise.all(Array.from({ length: 20 }, async (_, number) => {
      const { raw } = await open('/echo');
      const message = crypto.randomBytes(100_000 + number);
      for (let turn = 0; turn < 5; turn += 1) {
        raw.write(frame(BINARY, message));
        assert.ok((await raw.message()).equals(message));
      }
      raw.stream.destroy();
    }));
  },
};

async function talk(base, ca) {
  for (const [name, run] of Object.entries(cases)) {
    const { open, done } = opener(base, ca);
    const late = setTimeout(() => { throw new Error(`${name}: not done after 10 s`); }, 10_000);
    try {
      await run(open);
    } catch (error) {
      error.message = `${name}: ${error.message}`;
      throw error;
    }
    clearTimeout(late);
    done();
  }
  // Exits without waiting for sockets whose other side is still open.
  process.exit(0);
}

if (role === 'serve') serve(...rest);
else await talk(...rest);
