// An MCP server with sessions and one tool, which sends its next message only when the client has the last one.
import { randomUUID } from 'node:crypto'
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js'
import { createMcpExpressApp } from '@modelcontextprotocol/sdk/server/express.js'

const COUNT = 3
const sessions = new Map()
// The number of the last message that the client has, and those who wait for one.
let received = 0
let waiting = []

function hasReceived(number) {
  return new Promise((resolve) => {
    waiting.push({ number, resolve })
    wake()
  })
}

function wake() {
  waiting = waiting.filter(({ number, resolve }) => number > received || resolve())
}

function server() {
  const server = new McpServer({ name: 'steps', version: '1' })
  server.registerTool('steps', { description: 'sends messages one by one' }, async (extra) => {
    const progressToken = extra._meta?.progressToken
    received = 0
    for (let progress = 1; progress <= COUNT; progress++) {
      await extra.sendNotification({
        method: 'notifications/progress',
        params: { progressToken, progress, total: COUNT },
      })
      await hasReceived(progress)
    }
    return { content: [{ type: 'text', text: `${COUNT} steps` }] }
  })
  return server
}

const app = createMcpExpressApp()
app.post('/received/:number', (request, response) => {
  received = Number(request.params.number)
  wake()
  response.end()
})
app.all('/mcp', async (request, response) => {
  const known = sessions.get(request.headers['mcp-session-id'])
  if (known) return known.handleRequest(request, response, request.body)
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => sessions.set(id, transport),
  })
  await server().connect(transport)
  await transport.handleRequest(request, response, request.body)
})
app.listen(Number(process.argv[2]), '127.0.0.1')
