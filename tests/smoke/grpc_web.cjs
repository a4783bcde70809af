// Calls over gRPC-Web, as a browser makes them: `node grpc_web.cjs PROXY PROXY_OF_NOTHING`.
const assert = require('node:assert');
const path = require('node:path');
const whole = require('xhr2');
const piecewise = require('xmlhttprequest').XMLHttpRequest;
const grpc = require('grpc-web');
const protobuf = require('protobufjs');

// Until the end is reached: Node would end with 0 when all that is left is a promise that never settles.
process.exitCode = 1;

const [proxy, dead] = process.argv.slice(2);
const root = protobuf.loadSync(path.join(__dirname, 'grpc', 'test.proto'));
const service = root.lookupService('grpc.testing.TestService');

/** What the client has to know of a method. */
function describe(name) {
  const method = service.methods[name].resolve();
  const kind = method.responseStream ? grpc.MethodType.SERVER_STREAMING : grpc.MethodType.UNARY;
  const { resolvedRequestType: request, resolvedResponseType: response } = method;
  const encode = (message) => request.encode(message).finish();
  const decode = (bytes) => response.decode(bytes);
  const url = `/grpc.testing.TestService/${name}`;
  return new grpc.MethodDescriptor(url, kind, request.ctor, response.ctor, encode, decode);
}

function unary(format, host, name, request, metadata = {}) {
  const client = new grpc.GrpcWebClientBase({ format });
  // Of the two that Node has of it, only this one takes bytes.
  global.XMLHttpRequest = whole;
  const descriptor = describe(name);
  const message = service.methods[name].resolvedRequestType.fromObject(request);
  return client.unaryCall(host + descriptor.getName(), message, metadata, descriptor);
}

/** Everything that came of a call, in order. */
function stream(name, request, metadata = {}) {
  const client = new grpc.GrpcWebClientBase({ format: 'text' });
  // And only this one shows what has come so far.
  global.XMLHttpRequest = piecewise;
  const descriptor = describe(name);
  const message = service.methods[name].resolvedRequestType.fromObject(request);
  const call = client.serverStreaming(proxy + descriptor.getName(), message, metadata, descriptor);
  const events = [];
  return new Promise((resolve) => {
    const note = (kind, value) => events.push({ kind, value, at: Date.now() });
    call.on('data', (answer) => note('data', answer.payload.body.length));
    call.on('status', (status) => note('status', status.code));
    call.on('error', (error) => (note('error', error), resolve(events)));
    call.on('end', () => resolve(events));
  });
}

const failed = (call) => call.then(() => assert.fail('it has an answer'), (error) => error);

(async () => {
  for (const format of ['text', 'binary']) {
    const small = await unary(format, proxy, 'UnaryCall', { responseSize: 4 });
    assert.strictEqual(small.payload.body.length, 4);
    const body = Buffer.alloc(271828, 7);
    const large = await unary(format, proxy, 'UnaryCall', { responseSize: 314159, payload: { body } });
    assert.strictEqual(large.payload.body.length, 314159);

    const message = 'no % way, ☺';
    const request = { responseStatus: { code: 9, message } };
    const status = await failed(unary(format, proxy, 'UnaryCall', request));
    assert.deepStrictEqual([status.code, status.message], [9, message]);
    const unknown = await failed(unary(format, proxy, 'UnimplementedCall', {}));
    assert.strictEqual(unknown.code, grpc.StatusCode.UNIMPLEMENTED);
    const nobody = await failed(unary(format, dead, 'EmptyCall', {}));
    assert.strictEqual(nobody.code, grpc.StatusCode.UNAVAILABLE);
    assert.strictEqual(nobody.message, 'the upstream refused the connection');
    console.log(`grpc-web: unary calls, ${format}`);
  }

  // Each message comes when it is sent, not when all are.
  const sizes = [1, 31415, 9, 2653];
  const parameters = sizes.map((size) => ({ size, intervalUs: 150000 }));
  const events = await stream('StreamingOutputCall', { responseParameters: parameters });
  const data = events.filter(({ kind }) => kind === 'data');
  assert.deepStrictEqual(data.map(({ value }) => value), sizes);
  assert.deepStrictEqual(events.at(-1).value, 0);
  const apart = data.at(-1).at - data[0].at;
  assert(apart > 300, `all within ${apart} ms`);

  // One that ends with an error, and one whose time is over.
  const ends = await stream('StreamingOutputCall', {
    responseParameters: [{ size: 5 }],
    responseStatus: { code: 5, message: 'gone' },
  });
  assert.strictEqual(ends[0].value, 5);
  assert.strictEqual(ends.find(({ kind }) => kind === 'error').value.code, 5);
  const slow = { responseParameters: [{ size: 1 }, { size: 1, intervalUs: 5000000 }] };
  const late = await stream('StreamingOutputCall', slow, { 'grpc-timeout': '300m' });
  assert.strictEqual(late[0].value, 1);
  const error = late.find(({ kind }) => kind === 'error').value;
  assert.strictEqual(error.code, grpc.StatusCode.DEADLINE_EXCEEDED);
  console.log('grpc-web: server streaming');
  process.exitCode = 0;
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
