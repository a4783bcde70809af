package main

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// upstream is a server of Go's net/http on an address of its own.
type upstream struct {
	version, address int
	ledger           *ledger
	certificate      *tls.Certificate
	bound            string
	cuts             uint64
	lock             sync.Mutex
	server           *http.Server
	accepted         atomic.Uint64
}

// handshakePauseMax is how long a tardy upstream waits before it shakes hands.
const handshakePauseMax = 400 * time.Millisecond

type connectionKey struct{}

func startUpstream(version, address int, ledger *ledger, certificate *tls.Certificate, seed uint64) (*upstream, error) {
	u := &upstream{version: version, address: address, ledger: ledger, certificate: certificate,
		cuts: seed ^ uint64(version)<<40 ^ uint64(address)<<48, bound: "127.0.0.1:0"}
	return u, u.listen()
}

// listen opens the address and serves it with a server of its own.
func (u *upstream) listen() error {
	listener, err := net.Listen("tcp", u.bound)
	if err != nil {
		return err
	}
	u.bound = listener.Addr().String()
	server := &http.Server{Handler: u, Protocols: new(http.Protocols), ErrorLog: quiet}
	server.Protocols.SetHTTP1(u.version <= h1TLS)
	server.Protocols.SetUnencryptedHTTP2(u.version == h2)
	server.Protocols.SetHTTP2(u.version == h2TLS)
	server.ConnContext = func(ctx context.Context, connection net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, connection)
	}
	server.SetKeepAlivesEnabled(u.address != tardy)
	u.lock.Lock()
	u.server = server
	u.lock.Unlock()
	cutting := &cuttingListener{listener, u}
	go func() {
		if u.version == h1TLS || u.version == h2TLS {
			server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*u.certificate}}
			server.ServeTLS(cutting, "", "")
		} else {
			server.Serve(cutting)
		}
	}()
	return nil
}

// cuttingListener accepts connections, every fourth of which sends its packets in pieces.
type cuttingListener struct {
	net.Listener
	upstream *upstream
}

func (l *cuttingListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	number := l.upstream.accepted.Add(1)
	dice := rand.New(rand.NewPCG(l.upstream.cuts, number))
	switch {
	case l.upstream.address == tardy:
		return &tardyConnection{Conn: connection, pause: time.Duration(dice.Int64N(int64(handshakePauseMax)))}, nil
	case dice.IntN(4) == 0:
		return &cutConnection{Conn: connection, dice: dice}, nil
	}
	return connection, nil
}

// restart ends the server in one of three ways and starts another on the same address.
func (u *upstream) restart(dice *rand.Rand) error {
	u.lock.Lock()
	server := u.server
	u.lock.Unlock()
	switch dice.IntN(3) {
	case 0:
		server.Close()
	case 1:
		// Nobody listens for a moment.
		server.Close()
		time.Sleep(time.Duration(dice.IntN(300)) * time.Millisecond)
	default:
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		go func() {
			defer stop()
			// The listener closes at once; what runs has time to end.
			server.Shutdown(ctx)
		}()
		time.Sleep(20 * time.Millisecond)
	}
	for range 100 {
		if err := u.listen(); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return u.listen()
}

func (u *upstream) close() {
	u.lock.Lock()
	defer u.lock.Unlock()
	u.server.Close()
}

// url is where the gateway finds this upstream.
func (u *upstream) url() string {
	_, port, _ := net.SplitHostPort(u.bound)
	return [versions]string{"http://127.0.0.1:", "https://localhost:", "h2c://127.0.0.1:", "https://localhost:"}[u.version] + port
}
