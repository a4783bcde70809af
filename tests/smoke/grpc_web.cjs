// gRPC-Web calls as in a browser: `node grpc_web.cjs PROXY PROXY_WITHOUT_UPSTREAM`.
const assert = require('node:assert');
const path = require('node:path');
const whole = require('xhr2');
const piecewise = require('xmlhttprequest').XMLHttpRequest;
const grpc = require('grpc-web');
const protobuf = require('protobufjs');

// Until the end is reached; Node would otherwise end with 0 when only a pending promise is left.
process.exitCode = 1;

const [proxy, dead] = process.argv.slice(2);
const root = protobuf.loadSync(path.join(__dirname, 'grpc', 'test.proto'));
const service = root.lookupService('grpc.testing.TestService');

/** The client's descriptor of a method. */
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
  // Of the two implementations for Node, only this one accepts bytes.
  global.XMLHttpRequest = whole;
  const descriptor = describe(name);
  const message = service.methods[name].resolvedRequestType.fromObject(request);
  return client.unaryCall(host + descriptor.getName(), message, metadata, descriptor);
}

/** All events of a call, in order. */
function stream(name, request, metadata = {}) {
  const client = new grpc.GrpcWebClientBase({ format: 'text' });
  // Only this implementation reports partial content.
  global.XMLHttpRequest = piecewise;
  const descriptor = describe(name);
  const message = service.methods[name].resolvedRequestType.fromObject(request);
  const call = client.serverStreaming(proxy + descriptor.getName(), message, metadata, descriptor);
  const events = [];
  return new Promise((resolve) => {
    const note = (kind, value) => events.push({ kind, value, at: Date.now() });
    call.on('data', (response) => note('data', response.payload.body.length));
    call.on('status', (status) => note('status', status.code));
    call.on('error', (error) => (note('error', error), resolve(events)));
    call.on('end', () => resolve(events));
  });
}

const failed = (call) => call.then(() => assert.fail('the call succeeded'), (error) => error);

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
    const unavailable = await failed(unary(format, dead, 'EmptyCall', {}));
    assert.strictEqual(unavailable.code, grpc.StatusCode.UNAVAILABLE);
    assert.strictEqual(unavailable.message, 'the upstream refused the connection');
    console.log(`grpc-web: unary calls, ${format}`);
  }

  // Each message arrives when it is sent, not at the end.
  const sizes = [1, 31415, 9, 2653];
  const parameters = sizes.map((size) => ({ size, intervalUs: 150000 }));
  const events = await stream('StreamingOutputCall', { responseParameters: parameters });
  const data = events.filter(({ kind }) => kind === 'data');
  assert.deepStrictEqual(data.map(({ value }) => value), sizes);
  assert.deepStrictEqual(events.at(-1).value, 0);
  const apart = data.at(-1).at - data[0].at;
  assert(apart > 300, `all within ${apart} ms`);

  // A call that ends with an error, and one whose deadline expires.
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
