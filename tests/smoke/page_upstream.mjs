// An upstream: `page_upstream.mjs PORT`. Its responses below `/slow` take 120 ms.

import http from 'node:http';

const server = http.createServer((request, response) => {
  const wait = request.url.startsWith('/slow') ? 120 : 0;
  setTimeout(() => response.end('x'.repeat(1_000)), wait);
});
server.listen(Number(process.argv[2]), '127.0.0.1');
