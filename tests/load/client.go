package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync/atomic"
	"time"
)

// gatewayAddresses are the addresses of the gateway's listeners.
type gatewayAddresses struct{ clear, tls string }

// clientSets is the number of clients per version; each has its own connections.
const clientSets = 3

// client sends exchanges with Go's net/http in one version.
type client struct {
	version   int
	gateway   gatewayAddresses
	tracker   *tracker
	transport *http.Transport
}

func newClient(version, set int, gateway gatewayAddresses, tracker *tracker, trust *tls.Config, seed uint64) *client {
	transport := &http.Transport{
		Protocols: new(http.Protocols), TLSClientConfig: trust.Clone(), DisableCompression: true,
		MaxIdleConnsPerHost: 8, ExpectContinueTimeout: time.Minute,
	}
	transport.Protocols.SetHTTP1(version <= h1TLS)
	transport.Protocols.SetUnencryptedHTTP2(version == h2)
	transport.Protocols.SetHTTP2(version == h2TLS)
	var dialled atomic.Uint64
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		rng := rand.New(rand.NewPCG(seed^uint64(version)<<32^uint64(set)<<40, dialled.Add(1)))
		if rng.IntN(4) == 0 {
			return &splitConnection{Conn: connection, rng: rng}, nil
		}
		return connection, nil
	}
	return &client{version, gateway, tracker, transport}
}

func (c *client) url(p *plan) string {
	if c.version == h1TLS || c.version == h2TLS {
		return "https://" + c.gateway.tls + p.path()
	}
	return "http://" + c.gateway.clear + p.path()
}

// run sends one exchange and checks its response.
func (c *client) run(ctx context.Context, p *plan) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e := c.tracker.register(p, newActivity(), cancel)
	if p.address == lateHandshake {
		e.allowPause(handshakePauseMax)
	}
	began := time.Now()
	outcome := c.exchange(ctx, e)
	e.clientTook = time.Since(began)
	checkOutcome(c.tracker, e, outcome)
}

// outcome is the result of an exchange at the client.
type outcome struct {
	status   int
	fields   http.Header
	trailers http.Header
	// A fault in the received bytes.
	wrong error
	// The reason why the response is incomplete or missing.
	interrupted error
	// Whether the client aborted as planned.
	isAborted bool
}

func (c *client) exchange(ctx context.Context, e *exchange) outcome {
	p := e.plan
	e.clientAt("sends")
	request, body := c.request(ctx, e)
	if p.abort == abortBeforeHead {
		e.allowPause(p.abortAfter)
		timer := time.AfterFunc(p.abortAfter, e.cancel)
		defer timer.Stop()
	}
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		return outcome{interrupted: err, isAborted: p.abort == abortBeforeHead && ctx.Err() != nil || body.isAborted.Load()}
	}
	defer response.Body.Close()
	e.clientAt("has the head")
	e.touch()
	seen := outcome{status: response.StatusCode, fields: response.Header}
	if p.abort == abortAfterHead && isFromUpstream(&seen) {
		e.cancel()
		seen.isAborted = true
		return seen
	}
	seen.readBody(e, response.Body)
	seen.isAborted = seen.isAborted || body.isAborted.Load()
	seen.trailers = response.Trailer
	if e.slowReader && !seen.isAborted {
		e.sleep(5 * time.Millisecond)
	}
	return seen
}

func (c *client) request(ctx context.Context, e *exchange) (*http.Request, *sentBody) {
	p := e.plan
	trace := &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) {
			e.attempts.Add(1)
			c.tracker.setConnection(e, got.Conn.LocalAddr().String())
		},
		Got1xxResponse: func(status int, fields textproto.MIMEHeader) error {
			e.touch()
			e.countInterim(c.tracker, status, fields.Get("Link"))
			return nil
		},
	}
	body := &sentBody{exchange: e, ctx: ctx, chunks: newChunker(p.rng(1), p.slowRequest)}
	var content io.ReadCloser = http.NoBody
	if p.requestSize > 0 {
		content = body
	}
	request, _ := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), p.method, c.url(p), content)
	request.ContentLength = -1
	if p.requestSized || p.requestSize == 0 {
		request.ContentLength = p.requestSize
	}
	request.Header.Set("X-Load-Id", p.id())
	request.Header.Set("X-Load-Field", p.field())
	request.Header.Set("Te", "trailers")
	if p.expect {
		request.Header.Set("Expect", "100-continue")
	}
	if p.requestTrailers {
		request.Trailer = http.Header{"X-Load-Sum": nil}
		body.trailers = request.Trailer
	}
	return request, body
}

// sentBody is the content of a request, sent in chunks with pauses.
type sentBody struct {
	*exchange
	ctx       context.Context
	chunks    *chunker
	offset    int64
	trailers  http.Header
	isAborted atomic.Bool
}

func (b *sentBody) Read(part []byte) (int, error) {
	p := b.plan
	if b.offset == p.requestSize {
		if b.trailers != nil {
			b.trailers.Set("X-Load-Sum", trailer(p, true))
		}
		b.clientAt("has sent the request")
		return 0, io.EOF
	}
	end := p.requestSize
	if p.abort == abortInRequest {
		end = p.abortAt
		if b.offset == end {
			b.isAborted.Store(true)
			b.cancel()
			return 0, context.Canceled
		}
	}
	b.sleep(b.chunks.pause())
	size := min(int64(b.chunks.size()), int64(len(part)), end-b.offset)
	p.requestContent().fill(part[:size], b.offset)
	b.offset += size
	b.requestSent.Store(b.offset)
	b.touch()
	return int(size), nil
}

func (b *sentBody) Close() error { return nil }

// readBody receives the content of a response and compares every byte.
func (o *outcome) readBody(e *exchange, body io.Reader) {
	p := e.plan
	e.clientAt("reads the response")
	// Content of the gateway itself or of a faulty upstream is checked only for its end.
	isCompared := isFromUpstream(o) && (p.fault != faultGarbage || e.isGarbageAverted())
	check := verifier{content: p.responseContent(), size: p.responseSize}
	if p.isBodyless() {
		check.size = 0
	}
	chunks := newChunker(p.rng(2), p.slowReader)
	part := make([]byte, 64<<10)
	for {
		count, err := body.Read(part[:chunks.size()])
		e.responseReceived.Add(int64(count))
		if count > 0 {
			e.touch()
			if isCompared {
				if o.wrong = check.take(part[:count]); o.wrong != nil {
					return
				}
			}
		}
		if p.abort == abortInResponse && isCompared && check.offset > 0 {
			e.cancel()
			o.isAborted = true
			return
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			o.interrupted = err
			return
		}
		e.sleep(chunks.pause())
	}
	e.clientAt("has the response")
	if isCompared {
		o.wrong = check.end()
	} else if isFromUpstream(o) {
		o.wrong = errors.New("garbage from an upstream became a complete response")
	}
}

// isFromUpstream is whether the response comes from the upstream and not from the gateway itself.
func isFromUpstream(o *outcome) bool { return o.fields.Get("X-Load-Id") != "" }
