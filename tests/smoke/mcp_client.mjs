// The client of the MCP SDK: it calls a tool whose messages come one by one, and ends its session.
import dns from 'node:dns'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'

const [url, direct] = process.argv.slice(2)

// Every name is this machine.
dns.lookup = (name, options, callback = options) => {
  const address = { address: '127.0.0.1', family: 4 }
  options?.all ? callback(null, [address]) : callback(null, address.address, address.family)
}

const client = new Client({ name: 'smoke', version: '1' })
const transport = new StreamableHTTPClientTransport(new URL(url))
await client.connect(transport)
const { tools } = await client.listTools()
if (tools.length !== 1 || tools[0].name !== 'steps') throw new Error(JSON.stringify(tools))
const seen = []
const result = await client.callTool({ name: 'steps', arguments: {} }, undefined, {
  timeout: 30000,
  onprogress: async ({ progress }) => {
    seen.push(progress)
    // The server waits for it, not through the proxy.
    await fetch(`${direct}/received/${progress}`, { method: 'POST' })
  },
})
if (seen.join() !== '1,2,3' || result.content[0].text !== '3 steps') {
  throw new Error(JSON.stringify({ seen, result }))
}
await transport.terminateSession()
await client.close()
console.log('each message came when it was sent')
