// An HTTP/2-only upstream with Node's http2: `node_upstream.mjs PORT [CERT KEY]`. Its pages are those of
// go/serve.go. On SIGHUP it sends GOAWAY to every connection and prints their number.

import crypto from 'node:crypto';
import fs from 'node:fs';
import http2 from 'node:http2';

const [port, cert, key] = process.argv.slice(2);
const server = cert
  ? http2.createSecureServer({ cert: fs.readFileSync(cert), key: fs.readFileSync(key) })
  : http2.createServer();

const pages = {
  '/version': (request, response) => response.end(`HTTP/${request.httpVersion}`),
  '/digest': async (request, response) => {
    const sum = crypto.createHash('sha256');
    let length = 0;
    for await (const piece of request) {
      sum.update(piece);
      length += piece.length;
    }
    response.end(`${length} ${sum.digest('hex')} ${request.trailers['x-sent'] ?? ''}`);
  },
  '/bytes': async (request, response, url) => {
    const sum = crypto.createHash('sha256');
    response.writeHead(200, { trailer: 'X-Sum' });
    for (let left = Number(url.searchParams.get('size')); left > 0; left -= 32_768) {
      const block = crypto.randomBytes(Math.min(left, 32_768));
      sum.update(block);
      if (!response.write(block)) {
        await new Promise((resolve) => response.once('drain', resolve).once('close', resolve));
      }
    }
    response.addTrailers({ 'X-Sum': sum.digest('hex') });
    response.end();
  },
  '/empty': (request, response) => {
    response.writeHead(200, { 'trailer': 'X-Sum', 'content-length': 0 });
    response.addTrailers({ 'X-Sum': '0' });
    response.end();
  },
  '/slow': (request, response) => setTimeout(() => response.end('slow'), 50),
  '/hints': (request, response) => {
    response.writeEarlyHints({ link: '</style.css>; rel=preload' });
    response.end('hinted');
  },
  '/cut': (request, response) => {
    response.write('begun', () => response.stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR));
  },
};

const sessions = new Set();
server.on('session', (session) => {
  sessions.add(session);
  session.on('close', () => sessions.delete(session));
});
process.on('SIGHUP', () => {
  const open = [...sessions].filter((session) => !session.closed);
  open.forEach((session) => session.close());
  console.log(`GOAWAY to ${open.length} sessions`);
});

server.on('request', (request, response) => {
  const url = new URL(request.url, 'http://upstream');
  const page = pages[url.pathname];
  if (page) Promise.resolve(page(request, response, url)).catch(() => response.stream.close());
  else response.writeHead(404).end();
});
server.listen(Number(port), '127.0.0.1');
