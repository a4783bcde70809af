// Chromium shows the page of the control interface: `page.cjs URL PORT PID FOLDER [SCREENSHOTS]`. The gateway with this
// process id serves its sites at PORT of this machine.

const assert = require('node:assert');
const fs = require('node:fs');
const http = require('node:http');
const puppeteer = require('puppeteer-core');

const [url, port, pid, folder, screenshots] = process.argv.slice(2);

// Requests to each path, and the status of their responses.
const LOAD = [
  { path: '/', count: 120, status: 200 },
  { path: '/slow', count: 30, status: 200 },
  { path: '/broken', count: 20, status: 502 },
  { path: '/gone', count: 10, status: 404 },
];
const TOTAL = LOAD.reduce((total, { count }) => total + count, 0);

async function main() {
  const browser = await puppeteer.launch({
    executablePath: process.env.CHROMIUM,
    userDataDir: `${folder}/profile`,
    env: { ...process.env, HOME: folder },
    args: [
      '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run',
      '--disable-background-networking', '--disable-component-update', '--disable-sync',
    ],
  });
  try {
    await run(browser);
  } finally {
    await browser.close();
  }
}

async function run(browser) {
  const page = await browser.newPage();
  page.setDefaultTimeout(20_000);
  const problems = watch(page);
  const response = await page.goto(url);
  assert.strictEqual(response.status(), 200);
  // Two readings.
  await until(page, () => document.querySelector('#rate').textContent !== '–');

  await send();
  await until(page, (total) => (
    [...shown.by.values()].reduce((sum, { count }) => sum + count, 0) === total), TOTAL);
  await numbersAgree(page);
  for (const width of [400, 900, 1600]) {
    for (const scheme of ['light', 'dark']) await look(page, width, scheme);
  }
  await keyboardChoosesAnOrder(page);
  assert.deepStrictEqual(problems, []);
  await textIsNoMarkup(browser);

  process.kill(Number(pid), 'SIGTERM');
  await until(page, () => document.querySelector('#status').textContent !== '');
  const status = await page.$eval('#status', (node) => node.textContent);
  assert.match(status, /^The process does not answer .* The numbers are those of /);
  await picture(page, 'no-answer');
}

// Waits until a function of the page is true. Those of the browser's driver for this would break the policy of the page,
// which evaluates no text.
async function until(page, condition, argument) {
  for (let tries = 0; tries < 200; tries += 1) {
    if (await page.evaluate(condition, argument)) return;
    await new Promise((resolve) => { setTimeout(resolve, 100); });
  }
  throw new Error(`never true: ${condition}`);
}

// Errors and warnings of the page, and requests to other origins.
function watch(page) {
  const problems = [];
  page.on('console', (message) => {
    if (['error', 'warn', 'warning'].includes(message.type())) problems.push(message.text());
  });
  page.on('pageerror', (error) => problems.push(String(error)));
  page.on('requestfailed', (request) => problems.push(`${request.url()}: ${request.failure()?.errorText}`));
  page.on('request', (request) => {
    const isOwn = request.url().startsWith(url) || request.url() === 'data:,';
    if (!isOwn) problems.push(`a request to ${request.url()}`);
  });
  return problems;
}

async function send() {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 8 });
  const one = ({ path, status }) => new Promise((resolve, reject) => {
    const options = { host: '127.0.0.1', port, path, agent, headers: { host: 'app.example' } };
    http.get(options, (response) => {
      if (response.statusCode !== status) reject(new Error(`${path}: ${response.statusCode}`));
      response.resume().on('end', resolve);
    }).on('error', reject);
  });
  await Promise.all(LOAD.flatMap((kind) => Array.from({ length: kind.count }, () => one(kind))));
  agent.destroy();
}

