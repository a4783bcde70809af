package main

import (
	"net"
	"net/http"
	"strconv"
)

// injectFault sends the planned faulty response. The gateway's client must receive an error or an incomplete
// response, never a wrong one that looks complete.
func (a *response) injectFault() error {
	p := a.plan
	a.upstreamAt("injects a fault: " + faultNames[p.fault])
	switch p.fault {
	case faultCloseBeforeHead:
		return errBroken
	case faultTruncateResponse:
		return a.truncate()
	case faultResetInResponse:
		return a.resetAfter(a.truncate)
	case faultKillConnection:
		return a.resetAfter(func() error { return nil })
	case faultCloseAfterResponse:
		return a.closeAfterResponse()
	default:
		return a.garbage()
	}
}

// truncate sends a part of the response.
func (a *response) truncate() error {
	if a.isBodyless() {
		return errBroken
	}
	a.write(a.faultAt)
	http.NewResponseController(a.w).Flush()
	return errBroken
}

// resetAfter closes the connection with RST, with all its other streams.
func (a *response) resetAfter(before func() error) error {
	before()
	connection := a.r.Context().Value(connectionKey{}).(net.Conn)
	if lingering, is := tcp(connection); is {
		lingering.SetLinger(0)
		lingering.Close()
	}
	return errBroken
}

// closeAfterResponse sends the whole response and closes the connection without announcing it: the gateway may
// have sent the next request already.
func (a *response) closeAfterResponse() error {
	if err := a.write(a.responseSize); err != nil || !a.responseSized {
		return errBroken
	}
	http.NewResponseController(a.w).Flush()
	connection := a.r.Context().Value(connectionKey{}).(net.Conn)
	connection.Close()
	return errBroken
}

// garbage sends bytes that are no valid HTTP/1.1 response.
func (a *response) garbage() error {
	connection, buffered, err := http.NewResponseController(a.w).Hijack()
	if err != nil {
		return errBroken
	}
	defer connection.Close()
	heads := []string{
		"HTTP/1.1 2x0 OK\r\nContent-Length: 5\r\n\r\nwrong",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nwrong!",
		"HTTP/1.1 200 OK\r\nBad name: 1\r\nContent-Length: 5\r\n\r\nwrong",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Load-Id: " + a.id() + "\r\n\r\n5\r\nwrong\r\nz\r\n",
		"HTTP/1.1 200 OK\r\nX-Load-Id: " + a.id() + "\r\nContent-Length: " + strconv.FormatInt(a.responseSize+2, 10) + "\r\n\r\nx",
		"\x00\x01\x02\x03",
	}
	buffered.WriteString(heads[a.rng(5).IntN(len(heads))])
	a.garbageSent.Store(true)
	if buffered.Flush() != nil {
		a.garbageSent.Store(false)
	}
	return nil
}

// tcp returns the underlying TCP connection.
func tcp(connection net.Conn) (*net.TCPConn, bool) {
	for {
		switch wrapped := connection.(type) {
		case *net.TCPConn:
			return wrapped, true
		case *splitConnection:
			connection = wrapped.Conn
		case *lateHandshakeConnection:
			connection = wrapped.Conn
		case interface{ NetConn() net.Conn }:
			connection = wrapped.NetConn()
		default:
			return nil, false
		}
	}
}
