package main

import (
	"net"
	"net/http"
	"strconv"
)

// breakOff answers wrongly, as the plan says. The gateway's client must see an error or a cut, and never
// an answer that looks complete and is wrong.
func (a *answer) breakOff() error {
	p := a.plan
	a.upstreamAt("breaks off: " + faultNames[p.fault])
	switch p.fault {
	case faultCutBeforeHead:
		return errBroken
	case faultCutInAnswer:
		return a.cut()
	case faultResetInAnswer:
		return a.resetAfter(a.cut)
	case faultKillConnection:
		return a.resetAfter(func() error { return nil })
	case faultCloseAfterAnswer:
		return a.closeAfterAnswer()
	default:
		return a.garbage()
	}
}

// cut writes a part of the answer.
func (a *answer) cut() error {
	if a.isBodyless() {
		return errBroken
	}
	a.write(a.faultAt)
	http.NewResponseController(a.w).Flush()
	return errBroken
}

// resetAfter ends the connection with RST, and with it everything else on it.
func (a *answer) resetAfter(before func() error) error {
	before()
	connection := a.r.Context().Value(connectionKey{}).(net.Conn)
	if lingering, is := tcp(connection); is {
		lingering.SetLinger(0)
		lingering.Close()
	}
	return errBroken
}

// closeAfterAnswer answers completely and closes the connection without having said so: the gateway may
// have sent the next request on it already.
func (a *answer) closeAfterAnswer() error {
	if err := a.write(a.answerSize); err != nil || !a.answerSized {
		return errBroken
	}
	http.NewResponseController(a.w).Flush()
	connection := a.r.Context().Value(connectionKey{}).(net.Conn)
	connection.Close()
	return errBroken
}

// garbage sends what is no head of HTTP/1.1.
func (a *answer) garbage() error {
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
		"HTTP/1.1 200 OK\r\nX-Load-Id: " + a.id() + "\r\nContent-Length: " + strconv.FormatInt(a.answerSize+2, 10) + "\r\n\r\nx",
		"\x00\x01\x02\x03",
	}
	buffered.WriteString(heads[a.dice(5).IntN(len(heads))])
	a.garbageSent.Store(true)
	if buffered.Flush() != nil {
		a.garbageSent.Store(false)
	}
	return nil
}

// tcp finds the socket below.
func tcp(connection net.Conn) (*net.TCPConn, bool) {
	for {
		switch wrapped := connection.(type) {
		case *net.TCPConn:
			return wrapped, true
		case *cutConnection:
			connection = wrapped.Conn
		case *tardyConnection:
			connection = wrapped.Conn
		case interface{ NetConn() net.Conn }:
			connection = wrapped.NetConn()
		default:
			return nil, false
		}
	}
}
