// An application behind policies: `browser_policies.mjs PORT`. It has a style sheet, events and lines that come one by
// one, and prints the report that the page posts.

import http from 'node:http';

const rules = Array.from({ length: 1800 }, (_, at) =>
  `.panel-${at} > li:nth-child(${at % 9}) { margin: ${at % 13}px; color: #${(at * 7919 % 4096).toString(16)}; }`);
const style = rules.join('\n');

// An event or a line is sent when the page has seen the one before.
const streams = {};

const server = http.createServer((request, response) => {
  const url = new URL(request.url, 'http://any');
  switch (url.pathname) {
    case '/style.css':
      response.setHeader('Content-Type', 'text/css');
      response.setHeader('ETag', '"one"');
      return response.end(style);
    case '/events':
    case '/lines':
      response.setHeader('Content-Type', url.pathname === '/events' ? 'text/event-stream' : 'application/x-ndjson');
      streams[url.pathname] = response;
      return response.write(url.pathname === '/events' ? 'data: 0\n\n' : '{"at":0}\n');
    case '/next': {
      const [stream, at] = [url.searchParams.get('of'), url.searchParams.get('at')];
      streams[stream].write(stream === '/events' ? `data: ${at}\n\n` : `{"at":${at}}\n`);
      return response.end();
    }
    case '/report':
      return request.on('data', (part) => process.stdout.write(part)).on('end', () => {
        process.stdout.write('\n');
        response.end();
      });
    default:
      return response.end(`${request.method} ${request.headers['x-token'] ?? ''}`);
  }
});
server.listen(Number(process.argv[2]), '127.0.0.1');
