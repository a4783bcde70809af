package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// handshakes ADDRESS CA: what is negotiated with a listener that asks for no certificate, and that
// sessions resume on whichever core answers.
func handshakes(arguments []string) error {
	address := arguments[0]
	config, err := trusting(arguments[1])
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

// keyExchange offers both kinds and then the classical kind alone.
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
			return fmt.Errorf("offering %v: agreed on %v, wanted %v", offer.curves, got, offer.wanted)
		}
	}
	return nil
}

// resumption makes one session and then 40 connections, all of which have to resume it. Which core
// answers is up to the kernel; the script looks at how many connections each had.
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

// requestOnce opens a connection, asks for /hello on it and says whether it resumed a session.
func requestOnce(address string, config *tls.Config) (bool, error) {
	connection, err := tls.Dial("tcp", address, config)
	if err != nil {
		return false, err
	}
	defer connection.Close()
	fmt.Fprint(connection, "GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	// To the end, since TLS 1.3 sends tickets after the handshake.
	answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		return false, err
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil || !strings.HasPrefix(string(body), "Hello") {
		return false, fmt.Errorf("answered %q, %v", body, err)
	}
	return connection.ConnectionState().DidResume, nil
}
