// Runs in the browser, as a static file of the site.
const problems = [];
const check = (what, good) => { if (!good) problems.push(what); };
const api = (path) => `https://api.localhost:${location.port}${path}`;

async function isBlocked(path, options) {
  try {
    await fetch(api(path), options);
    return false;
  } catch {
    return true;
  }
}

async function origins() {
  check('a simple request', (await (await fetch(api('/open'))).text()) === 'GET ');
  const put = { method: 'PUT', headers: { 'X-Token': 'a' } };
  check('a request with a preflight', (await (await fetch(api('/open'), put)).text()) === 'PUT a');
  const response = await fetch(api('/style.css'));
  check('a field that is exposed', response.headers.get('etag') === 'W/"one"');
  check('a field that is not exposed', response.headers.get('server-timing') === null);
  check('another method', await isBlocked('/fixed', { method: 'PUT' }));
  check('another origin', await isBlocked('/closed'));
  check('no policy', await isBlocked('/none'));
  const refused = await fetch(api('/limited')).then(() => fetch(api('/limited')));
  check(`beyond the rate: ${refused.status}`, refused.status === 429);
}

async function events() {
  const source = new EventSource('/events');
  const message = () => new Promise((resolve) => { source.onmessage = resolve; });
  let next = message();
  for (const at of [0, 1, 2]) {
    const { data } = await next;
    check(`event ${data}`, data === String(at));
    next = message();
    await fetch(`/next?of=/events&at=${at + 1}`, { method: 'POST' });
  }
  source.close();
}

async function lines() {
  const reader = (await fetch('/lines')).body.getReader();
  for (const at of [0, 1, 2]) {
    const { value } = await reader.read();
    check(`line ${at}`, new TextDecoder().decode(value) === `{"at":${at}}\n`);
    await fetch(`/next?of=/lines&at=${at + 1}`, { method: 'POST' });
  }
  await reader.cancel();
}

async function visit() {
  try {
    await origins();
    await (await fetch('/style.css')).text();
    const [style] = performance.getEntriesByName(`${location.origin}/style.css`);
    const { encodedBodySize: sent, decodedBodySize: size } = style;
    check(`a style sheet of ${size} bytes is sent with ${sent}`, size > 100_000 && sent < size / 4);
    await lines();
    await events();
  } catch (error) {
    problems.push(String(error));
  }
  await fetch('/report', { method: 'POST', body: JSON.stringify({ problems }) });
}
visit();
