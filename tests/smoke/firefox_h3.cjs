// Firefox visits a page: `firefox_h3.cjs URL FOLDER PICTURE`. The first visit learns of HTTP/3 by Alt-Svc; the page is
// loaded until a visit uses it. The report of that visit is checked, and saved as PICTURE. FOLDER has the profile.

const assert = require('node:assert');
const puppeteer = require('puppeteer-core');

const [url, folder, picture] = process.argv.slice(2);
const VISITS_MAX = 5;
const GOOD = { problems: [], protocols: ['h3'], things: 50, subprotocol: 'chat.v1', close: 4001 };

async function main() {
  const browser = await puppeteer.launch({
    browser: 'firefox',
    executablePath: process.env.FIREFOX,
    userDataDir: `${folder}/profile`,
    env: { ...process.env, HOME: folder, TMPDIR: folder },
    extraPrefsFirefox: {
      'network.http.http3.enable': true,
      // The certificate's authority is not one of Firefox's own.
      'network.http.http3.disable_when_third_party_roots_found': false,
      // A log with QPACK's instructions, in TMPDIR.
      'network.http.http3.enable_qlog': true,
      // Blitz listens on 127.0.0.1 only.
      'network.dns.disableIPv6': true,
    },
  });
  try {
    const page = await browser.newPage();
    page.setDefaultTimeout(30_000);
    const protocols = [];
    let report;
    while (protocols.at(-1) !== 'h3') {
      assert(protocols.length < VISITS_MAX, `no visit used HTTP/3: ${protocols}`);
      await page.goto(url);
      await page.waitForFunction(() => document.querySelector('pre').textContent !== 'running');
      [protocols[protocols.length], report] = await page.evaluate(() => [
        performance.getEntriesByType('navigation')[0].nextHopProtocol,
        JSON.parse(document.querySelector('pre').textContent),
      ]);
    }
    assert.strictEqual(protocols[0], 'h2', 'Firefox knew HTTP/3 before its first visit');
    assert.deepStrictEqual(report, GOOD);
    await page.screenshot({ path: picture });
    console.log(`firefox_h3: visits over ${protocols.join(', ')}`);
  } finally {
    await browser.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