async function numbersAgree(page) {
  const seen = await page.evaluate(() => {
    const rows = (id) => [...document.querySelectorAll(`#${id} tbody tr`)].map((row) => (
      [...row.cells].map((cell) => cell.firstChild.textContent)));
    return {
      failures: rows('failures'), routes: rows('routes'), causes: rows('causes'), upstreams: rows('upstreams'), certificates: rows('certificates'),
      counts: Object.fromEntries([...shown.by].map(([name, { count }]) => [name, count])),
      seconds: shown.seconds, rate: document.querySelector('#rate').textContent,
      good: document.querySelector('#good').textContent,
    };
  });
  const name = (path) => `app.example${path}`;
  const close = (text, expected) => {
    const value = Number(text.replace('/s', '').replaceAll(',', ''));
    assert.ok(Math.abs(value - expected) <= Math.max(0.06, expected * 0.06), `${text}, expected ${expected}`);
  };
  for (const { path, count } of LOAD) {
    assert.strictEqual(seen.counts[name(path)], count, JSON.stringify(seen.counts));
    const row = seen.routes.find(([route]) => route === name(path));
    close(row[1], count / seen.seconds);
  }
  close(seen.rate, TOTAL / seen.seconds);
  // 150 of 180.
  assert.strictEqual(seen.good, '83% 2xx');
  assert.strictEqual(seen.routes[0][0], name('/slow'), 'the slowest route comes first');
  const p50 = Number(/^(\d+) ms$/.exec(seen.routes[0][2])[1]);
  assert.ok(p50 >= 100 && p50 <= 500, seen.routes[0][2]);
  const broken = seen.routes.find(([route]) => route === name('/broken'));
  assert.strictEqual(broken[6], '100%');
  const failures = seen.causes.find(([cause]) => cause.startsWith('upstream failures: '));
  assert.deepStrictEqual(failures?.slice(1), ['20', '20'], JSON.stringify(seen.causes));
  assert.deepStrictEqual(seen.failures.map((row) => row.slice(1, 3)), [['502', '20']], JSON.stringify(seen.failures));
  assert.strictEqual(seen.upstreams[0][1], 'unreachable', JSON.stringify(seen.upstreams));
  assert.strictEqual(seen.certificates[0][0], 'app.example');
}

async function look(page, width, scheme) {
  await page.setViewport({ width, height: 900 });
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
  const wide = await page.evaluate(() => (
    [...document.querySelectorAll('body *')].filter((node) => node.getBoundingClientRect().right > window.innerWidth)
      .map((node) => `${node.closest('[id]')?.id} ${node.tagName}: ${node.textContent.slice(0, 80)}`)));
  await picture(page, `${width}-${scheme}`);
  assert.deepStrictEqual(wide, [], `wider than ${width}`);
}

async function picture(page, name) {
  if (!screenshots) return;
  fs.mkdirSync(screenshots, { recursive: true });
  await page.screenshot({ path: `${screenshots}/${name}.png`, fullPage: true });
}

// With the keyboard alone, as a radio button.
async function keyboardChoosesAnOrder(page) {
  await page.focus('input[name=order]:checked');
  await page.keyboard.press('ArrowRight');
  const first = await page.$eval('#routes tbody th', (cell) => cell.firstChild.textContent);
  assert.strictEqual(first, 'app.example/', 'the busiest route comes first');
}

// Names of the process that look like HTML stay text.
async function textIsNoMarkup(browser) {
  const page = await browser.newPage();
  const text = '<img src="/picture" onerror="alert(1)">';
  await page.setRequestInterception(true);
  page.on('request', (request) => {
    if (!request.url().endsWith('/upstreams')) return request.continue();
    const upstreams = [{ url: text, names: [], failure: text, addresses: [] }];
    return request.respond({ contentType: 'application/json', body: JSON.stringify({ upstreams }) });
  });
  await page.goto(url);
  await until(page, () => document.querySelector('#upstreams tbody tr') !== null);
  const seen = await page.evaluate(() => [
    document.querySelector('#upstreams tbody th').firstChild.textContent, document.images.length,
  ]);
  assert.deepStrictEqual(seen, [text, 0]);
  await page.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
