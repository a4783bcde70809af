// Chromium loads the page of a development server, and gets a module that is changed then, on the same page.
const fs = require('node:fs')
const puppeteer = require('puppeteer-core')

const [url, protocol, file, profile, known] = process.argv.slice(2)

async function main() {
  const browser = await puppeteer.launch({
    executablePath: process.env.CHROMIUM,
    userDataDir: profile,
    args: [
      '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-quic', '--no-proxy-server',
      '--host-resolver-rules=MAP *.example 127.0.0.1', `--ignore-certificate-errors-spki-list=${known}`,
    ],
  })
  const page = await browser.newPage()
  page.on('console', (message) => console.log(message.text()))
  const shows = (text) =>
    page.waitForFunction((text) => document.getElementById('text').textContent === text, { timeout: 20000 }, text)
  // Vite says so when its WebSocket is open: changes before are lost.
  const connected = new Promise((resolve) => {
    page.on('console', (message) => message.text().includes('[vite] connected') && resolve())
  })
  await page.goto(url)
  await shows('first')
  const used = await page.evaluate(() => performance.getEntriesByType('navigation')[0].nextHopProtocol)
  if (used !== protocol) throw new Error(`the page came over ${used}`)
  await Promise.race([connected, fail(20000, 'the WebSocket of Vite is not connected')])
  await page.evaluate(() => (window.isSamePage = true))
  fs.writeFileSync(file, "export const text = 'second'\n")
  await shows('second')
  if (!(await page.evaluate(() => window.isSamePage))) throw new Error('the page was loaded again')
  await browser.close()
}

function fail(after, message) {
  return new Promise((_, reject) => setTimeout(() => reject(new Error(message)), after).unref())
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
