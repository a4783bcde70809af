// A member in Node: member.mjs ADDRESS PORT NAME POSTS MODES [h2c]. See member.py.
import { openSync, readFileSync, writeSync } from "node:fs";
import http from "node:http";
import http2 from "node:http2";

const [address, port, name, posts, modes, version] = process.argv.slice(2);
let mode = "ok";
// Opened now: later there may be no descriptor left.
const log = openSync(posts, "a");
process.on("SIGUSR2", () => (mode = readFileSync(modes, "utf8").trim()));

function respond(request, response) {
  request.resume();
  request.on("end", () => {
    if (request.method === "POST") writeSync(log, request.url + "\n");
    setTimeout(
      () => {
        response.writeHead(mode === "500" ? 500 : 200, { "X-Member": name, "Content-Length": request.url.length });
        response.end(request.url);
      },
      mode === "slow" ? 205 : 5,
    );
  });
}

const sessions = new Set();
const server = version === "h2c" ? http2.createServer(respond) : http.createServer(respond);
server.on("session", (session) => {
  sessions.add(session);
  session.on("close", () => sessions.delete(session));
});
// As in a deployment: no new connections, and those that are idle are closed.
process.on("SIGTERM", () => {
  server.close(() => process.exit());
  for (const session of sessions) session.close();
});
server.maxRequestsPerSocket = 50;
server.listen(Number(port), address);
