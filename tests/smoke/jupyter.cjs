// Chromium uses JupyterLab: `jupyter.cjs URL FOLDER PROTOCOL [KEY]` runs a notebook at URL, whose responses must have
// come over PROTOCOL. KEY is that of the certificate that the browser accepts without an authority.

const assert = require('node:assert');
const puppeteer = require('puppeteer-core');

const [url, folder, protocol, key] = process.argv.slice(2);

async function main() {
  const browser = await puppeteer.launch({
    executablePath: process.env.CHROMIUM,
    userDataDir: `${folder}/profile`,
    env: { ...process.env, HOME: folder },
    args: [
      '--no-sandbox', '--disable-gpu', '--disable-quic', '--disable-dev-shm-usage', '--no-first-run',
      '--disable-background-networking', '--disable-component-update', '--disable-sync',
      `--log-net-log=${folder}/notes.json`, ...(key ? [`--ignore-certificate-errors-spki-list=${key}`] : []),
    ],
  });
  try {
    const page = await browser.newPage();
    await run(page).catch(async (error) => {
      console.error('outputs of the notebook:', await outputs(page));
      throw error;
    });
  } finally {
    await browser.close();
  }
}

async function run(page) {
  const failures = [];
  page.setDefaultTimeout(30_000);
  page.on('requestfailed', (request) => failures.push(`${request.url()}: ${request.failure()?.errorText}`));
  page.on('response', (response) => {
    if (response.status() >= 500) failures.push(`${response.url()}: ${response.status()}`);
  });
  const sockets = await receivedFrames(page);

  const response = await page.goto(`${url}/lab?token=for-this-test`);
  assert.strictEqual(response.status(), 200);
  const launcher = '.jp-LauncherCard[data-category="Notebook"]';
  await page.waitForSelector(launcher, { visible: true });
  await page.click(launcher);
  const cell = '.jp-Notebook .jp-Cell .cm-content';
  await page.waitForSelector(cell, { visible: true });
  await page.waitForSelector('.jp-Notebook-ExecutionIndicator[data-status="idle"]');
  await greeted(sockets);

  // The text of the cell does not contain what it prints, in two parts and one after the other.
  await page.click(cell);
  const first = 'print("a" * 3 + str(6 * 7), flush=True)';
  await page.keyboard.sendCharacter(`import time; ${first}; time.sleep(0.5); print(10 ** 20 + 1)`);
  await page.keyboard.down('Shift');
  await page.keyboard.press('Enter');
  await page.keyboard.up('Shift');
  const output = (expected) => page.waitForFunction(
    (text) => document.querySelector('.jp-OutputArea-output')?.textContent === text, {}, expected,
  );
  await output('aaa42\n');
  await output('aaa42\n100000000000000000001\n');

  // The notebook is saved through the proxy.
  await page.keyboard.down('Control');
  await page.keyboard.press('s');
  await page.keyboard.up('Control');
  // JupyterLab asks for a name.
  const accept = '.jp-Dialog .jp-mod-accept';
  await page.waitForSelector(accept, { visible: true });
  await page.click(accept);
  await page.waitForFunction(async () => {
    const names = await (await fetch('/api/contents?token=for-this-test')).json();
    const notebook = names.content.find((entry) => entry.type === 'notebook');
    if (!notebook) return false;
    const saved = await (await fetch(`/api/contents/${encodeURIComponent(notebook.name)}?token=for-this-test`)).text();
    return saved.includes('100000000000000000001');
  }, { polling: 200 });

  const protocols = await page.evaluate(() => performance.getEntriesByType('resource')
    .filter((entry) => entry.name.startsWith(location.origin) && entry.nextHopProtocol)
    .map((entry) => entry.nextHopProtocol));
  assert.deepStrictEqual([...new Set(protocols)], [protocol]);
  assert.ok(sockets.kernel > 5, `the WebSocket of the kernel has received ${sockets.kernel} messages`);
  assert.deepStrictEqual(failures.filter((failure) => !failure.includes('ERR_ABORTED')), []);
}

// JupyterLab drops what it executes while it still greets its kernel: waits until the kernel has said nothing for a second.
async function greeted(sockets) {
  for (let deadline = Date.now() + 30_000, before = 0; sockets.kernel === 0 || sockets.kernel > before;) {
    assert.ok(Date.now() < deadline, `the kernel has sent ${sockets.kernel} messages`);
    before = sockets.kernel;
    await new Promise((resolve) => { setTimeout(resolve, 1_000); });
  }
}

function outputs(page) {
  return page.$$eval('.jp-OutputArea-output', (all) => all.map((output) => output.textContent));
}

// Counts the messages that arrive on WebSockets of kernels.
async function receivedFrames(page) {
  const session = await page.createCDPSession();
  const kernels = new Set();
  const count = { kernel: 0 };
  await session.send('Network.enable');
  session.on('Network.webSocketCreated', (event) => {
    if (/\/api\/kernels\/.*\/channels/.test(event.url)) kernels.add(event.requestId);
  });
  session.on('Network.webSocketFrameReceived', (event) => {
    if (kernels.has(event.requestId)) count.kernel += 1;
  });
  return count;
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
