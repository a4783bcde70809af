package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// handshakes ADDRESS CA: negotiation with a listener without client certificates, and session resumption on
// any core.
func handshakes(arguments []string) error {
	address := arguments[0]
	config, err := clientConfig(arguments[1])
	if err != nil {
		return err
	}
	config.ServerName = "localhost"
	if err := keyExchange(address, config); err != nil {
		return err
	}
	for _, version := range []uint16{tls.VersionTLS13, tls.VersionTLS12} {
		if err := resumption(address, config, version); err != nil {
			return fmt.Errorf("%s: %w", tls.VersionName(version), err)
		}
	}
	return nil
}

// keyExchange offers hybrid and classical groups, then classical groups only.
func keyExchange(address string, config *tls.Config) error {
	for _, offer := range []struct {
		curves []tls.CurveID
		wanted tls.CurveID
	}{
		{nil, tls.X25519MLKEM768},
		{[]tls.CurveID{tls.X25519, tls.CurveP256}, tls.X25519},
		{[]tls.CurveID{tls.CurveP256}, tls.CurveP256},
	} {
		own := config.Clone()
		own.CurvePreferences = offer.curves
		connection, err := tls.Dial("tcp", address, own)
		if err != nil {
			return fmt.Errorf("offering %v: %w", offer.curves, err)
		}
		got := connection.ConnectionState().CurveID
		connection.Close()
		if got != offer.wanted {
			return fmt.Errorf("offering %v: negotiated %v, wanted %v", offer.curves, got, offer.wanted)
		}
	}
	return nil
}

// resumption creates one session and then 40 connections, all of which have to resume it. The kernel selects
// the cores; the script checks the work of each core.
func resumption(address string, config *tls.Config, version uint16) error {
	own := config.Clone()
	own.MinVersion, own.MaxVersion = version, version
	own.ClientSessionCache = tls.NewLRUClientSessionCache(64)
	for turn := 0; turn <= 40; turn++ {
		resumed, err := requestOnce(address, own)
		if err != nil {
			return fmt.Errorf("connection %d: %w", turn, err)
		}
		if resumed != (turn > 0) {
			return fmt.Errorf("connection %d: resumed: %v", turn, resumed)
		}
	}
	fmt.Printf("%s: 40 of 40 connections resumed\n", tls.VersionName(version))
	return nil
}

// requestOnce opens a connection, requests /hello and returns whether a session was resumed.
func requestOnce(address string, config *tls.Config) (bool, error) {
	connection, err := tls.Dial("tcp", address, config)
	if err != nil {
		return false, err
	}
	defer connection.Close()
	fmt.Fprint(connection, "GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	// Reads to the end, because TLS 1.3 sends tickets after the handshake.
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		return false, err
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || !strings.HasPrefix(string(body), "Hello") {
		return false, fmt.Errorf("answered %q, %v", body, err)
	}
	return connection.ConnectionState().DidResume, nil
}
